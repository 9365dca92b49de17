"""Virtual HDF5 datasets, whose values lie in other files: what is missing there would be read as zeros, without an error.

HDF5 gives the fill value for a source file that does not exist, lacks the dataset or is too short, and also
where the process may open no more files: it keeps every source open until the virtual dataset is closed. So
all sources are looked at when a dataset is opened, their files once more before each read, and only a few
are open at a time. Sources may be virtual themselves; their own are looked at in the same way.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import h5py

from smtdist.data.filters import register_filters
from smtdist.data.guarded import MOST_LINKS, unlocked
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
    be `values` then. Sample `start` begins with sample `first` of it, and each has `each` of its values in order; 0
    where samples are put together in another way. `through` are the files of virtual datasets in between.
    """

    start: int
    stop: int
    path: str
    dataset: str
    needs: tuple[int, ...] | None
    values: int
    first: int = 0
    each: int = 0
    through: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """All that are open while it is read."""
        return *self.through, self.path

    def parts(self, stored: Any) -> Iterator[Piece]:
        """Yield what it is made of, where its dataset, given open, is virtual: pieces of the same samples as it."""
        in_order = self.each and (self.needs or math.prod(stored.shape[1:]) == self.each)
        for part in pieces_of(stored, self.path):
            start, stop, each = self.start, self.stop, 0
            if in_order:
                shift = self.start - self.first
                start, stop = max(start, part.start + shift), min(stop, part.stop + shift)
                part, each = replace(part, first=part.first + start - part.start - shift), part.each
            if start < stop:
                yield replace(part, start=start, stop=stop, each=each, through=self.files)


def pieces_of(stored: Any, path: str) -> list[Piece]:
    """Return the parts of an open virtual dataset.

    Raises DataError for parts that have no bounds, or are named by a pattern, and for samples that no part
    gives.
    """
    name = f"{path}:{stored.name.strip('/')}"
    path = os.fsdecode(h5py.h5f.get_name(stored.id))  # a link may have led to another file
    folder = os.path.dirname(os.path.abspath(path))
    pieces, given = [], h5py.h5s.create_simple(stored.shape)
    given.select_none()
    for source in stored.virtual_sources():
        if "%b" in source.file_name or "%b" in source.dset_name:
            raise DataError(
                f"{name} is a virtual dataset whose files are named by a pattern, so that a missing one is not noticed; name "
                f"them one by one, or list them in a manifest."
            )
        low, high = source.vspace.get_select_bounds()
        begin: Any = (0,)
        needs = None
        if source.src_space.get_select_type() != h5py.h5s.SEL_ALL:  # of that HDF5 does not know the extents
            begin, end = source.src_space.get_select_bounds()
            needs = tuple(int(last) + 1 for last in end)
        if max(high) >= _UNLIMITED or max(needs or (0,)) >= _UNLIMITED:
            raise DataError(f"{name} is a virtual dataset without bounds; list its files in a manifest.")
        taken, samples = int(source.vspace.get_select_npoints()), int(high[0] - low[0] + 1)
        in_order = _is_box(source.vspace)
        if needs is not None:
            in_order = in_order and _is_box(source.src_space) and needs[0] - begin[0] == samples
        _add(given, source.vspace)
        file = path if source.file_name == "." else os.path.join(folder, source.file_name)
        each = taken // samples if in_order else 0
        start, first = int(low[0]), int(begin[0])
        pieces.append(Piece(start, start + samples, file, source.dset_name, needs, taken, first, each))
    values = int(given.get_select_npoints())  # pieces may overlap
    if values < math.prod(stored.shape):
        raise DataError(
            f"{name} is a virtual dataset that takes {values:,} of its {math.prod(stored.shape):,} values from other files; "
            f"HDF5 would make up the rest: leave it out."
        )
    return pieces


def sources_of(
    stored: Any, path: str, above: tuple[tuple[str, str], ...] = ()
) -> Iterator[tuple[str, Any]]:
    """Yield (path, dataset) of all that an open virtual dataset is made of, open; what is virtual itself after its own.

    Costs about a millisecond a piece. Raises DataError for a file that is missing or cannot be opened, and
    for a dataset that is missing there or smaller than what is taken from it, or made of itself.
    """
    name, seen = f"{path}:{stored.name.strip('/')}", set[tuple[str, str]]()
    for piece in pieces_of(stored, path):
        require_present([piece], name)
        place = (os.path.realpath(piece.path), piece.dataset)
        if place in above:
            raise DataError(f"{name} is a virtual dataset that is made of itself; write it anew.")
        try:
            with unlocked(piece.path) as file:
                found = _checked(file, piece, name)
                if place not in seen:
                    seen.add(place)
                    if found.is_virtual:
                        yield from sources_of(found, piece.path, (*above, place))
                    yield piece.path, found
        except OSError as error:
            why = " ".join(str(error).split()).rstrip(".")
            raise DataError(
                f"{name} is a virtual dataset whose file {piece.path} cannot be opened ({why}); restore it."
            ) from error


