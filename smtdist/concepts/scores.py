"""Principal scores of a table on a grid of whole numbers: what both searches read instead of X.

X̄ = U Σ Vᵀ comes from the sums Xᵀ1 and XᵀX of one pass, the scores X̄V = UΣ from a second. Scores are whole
numbers of a power of two, so that every sum of them over members of a concept is exact in float64, in any
order and on any number of workers.

What the spectrum of the scores says of the table's kernel stands here, too: how many components rise above noise, the
floor that the points themselves explain, and how much of the kernel is not noise.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.concepts.keyed import normals
from smtdist.data.array import ArraySource
from smtdist.data.source import Source, leaf_bounds
from smtdist.data.table import as_table, read_rows
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError
from smtdist.kernels.threads import single_blas
from smtdist.statistics.base import Layout, State, Statistic

Matrix = NDArray[np.float64]

SCORE_BITS: Final = 22
"""Scores are at most 2^22 steps: float32 holds them, and sums over 2^31 points stay below 2^53."""
TILE: Final = 1024
CHUNK_BYTES: Final = 2 * 2**20
MOST_CHUNK_BYTES: Final = 16 * 2**20
CHUNKS: Final = 16
IN_MEMORY = 256 * 2**20
"""Bytes of scores from which on they go to a file."""
SMALLEST, LARGEST = 1e-75, 1e75
"""Sum of squares of points: equation 3 has its square, products have the square of that."""
NEGLIGIBLE: Final = 1e-10
"""Eigenvalues of XᵀX below this share of the largest are the rounding of the sums."""


@dataclass(frozen=True)
class TableSums(Statistic):
    """Σ 1, Σ (x - shift), Σ (x - shift)(x - shift)ᵀ and the largest norm; floating point, summed along the fixed tree.

    Memory: 8 n² bytes a state, 1,024 rows of workspace.
    """

    shift: Matrix

    exact = False

    def layout(self) -> Layout:
        """Return arrays of 8 (n² + n) bytes and two numbers."""
        n = len(self.shift)
        return {
            "points": ((), np.int64),
            "total": ((n,), np.float64),
            "gram": ((n, n), np.float64),
            "largest": ((), np.float64),
        }

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Add rows (m, n), in tiles of a size that no memory limit changes."""
        rows = images.reshape(len(images), -1)
        with single_blas():
            for at in range(0, len(rows), TILE):
                x = rows[at : at + TILE].astype(np.float64)
                x -= self.shift
                state["total"] += x.sum(0)
                state["gram"] += x.T @ x
                np.maximum(
                    state["largest"], np.einsum("ij,ij->i", x, x).max(initial=0.0), out=state["largest"]
                )
        state["points"] += len(rows)
        return len(rows)

    def merge(self, left: State, right: State) -> State:
        """Return the sum over both."""
        for name in ("points", "total", "gram"):
            left[name] += right[name]
        np.maximum(left["largest"], right["largest"], out=left["largest"])
        return left

    def batch_bytes(self, images: int) -> int:
        """Return the bytes of a tile, its square and the product."""
        n = len(self.shift)
        return 8 * n * (2 * TILE + n)


@dataclass(frozen=True)
class Coordinates:
    """How rows become scores on a grid of whole numbers."""

    grid: Matrix  # (r,) powers of two, one a column: a weak component keeps its digits
    mean: Matrix  # (n,)
    axes: Matrix  # V (n, r), sign: the largest entry of each column is positive
    singular: Matrix  # (r,) descending

    def of(self, rows: NDArray[np.generic]) -> Matrix:
        """Return the scores of rows (m, n) in whole steps."""
        return np.rint(((np.asarray(rows, np.float64) - self.mean) @ self.axes) * self.grid)


@dataclass(frozen=True)
class Scores(Coordinates):
    """X̄V on a grid: `source` holds rint(X̄V grid) as float32, one row a point; X̄ ≈ source Vᵀ / grid."""

    source: Source  # (p, r)

    @property
    def points(self) -> int:
        """Points, p."""
        return self.source.n_samples

    @property
    def rank(self) -> int:
        """Columns kept, r."""
        return len(self.singular)


