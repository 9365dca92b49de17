"""HDF5 files whose data lie where they may: links to other files, external storage and virtual datasets are looked at first.

A file from a stranger may name any file of this machine, or any address that this machine reaches. So what
a manifest, or an HDF5 file, says of other files is followed in its own folder and below alone, and where
the environment variable SMTDIST_FOLLOW says: folders, and beginnings of addresses such as
`https://data.example.org/` or `s3://`, between commas.

Of virtual datasets, whose values lie in other files, HDF5 gives the fill value, without an error, for a source file
that does not exist, lacks the dataset or is too short, and also where the process may open no more files: it keeps
every source open until the virtual dataset is closed. So all sources are looked at when a dataset is opened, their
files once more before each read, and only a few are open at a time. Sources may be virtual themselves; their own are
looked at in the same way.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

import h5py

from smtdist.data import checksums
from smtdist.data.inflating import Inflating, address_of, register_filters, state_of
from smtdist.data.locations import require_no_pipe
from smtdist.data.remote import is_url
from smtdist.data.source import MOST_CHUNKS
from smtdist.errors import DataError, option

ALLOWED: Final = "SMTDIST_FOLLOW"
CHAIN: Final = "::"
"""Between the parts of an address that fsspec opens one in the other."""


def allowed() -> list[str]:
    """Return the folders and the beginnings of addresses that the user allows."""
    return [part.strip() for part in os.environ.get(ALLOWED, "").split(",") if part.strip()]


def require_allowed(by: str, *named: str) -> None:
    """Refuse what a file or an address `by` names, paths or addresses, where it may not be followed."""
    places = allowed()
    addresses = [place for place in places if is_url(place)]
    folders = [os.path.realpath(place) for place in places if not is_url(place)]
    if not is_url(by):
        folders += [os.path.realpath(os.path.dirname(by)), os.path.dirname(os.path.realpath(by))]
    elif CHAIN not in by:
        addresses.append(f"{by.rpartition('/')[0]}/")
    for name in named:
        if not all(_may(part, addresses, folders) for part in name.split(CHAIN)):
            scheme, url, _ = name.partition("://")
            place = f"{scheme}://" if url else os.path.dirname(os.path.realpath(name))
            raise DataError(
                f"{by} names {name}, which lies outside its folder and is not read; if you trust it, allow that with "
                f"{option('the environment variable SMTDIST_FOLLOW', place)}."
            )


def _may(part: str, addresses: list[str], folders: list[str]) -> bool:
    if is_url(part):
        # an address is compared as text, so it must not lead up again
        plain = ".." not in part.replace("\\", "/").lower().replace("%2e", ".").split("/")
        beginnings = [place if place.endswith("/") else f"{place}/" for place in addresses]
        return plain and (part in addresses or part.startswith(tuple(beginnings)))
    real = os.path.realpath(part)
    return any(os.path.commonpath([real, folder]) == folder for folder in folders)


_SOUND: Final[set[tuple[Any, ...]]] = set()
"""Virtual datasets whose sources were looked at, all the way down: file, state and name."""


MOST_LINKS: Final = 16
"""That are followed one after another, as in HDF5."""


class BrokenLink(KeyError):
    """A link that leads nowhere; says why."""


class _Guarded(h5py.Group):  # type: ignore[misc]  # h5py has no types
    """A group that gives nothing which lies in a file that `require_allowed` refuses."""

    where = ""
    """The path or address of the file that the group lies in: what it names is looked for beside that."""
    root = b""
    """What HDF5 calls that file."""
    sums = checksums.NONE
    """Its checksums."""

    def __getitem__(self, name: Any) -> Any:
        """Open an object; raise a DataError for one whose data may not be read."""
        if isinstance(name, str):
            name = name.encode(errors="surrogateescape")  # as HDF5 keeps names, whatever the locale
            self._require_links(name)
        found, sums, where = super().__getitem__(name), self.sums, self.where
        root = h5py.h5f.get_name(found.id)
        if root != self.root:
            sums, where = checksums.NONE, os.fsdecode(root)
            require_allowed(self.where, where)
        if isinstance(found, h5py.Dataset):
            plist = found.id.get_create_plist()
            self._require_values(found, plist, where)
            found = Inflating(found.id, readonly=True) if plist.get_nfilters() else found
            expected = sums.arrays.get(found.name.strip("/"))
            return found if expected is None else checksums.verified(found, expected)
        if isinstance(found, h5py.Group) and not isinstance(found, _Guarded):
            inside = _Guarded(found.id)
            inside.where, inside.root, inside.sums = where, root, sums
            return inside
        return found

    def get(self, name: Any, default: Any = None, **how: Any) -> Any:
        """Return an object, or `default`; with `getclass` or `getlink` as h5py does."""
        if how:
            return super().get(name, default, **how)
        try:
            return self[name]
        except KeyError:
            return default

    def _require_links(self, name: bytes, left: int = MOST_LINKS) -> None:
        """Refuse a link to another file before that is opened, wherever links of this file, or of that, lead to it."""
        place, waiting = b"/" if name.startswith(b"/") else b"", _steps(name)
        while waiting:
            step = waiting.pop(0)
            here = place + step
            try:
                kind = self.id.links.get_info(here).type
            except (KeyError, RuntimeError, ValueError):
                if left < MOST_LINKS:
                    raise BrokenLink(
                        f"{_shown(name)} is a link to {_shown(here)} in {self.where}, which is not there"
                    ) from None
                return  # who opens it says what is missing
            if kind == h5py.h5l.TYPE_HARD:
                place = here + b"/"
                continue
            if not left:
                raise BrokenLink(f"{_shown(name)} is a link that leads in a circle")
            left -= 1
            if kind == h5py.h5l.TYPE_SOFT:
                target = self.id.links.get_val(here)
                place = b"/" if target.startswith(b"/") else place
                waiting = _steps(target) + waiting
                continue
            if kind != h5py.h5l.TYPE_EXTERNAL:
                raise BrokenLink(f"{_shown(name)} is a link of an unknown kind")
            file, inside = self.id.links.get_val(here)
            folder = "" if is_url(self.where) else os.path.dirname(self.where)
            beside = os.path.join(folder, os.fsdecode(file))
            require_allowed(self.where, beside)
            if is_url(beside):
                return
            if not os.path.isfile(beside):
                raise BrokenLink(f"{beside}, which a link names, is no file")
            with unlocked(beside) as other:
                other._require_links(b"/" + b"/".join([*_steps(inside), *waiting]), left)
            return

    def leads_to(self, name: str, stored: Any) -> bool:
        """Say whether a name leads to an open object, of whatever file."""
        with suppress(DataError, KeyError, OSError, RuntimeError, ValueError):
            raw = name.encode(errors="surrogateescape")
            self._require_links(raw)
            about = h5py.h5o.get_info(self.id, raw)
            return (about.fileno, about.addr) == address_of(stored)
        return False

    def _require_values(self, found: Any, plist: Any, where: str) -> None:
        """Look at what a dataset's values lie in; `where` is the file that says so."""
        left = math.prod(found.shape or ()) * found.dtype.itemsize
        for number in range(plist.get_external_count()):
            raw, offset, size = plist.get_external(number)
            # HDF5 takes these from the folder that the process is in
            path, taken = os.path.abspath(os.fsdecode(raw)), min(size, left)
            require_allowed(where, path)
            # where the storage ends too early, HDF5 would make up the rest
            has, needed = os.path.getsize(path) if os.path.isfile(path) else None, int(offset) + taken
            if has is None or has < needed:
                what = "does not exist" if has is None else f"has {has:,} bytes, but {needed:,} are needed"
                raise DataError(
                    f"{where}:{found.name.strip('/')} has its values in {path}, which {what}; restore that file, or start "
                    f"smtdist in the folder that the name is relative to."
                )
            left -= taken
        if plist.get_layout() == h5py.h5d.VIRTUAL:
            self._require_sources(plist, where, found)

    def _require_sources(self, plist: Any, lies_in: str, found: Any) -> None:
        """Look at all that a virtual dataset is made of, once for each state of its file: sources may be virtual, too."""
        key = (lies_in, state_of(found), address_of(found)[1])
        if key in _SOUND:
            return
        _SOUND.add(key)  # first: a dataset may be made of itself
        try:
            sources = {
                (plist.get_virtual_filename(number), plist.get_virtual_dsetname(number))
                for number in range(plist.get_virtual_count())
            }
            folder = os.path.dirname(lies_in)
            places = [
                (lies_in if file == "." else os.path.join(folder, file), inside) for file, inside in sources
            ]
            require_allowed(lies_in, *(path for path, _ in places if path != lies_in))
            for path, inside in places:
                # who reads them says what is missing
                with suppress(OSError, RuntimeError, KeyError, ValueError), unlocked(path) as file:
                    file.get(inside)
        except BaseException:
            _SOUND.discard(key)
            raise


