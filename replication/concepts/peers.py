"""The two autoencoders that "Unsupervised learning of categories" compares with, in PyTorch; run by `recovery`.

"tanh" is a two-layer tanh autoencoder, x -> tanh(Ax + c) -> W s + d, with weight decay and a sparsity penalty; concepts are the
signs of the hidden units. "vae" is a Bernoulli variational autoencoder: logits from a linear layer, relaxed samples at a falling
temperature, a linear decoder and the entropy of the units; concepts are the logits above 0. Both are trained with Adam on all
points; of the learning rates given, the one of least training loss is kept for each data set, and only its time is counted.
Needs the extra "torch".
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

PEERS = {"tanh": False, "vae": True}


class Autoencoder(torch.nn.Module):  # type: ignore[misc]
    """x -> units in (0, 1) -> x; `sample` adds the noise of the variational kind."""

    def __init__(self, n: int, b: int, variational: bool) -> None:
        super().__init__()
        self.encode, self.decode = torch.nn.Linear(n, b), torch.nn.Linear(b, n)
        self.variational = variational

    def loss(self, x: torch.Tensor, temperature: float, penalty: float) -> torch.Tensor:
        """Return the mean squared error and the regulariser."""
        logits = self.encode(x)
        if self.variational:
            noise = torch.rand_like(logits).clamp(1e-6, 1 - 1e-6)
            units = torch.sigmoid((logits + torch.log(noise) - torch.log1p(-noise)) / temperature)
            share = torch.sigmoid(logits)
            entropy = torch.nn.functional.binary_cross_entropy_with_logits(logits, share)
            regulariser = -penalty * entropy
        else:
            units = (torch.tanh(logits) + 1) / 2
            regulariser = penalty * units.mean()
        return ((self.decode(units) - x) ** 2).mean() + regulariser


def trained(
    x: torch.Tensor, b: int, variational: bool, rate: float, epochs: int, seed: int
) -> tuple[Any, float]:
    """Return the concepts (p, b) of a trained autoencoder and its last loss."""
    torch.manual_seed(seed)
    model = Autoencoder(x.shape[1], b, variational)
    optimiser = torch.optim.Adam(model.parameters(), lr=rate, weight_decay=1e-5)
    scale = float(x.var())
    for epoch in range(epochs):
        for batch in torch.randperm(len(x)).split(64):
            optimiser.zero_grad()
            temperature = max(0.3, 1 - epoch / epochs)
            value = model.loss(x[batch], temperature, 1e-3 * scale)
            value.backward()
            optimiser.step()
    with torch.no_grad():
        concepts = (model.encode(x) > 0).numpy().astype(np.uint8)
        final = float(model.loss(x, 0.3, 0.0))
    return concepts, final


def searched(
    name: str, x: NDArray[np.float64], b: int, seed: int, rates: list[float], epochs: int
) -> tuple[Any, float]:
    """Return the concepts (p, b) of the better of the rates, and the seconds of its training, on one thread."""
    torch.set_num_threads(1)
    centred = torch.tensor(x - x.mean(0), dtype=torch.float32)
    tries = []
    for rate in rates:
        started = time.perf_counter()
        concepts, final = trained(centred, b, PEERS[name], rate, epochs, seed)
        tries.append((final, time.perf_counter() - started, concepts))
    _, seconds, concepts = min(tries, key=lambda one: one[0])
    return concepts, seconds
