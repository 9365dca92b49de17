"""The terms of the paper's theory for a fitted model: Theorem 2's condition, Theorems 6 and 7, the downstream bound.

The theorems are stated up to constants, O(...): these are their terms, not bounds that hold as numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import ConfigurationError, DataError, ModelError, counted
from smtdist.models.kernel.encoder import KernelEncoder
from smtdist.models.kernel.model import FeatureEncoder, KernelModel

Float64 = NDArray[np.float64]

INSIDE: Final = 1e-3
"""A singular value that is smaller than one by more than this lies inside the constraint."""


@dataclass(frozen=True)
class Condition:
    """Whether minimisers over WᵀW ≼ I were found to satisfy WᵀW = I (Theorem 2).

    Attributes
    ----------
    holds : whether the best minimisers of all starts do. smallest : the smallest singular value among them.
    loss : the least value found. starts : how many starts ended at that value.
    """

    holds: bool
    smallest: float
    loss: float
    starts: int


def representer_condition(
    value: Callable[[Float64], tuple[float, Float64]],
    rank: int,
    components: int,
    *,
    starts: int = 5,
    max_iterations: int = 2000,
    seed: int = 0,
) -> Condition:
    """Check the condition of Theorem 2 for a loss, by minimising it over WᵀW ≼ I_h in the span of the data.

    value : takes W (rank, h) in orthonormal coordinates of the span (as `gram_root` gives them) and returns
    loss and gradient. Steps are projected on the constraint by clipping singular values at one. A numerical
    check: starts may miss a minimiser, and "every minimiser" is looked at by ending each start where it ends.

    >>> form = np.diag([3.0, 1.0, -1.0])
    >>> loss = lambda w: (-float(np.vdot(w, form @ w)), -2 * form @ w)
    >>> representer_condition(loss, 3, 2).holds, representer_condition(loss, 3, 3).holds
    (True, False)
    """
    if not 1 <= components <= rank:
        raise ConfigurationError(
            f"n_components is {components}, but the data span {counted(rank, 'dimension')}; ask for fewer."
        )
    generator = np.random.default_rng(seed)
    ends = []
    for _ in range(starts):
        start = _clipped(generator.standard_normal((rank, components)) / math.sqrt(rank))
        ends.append(_projected_descent(value, start, max_iterations))
    best = min(loss for loss, _ in ends)
    near = [w for loss, w in ends if loss <= best + 1e-6 * max(1.0, abs(best))]
    smallest = min(float(np.linalg.svd(w, compute_uv=False).min()) for w in near)
    return Condition(smallest >= 1 - INSIDE, smallest, best, len(near))


def _projected_descent(
    value: Callable[[Float64], tuple[float, Float64]], point: Float64, max_iterations: int
) -> tuple[float, Float64]:
    loss, slope = value(point)
    step = 1.0
    for _ in range(max_iterations):
        while True:
            there = _clipped(point - step * slope)
            moved = float(np.square(there - point).sum())
            next_loss, next_slope = value(there)
            if next_loss <= loss - 0.25 * moved / step or step < 1e-18:
                break
            step /= 2
        if moved <= 1e-18 * point.size:
            break
        point, loss, slope, step = there, next_loss, next_slope, 1.5 * step
    return loss, point


def _clipped(weights: Float64) -> Float64:
    u, s, v = np.linalg.svd(weights, full_matrices=False)
    return np.asarray((u * np.minimum(s, 1)) @ v, np.float64)


def generalisation_terms(model: KernelModel, delta: float = 0.05) -> dict[str, float]:
    """Return the terms of Theorem 6 (contrastive, spectral) or 7 (autoencoder) for an exact model, each without its O.

    Contrastive: ω = ‖W‖, κ the largest k(x, x), α = Σ √(h Tr K) over anchors, positives and negatives;
    "complexity" ω² √κ α / n and "slack" ω² κ √(log(1/δ) / n). Spectral: "penalty" λ ω², ω³ κ^(3/2) α / n,
    ω⁴ κ² √(log(1/δ) / n). Autoencoder: "penalty" r = λ (ω₁² + ω₂²), ω₂ √γ / √n with γ the largest k(s, s)
    on the sphere, √(log(1/δ) / n). Raises ModelError for a model in features, whose rows are not kept.
    """
    if not 0 < delta < 1:
        raise ConfigurationError(f"delta is {delta}; a probability lies between 0 and 1.")
    encoder = model.encoder
    if not isinstance(encoder, KernelEncoder):
        raise ModelError("The terms need the rows that the model was fitted on; fit it with features=None.")
    omega = weight_norm(encoder)
    settings = model.settings
    if settings.model == "autoencoder":
        return _autoencoder_terms(model, omega, delta)
    parts = 2 if settings.model == "spectral" and settings.negatives == "all" else 3
    n = len(encoder.rows) // parts
    diagonals = np.split(encoder.kernel.diagonal(encoder.rows), parts)
    if parts == 2:
        diagonals.append(diagonals[0])  # negatives are anchors
    kappa = float(np.max(diagonals))
    alpha = sum(math.sqrt(settings.n_components * float(part.sum())) for part in diagonals)
    root = math.sqrt(math.log(1 / delta) / n)
    found = {"n": float(n), "omega": omega, "kappa": kappa, "alpha": alpha, "penalty": 0.0}
    if settings.model == "contrastive":
        found["complexity"] = omega**2 * math.sqrt(kappa) * alpha / n
        found["slack"] = omega**2 * kappa * root
    else:
        found["penalty"] = float(model.ridge or 0.0) * omega**2
        found["complexity"] = omega**3 * kappa**1.5 * alpha / n
        found["slack"] = omega**4 * kappa**2 * root
    return found


def _autoencoder_terms(model: KernelModel, first: float, delta: float) -> dict[str, float]:
    decoder = model.decoder
    assert isinstance(decoder, KernelEncoder)
    n = len(decoder.rows)
    gram = decoder.kernel(decoder.rows, decoder.rows)
    second = math.sqrt(max(0.0, float(np.vdot(decoder.coefficients, gram @ decoder.coefficients))))
    # k(s, s) is the same all over the sphere for every kernel that can decode
    gamma = float(decoder.kernel.diagonal(decoder.rows).max())
    return {
        "n": float(n),
        "omega_1": first,
        "omega_2": second,
        "gamma": gamma,
        "penalty": float(model.ridge or 0.0) * (first**2 + second**2),
        "complexity": second * math.sqrt(gamma) / math.sqrt(n),
        "slack": math.sqrt(math.log(1 / delta) / n),
    }


def weight_norm(encoder: KernelEncoder | FeatureEncoder) -> float:
    """Return ‖W‖ in the kernel's space, the Hilbert-Schmidt norm: √h where W*W = I."""
    if isinstance(encoder, FeatureEncoder):
        return float(np.linalg.norm(encoder.weights))
    gram = encoder.kernel(encoder.rows, encoder.rows)
    return math.sqrt(max(0.0, float(np.vdot(encoder.coefficients, gram @ encoder.coefficients))))


