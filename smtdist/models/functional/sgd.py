"""The functional embedding learned online, with functionals of small support (SMT 2018, supplement C, eq. 12)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from smtdist.data.source import Source
from smtdist.data.views import ChunkSubset, chunk_subset
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError, ModelError
from smtdist.kernels import hashing
from smtdist.kernels.features import Features
from smtdist.models.functional.settings import FunctionalSettings
from smtdist.models.provenance import Record
from smtdist.solve.solution import Float64
from smtdist.statistics import values as value_sums
from smtdist.statistics.base import State, Statistic
from smtdist.statistics.operators import Temporal
from smtdist.statistics.sites import Sequences
from smtdist.statistics.values import SecondOrder, ValueSums

WHITENING_RIDGE: Final = 1e-6
"""Share of the mean variance that V gets before it is inverted: V⁻¹ only whitens the gradient, and may be a little off."""
EPOCH_VIEW: Final = 29
"""Keeps the hashes of epochs apart from those of other draws."""
FIRST: Final = 8
"""The first round reads so many batches, so that V has seen more rows than it has directions."""
RATE: Final = 0.9
"""Step in units of 1 / λ, λ the largest eigenvalue of the batch's objective in whitened coordinates; it falls to zero along half
a cosine."""


@dataclass(frozen=True)
class Learned:
    """P (L, K), what was summed of V and ⟨α⟩ on the way, and the objective of all sums so far before each round's first step."""

    components: Float64
    sums: SecondOrder
    trace: tuple[float, ...]


@dataclass(frozen=True)
class _Between:
    """Between two rounds: P, and the sums of V and ⟨α⟩, those of all batches or given ones."""

    components: Float64 | None
    sums: SecondOrder | None
    inverse: Float64 | None = None
    inverted_at: int = 0
    scatter: Float64 | None = None
    weight: float = 0.0
    trace: tuple[float, ...] = ()


