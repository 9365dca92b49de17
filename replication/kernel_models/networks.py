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
        "PyTorch is not installed, so networks are left out; pip install smtdist[peers]"
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


def adam(parameters: Any, rate: float, decay: float) -> Any:
    """Return a descent by Adam."""
    return torch.optim.Adam(parameters, lr=rate, weight_decay=decay)


def descend(descent: Any, loss: Any, steps: int) -> float:
    """Take steps on a loss of everything at once; return its value at the last one."""
    value: Any = None
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
            net, decode, parameters = autoencoder_nets(x.shape[1], x.shape[1], components, hidden)
            loss = descend(adam(parameters, rate, 1e-4), partial(_rebuilt, net, decode, x), steps)
        else:
            net = encoder(x.shape[1], hidden, components, orthonormal=method == "contrastive")
            criterion = contrastive_loss if method == "contrastive" else spectral_loss
            decay = 0.0 if method == "contrastive" else 1e-2
            descent = adam(net.parameters(), rate, decay)
            loss = descend(descent, partial(_loss, criterion, net, (x, plus, minus)), steps)
        found.append((loss, net))
    best = min(found, key=lambda pair: pair[0])[1]
    return lambda rows: best(torch.tensor(rows, dtype=torch.float32)).detach().numpy().astype(float)


def _loss(criterion: Any, net: Any, parts: tuple[Any, ...]) -> Any:
    return criterion(*(net(part) for part in parts))


def _rebuilt(encode: Any, decode: Any, rows: Any) -> Any:
    return (decode(encode(rows)) - rows).square().mean()


def autoencoder_nets(inputs: int, outputs: int, components: int, hidden: int) -> tuple[Any, Any, list[Any]]:
    """Return an encoder and a decoder of one hidden layer each, and their parameters."""
    encode = encoder(inputs, hidden, components, orthonormal=False)
    decode = torch.nn.Sequential(
        torch.nn.Linear(components, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, outputs)
    )
    return encode, decode, [*encode.parameters(), *decode.parameters()]


def denoised(
    noisy: np.ndarray,
    clean: np.ndarray,
    asked: np.ndarray,
    components: int,
    hidden: int,
    looks: list[int],
    seed: int,
) -> dict[int, np.ndarray]:
    """Train a de-noising network, and return what it makes of other noisy rows after so many steps as there are looks."""
    torch.manual_seed(seed)
    seen, wanted, others = (torch.tensor(part, dtype=torch.float32) for part in (noisy, clean, asked))
    encode, decode, parameters = autoencoder_nets(seen.shape[1], wanted.shape[1], components, hidden)
    descent = adam(parameters, 3e-3, 1e-4)
    found, done = {}, 0
    for look in looks:
        descend(descent, lambda: (decode(encode(seen)) - wanted).square().mean(), look - done)
        found[look], done = decode(encode(others)).detach().numpy().astype(float), look
    return found