def _add(given: Any, space: Any) -> None:
    """Add a selection to that of another space of the same extents."""
    if space.get_select_type() == h5py.h5s.SEL_ALL:
        given.select_all()
    elif space.is_regular_hyperslab():
        start, stride, count, block = space.get_regular_hyperslab()
        given.select_hyperslab(start, count, stride, block, op=h5py.h5s.SELECT_OR)
    else:
        for low, high in space.get_select_hyper_blocklist():
            given.select_hyperslab(
                tuple(low), (1,) * len(low), None, tuple(high - low + 1), op=h5py.h5s.SELECT_OR
            )


def _is_box(space: Any) -> bool:
    """Say whether all values between the bounds of a selection belong to it."""
    low, high = space.get_select_bounds()
    sides = (last - first + 1 for first, last in zip(low, high, strict=True))
    return bool(space.get_select_npoints() == math.prod(sides))


def _checked(file: Any, piece: Piece, name: str) -> Any:
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
    return found


def require_present(pieces: list[Piece], name: str) -> None:
    """Raise a DataError for the first piece of which a file does not exist."""
    for path in (path for piece in pieces for path in piece.files):
        if not os.path.exists(path):
            raise DataError(f"{name} is a virtual dataset whose file {path} does not exist; restore it.")


class FewOpen:
    """Gives an open virtual dataset for range after range, closing it before too many sources are open."""

    def __init__(self, file: Any, dataset: str, path: str) -> None:
        register_filters()  # what its files need is not seen from here
        self._file, self._dataset = file, dataset
        self._stored: Any = file[dataset]
        self._name = f"{path}:{dataset}"
        self._take(pieces_of(self._stored, path))
        self._open: set[str] = set()
        self._sound: set[tuple[str, str]] = set()
        self._fewest = UNCUT
        """Values of a sample in a chunk, of the source looked at so far that has fewest."""

    def _take(self, pieces: list[Piece]) -> None:
        self._pieces = sorted(pieces, key=lambda piece: (piece.start, piece.stop))
        self._starts = [piece.start for piece in self._pieces]
        self._longest = max(piece.stop - piece.start for piece in self._pieces)

    def ranges(self, start: int, stop: int) -> Iterator[tuple[int, int, Any]]:
        """Yield (first, last, dataset) that cover samples `start` to `stop`, each from at most 16 files."""
        at = start
        while at < stop:
            end, files = self._reach(at, stop)
            if len(self._open | files) > MOST_OPEN:
                self._stored = None  # closes the sources
                self._stored = self._file[self._dataset]
                self._open = set()
            self._require_openable(len(files - self._open))
            self._open |= files
            yield at, end, self._stored
            at = end

    @property
    def most_values(self) -> int:
        """How many values may be read at once, by the chunks that they lie in."""
        return MOST_CHUNKS * self._fewest

    def _require_openable(self, count: int) -> None:
        """Raise a DataError where this process may not open so many more files: HDF5 would make up what is in them."""
        tried = list[int]()
        try:
            tried.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(count))
        except OSError as error:
            raise DataError(
                f"{self._name} is a virtual dataset of which {count} files at once are to be opened, more than this process may; "
                f"raise that limit (ulimit -n)."
            ) from error
        finally:
            for descriptor in tried:
                os.close(descriptor)

    def _reach(self, at: int, stop: int) -> tuple[int, set[str]]:
        """Return how far from `at` samples of few enough files go, and these files, which exist."""
        while True:
            first = bisect_right(self._starts, at - self._longest)
            last = bisect_left(self._starts, stop)
            files, parts = set[str](), list[Piece]()
            for piece in self._pieces[first:last]:
                known = files.issuperset(piece.files) and (piece.path, piece.dataset) in self._sound
                if piece.stop <= at or known:
                    continue
                if len(files) >= MOST_OPEN and piece.start > at:
                    return piece.start, files
                require_present([piece], self._name)
                if parts := self._looked_at(piece):
                    break
                files.update(piece.files)
            if not parts:
                return stop, files
            self._take([one for one in self._pieces if one is not piece] + parts)

    def _looked_at(self, piece: Piece) -> list[Piece]:
        """Return what a piece is made of if it is virtual itself; look at all chunks of another, before its first sample is
        read, since HDF5 unpacks them by itself.
        """
        if (piece.path, piece.dataset) in self._sound:
            return []
        with unlocked(piece.path) as file:
            found = file.get(piece.dataset)
            if getattr(found, "is_virtual", False):
                if len(piece.through) >= MOST_LINKS:
                    raise DataError(
                        f"{self._name} is a virtual dataset of too many others, one in the other."
                    )
                return list(piece.parts(found))
            if isinstance(found, Inflating):
                found.require_all()
            if found is not None and found.chunks is not None:
                inner = found.chunks[1 - self._stored.ndim :] if self._stored.ndim > 1 else ()
                self._fewest = min(self._fewest, math.prod(inner))
        self._sound.add((piece.path, piece.dataset))
        return []