def prepare(table: Any, engine: Engine, *, folder: Path | None = None) -> Scores:
    """Return the scores of a table (p, n) in two passes: streaming SVD of centred X, then its rows on the axes.

    Scores of more than 256 MiB are written to `folder` as
    scores.npy, which all workers must see. Memory: 8 n² bytes a sum; 4 p r bytes for the scores unless they
    are written. Raises DataError for fewer than two points, points that are all equal, and numbers whose fourth
    powers leave float64.
    """
    source = as_table(table)
    if source.n_samples < 2:
        raise DataError(f"{source.name} has one point; concepts need at least two.")
    shift = read_rows(source, 0, 1)[0].astype(np.float64)
    statistic = TableSums(shift)
    if len(leaves(source)) > 1 or not isinstance(source, ArraySource):
        state = engine.reduce("moments", statistic, source)[0].state
    else:  # one leaf in memory, as its task would, without the plan and the probe of a pass
        state = statistic.zero()
        statistic.update(state, read_rows(source), 0)
    points = int(state["points"])
    size = float(np.trace(state["gram"]))
    if not (size == 0 or SMALLEST <= size <= LARGEST):
        raise DataError(
            f"{source.name}: squares of differences of points sum to {size:.3g}, and powers of that leave float64; divide "
            f"the points by their largest number."
        )
    offset = state["total"] / points
    gram = state["gram"] - np.outer(offset, state["total"])
    with single_blas():
        values, axes = np.linalg.eigh((gram + gram.T) / 2)
    values, axes = values[::-1], axes[:, ::-1]
    found = int(np.sum(values > NEGLIGIBLE * max(values[0], 0.0))) if values[0] > 0 else 0
    spread = float(state["largest"])
    if found == 0 or values[0] <= 1e-24 * spread * points:
        raise DataError(f"{source.name}: all points are equal; concepts need points that differ.")
    kept = min(found, points - 1)
    axes = axes[:, :kept] * np.where(axes[np.abs(axes[:, :kept]).argmax(0), np.arange(kept)] < 0, -1.0, 1.0)
    radius = math.sqrt(spread) + float(np.linalg.norm(offset))
    singular = np.sqrt(values[:kept])
    # no score of a column exceeds its singular value, nor the farthest point's norm
    grid = 2.0 ** (SCORE_BITS - np.ceil(np.log2(np.minimum(singular, radius))))
    scores = Scores(grid, shift + offset, np.ascontiguousarray(axes), singular, source)
    return _gathered(scores, _score_range, engine, folder, "scores.npy")


def leading(scores: Scores, rank: int | None, engine: Engine, *, folder: Path | None = None) -> Scores:
    """Return the scores on the first `rank` axes, those given where that is all: X of the nearest kernel of that rank.

    Memory: 4 p r bytes more, or a file leading.npy in `folder` where they exceed 256 MiB.
    """
    if rank is None or rank >= scores.rank:
        return scores
    kept = dataclasses.replace(
        scores,
        grid=scores.grid[:rank],
        axes=np.ascontiguousarray(scores.axes[:, :rank]),
        singular=scores.singular[:rank],
    )
    return _gathered(kept, _leading_range, engine, folder, "leading.npy")


def leaves(source: Source) -> list[tuple[int, int]]:
    """Return the ranges of a source's leaves."""
    return list(pairwise(leaf_bounds(source.n_samples, source.chunk_samples, source.sample_bytes)))