def downstream_terms(
    model: KernelModel, rows: NDArray[Any], labels: NDArray[Any], delta: float = 0.05
) -> dict[str, float]:
    """Return what bounds a linear classifier by the contrastive loss, for labelled rows (n, d) (Saunshi et al. 2019).

    With class shares p_c, τ = Σ p_c² is the probability that an independent negative has the anchor's
    class, and L_sup <= (L_un + terms of Theorem 6) / (1 - τ), for the linear loss -margin of the mean
    classifier: "supervised" is the mean over rows of f(x)ᵀ (mean of another class - mean of its own),
    "unsupervised" the mean loss of triplets whose positives and negatives are draws of classes, in closed
    form. It is for positives of the anchor's class; augmented anchors are that only approximately. Raises
    DataError where one class is all there is.
    """
    if len(labels) != len(rows):
        raise DataError(
            f"There are {counted(len(rows), 'row')} but {counted(len(labels), 'label')}; give one label a row."
        )
    classes, codes = np.unique(labels, return_inverse=True)
    share = np.bincount(codes) / len(codes)
    collision = float(np.square(share).sum())
    if len(classes) < 2:
        raise DataError("All rows have one label; the downstream bound needs at least two classes.")
    embedded = np.asarray(model.embed(np.asarray(rows)), np.float64)
    means = np.stack([embedded[codes == c].mean(axis=0) for c in range(len(classes))])
    products = means @ means.T
    # anchors of a class meet a positive of it and a negative of any, in the mean over independent draws
    unsupervised = float((share[:, None] * share * products).sum() - (share * np.diag(products)).sum())
    apart = share[:, None] * share / (1 - collision)
    np.fill_diagonal(apart, 0)
    supervised = float((apart * (products - np.diag(products)[:, None])).sum())
    terms = generalisation_terms(model, delta)
    constant = 1 / (1 - collision)
    return {
        "collision": collision,
        "c1": constant,
        "unsupervised": unsupervised,
        "supervised": supervised,
        "bound": constant * (unsupervised + terms["penalty"] + terms["complexity"] + terms["slack"]),
    }
