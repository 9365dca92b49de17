"""One-hidden-layer networks of the same losses, for comparison only; they need PyTorch."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

try:
    import torch
except ImportError:  # benchmarks run without it, and say so
    torch = None


def missing() -> str | None:
    """Return why networks cannot be trained, or None."""
    return (
        "PyTorch is not installed, so networks are left out; pip install smtdist[torch]"
        if torch is None
        else None
    )


def encoder(inputs: int, hidden: int, outputs: int, *, orthonormal: bool) -> Any:
    """Return x -> W₂ relu(W₁ x); with `orthonormal` W₂ has orthonormal rows and W₁ spectral norm one.

    Without a bound on W₁ as well, the simple contrastive loss falls without end by its growth.
    """
    first, last = torch.nn.Linear(inputs, hidden, bias=False), torch.nn.Linear(hidden, outputs, bias=False)
    if orthonormal:
        torch.nn.utils.parametrizations.spectral_norm(first)
        torch.nn.utils.parametrizations.orthogonal(last)
    return torch.nn.Sequential(first, torch.nn.ReLU(), last)


def contrastive_loss(z: Any, plus: Any, minus: Any) -> Any:
    """Definition 1, the mean over triplets."""
    return (z * (minus - plus)).sum(dim=1).mean()


def spectral_loss(z: Any, plus: Any, minus: Any) -> Any:
    """Definition 2 in the mean over negatives, as the kernel model takes it."""
    return (-2 * (z * plus).sum(dim=1)).mean() + ((z.T @ z) / len(z)).square().sum()


def train(parameters: Any, loss: Any, steps: int, rate: float, decay: float = 1e-4) -> float:
    """Minimise a loss of everything at once by Adam; return its value at the end."""
    descent = torch.optim.Adam(parameters, lr=rate, weight_decay=decay)
    value = None
    for _ in range(steps):
        descent.zero_grad()
        value = loss()
        value.backward()
        descent.step()
    return float(value.detach())


RATES = (1e-3, 1e-2)


def embedding(
    method: str, triplets: tuple[np.ndarray, ...], components: int, hidden: int, steps: int, seed: int
) -> Any:
    """Train a network of the same loss as a kernel model, and return a map from rows to embedded rows.

    Trained once with each rate; the one that ends with the lower loss stays.
    """
    x, plus, minus = (torch.tensor(part, dtype=torch.float32) for part in triplets)
    found = []
    for rate in RATES:
        torch.manual_seed(seed)
        if method == "autoencoder":
            net, _, loss = autoencoder_parts(x, x, components, hidden, steps, rate)
        else:
            net = encoder(x.shape[1], hidden, components, orthonormal=method == "contrastive")
            criterion = contrastive_loss if method == "contrastive" else spectral_loss
            decay = 0.0 if method == "contrastive" else 1e-2
            loss = train(
                net.parameters(), partial(_loss, criterion, net, (x, plus, minus)), steps, rate, decay
            )
        found.append((loss, net))
    best = min(found, key=lambda pair: pair[0])[1]
    return lambda rows: best(torch.tensor(rows, dtype=torch.float32)).detach().numpy().astype(float)


def _loss(criterion: Any, net: Any, parts: tuple[Any, ...]) -> Any:
    return criterion(*(net(part) for part in parts))


def autoencoder_parts(
    seen: Any, wanted: Any, components: int, hidden: int, steps: int, rate: float = 3e-3
) -> tuple[Any, Any, float]:
    """Train encoder and decoder of one hidden layer each on ‖wanted - decode(encode(seen))‖²."""
    encode = encoder(seen.shape[1], hidden, components, orthonormal=False)
    decode = torch.nn.Sequential(
        torch.nn.Linear(components, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, wanted.shape[1])
    )
    both = [*encode.parameters(), *decode.parameters()]
    loss = train(both, lambda: (decode(encode(seen)) - wanted).square().mean(), steps, rate)
    return encode, decode, loss


def denoiser(
    noisy: np.ndarray, clean: np.ndarray, components: int, hidden: int, steps: int, seed: int
) -> Any:
    """Train a de-noising network and return a map from noisy rows to clean ones."""
    torch.manual_seed(seed)
    seen, wanted = (torch.tensor(part, dtype=torch.float32) for part in (noisy, clean))
    encode, decode, _ = autoencoder_parts(seen, wanted, components, hidden, steps)
    return lambda rows: decode(encode(torch.tensor(rows, dtype=torch.float32))).detach().numpy().astype(float)