def fit_sgd(
    source: Source,
    features: Features,
    engine: Engine,
    settings: FunctionalSettings,
    *,
    start: Float64 | None = None,
    sums: SecondOrder | None = None,
) -> tuple[Learned, list[Record]]:
    """Minimise γ₀ ‖PAD‖² + γ₁ ‖PW‖₁, W = diag ⟨α⟩, with P V Pᵀ = I, by mini-batches (SMT 2018, eq. 12).

    Each round codes a batch of sequences through the engine (`ValueSums`: exact, so P has the same bits for
    any number of workers) and then makes the three steps of supplement C (`step`). V and ⟨α⟩ are those of
    `sums`, or averages of all batches so far; the gradient is the mean of those of all batches so far: codes cost more than
    steps, and several steps on such a mean get further with the same data, where many on a batch alone would end in
    functionals that are smooth in that batch only. `start` is P to go on from, that of an eigensolve for
    example; else a random one. P is used as it is where a round begins, so that what is learned here may in
    turn start anything else. Memory: the pass's, and on the driver 5 K² float64.
    """
    if start is not None and start.shape != (settings.n_components, features.size):
        raise ConfigurationError(
            f"The start has the shape {start.shape}, but P is ({settings.n_components}, {features.size}) here."
        )
    if settings.n_components > features.size:
        raise ConfigurationError(
            f"n_components is {settings.n_components}, more than the {features.size} codes; ask for fewer."
        )

    statistic = ValueSums(Sequences.of(source), features, Temporal(settings.difference_order))

    def make(state: _Between, number: int) -> tuple[Statistic, Source]:
        if state.sums is None:
            return statistic, chunk_subset(source, settings.sgd_batch * FIRST, settings.random_state)
        return statistic, epoch_batch(source, settings.sgd_batch, settings.random_state, number - 1)

    def update(state: _Between, found: State, number: int) -> _Between:
        batch = value_sums.finish(found, statistic).means()
        before = batch if state.sums is None else state.sums
        if state.sums is not None and sums is None:  # the mean of all so far
            count = before.n_positions + batch.n_positions
            share = batch.n_positions / count
            parts = {
                name: getattr(before, name) + share * (getattr(batch, name) - getattr(before, name))
                for name in ("moment", "scatter", "mean")
            }
            before = replace(before, n_positions=count, **parts)
        V = before.covariance if settings.second_moment == "centred" else before.moment
        inverse, at = state.inverse, state.inverted_at
        # an inverse costs K³: it is made anew when the rows have grown by a half
        if inverse is None or before.n_positions > 1.5 * at:
            inverse, at = whitening_inverse(V), before.n_positions
        P = state.components
        if P is None:  # a random start in whitened coordinates, drawn times V^(-1/2)
            shape = settings.n_components, len(V)
            drawn = np.random.default_rng(settings.random_state).standard_normal(shape)
            values, vectors = np.linalg.eigh(inverse)
            P = drawn @ ((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)
        P = orthogonalised(np.where(V.diagonal() > 0, P, 0.0), V)
        # ‖PAD‖² + γ₁ ‖PW‖₁ of equation 12 with γ₀ = 1, means over the positions of the sums
        support = (np.abs(P) @ np.abs(before.mean)).sum()
        reached = float(np.vdot(P @ before.scatter, P) + settings.sparsity * support)
        # a weighted mean of the batches so far, so that the first ones are no smaller
        weight = 1 + state.weight
        scatter = batch.scatter
        if state.scatter is not None:
            scatter = state.scatter + (batch.scatter - state.scatter) / weight
        rate = RATE * (1 + np.cos(np.pi * (number - 1) / settings.n_epochs)) / 2
        eta = rate / largest_eigenvalue(scatter, inverse)
        for _ in range(settings.sgd_steps):
            P = step(P, scatter, V, inverse, before.mean, eta, settings.sparsity)
        return _Between(P, before, inverse, at, scatter, weight, (*state.trace, reached))

    end, records = engine.loop("round", _Between(start, sums), make, update, settings.n_epochs)
    assert end.components is not None
    assert end.sums is not None
    return Learned(end.components, end.sums, end.trace), records


def epoch_batch(source: Source, size: int, seed: int, number: int) -> Source:
    """Return batch `number` of a source: chunk rows in the order of their hashes of (seed, epoch), each once an epoch.

    A batch is as many rows as `size` samples need; rows that are left at the end of an epoch, fewer than
    that, join the last batch. A shorter last row takes no part. Where one batch is everything, the source
    itself.

    >>> from smtdist.data.array import ArraySource
    >>> whole = ArraySource(np.zeros((1300, 4, 4), np.uint8))
    >>> [epoch_batch(whole, 512, 0, number).chunks for number in range(2)]
    [(0, 3), (1, 2, 4)]
    """
    rows = source.n_samples // source.chunk_samples
    each = -(-size // source.chunk_samples)
    if each >= rows:
        return source
    epoch, part = divmod(number, rows // each)
    order = np.argsort(hashing.position_hashes(seed + epoch, 0, rows, 1, EPOCH_VIEW)[:, 0], kind="stable")
    last = part + 1 == rows // each
    chosen = tuple(sorted(int(row) for row in order[part * each : None if last else (part + 1) * each]))
    return ChunkSubset(source, chosen, source.chunk_samples)


def step(
    P: Float64, scatter: Float64, V: Float64, inverse: Float64, mean: Float64, eta: float, sparsity: float
) -> Float64:
    """Return P after one step: whitened gradient, weighted shrinkage, parallel orthogonalisation (supplement C, 1 to 3).

    P ← P - η P C V⁻¹, C = A D Dᵀ Aᵀ of the batch and η = 2 γ₀ η_P; then every entry of column j shrinks by
    ½ η (γ₁ / γ₀) ⟨α_j⟩, where the paper leaves η_P out: with it the fixed point does not depend on the
    step; then (P V Pᵀ)^(-1/2) P. The gradient is whitened and the shrinkage is not, as printed, so that the
    fixed point is near the minimum of equation 12, not at it.
    """
    moved = P - eta * (P @ scatter) @ inverse
    if sparsity > 0:
        moved = np.sign(moved) * np.maximum(np.abs(moved) - eta / 2 * sparsity * np.abs(mean), 0.0)
    return orthogonalised(moved, V)


def orthogonalised(P: Float64, V: Float64) -> Float64:
    """Return (P V Pᵀ)^(-1/2) P, the nearest P whose rows are V-orthonormal; all rows move alike (Karhunen et al. 1997).

    >>> orthogonalised(np.array([[2.0, 0.0], [0.0, 3.0]]), np.eye(2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    values, vectors = np.linalg.eigh(P @ V @ P.T)
    if not values[0] > 1e-12 * values[-1]:
        raise ModelError(
            "Rows of P have become dependent on one another; lower sparsity, or ask for fewer components."
        )
    result: Float64 = (vectors * values**-0.5) @ vectors.T @ P
    return result


def whitening_inverse(V: Float64) -> Float64:
    """Return V⁻¹ with a ridge of a millionth of the mean variance; rows and columns of codes that never vary are zero."""
    alive = V.diagonal() > 0
    if not alive.any():
        raise DataError("No code ever varies; lower the penalty of the codes, or give other clips.")
    inner = V[np.ix_(alive, alive)]
    ridge = WHITENING_RIDGE * float(inner.diagonal().mean())
    values, vectors = np.linalg.eigh(inner)
    result = np.zeros_like(V)
    result[np.ix_(alive, alive)] = (vectors / (np.maximum(values, 0.0) + ridge)) @ vectors.T
    return result


def largest_eigenvalue(scatter: Float64, inverse: Float64, iterations: int = 30) -> float:
    """Return a close upper estimate of the largest eigenvalue of C V⁻¹, by power iteration from the diagonal."""
    vector = np.sqrt(np.maximum(scatter.diagonal(), 0.0)) + 1e-12
    value = 0.0
    for _ in range(iterations):
        vector = scatter @ (inverse @ vector)
        value = float(np.linalg.norm(vector))
        if not value > 0:
            raise DataError(
                "Nothing moves in a batch of sequences; give clips with motion, or larger batches."
            )
        vector /= value
    return 1.05 * value


def participation(components: Float64, mean: Float64) -> Float64:
    """Return the support of each functional as a share of all codes: (Σ_j w_j)² / (K Σ_j w_j²), w_j = |P_ij| ⟨α_j⟩.

    1 for a functional that weighs all codes alike, 1 / K for one that sees a single code; the participation
    number of physics.

    >>> participation(np.array([[1.0, -1.0], [2.0, 0.0]]), np.ones(2)).tolist()
    [1.0, 0.5]
    """
    weights = np.abs(components) * np.abs(mean)
    total = np.maximum((weights**2).sum(axis=1), 1e-300)
    result: Float64 = weights.sum(axis=1) ** 2 / (components.shape[1] * total)
    return result
