"""Triplets (anchor, positive, negative) of data in memory, and their simple contrastive loss in closed form (Theorem 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import DataError
from smtdist.kernels.augment import Augmentation, negatives
from smtdist.kernels.gram import Kernel
from smtdist.models.kernel.encoder import KernelEncoder, require_memory, require_rows
from smtdist.solve import positive

Float64 = NDArray[np.float64]

SQUARES: Final = 8
"""Matrices of 2n x 2n that a fit holds."""
ZERO: Final = 1e-10
"""Eigenvalues within this share of the largest magnitude count as zero: neither sign is theirs."""


@dataclass(frozen=True, eq=False)
class Triplets:
    """Anchors X, positives X⁺ and negatives X⁻, each (n, d)."""

    anchors: Float64
    positives: Float64
    negatives: Float64

    def __post_init__(self) -> None:
        shapes = [part.shape for part in (self.anchors, self.positives, self.negatives)]
        if len(set(shapes)) != 1:
            raise DataError(
                f"Anchors, positives and negatives have the shapes {', '.join(map(str, shapes))}; give three of the same."
            )

    @property
    def stacked(self) -> Float64:
        """All 3 n rows: anchors, positives, negatives."""
        return np.concatenate([self.anchors, self.positives, self.negatives])


def given_triplets(anchors: NDArray[Any], positives: NDArray[Any], negatives_: NDArray[Any]) -> Triplets:
    """Return triplets of your own, checked."""
    named = (("Anchors", anchors), ("Positives", positives), ("Negatives", negatives_))
    for name, rows in named:
        require_rows(np.asarray(rows), name=name)
    return Triplets(*(np.asarray(rows, np.float64) for _, rows in named))


def drawn_triplets(
    rows: NDArray[Any],
    augmentation: Augmentation,
    seed: int,
    shape: tuple[int, int, int] | None = None,
    copies: int = 1,
) -> Triplets:
    """Make triplets: the positive is the augmented anchor, the negative another of the rows, at random.

    rows : (n, d). shape : (height, width, channels) of a row that is an image. copies : triplets of each
        anchor.
    """
    require_rows(rows)
    whole = np.tile(np.asarray(rows), (copies, 1))
    samples = whole.reshape(len(whole), *(shape or (1, 1, rows.shape[1])))
    positives = augmentation(samples, 0, seed).reshape(whole.shape)
    # copies of an anchor are numbered on, so that each has its own draw; no negative is a copy of its anchor
    places = [negatives_of(copy, len(rows), seed) for copy in range(copies)]
    anchors = whole.astype(np.float64)
    return Triplets(anchors, positives.astype(np.float64), anchors[np.concatenate(places)])


def negatives_of(copy: int, n: int, seed: int) -> NDArray[np.intp]:
    """Return the rows that are the negatives of the rows of one copy."""
    first = copy * n
    return negatives(seed, first, n, np.arange(first, first + n))


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues of the negated, symmetrised form on the span of the data, and what they say.

    Attributes
    ----------
    eigenvalues : (r,) in descending order; the loss at the optimum is minus the sum of the first h.
    rank : r, dimension of the span that was searched: of K₁, or the number of features.
    n_positive, n_negative : eigenvalues beyond rounding, by sign.
    """

    eigenvalues: Float64
    rank: int
    n_positive: int
    n_negative: int

    def loss(self, components: int) -> float:
        """Return the value of Definition 1 at the optimum."""
        return -float(self.eigenvalues[:components].sum())


def contrastive(
    kernel: Kernel, triplets: Triplets, components: int, tolerance: float | None = None
) -> tuple[KernelEncoder, Spectrum]:
    """Minimise Σ f(x_i)ᵀ (f(x_i⁻) - f(x_i⁺)) subject to W*W = I_h, f(x) = Wᵀ φ(x), in closed form (Theorem 3).

    With Ψ = (Φ, Φ⁻ - Φ⁺), K₁ = Ψ*Ψ = F ᵀF, F = (F_a, F_b): the columns of V are the eigenvectors with the h
    largest eigenvalues of N = -½ (F_b F_aᵀ + F_a F_bᵀ), which is K₁^(-1/2) K₂ K₁^(-1/2) on the range of K₁,
    and A = K₁^(-1/2) V. (As printed, K₁ has K₃ in its lower left block; a Gram matrix has K₃ᵀ there.) A
    singular K₁, as of a linear kernel or of negatives that are other anchors, is searched on its range,
    which is the span of the data all the same.

    Time O(n³), memory 8 matrices of 2n x 2n. Raises DataError for an indefinite kernel and where fewer than
    h eigenvalues are non-negative: then the minimiser would leave the span of the data (Theorem 2).
    """
    require_memory(2 * len(triplets.anchors), SQUARES)
    root = positive.gram_root(gram_of_differences(kernel, triplets), kernel.label, tolerance)
    n = len(triplets.anchors)
    half = root.coordinates[:, n:] @ root.coordinates[:, :n].T
    values, vectors = top_components(-(half + half.T) / 2, components, kernel.label)
    solution = root.inverse @ vectors
    coefficients = np.concatenate([solution[:n], -solution[n:], solution[n:]])
    return KernelEncoder(kernel, triplets.stacked, coefficients), values


def gram_of_differences(kernel: Kernel, triplets: Triplets) -> Float64:
    """Return K₁ = [[K, K₃], [K₃ᵀ, K_Δ]] of Theorem 3, (2n, 2n), the Gram matrix of (Φ, Φ⁻ - Φ⁺)."""
    x, plus, minus = triplets.anchors, triplets.positives, triplets.negatives
    k3 = kernel(x, minus) - kernel(x, plus)
    crossed = kernel(minus, plus)
    delta = kernel(minus, minus) + kernel(plus, plus) - crossed - crossed.T
    return np.block([[kernel(x, x), k3], [k3.T, delta]])


def top_components(form: Float64, components: int, name: str) -> tuple[Spectrum, Float64]:
    """Return the spectrum of a negated, symmetrised form and its h leading eigenvectors (r, h)."""
    values, vectors = positive.largest_eigenpairs(form, components)
    floor = ZERO * float(np.abs(values).max(initial=0.0))
    spectrum = Spectrum(values, len(values), int((values > floor).sum()), int((values < -floor).sum()))
    suitable = spectrum.rank - spectrum.n_negative
    if suitable < components:
        raise DataError(
            f"With the kernel {name} only {suitable} of {spectrum.rank} eigenvalues of the contrastive form are not negative, "
            f"but n_components is {components}; ask for fewer, or give more or other triplets."
        )
    return spectrum, vectors