def _gathered(
    scores: Scores,
    rows_of: Callable[[Scores, Source, int, int], NDArray[np.float32]],
    engine: Engine,
    folder: Path | None,
    name: str,
) -> Scores:
    """Return scores whose source holds what `rows_of` makes of each range of theirs: in memory, or in a file of that name."""
    source, r = scores.source, scores.rank
    if source.n_samples * r * 4 > IN_MEMORY:
        if folder is None:
            raise ConfigurationError(
                f"The scores of {source.name} take {source.n_samples * r * 4:,} bytes; "
                f"name a folder that all workers see, for the file that holds them."
            )
        path = folder / name
        held: NDArray[np.float32] = np.lib.format.open_memmap(path, "w+", np.float32, (source.n_samples, r))
    else:
        path, held = None, np.empty((source.n_samples, r), np.float32)
    for (start, stop), rows in engine.map(rows_of, scores, source, leaves(source)):
        held[start:stop] = rows
    if path is not None:
        held.flush()  # type: ignore[attr-defined]  # a memory map
    stored = as_table(held if path is None else path, aligned=rows_together(source.n_samples, r))
    return dataclasses.replace(scores, source=stored)


def rows_together(points: int, rank: int) -> int:
    """Return how many rows of scores make a leaf: a sixteenth of the points, within 2 to 16 MiB, a power of two.

    An iteration of 256 candidates over 8,192 rows is done before a scheduler has handed out the next.

    >>> rows_together(1_000_000, 64), rows_together(10_000, 64)
    (65536, 8192)
    """
    least, most = (
        1 << max(3, (size // (4 * rank)).bit_length() - 1) for size in (CHUNK_BYTES, MOST_CHUNK_BYTES)
    )
    wanted: int = 1 << (points // CHUNKS).bit_length()
    return min(most, max(least, wanted))


def _score_range(scores: Scores, source: Source, start: int, stop: int) -> NDArray[np.float32]:
    rows = read_rows(source, start, stop)
    with single_blas():  # so that no machine's cores matter
        parts = [scores.of(rows[at : at + TILE]).astype(np.float32) for at in range(0, len(rows), TILE)]
    return np.concatenate(parts)


def _leading_range(scores: Scores, source: Source, start: int, stop: int) -> NDArray[np.float32]:
    return np.ascontiguousarray(read_rows(source, start, stop)[:, : scores.rank], np.float32)


SLACK: Final = 1.15  # the largest value of noise, over the end of its range, at most: few rows spread wider
STEP: Final = 1.5  # the last value that is kept over the first of the noise, at least
# the same, where fewer components than concepts would be kept: concepts of one weight look like noise of few directions
BOLD: Final = 3.0
FEWEST: Final = 3  # directions that tell noise from concepts of one weight


def rank_above_noise(singular: NDArray[np.float64], points: int, dimensions: int, wanted: int) -> int:
    """Return how many leading components of a centred table (points, dimensions) are not noise; all where none is.

    `wanted` concepts are looked for. Algorithm 1 takes these components for the image of X where no rank is given.

    Noise that is independent from entry to entry has singular values of a known range (Marchenko and Pastur,
    1967): those of m directions of N rows and variance σ² lie below σ² (√N + √m)². The rank is the least k of
    which the values after the first k lie in that range of their own mean, with a step down to them.

    >>> rank_above_noise(np.array([9.0, 8.0, 1.1, 1.0, 0.9, 1.0]), 100, 6, 2)
    2
    """
    values = np.asarray(singular, float) ** 2
    kept = len(values)
    if kept < min(points - 1, dimensions):  # the table has no noise: rounding alone
        return kept
    for k in range(1, kept - FEWEST + 1):
        if values[k - 1] < (STEP if k >= wanted else BOLD) * values[k]:
            continue
        # of the kernel of the longer side: m directions of N independent numbers each
        m, n = kept - k, max(points - 1, dimensions) - k
        if values[k] <= SLACK * values[k:].mean() * (1 + np.sqrt(m / n)) ** 2:
            return k
    return kept


LEAST_SHARE: Final = 0.01  # of the kernel's trace, which the floor must hold to be worth p concepts


def floor_of(scores: Scores, n_concepts: int) -> float:
    """Return the floor λ of the kernel, 0 where it has none or n_concepts are no more than the points.

    The floor is what the points themselves, each a concept of its own, explain of a full-rank kernel. S = I has
    the centred kernel H: p concepts of one member, the sparsest there are, and K = λ H + (K - λ H) for any λ. A
    descent of b > p concepts from random dense ones never finds them, for a concept of one member pulls least of
    all; the b - p others, searched in what lies above the floor, have neither to compete with them nor to stand
    for them. They explain b - p directions of K at most, so that λ is the mean eigenvalue of the others: K's
    least one where they are all alike, and no more of noise than those hold.

    There is one where the p centred points have full rank, p - 1, and its least eigenvalue, p - 1 times, is
    at least a hundredth of the trace. λ is the mean of the eigenvalues after the first n_concepts - p, or
    the least where those are all.
    """
    values = scores.singular**2
    if n_concepts <= scores.points or scores.rank < scores.points - 1:
        return 0.0
    least = float(values[-1])
    if least * len(values) < LEAST_SHARE * float(values.sum()):
        return 0.0
    others = min(n_concepts - scores.points, len(values) - 1)
    return float(values[others:].mean())


def above(scores: Scores, floor: float) -> Scores:
    """Return the scores of K - λ H, without its negative part: each column times sqrt(1 - λ / σ²), on the same grid.

    Memory: 4 p r bytes more. With fewer points than concepts that is small beside S.
    """
    left = scores.singular**2 - floor
    kept = left > 1e-6 * scores.singular[0] ** 2
    shrunk = np.sqrt(left[kept] / scores.singular[kept] ** 2)
    rows = np.rint(read_rows(scores.source)[:, kept] * shrunk).astype(np.float32)
    return dataclasses.replace(
        scores,
        source=as_table(rows, aligned=scores.source.chunk_samples),
        grid=scores.grid[kept],
        axes=np.ascontiguousarray(scores.axes[:, kept]),
        singular=np.sqrt(left[kept]),
    )


POINTS: Final = 1024  # points whose kernel is looked at, at most, in PIECES of neighbours
PIECES: Final = 16
SPLITS: Final = 8


def reliability(scores: Scores) -> float:
    """Return the reliability of the kernel, 1 without noise and near 0 for noise alone, by split halves.

    Noise that is independent from feature to feature is in no two halves of the features the same, and what the
    halves share is not noise.

    The alignment ρ of the kernels of two halves of the features, debiased (Song et al., 2012: without their
    diagonals, where noise alone would align them), is averaged over eight splits; 2ρ / (1 + ρ) is that of
    the whole (Spearman and Brown). 0 with fewer than four points or two features. Memory: three matrices of
    up to 1,024 x 1,024.
    """
    p, n = scores.points, len(scores.mean)
    if p < 4 or n < 2:
        return 0.0
    size = max(1, POINTS // PIECES)
    starts = [0] if p <= POINTS else [(p - size) * i // (PIECES - 1) for i in range(PIECES)]
    stop = p if p <= POINTS else size
    rows = np.concatenate([read_rows(scores.source, start, start + stop) for start in starts])
    found = []
    with single_blas():
        x = (rows / scores.grid) @ scores.axes.T
        for number in range(SPLITS):
            order = np.argsort(normals(SPLITS, number, n))
            halves = x[:, order[: n // 2]], x[:, order[n // 2 :]]
            left, right = (half @ half.T for half in halves)
            for kernel in (left, right):
                np.fill_diagonal(kernel, 0.0)
            norms = _unbiased(left, left) * _unbiased(right, right)
            # 0 where either says nothing
            found.append(_unbiased(left, right) / float(np.sqrt(norms)) if norms > 0 else 0.0)
    mean = min(1.0, max(0.0, float(np.mean(found))))
    return 2 * mean / (1 + mean)


def _unbiased(left: Matrix, right: Matrix) -> float:
    """Return the unbiased inner product of two centred kernels, but for a factor."""
    p = len(left)
    one, other = left.sum(0), right.sum(0)
    across = float(one.sum()) * float(other.sum()) / ((p - 1) * (p - 2)) - 2 * float(one @ other) / (p - 2)
    return float(np.vdot(left, right)) + across
