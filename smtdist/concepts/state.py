"""S and its sums with scores: how they start, how they are put together from blocks of rows, and how they stay exact."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.concepts.bits import distinct, pack
from smtdist.concepts.keyed import normals
from smtdist.concepts.objective import Moments, Terms
from smtdist.concepts.scores import Scores, leaves
from smtdist.data.source import Source
from smtdist.data.table import read_rows
from smtdist.engine.passes import Engine
from smtdist.kernels.cpu import jit
from smtdist.kernels.threads import single_blas

Matrix = NDArray[np.float64]
Concepts = NDArray[np.uint8]

ROWS: Final = 4096
"""Rows in memory at once where a range of them is summed."""


@dataclass
class State:
    """S and its sums with scores: exact whole numbers, kept up to date."""

    concepts: Concepts
    together: Matrix  # (b, b)
    members: Matrix  # (b,)
    crossed: Matrix  # (r, b), on the scores' grids
    total: Matrix  # (r,)

    def moments(self, scores: Scores) -> Moments:
        """Return the sums in the units of X: XᵀX is diagonal in scores."""
        p = len(self.concepts)
        total = self.total / scores.grid
        gram = np.diag(scores.singular**2) + np.outer(total, total) / p
        return Moments(p, self.members, self.together, (self.crossed / scores.grid[:, None]).T, total, gram)

    def terms(self, scores: Scores) -> Terms:
        """Return the terms of the loss, without XᵀX: the kernel's norm is known from its singular values."""
        overlap, pull = np.empty_like(self.together), np.zeros_like(self.members)
        sums = self.together, self.members, self.crossed, self.total
        _terms(*sums, scores.grid, len(self.concepts), overlap, pull)
        return Terms(overlap, pull, float((scores.singular**4).sum()), self.members)


@jit.compiled
def _terms(
    together: Any,
    members: Any,
    crossed: Any,
    total: Any,
    grid: Any,
    points: int,
    overlap: Any,
    pull: Any,
) -> None:
    """Set overlap = (S̄ᵀS̄)², entry by entry, and add ‖X̄ᵀs̄‖² to pull, one component after another."""
    b = len(members)
    for a in range(b):
        for c in range(b):
            inner = together[a, c] - members[a] * members[c] / points
            overlap[a, c] = inner * inner
    for j in range(len(total)):
        for a in range(b):
            value = (crossed[j, a] - total[j] * members[a] / points) / grid[j]
            pull[a] += value * value


def random_projection(scores: Scores, numbers: range, seed: int, engine: Engine) -> Concepts:
    """Return concepts by the signs of random projections of X̄, keyed by (seed, number): (p, len(numbers))."""
    aim = np.stack([normals(seed, number, scores.rank) for number in numbers], 1)
    return _split_by(aim / scores.grid[:, None], np.zeros(len(numbers)), scores, engine)


def _split_by(aim: Matrix, offset: Matrix, scores: Scores, engine: Engine) -> Concepts:
    """Return which points lie beyond the offset along each aim, scores on the grid times aim: (p, aims)."""
    parts = engine.map(_half_spaces, (aim, offset), scores.source, leaves(scores.source))
    out = np.empty((scores.points, len(offset)), np.uint8)
    for (start, stop), part in parts:
        out[start:stop] = part
    return out


def residual_projection(
    state: State, weights: Matrix, scores: Scores, numbers: range, seed: int, engine: Engine
) -> Concepts:
    """Return concepts that are random half-spaces along what S leaves over of the kernel: (p, len(numbers)).

    In the image of X the residual of equation (3) is R = Σ² - Σ_a π_a (Uᵀs̄_a)(Uᵀs̄_a)ᵀ;
    aims are drawn from its positive part, keyed by number.
    """
    p = scores.points
    inverse = 1 / (scores.grid * scores.singular)
    inside = (state.crossed - np.outer(state.total, state.members) / p) * inverse[:, None]
    with single_blas():
        values, axes = np.linalg.eigh(np.diag(scores.singular**2) - (inside * weights) @ inside.T)
        root = axes * np.sqrt(np.maximum(values, 0.0))
        draws = np.stack([normals(seed, number, scores.rank) for number in numbers], 1)
        aim = (root @ draws) * inverse[:, None]
    offset = (state.total / p) @ aim
    return _split_by(aim, offset, scores, engine)


