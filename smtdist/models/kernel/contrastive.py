"""Triplets (anchor, positive, negative) of data in memory, and their contrastive losses in a kernel's space.

The simple one has a closed form (Definition 1, Theorem 3); the spectral one is minimised in the space that the data span
(Definition 2, Theorem 4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.data.source import Source
from smtdist.engine.forecast import PassCost
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError, equals
from smtdist.kernels.augment import Augmentation, negatives
from smtdist.kernels.convergence import Convergence
from smtdist.kernels.feature_maps import map_rows
from smtdist.kernels.gram import Kernel
from smtdist.models.kernel.descent import descend
from smtdist.models.kernel.encoder import FEWER_FEATURES, KernelEncoder, require_memory, require_rows
from smtdist.models.kernel.kind import ByBatches, Fitted, Gradient, InMemory, Kind, Ready
from smtdist.models.kernel.model import FeatureEncoder, KernelModel, Spectrum, prepared
from smtdist.models.kernel.settings import KernelSettings
from smtdist.models.plan import Step, on_driver
from smtdist.models.solving import SOLVE
from smtdist.solve import positive
from smtdist.statistics.contrast import ContrastSums, SpectralGradient, finish

Float64 = NDArray[np.float64]

ZERO: Final = 1e-10
"""Eigenvalues within this share of the largest magnitude count as zero: neither sign is theirs."""
START: Final = 1e-2
"""Scale of the random start: W = 0 is a saddle of the loss, whatever the data."""
BOTTOMLESS: Final = 1e6
"""A minimum is around minus the number of classes a triplet; a loss below minus so much a triplet has none."""
SMALL: Final = 0.1
"""Length of an embedded row at the random start in features."""
DEEP: Final = 100.0
"""A minimum of the spectral loss is around -1 for each component, whatever the scale; one that falls so much deeper has
none. Steps of fixed length fall slowly, so that it is told by depth and not by speed."""
AUTO: Final = 0.5
"""Share of the h-th eigenvalue of the attraction that `ridge="auto"` takes, so that h directions lower the loss."""


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
    n = len(rows)
    places = [negatives(seed, at, n, np.arange(at, at + n)) for at in range(0, n * copies, n)]
    anchors = whole.astype(np.float64)
    return Triplets(anchors, positives.astype(np.float64), anchors[np.concatenate(places)])


def _triplets(settings: KernelSettings, samples: InMemory) -> Triplets:
    """Return those that were given to go with samples, or draw them."""
    if samples.triplets is not None:
        given = (prepared(np.asarray(part), settings) for part in samples.triplets)
        return given_triplets(samples.rows, *given)
    seed = settings.random_state
    return drawn_triplets(samples.rows, settings.augmentation(), seed, samples.shape, settings.copies)


class Contrastive(Kind):
    """Definition 1; in features one sum, and an eigensolve on the driver."""

    squares = 8
    solve_squares = 6
    passes = ("contrast", SOLVE)

    def exact(self, kernel: Kernel, samples: InMemory) -> KernelModel:
        """Fit samples in memory."""
        triplets = _triplets(self.settings, samples)
        encoder, spectrum = contrastive(kernel, triplets, self.settings.n_components)
        return KernelModel(self.settings, encoder, samples.shape, spectrum=spectrum)

    def planned(self, source: Source, ready: Ready) -> tuple[Step, list[PassCost]]:
        """Return the sum, and the eigensolve."""
        features, count = ready.features, ready.features.n_features
        # multiplications of a triplet: projections of three rows, and the product
        work = count * (3.0 * features.n_inputs + count)
        step = Step("contrast", ContrastSums(features, ready.triplets), source, work_per_sample=work)
        return step, [on_driver(SOLVE, 8 * self.solve_squares * count**2)]

    def in_features(self, source: Source, ready: Ready, engine: Engine) -> Fitted:
        """Sum and solve."""
        settings, count = self.settings, ready.features.n_features
        require_memory(count, self.solve_squares, FEWER_FEATURES)
        step, _ = self.planned(source, ready)
        partial, summed = engine.reduce(
            step.name, step.statistic, source, work_per_sample=step.work_per_sample
        )

        def found() -> tuple[Spectrum, Float64]:
            return top_components(finish(partial.state, count), settings.n_components, settings.kernel)

        (spectrum, vectors), last = engine.solve(SOLVE, found, 8 * self.solve_squares * count**2)
        encoder = FeatureEncoder(ready.features, vectors)
        return KernelModel(settings, encoder, ready.shape, spectrum=spectrum), [summed, last]


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
    require_memory(2 * len(triplets.anchors), Contrastive.squares)
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


def spectral(
    kernel: Kernel, triplets: Triplets, settings: KernelSettings
) -> tuple[KernelEncoder, Convergence, float]:
    """Minimise Σ -2 f(x_i)ᵀ f(x_i⁺) + (f(x_i)ᵀ f(x_i⁻))² + λ ‖W‖² over W in the span of the 3n rows (Definition 2).

    With K = FᵀF, F (r, 3n), Z = WᵀF and Tr(Z K⁻¹ Zᵀ) = ‖W‖²: Theorem 4 in coordinates in which K is the
    identity. It needs no inverse, so that the kernel need not be universal nor its matrix regular, and the
    gradient is that of Theorem 4 times Fᵀ. Returns the encoder, how the descent ended, and λ.

    As printed the loss need not have a minimum: along functions that keep every anchor orthogonal to its
    one negative it falls without end, for any universal kernel and λ small enough. With all `negatives` it is
    the mean over independent draws of the negative among the n anchors instead, Σ_ij (z_iᵀ z_j)² / n
    (HaoChen et al. 2021), which always has one; the triplets' negatives are then not used, and the rows are
    2n.

    The attraction Σ φ(x_i) φ(x_i⁺)ᵀ + φ(x_i⁺) φ(x_i)ᵀ bounds λ: from its largest eigenvalue on, W = 0 is
    the minimum. "auto" is half of its h-th eigenvalue, so that h directions lower the loss.

    Time O(n³) once and O(n r h) a step, memory 6 matrices of 3n x 3n. Raises DataError for an indefinite
    kernel and for a loss that falls without end, ConfigurationError for a ridge λ that is not positive or
    leaves W = 0.
    """
    ridge, all_negatives = settings.alpha, settings.negatives == "all"
    if not isinstance(ridge, str) and not ridge > 0:
        raise ConfigurationError(
            f"The ridge of the spectral loss is {ridge}; it must be a positive number."
        )
    rows = np.concatenate([triplets.anchors, triplets.positives]) if all_negatives else triplets.stacked
    require_memory(len(rows), Spectral.squares)
    root = positive.gram_root(kernel(rows, rows), kernel.label)
    factor = root.coordinates
    shape, n = (len(factor), settings.n_components), len(triplets.anchors)
    penalty = resolved_ridge(ridge, factor[:, :n] @ factor[:, n : 2 * n].T, settings.n_components)

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
    start = scale * np.random.default_rng(settings.random_state).standard_normal(shape).reshape(-1)
    found, convergence = descend(value, start, settings)
    encoder = KernelEncoder(kernel, rows, root.inverse @ found.reshape(shape))
    return encoder, convergence, penalty


class Spectral(ByBatches):
    """Definition 2."""

    squares = 6

    @property
    def parts(self) -> int:
        """Rows for each sample: with one negative, that too."""
        return 3 if self.settings.negatives == "one" else 2

    def exact(self, kernel: Kernel, samples: InMemory) -> KernelModel:
        """Fit samples in memory."""
        encoder, ended, ridge = spectral(kernel, _triplets(self.settings, samples), self.settings)
        return KernelModel(self.settings, encoder, samples.shape, convergence=ended, ridge=ridge)

    def ridge(self, ready: Ready) -> float:
        """Return λ; "auto" looks at the attraction among the pool, times the samples for each row of it."""
        settings = self.settings
        if settings.resolved_triplets == "given" and settings.negatives == "all":
            raise ConfigurationError(
                f"Given triplets bring their negatives; set {equals('negatives', 'one')}."
            )
        if not isinstance(settings.alpha, str):
            if settings.alpha <= 0:
                raise ConfigurationError(
                    f"The ridge of the spectral loss is {settings.alpha}; it must be positive."
                )
            return float(settings.alpha)
        pool, maker = ready.triplets.pool, ready.triplets
        if pool is None or maker.augmentation is None:
            raise ConfigurationError('ridge "auto" needs drawn triplets; set a number for given ones.')
        samples = pool.reshape(len(pool), *ready.shape)
        changed = maker.augmentation(samples, 0, settings.random_state).reshape(pool.shape)
        half = map_rows(ready.features, pool).T @ map_rows(ready.features, changed)
        require_memory(ready.features.n_features, 4, FEWER_FEATURES)
        ridge = resolved_ridge("auto", half.astype(np.float64), settings.n_components)
        return ridge * ready.n_samples / len(pool)

    def gradient(self, source: Source, ready: Ready) -> Gradient:
        """Return small random weights, and their gradient."""
        features, triplets, every = ready.features, ready.triplets, self.settings.negatives == "all"
        return {"gradient": SMALL * self.drawn(features)}, lambda weights: SpectralGradient(
            features, triplets, weights[0].astype(np.float32), every
        )

    def require_bottom(self, loss: float, ridge: float) -> None:
        """Refuse a loss that falls without end."""
        if loss < -DEEP * self.settings.n_components:
            raise DataError(bottomless(self.settings.kernel, ridge, loss))


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
