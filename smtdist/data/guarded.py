"""HDF5 files whose data lie where they may: links to other files, external storage and virtual datasets are looked at first."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final

import h5py

from smtdist.data import checksums, following
from smtdist.data.inflating import Inflating, is_packed
from smtdist.data.remote import is_url

_SOUND: Final[set[tuple[Any, ...]]] = set()
"""Virtual datasets whose sources were looked at, all the way down: file, state and name."""


MOST_LINKS: Final = 16
"""That are followed one after another, as in HDF5."""


class _Guarded(h5py.Group):  # type: ignore[misc]  # h5py has no types
    """A group that gives nothing which lies in a file that `following.require` refuses."""

    where = ""
    """The path or address that was opened."""
    root = b""
    """What HDF5 calls that file."""
    sums: Mapping[str, Any] = MappingProxyType({})
    """Its checksums."""

    def __getitem__(self, name: Any) -> Any:
        """Open an object; raise a DataError for one whose data may not be read."""
        if isinstance(name, str):
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

    def _require_links(self, name: str, left: int = MOST_LINKS) -> None:
        """Refuse a link to another file before that is opened, wherever links of this file, or of that, lead to it."""
        place, waiting = b"/" if name.startswith("/") else b"", _steps(os.fsencode(name))
        while waiting:
            step = waiting.pop(0)
            here = place + step
            try:
                kind = self.id.links.get_info(here).type
            except (KeyError, RuntimeError, ValueError):
                return  # who opens it says what is missing
            if kind == h5py.h5l.TYPE_HARD:
                place = here + b"/"
                continue
            if not left:
                raise KeyError(f"{name} is a link that leads in a circle")
            left -= 1
            if kind == h5py.h5l.TYPE_SOFT:
                target = self.id.links.get_val(here)
                place = b"/" if target.startswith(b"/") else place
                waiting = _steps(target) + waiting
                continue
            if kind != h5py.h5l.TYPE_EXTERNAL:
                raise KeyError(f"{name} is a link of an unknown kind")
            file, inside = self.id.links.get_val(here)
            beside = self._beside(file)
            following.require(self.where, beside)
            if is_url(beside):
                return
            if not os.path.isfile(beside):
                raise KeyError(f"{beside}, which a link names, is no file")
            with unlocked(beside) as other:
                other._require_links("/" + os.fsdecode(b"/".join([*_steps(inside), *waiting])), left)
            return

    def _beside(self, name: bytes) -> str:
        return os.path.join("" if is_url(self.where) else os.path.dirname(self.where), os.fsdecode(name))

    def _checked(self, found: Any) -> Any:
        lies_in = h5py.h5f.get_name(found.id)
        if lies_in != self.root:
            following.require(self.where, os.fsdecode(lies_in))
        if isinstance(found, h5py.Dataset):
            plist = found.id.get_create_plist()
            self._require_values(plist, found.name, os.fsdecode(lies_in))
            found = Inflating(found.id, readonly=True) if is_packed(plist) else found
            expected = self.sums.get(found.name.strip("/")) if lies_in == self.root else None
            return found if expected is None else checksums.verified(found, expected)
        if isinstance(found, h5py.Group) and not isinstance(found, _Guarded):
            inside = _Guarded(found.id)
            inside.where, inside.root, inside.sums = self.where, self.root, self.sums
            return inside
        return found

    def _require_values(self, plist: Any, name: str, lies_in: str) -> None:
        for number in range(plist.get_external_count()):
            # HDF5 takes these from the folder that the process is in
            following.require(self.where, os.path.abspath(os.fsdecode(plist.get_external(number)[0])))
        if plist.get_layout() == h5py.h5d.VIRTUAL:
            self._require_sources(plist, lies_in, name)

    def _require_sources(self, plist: Any, lies_in: str, name: str) -> None:
        """Look at all that a virtual dataset is made of, once for each state of its file: sources may be virtual, too."""
        key = (os.path.realpath(lies_in), _state(lies_in), name)
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
            following.require(self.where, *(path for path, _ in places if path != lies_in))
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
        """Open what h5py opens."""
        super().__init__(file, "r", **how)
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


def walk(group: h5py.Group) -> Iterator[tuple[str, Any]]:
    """Yield all that lies below a group, (name, object), each once, in the order of names; links are not followed.

    The time grows with the number of objects, however deep they lie; h5py's own walk looks each up from the top.
    """
    seen = {h5py.h5o.get_info(group.id).addr}
    waiting = [("", group, iter(sorted(group)))]
    while waiting:
        above, here, names = waiting[-1]
        name = next(names, None)
        if name is None:
            waiting.pop()
            continue
        if not isinstance(here.get(name, getlink=True), h5py.HardLink):
            continue
        found, place = here[name], f"{above}{name}"
        address = h5py.h5o.get_info(found.id).addr
        if address in seen:
            continue
        seen.add(address)
        yield place, found
        if isinstance(found, h5py.Group):
            waiting.append((f"{place}/", found, iter(sorted(found))))


def _steps(name: bytes) -> list[bytes]:
    return [step for step in name.split(b"/") if step not in (b"", b".")]


def _state(path: str) -> tuple[int, ...]:
    with suppress(OSError):
        about = os.stat(path)
        return about.st_size, about.st_mtime_ns
    return ()
