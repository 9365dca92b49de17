"""Points with whoever is near them: the sources that differences between points are summed over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from smtdist.data.fingerprint import sample_digests
from smtdist.data.source import Derived, Reader, Source
from smtdist.data.table import as_table
from smtdist.errors import ConfigurationError, DataError

ALIGNED: Final = 64


@dataclass(frozen=True, eq=False)
class NeighbourSource(Derived):
    """Points of a table, each with k neighbours: samples of shape (1 + k, d + 1), float64.

    Row 0 is the point, the others are neighbours; the last column is 1 for the point and the weight for a
    neighbour, 0 where a point has fewer. Memory: the table once while it is read, and 16 k bytes a point
    that travel with the job.
    starts : of rows in time, those that begin a sequence. Their own last column is 2, so that the hash of a
        row tells whether one comes before it: no part can be withdrawn that leaves half of a difference behind.
    """

    source: Source  # the table
    numbers: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]
    starts: npt.NDArray[np.bool_] | None = None
    chunk_samples = damage_samples = ALIGNED
    file_bytes = None
    dtype = np.dtype(np.float64)

    @classmethod
    def of(
        cls, points: Any, numbers: npt.NDArray[np.int64], weights: npt.NDArray[np.float64]
    ) -> NeighbourSource:
        """Check that neighbours (N, k) and weights fit the points; points are as in `smtdist.data.table.as_table`."""
        table = as_table(points)
        n = table.n_samples
        if numbers.shape != weights.shape or numbers.ndim != 2 or len(numbers) != n:
            raise DataError(
                f"{table.name} has {n} points, but neighbours of the shape {numbers.shape} and weights {weights.shape}; "
                f"give (points, k) of both."
            )
        if numbers.size and (numbers.min() < 0 or numbers.max() >= n):
            raise DataError(
                f"{table.name} has {n} points, but a neighbour is number {numbers.max()}; count from 0."
            )
        return cls(table, numbers, weights)

    @property
    def shape(self) -> tuple[int, int, int]:  # type: ignore[override]  # a field of the base class, computed here
        """(N, 1 + k, d + 1)."""
        return self.source.n_samples, 1 + self.numbers.shape[1], self.source.shape[1] + 1

    @property
    def reader_bytes(self) -> int:
        """The rows of the table that a block's neighbours are among: at most all."""
        return self.source.reader_bytes + 2 * self.source.n_samples * self.source.sample_bytes

    def describe(self) -> dict[str, Any]:
        """Return kind, table and neighbours as plain JSON."""
        return {"kind": "neighbours", "table": self.source.describe(), "neighbours": self.numbers.shape[1]}

    def fill(self, inner: Reader, start: int, stop: int, out: npt.NDArray[Any]) -> None:
        """Write points and their neighbours, which are looked up among the rows they are in."""
        numbers = np.concatenate([np.arange(start, stop)[:, None], self.numbers[start:stop]], axis=1)
        first = int(numbers.min())
        out[:, :, :-1] = inner.read(first, int(numbers.max()) + 1)[numbers - first]
        out[:, 0, -1] = 1.0 if self.starts is None else 1.0 + self.starts[start:stop]
        out[:, 1:, -1] = self.weights[start:stop]


@dataclass(frozen=True, eq=False)
class NoisePairs(Derived):
    """Two noisy copies of every point of a table, as neighbours: samples (2, d + 1), float64 (SMT 2023, section 2).

    The noise is Gaussian, of standard deviation `noise`, and a function of the seed and of the point
    itself: a point has the same noise in any table, so that it can be withdrawn from sums by whichever
    table holds it.
    """

    source: Source  # the table
    noise: float
    seed: int = 0
    chunk_samples = damage_samples = ALIGNED
    file_bytes = None
    dtype = np.dtype(np.float64)

    def __post_init__(self) -> None:
        if not self.noise >= 0:
            raise ConfigurationError(f"noise is {self.noise}; give a standard deviation of at least 0.")

    @property
    def shape(self) -> tuple[int, int, int]:  # type: ignore[override]
        """(N, 2, d + 1)."""
        return self.source.n_samples, 2, self.source.shape[1] + 1

    @property
    def reader_bytes(self) -> int:
        """What the table's reader holds, and a block of rows and noise."""
        return self.source.reader_bytes + 2**24

    def describe(self) -> dict[str, Any]:
        """Return kind, table, noise and seed as plain JSON."""
        return {
            "kind": "noise pairs",
            "table": self.source.describe(),
            "noise": self.noise,
            "seed": self.seed,
        }

    def fill(self, inner: Reader, start: int, stop: int, out: npt.NDArray[Any]) -> None:
        """Write points with their noise."""
        rows = inner.read(start, stop)
        out[..., -1] = 1.0
        for key, row, to in zip(sample_digests(rows.astype(np.float64)), rows, out, strict=True):
            draw = np.random.Generator(np.random.Philox(key=[self.seed, key]))
            to[:, :-1] = row + self.noise * draw.standard_normal((2, row.shape[-1]))
