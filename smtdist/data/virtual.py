"""Virtual HDF5 datasets, whose values lie in other files: what is missing there would be read as zeros, without an error.

HDF5 gives the fill value for a source file that does not exist, lacks the dataset or is too short, and also
where the process may open no more files: it keeps every source open until the virtual dataset is closed. So
all sources are looked at when a dataset is opened, their files once more before each read, and only a few
are open at a time.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import h5py

from smtdist.data.filters import register_filters
from smtdist.data.guarded import unlocked
from smtdist.data.inflating import Inflating
from smtdist.data.source import MOST_CHUNKS
from smtdist.errors import DataError

MOST_OPEN: Final = 16
"""Source files that a reader has open at once."""

CACHE_BYTES: Final = 2**20
"""What HDF5 keeps of each source."""

UNCUT: Final = 2**40
"""Values that are read at once of sources without chunks: more than there are."""

_UNLIMITED: Final = 2**63


@dataclass(frozen=True)
class Piece:
    """Samples `start` to `stop` of a virtual dataset and the file they lie in.

    `needs` are the extents that its dataset must have at least; None where all of it is taken, which must
    be `values` then.
    """

    start: int
    stop: int
    path: str
    dataset: str
    needs: tuple[int, ...] | None
    values: int


def pieces_of(stored: Any, path: str) -> list[Piece]:
    """Return the parts of an open virtual dataset in the order of their samples.

    Raises DataError for parts that have no bounds, or are named by a pattern, and for samples that no part
    gives.
    """
    name = f"{path}:{stored.name.strip('/')}"
    path = os.fsdecode(h5py.h5f.get_name(stored.id))  # a link may have led to another file
    folder = os.path.dirname(os.path.abspath(path))
    pieces, values = [], 0
    for source in stored.virtual_sources():
        if "%b" in source.file_name or "%b" in source.dset_name:
            raise DataError(
                f"{name} is a virtual dataset whose files are named by a pattern, so that a missing one is not noticed; name "
                f"them one by one, or list them in a manifest."
            )
        low, high = source.vspace.get_select_bounds()
        needs = None
        if (
            source.src_space.get_select_type() != h5py.h5s.SEL_ALL
        ):  # HDF5 does not know the extents of a whole
            needs = tuple(int(last) + 1 for last in source.src_space.get_select_bounds()[1])
        if max(high) >= _UNLIMITED or max(needs or (0,)) >= _UNLIMITED:
            raise DataError(f"{name} is a virtual dataset without bounds; list its files in a manifest.")
        taken = int(source.vspace.get_select_npoints())
        values += taken
        file = path if source.file_name == "." else os.path.join(folder, source.file_name)
        pieces.append(Piece(int(low[0]), int(high[0]) + 1, file, source.dset_name, needs, taken))
    if values < math.prod(stored.shape):
        raise DataError(
            f"{name} is a virtual dataset that takes {values:,} of its {math.prod(stored.shape):,} values from other files; "
            f"HDF5 would make up the rest: leave it out."
        )
    return sorted(pieces, key=lambda piece: (piece.start, piece.stop))


def check_sources(stored: Any, path: str, open_file: Callable[[str], Any]) -> int:
    """Look at every file of an open virtual dataset; return the most bytes of a stored chunk of any.

    Costs about a millisecond a file. Raises DataError for a file that is missing or cannot be opened, and
    for a dataset that is missing there or smaller than what is taken from it.
    """
    name, largest = f"{path}:{stored.name.strip('/')}", 0
    for piece in pieces_of(stored, path):
        require_present([piece], name)
        try:
            with open_file(piece.path) as file:
                largest = max(largest, _checked(file, piece, name))
        except OSError as error:
            why = " ".join(str(error).split()).rstrip(".")
            raise DataError(
                f"{name} is a virtual dataset whose file {piece.path} cannot be opened ({why}); restore it."
            ) from error
    return largest


def _checked(file: Any, piece: Piece, name: str) -> int:
    found = file.get(piece.dataset)
    shape = getattr(found, "shape", None)
    if shape is None:
        raise DataError(
            f"{name} is a virtual dataset of {piece.dataset} in {piece.path}, which is not there; restore that file."
        )
    if piece.needs is None:
        enough = math.prod(shape) == piece.values
    else:
        enough = len(shape) == len(piece.needs) and all(
            have >= need for have, need in zip(shape, piece.needs, strict=True)
        )
    if not enough:
        taken = f"{piece.values:,} values" if piece.needs is None else str(piece.needs)
        raise DataError(
            f"{name} is a virtual dataset that takes {taken} of {piece.dataset} in {piece.path}, which has too few: its shape "
            f"is {shape}. Restore that file."
        )
    return 0 if found.chunks is None else math.prod(found.chunks) * found.dtype.itemsize


def require_present(pieces: list[Piece], name: str) -> None:
    """Raise a DataError for the first piece whose file does not exist."""
    for piece in pieces:
        if not os.path.exists(piece.path):
            raise DataError(
                f"{name} is a virtual dataset whose file {piece.path} does not exist; restore it."
            )


class FewOpen:
    """Gives an open virtual dataset for range after range, closing it before too many sources are open."""

    def __init__(self, file: Any, dataset: str, path: str) -> None:
        register_filters()  # what its files need is not seen from here
        self._file, self._dataset = file, dataset
        self._stored: Any = file[dataset]
        self._name = f"{path}:{dataset}"
        self._pieces = pieces_of(self._stored, path)
        self._starts = [piece.start for piece in self._pieces]
        self._longest = max(piece.stop - piece.start for piece in self._pieces)
        self._open: set[str] = set()
        self._sound: set[tuple[str, str]] = set()
        self._fewest = UNCUT
        """Values of a sample in a chunk, of the source looked at so far that has fewest."""

    def ranges(self, start: int, stop: int) -> Iterator[tuple[int, int, Any]]:
        """Yield (first, last, dataset) that cover samples `start` to `stop`, each from at most 16 files."""
        at = start
        while at < stop:
            end, files = self._reach(at, stop)
            if len(self._open | files) > MOST_OPEN:
                self._stored = None  # closes the sources
                self._stored = self._file[self._dataset]
                self._open = set()
            self._open |= files
            yield at, end, self._stored
            at = end

    @property
    def most_values(self) -> int:
        """How many values may be read at once, by the chunks that they lie in."""
        return MOST_CHUNKS * self._fewest

    def _reach(self, at: int, stop: int) -> tuple[int, set[str]]:
        """Return how far from `at` samples of few enough files go, and these files, which exist."""
        first = bisect_right(self._starts, at - self._longest)
        last = bisect_left(self._starts, stop)
        files: set[str] = set()
        for piece in self._pieces[first:last]:
            if piece.stop <= at or (piece.path in files and (piece.path, piece.dataset) in self._sound):
                continue
            if len(files) == MOST_OPEN and piece.start > at:
                return piece.start, files
            require_present([piece], self._name)
            self._require_sound(piece)
            files.add(piece.path)
        return stop, files

    def _require_sound(self, piece: Piece) -> None:
        """Look at all chunks of a source, which HDF5 unpacks by itself, before the first of its samples is read."""
        if (piece.path, piece.dataset) not in self._sound:
            with unlocked(piece.path) as file:
                found = file.get(piece.dataset)
                if isinstance(found, Inflating):
                    found.require_all()
                if found is not None and found.chunks is not None:
                    inner = found.chunks[1 - self._stored.ndim :] if self._stored.ndim > 1 else ()
                    self._fewest = min(self._fewest, math.prod(inner))
            self._sound.add((piece.path, piece.dataset))
