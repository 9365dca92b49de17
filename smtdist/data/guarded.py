"""HDF5 files whose data lie where they may: links to other files, external storage and virtual datasets are looked at first."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import h5py

from smtdist.data import checksums, following, found_sound
from smtdist.data.inflating import Inflating, is_packed
from smtdist.data.remote import is_url
from smtdist.errors import DataError

_SOUND: Final[set[tuple[Any, ...]]] = set()
"""Virtual datasets whose sources were looked at, all the way down: file, state and name."""


MOST_LINKS: Final = 16
"""That are followed one after another, as in HDF5."""


class BrokenLink(KeyError):
    """A link that leads nowhere; says why."""


class _Guarded(h5py.Group):  # type: ignore[misc]  # h5py has no types
    """A group that gives nothing which lies in a file that `following.require` refuses."""

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
        return self._checked(super().__getitem__(name))

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
            beside = self._beside(file)
            following.require(self.where, beside)
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
            return (about.fileno, about.addr) == found_sound.address(stored)
        return False

    def _beside(self, name: bytes) -> str:
        return os.path.join("" if is_url(self.where) else os.path.dirname(self.where), os.fsdecode(name))

    def _checked(self, found: Any) -> Any:
        root, sums, where = h5py.h5f.get_name(found.id), self.sums, self.where
        if root != self.root:
            sums, where = checksums.NONE, os.fsdecode(root)
            following.require(self.where, where)
        if isinstance(found, h5py.Dataset):
            plist = found.id.get_create_plist()
            self._require_values(found, plist, where)
            found = Inflating(found.id, readonly=True) if is_packed(plist) else found
            expected = sums.arrays.get(found.name.strip("/"))
            return found if expected is None else checksums.verified(found, expected)
        if isinstance(found, h5py.Group) and not isinstance(found, _Guarded):
            inside = _Guarded(found.id)
            inside.where, inside.root, inside.sums = where, root, sums
            return inside
        return found

    def _require_values(self, found: Any, plist: Any, where: str) -> None:
        """Look at what a dataset's values lie in; `where` is the file that says so."""
        left = math.prod(found.shape or ()) * found.dtype.itemsize
        for number in range(plist.get_external_count()):
            raw, offset, size = plist.get_external(number)
            # HDF5 takes these from the folder that the process is in
            path, taken = os.path.abspath(os.fsdecode(raw)), min(size, left)
            following.require(where, path)
            _require_raw(path, int(offset) + taken, f"{where}:{found.name.strip('/')}")
            left -= taken
        if plist.get_layout() == h5py.h5d.VIRTUAL:
            self._require_sources(plist, where, found)

    def _require_sources(self, plist: Any, lies_in: str, found: Any) -> None:
        """Look at all that a virtual dataset is made of, once for each state of its file: sources may be virtual, too."""
        key = (lies_in, found_sound.state(found), found_sound.address(found)[1])
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
            following.require(lies_in, *(path for path, _ in places if path != lies_in))
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
    `smtdist.data.following` allows it.
    """
    where = os.fspath(path)
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
    seen = {found_sound.address(group)}
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
        address = found_sound.address(found)
        if address in seen:
            continue
        seen.add(address)
        yield place, found
        if isinstance(found, h5py.Group):
            waiting.append((f"{place}/", found, iter(sorted(found))))


def _require_raw(path: str, needed: int, name: str) -> None:
    """Refuse external storage that ends too early: HDF5 would make up the rest."""
    size = os.path.getsize(path) if os.path.isfile(path) else None
    if size is not None and size >= needed:
        return
    what = "does not exist" if size is None else f"has {size:,} bytes, but {needed:,} are needed"
    raise DataError(
        f"{name} has its values in {path}, which {what}; restore that file, or start smtdist in the folder that the "
        f"name is relative to."
    )


def _shown(name: bytes) -> str:
    return name.decode(errors="backslashreplace")


def _steps(name: bytes) -> list[bytes]:
    return [step for step in name.split(b"/") if step not in (b"", b".")]