class GuardedFile(_Guarded, h5py.File):  # type: ignore[misc]
    """An HDF5 file opened for reading; `where` is its path or address."""

    def __init__(self, file: Any, where: str, **how: Any) -> None:
        """Open what h5py opens; raise a DataError for a file that somebody writes."""
        try:
            super().__init__(file, "r", **how)
        except OSError as error:
            if "already open for" not in str(error):
                raise
            raise DataError(
                f"{where} is open for writing by another program; close it there, or, if that has died, run h5clear -s {where}."
            ) from error
        self.where, self.root = where, h5py.h5f.get_name(self.id)
        try:
            self.sums = checksums.recorded(self)
        except BaseException:
            self.close()
            raise


def unlocked(path: str | os.PathLike[str], **cache: Any) -> GuardedFile:
    """Open a local file for reading without locking it; a file that this process has open is opened as it is already.

    Network file systems often refuse locks, and nothing is written here. HDF5 refuses a second way of
    locking in one process, and does not tell which the first was. What lies in other files is read where
    `smtdist.data.guarded` allows it.
    """
    where = os.fspath(path)
    require_no_pipe(where)
    try:
        return GuardedFile(where, where, locking=False, **cache)
    except OSError as error:
        if "file locking" in str(error):
            for locking in (None, True, "best-effort"):
                with suppress(OSError):
                    return GuardedFile(where, where, locking=locking, **cache)
        raise


