"""The spectral contrastive loss, minimised in the space that the data span (Definition 2, Theorem 4)."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import ConfigurationError, DataError, equals
from smtdist.kernels.convergence import Convergence
from smtdist.kernels.gram import Kernel
from smtdist.models.kernel.contrastive import Triplets
from smtdist.models.kernel.descent import descend
from smtdist.models.kernel.encoder import KernelEncoder, require_memory
from smtdist.solve import positive

Float64 = NDArray[np.float64]

START: Final = 1e-2
"""Scale of the random start: W = 0 is a saddle of the loss, whatever the data."""
BOTTOMLESS: Final = 1e6
"""A minimum is around minus the number of classes a triplet; a loss below minus so much a triplet has none."""
SQUARES: Final = 6
"""Matrices of rows x rows that a fit holds."""
AUTO: Final = 0.5
"""Share of the h-th eigenvalue of the attraction that `ridge="auto"` takes, so that h directions lower the loss."""


def spectral(
    kernel: Kernel,
    triplets: Triplets,
    components: int,
    ridge: float | str = "auto",
    *,
    all_negatives: bool = False,
    method: str = "lbfgs",
    tolerance: float = 1e-5,
    max_iterations: int = 1000,
    seed: int = 0,
) -> tuple[KernelEncoder, Convergence, float]:
    """Minimise Σ -2 f(x_i)ᵀ f(x_i⁺) + (f(x_i)ᵀ f(x_i⁻))² + λ ‖W‖² over W in the span of the 3n rows (Definition 2).

    With K = FᵀF, F (r, 3n), Z = WᵀF and Tr(Z K⁻¹ Zᵀ) = ‖W‖²: Theorem 4 in coordinates in which K is the
    identity. It needs no inverse, so that the kernel need not be universal nor its matrix regular, and the
    gradient is that of Theorem 4 times Fᵀ. Returns the encoder, how the descent ended, and λ.

    As printed the loss need not have a minimum: along functions that keep every anchor orthogonal to its
    one negative it falls without end, for any universal kernel and λ small enough. `all_negatives` takes
    the mean over independent draws of the negative among the n anchors instead, Σ_ij (z_iᵀ z_j)² / n
    (HaoChen et al. 2021), which always has one; the triplets' negatives are then not used, and the rows are
    2n.

    The attraction Σ φ(x_i) φ(x_i⁺)ᵀ + φ(x_i⁺) φ(x_i)ᵀ bounds λ: from its largest eigenvalue on, W = 0 is
    the minimum. "auto" is half of its h-th eigenvalue, so that h directions lower the loss.

    Time O(n³) once and O(n r h) a step, memory 6 matrices of 3n x 3n. Raises DataError for an indefinite
    kernel and for a loss that falls without end, ConfigurationError for a ridge λ that is not positive or
    leaves W = 0.
    """
    if not isinstance(ridge, str) and not ridge > 0:
        raise ConfigurationError(
            f"The ridge of the spectral loss is {ridge}; it must be a positive number."
        )
    rows = np.concatenate([triplets.anchors, triplets.positives]) if all_negatives else triplets.stacked
    require_memory(len(rows), SQUARES)
    root = positive.gram_root(kernel(rows, rows), kernel.label)
    factor = root.coordinates
    shape, n = (len(factor), components), len(triplets.anchors)
    penalty = resolved_ridge(ridge, factor[:, :n] @ factor[:, n : 2 * n].T, components)

    def value(flat: Float64) -> tuple[float, Float64]:
        weights = flat.reshape(shape)
        embedded = weights.T @ factor
        loss, gradient = contrast_all(embedded) if all_negatives else contrast(embedded)
        loss += penalty * float(np.vdot(weights, weights))
        if loss < -BOTTOMLESS * n:
            raise DataError(bottomless(kernel.label, penalty, loss))
        return loss, (factor @ gradient.T + 2 * penalty * weights).reshape(-1)

    # length 1 for every embedded row on the average, times START
    scale = START / np.sqrt(max(np.square(factor).sum() / len(rows), np.finfo(float).tiny))
    start = scale * np.random.default_rng(seed).standard_normal(shape).reshape(-1)
    found, convergence = descend(value, start, method, tolerance, max_iterations)
    encoder = KernelEncoder(kernel, rows, root.inverse @ found.reshape(shape))
    return encoder, convergence, penalty


def bottomless(kernel: str, ridge: float, loss: float) -> str:
    """Return the sentence for a loss that falls without end."""
    return (
        f"The spectral loss has no minimum for the kernel {kernel} with ridge {ridge:.3g}: it fell to {loss:.3g}; draw "
        f"all negatives ({equals('negatives', 'all')}), raise ridge, or take a wider bandwidth."
    )


def resolved_ridge(ridge: float | str, half: Float64, components: int) -> float:
    """Return λ, given Σ φ(x_i) φ(x_i⁺)ᵀ (r, r); refuse one that leaves nothing but W = 0."""
    values = np.linalg.eigvalsh(half + half.T)[::-1]
    if isinstance(ridge, str):
        if ridge != "auto":
            raise ConfigurationError(f'The ridge is {ridge!r}; give a positive number or "auto".')
        if components > len(values) or values[components - 1] <= 0:
            raise DataError(
                f"Only {int((values > 0).sum())} directions have samples and their augmented copies on the same side, but "
                f"n_components is {components}; lower n_components, or augment less (noise, crop)."
            )
        return float(AUTO * values[components - 1])
    if ridge >= values[0]:
        raise ConfigurationError(
            f"With ridge {ridge:g} the spectral loss is least where every row is embedded at zero; set ridge below "
            f"{values[0]:.3g} for these data."
        )
    return float(ridge)


def contrast(embedded: Float64) -> tuple[float, Float64]:
    """Return Σ -2 z_iᵀ z_(i+n) + (z_iᵀ z_(i+2n))² of Z (h, 3n) and its gradient (h, 3n): Theorem 4 without its penalty.

    >>> contrast(np.array([[1.0, 2.0, 3.0]]))
    (5.0, array([[14., -2.,  6.]]))
    """
    z, plus, minus = np.split(embedded, 3, axis=1)
    near = (z * plus).sum(axis=0)
    far = (z * minus).sum(axis=0)
    gradient = np.concatenate([-2 * plus + 2 * far * minus, -2 * z, 2 * far * z], axis=1)
    return float((far**2).sum() - 2 * near.sum()), gradient


def contrast_all(embedded: Float64) -> tuple[float, Float64]:
    """Return Σ -2 z_iᵀ z_(i+n) + Σ_j (z_iᵀ z_j)² / n of Z (h, 2n), i and j up to n, and its gradient (h, 2n).

    The second sum is ‖Z₁ Z₁ᵀ‖² / n, for the anchors Z₁: no pair is formed.

    >>> contrast_all(np.array([[1.0, 2.0]]))
    (-3.0, array([[ 0., -2.]]))
    """
    z, plus = np.split(embedded, 2, axis=1)
    moment = z @ z.T / z.shape[1]
    gradient = np.concatenate([-2 * plus + 4 * moment @ z, -2 * z], axis=1)
    return float(z.shape[1] * np.square(moment).sum() - 2 * (z * plus).sum()), gradient
