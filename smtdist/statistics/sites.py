"""Sites whose codes are summed: rows of numbers, grouped by the samples they are of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from smtdist.data.source import Source
from smtdist.statistics.patch_rows import PatchRows

ROWS: Final = 2048
"""Rows that are coded together."""
NEW: Final = 2
"""Mark of a row that no earlier sample of its shot has."""


class Group(NamedTuple):
    """Raw rows (samples x sites, p) of whole samples, one after another.

    weights : (samples, sites - 1), of neighbours that the samples bring. places : (samples, sites), numbers
    of the sites on their lattice, row by row. marks : (samples, sites), see `Sequences`.
    """

    rows: NDArray[np.floating]
    sites: int
    weights: NDArray[np.float64] | None = None
    places: NDArray[np.int64] | None = None
    marks: NDArray[np.floating] | None = None


class Sites(Protocol):
    """What turns samples into rows to be coded."""

    def groups(self, images: NDArray[np.generic], numbers: int) -> Iterator[Group]:
        """Yield the rows of a batch in groups; coding a row takes so many float32 numbers."""

    def group_bytes(self, numbers: int) -> int:
        """Return the workspace of a group, rows and what coding them takes, whatever the batch."""


@dataclass(frozen=True)
class Sequences:
    """Rows in time: samples (T, p), or (T, p + 1) with marks in the last column, where samples overlap.

    A row is marked 2 where it is new, 1 where an earlier sample of the same shot has it, too, and 0 where the shot has no such
    row. V counts new rows, and a difference counts that ends in a new row and has no row marked 0: every row of a shot, and
    every difference, once.
    """

    width: int
    marked: bool = False

    @classmethod
    def of(cls, source: Source) -> Sequences:
        """Return what reads the samples of a source."""
        marked = bool(getattr(source, "overlap", 0))
        return cls(source.shape[2] - marked, marked)

    def groups(self, images: NDArray[np.generic], numbers: int) -> Iterator[Group]:
        """Yield whole sequences, about two thousand rows at a time."""
        length = images.shape[1]
        step = max(1, ROWS // length)
        for start in range(0, len(images), step):
            part = images[start : start + step]
            rows = part.reshape(-1, images.shape[2])[:, : images.shape[2] - self.marked].astype(np.float64)
            yield Group(rows, length, marks=part[..., -1].astype(np.float64) if self.marked else None)

    def group_bytes(self, numbers: int) -> int:
        """Return the bytes of two thousand rows."""
        return ROWS * (4 * numbers + 16 * self.width) + 2**26


@dataclass(frozen=True)
class Neighbourhoods:
    """Points with their neighbours: samples (1 + k, p + 1), weights in the last column."""

    width: int

    def groups(self, images: NDArray[np.generic], numbers: int) -> Iterator[Group]:
        """Yield points with their neighbours, about a thousand rows at a time."""
        members = images.shape[1]
        step = max(1, ROWS // 2 // members)
        for start in range(0, len(images), step):
            part = images[start : start + step].astype(np.float64)
            rows = np.ascontiguousarray(part[..., :-1]).reshape(len(part) * members, -1)
            yield Group(rows, members, part[:, 1:, -1])

    def group_bytes(self, numbers: int) -> int:
        """Return the bytes of two thousand rows."""
        return ROWS * (4 * numbers + 16 * self.width) + 2**26


@dataclass(frozen=True, eq=False)
class DrawnPatches:
    """Whitened patches at the drawn positions of images."""

    patches: PatchRows

    def groups(self, images: NDArray[np.generic], numbers: int) -> Iterator[Group]:
        """Yield the patches of whole images."""
        rows = self.patches.group_rows(numbers)
        for found, places in self.patches.groups(images, 0, rows):
            yield Group(found, self.patches.drawn, places=places)

    def group_bytes(self, numbers: int) -> int:
        """Return the workspace of a group."""
        return self.patches.group_bytes(numbers)
