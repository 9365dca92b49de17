"""One Hopfield iteration of a block of candidates, s <- sign(U Uᵀ s + mean of s), tile by tile (Algorithm 1, line 4).

A candidate is known by y = Uᵀs and its mean alone: its signs are made tile by tile and never kept. Sums
over points are rounded to whole numbers of the scores' grid, 8,192 points at a time, so that they are the
same in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.concepts.keyed import uniforms
from smtdist.kernels.cpu import jit
from smtdist.kernels.threads import even_ranges, run_ranges, single_blas, threads
from smtdist.statistics.base import Layout, State, Statistic

TILE: Final = 512
"""Points whose signs are in memory at once for each thread; part of what a result depends on."""
ROUNDED: Final = 16 * TILE
"""Points whose sums are rounded together, so that the size of a batch changes nothing."""


@jit.compiled
def _to_signs(product: Any, total: Any) -> None:
    """Replace numbers (m, B) by their signs, +1 at zero, and add them to total (B,), in one pass."""
    one = np.float32(1.0)
    for i in range(product.shape[0]):
        for j in range(product.shape[1]):
            sign = one if product[i, j] >= np.float32(0.0) else -one
            product[i, j] = sign
            total[j] += sign


@jit.compiled
def _rounded(parts: Any, counts: Any, projected: Any, total: Any) -> None:
    """Set int64 sums (r, B) and (B,) from those of the tiles: added in float64 in the tiles' order, and rounded."""
    tiles, rank, width = parts.shape
    row = np.empty(width)
    for i in range(rank):
        row[:] = 0.0
        for tile in range(tiles):
            for j in range(width):
                row[j] += parts[tile, i, j]
        for j in range(width):
            projected[i, j] = np.int64(np.rint(row[j]))
    row[:] = 0.0
    for tile in range(tiles):
        for j in range(width):
            row[j] += counts[tile, j]
    for j in range(width):
        total[j] = np.int64(row[j])


@dataclass(frozen=True)
class Annealing:
    """Stochastic signs: P(s_i = +1) = 1 / (1 + exp(-2 (Uy)_i / T)), keyed by (seed, candidate, iteration, point)."""

    temperature: float
    seed: int
    iteration: int
    first_candidate: int


def signs(
    rows: NDArray[np.float32], aim: NDArray[np.float32], first: int, annealing: Annealing | None = None
) -> NDArray[np.float32]:
    """Return ±1 (m, B): the signs of rows @ aim, +1 at zero; stochastic with `annealing`.

    A row of `aim` more than `rows` has columns is added to every point.
    """
    return _signs(rows, aim, first, annealing)[0]


def _signs(
    rows: NDArray[np.float32], aim: NDArray[np.float32], first: int, annealing: Annealing | None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the signs and their sums over the rows, whole numbers exact in float32 up to 2^24 rows."""
    width = rows.shape[1]
    product = rows @ aim[:width]
    if len(aim) > width:
        product += aim[width]
    if annealing is not None and annealing.temperature > 0:
        noise = uniforms(
            annealing.seed,
            annealing.iteration,
            np.arange(first, first + len(rows)),
            annealing.first_candidate + np.arange(aim.shape[1]),
        )
        # u < sigmoid(2 v / T) is v > T logit(u) / 2
        with np.errstate(divide="ignore"):
            product -= (annealing.temperature / 2 * np.log(noise / (1 - noise))).astype(np.float32)
    total = np.zeros(aim.shape[1], np.float32)
    _to_signs(product, total)
    return product, total


def project(
    rows: NDArray[np.float32], aim: NDArray[np.float32], first: int, annealing: Annealing | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (rowsᵀ s, 1ᵀ s) of the candidates' signs s: (r, B) whole steps of the grid, and (B,).

    Each tile of 512 rows is two single-threaded matrix products of fixed shape, whose signs stay in the
    cache between them; the sums are rounded every 8,192 rows. Memory: the signs of a tile and the partial
    sums of 8,192 rows a thread.
    """
    if len(rows) <= TILE:  # one tile, whole numbers at once
        with single_blas():
            s, total = _signs(rows, aim, first, annealing)
            return np.rint(rows.T @ s).astype(np.int64), total.astype(np.int64)
    groups = even_ranges(len(rows), ROUNDED)
    shape = rows.shape[1], aim.shape[1]
    sums = np.empty((len(groups), *shape), np.int64)
    totals = np.empty((len(groups), shape[1]), np.int64)

    def group(start: int, stop: int) -> None:
        at = start // ROUNDED
        _group(rows[start:stop], aim, first + start, annealing, sums[at], totals[at])

    with single_blas():
        run_ranges(group, groups)
    return sums.sum(0), totals.sum(0)


def _group(
    rows: NDArray[np.float32],
    aim: NDArray[np.float32],
    first: int,
    annealing: Annealing | None,
    projected: NDArray[np.int64],
    total: NDArray[np.int64],
) -> None:
    """Set the sums over rows that are rounded together; a single group shares its tiles among the threads."""
    ranges = even_ranges(len(rows), TILE)
    parts = np.empty((len(ranges), rows.shape[1], aim.shape[1]), np.float32)
    counts = np.empty((len(ranges), aim.shape[1]), np.float32)

    def tile(start: int, stop: int) -> None:
        block = rows[start:stop]
        s, counts[start // TILE] = _signs(block, aim, first + start, annealing)
        np.matmul(block.T, s, out=parts[start // TILE])

    run_ranges(tile, ranges)
    _rounded(parts, counts, projected, total)


@dataclass(frozen=True)
class Projection(Statistic):
    """`project` as a statistic, for rows of U spread over workers: one iteration is one pass."""

    aim: NDArray[np.float32]  # (r, B)
    used: int  # leading columns of the scores
    annealing: Annealing | None = None

    def layout(self) -> Layout:
        """Return arrays of 8 (r + 1) B bytes."""
        return {
            "projected": ((self.used, self.aim.shape[1]), np.int64),
            "total": (self.aim.shape[1:], np.int64),
        }

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Add points (m, r)."""
        rows = np.ascontiguousarray(images.reshape(len(images), -1)[:, : self.used], np.float32)
        projected, total = project(rows, self.aim, first_sample, self.annealing)
        state["projected"] += projected
        state["total"] += total
        return len(rows)

    def batch_bytes(self, images: int) -> int:
        """Return the bytes of the rows in order and of a few tiles' signs and sums."""
        width, sums = self.aim.shape[1], self.aim.size + self.aim.shape[1]
        groups, held = -(-images // ROUNDED), min(images, ROUNDED)
        # a thread's signs, and with annealing its noise in float64 with what is made of it
        tiles = (16 + threads() * (4 if self.annealing is None else 40)) * TILE * width
        return int(4 * images * self.used + tiles + 8 * groups * sums + 8 * -(-held // TILE) * sums)

    def miniature(self) -> Projection:
        """Return a twin of one candidate, which meets more rows than a tile has."""
        return _Rehearsal(self.aim[:, :1], self.used, self.annealing)


class _Rehearsal(Projection):
    """Sums that take the ways of one tile and of several, whatever the rows: the second is compiled too."""

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Add the rows as they are, and as often as to fill more than a tile."""
        several = np.resize(images, (TILE + 1, *images.shape[1:]))
        return sum(super(_Rehearsal, self).update(state, one, first_sample) for one in (images, several))