def _half_spaces(shared: tuple[Matrix, Matrix], source: Source, start: int, stop: int) -> Concepts:
    aim, offset = shared
    with single_blas():
        parts = [rows @ aim > offset for _, rows in blocks_of(source, start, stop)]
    return np.concatenate(parts).astype(np.uint8)


def blocks_of(source: Source, start: int, stop: int) -> Iterator[tuple[int, NDArray[np.floating]]]:
    """Read rows [start, stop) some at a time: (first, rows). Leaves are sized for a scheduler, workspace is not."""
    for at in range(start, stop, ROWS):
        yield at, read_rows(source, at, min(at + ROWS, stop))


def state_of(concepts: Concepts, scores: Scores, engine: Engine) -> State:
    """Return the sums of S and scores, by one pass; all are whole numbers, so no order matters."""
    b, r = concepts.shape[1], scores.rank
    together, crossed, total = np.zeros((b, b)), np.zeros((r, b)), np.zeros(r)
    for _, part in engine.map(_sums_range, pack_rows(concepts), scores.source, leaves(scores.source)):
        together += part[0][:b, :b]
        crossed += part[1][:, :b]
        total += part[2]
    return State(concepts.copy(), together, np.diag(together).copy(), crossed, total)


def _sums_range(packed: Concepts, source: Source, start: int, stop: int) -> tuple[Matrix, Matrix, Matrix]:
    b, r = 8 * packed.shape[1], source.shape[1]
    together, crossed, total = np.zeros((b, b)), np.zeros((r, b)), np.zeros(r)
    with single_blas():
        for at, rows in blocks_of(source, start, stop):
            s = np.unpackbits(packed[at : at + len(rows)], axis=1).astype(np.float64)
            x = rows.astype(np.float64)
            together += s.T @ s
            crossed += x.T @ s
            total += x.sum(0)
    return together, crossed, total


def pack_rows(concepts: Concepts) -> Concepts:
    """Return S as bits, row by row: what travels to workers."""
    return np.packbits(concepts, axis=1)


def flip_to_sparse(state: State) -> None:
    """Replace concepts of more than p/2 members by their complements, in S and in every sum, exactly."""
    p = len(state.concepts)
    for a in np.flatnonzero(2 * state.members > p):
        state.concepts[:, a] ^= 1
        row = state.members - state.together[a]
        row[a] = p - state.members[a]
        state.together[a] = state.together[:, a] = row
        state.members[a] = p - state.members[a]
        state.crossed[:, a] = state.total - state.crossed[:, a]


def unit_weight(scores: Scores, count: int) -> float:
    """Return the weight that `count` independent concepts of half the points would have: ‖X̄X̄ᵀ‖ over that of S̄S̄ᵀ.

    The unit of temperature and penalty, which must not follow the fit: random concepts fit with next to no
    weight, against which any temperature would be cold.
    """
    kernel = float(np.sqrt((scores.singular**4).sum()))
    return 4 * kernel / (scores.points * float(np.sqrt(count + count * count / scores.points)))


def prices_of(weights: Matrix, penalty: float, unit: float, weighted: bool) -> Matrix:
    """Return what a member of each concept costs (b,), in the units of inputs: the penalty, times the weight if `weighted`."""
    return penalty * weights / unit if weighted else np.full(len(weights), penalty)


def tidied(concepts: Concepts) -> NDArray[np.int64]:
    """Return the places of concepts that are neither constant nor copies or complements of one before."""
    packed = pack(concepts)
    return np.array(distinct(packed, len(concepts), 1 - 1e-9, concepts.shape[1]), np.int64)