def walk(
    group: h5py.Group, links: bool = False, broken: dict[str, str] | None = None
) -> Iterator[tuple[str, Any]]:
    """Yield all that lies below a group, (name, object), each once, in the order of names.

    With `links` those that lead elsewhere are followed at the end, as far as that may be and works; `broken` takes the
    names of others, and why they cannot be followed.
    The time grows with the number of objects, however deep they lie; h5py's own walk looks each up from the top.
    """
    seen = {address_of(group)}
    waiting = [("", group, iter(sorted(group)))]
    leading: list[tuple[h5py.Group, str, str]] = []
    while waiting or leading:
        if waiting:
            above, here, names = waiting[-1]
            name = next(names, None)
            if name is None:
                waiting.pop()
                continue
            place = f"{above}{name}"
            if not isinstance(here.get(name, getlink=True), h5py.HardLink):
                leading += [(here, name, place)] if links else []
                continue
            found = here[name]
        else:
            here, name, place = leading.pop(0)
            try:
                found = here[name]
            except (DataError, KeyError, OSError) as error:
                if broken is not None:
                    broken[place] = str(error.args[0]).rstrip(".")
                continue
        address = address_of(found)
        if address in seen:
            continue
        seen.add(address)
        yield place, found
        if isinstance(found, h5py.Group):
            waiting.append((f"{place}/", found, iter(sorted(found))))


def named_in(path: str) -> set[str]:
    """Return the files that an HDF5 file says hold data of it, by external links, external storage or virtual datasets."""
    named: set[str] = set()
    with h5py.File(path, "r") as file:
        for _, stored in chain([("", file)], walk(file)):
            if isinstance(stored, h5py.Group):
                links = (stored.get(name, getlink=True) for name in stored)
                named.update(link.filename for link in links if isinstance(link, h5py.ExternalLink))
            elif isinstance(stored, h5py.Dataset):
                named.update(os.fsdecode(name) for name, *_ in stored.external or ())
                named.update(
                    one.file_name for one in (stored.virtual_sources() if stored.is_virtual else ())
                )
    return named


def _shown(name: bytes) -> str:
    return name.decode(errors="backslashreplace")


def _steps(name: bytes) -> list[bytes]:
    return [step for step in name.split(b"/") if step not in (b"", b".")]


MOST_OPEN: Final = 16
"""Source files that a reader has open at once."""

SOURCE_CACHE_BYTES: Final = 2**20
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
        require_present(piece, name)
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


def require_present(piece: Piece, name: str) -> None:
    """Raise a DataError for a piece of which a file does not exist."""
    for path in piece.files:
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
                require_present(piece, self._name)
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
