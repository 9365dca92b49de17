"""Tar files of images: WebDataset shards, whose members of one name make a sample, and folders of classes in a tar."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import posixpath
import tarfile
from array import array
from collections.abc import Container, Iterator
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import numpy as np
from isal import igzip, isal_zlib

from smtdist.data.decode import endings
from smtdist.data.importers.folder import NO_IMAGE, SETS, UNREAD, UNREAD_KIND
from smtdist.data.importers.idx import is_gzip
from smtdist.data.importers.items import (
    BATCH_BYTES,
    BATCH_ITEMS,
    MOST_IMAGE_BYTES,
    Batch,
    Item,
    LeftOut,
    Listing,
    Twins,
    batched,
    file_keys,
    label_of,
    too_long,
    unreadable,
)
from smtdist.errors import DataError, option

MOST_TEXT_BYTES: Final = 2**20
MOST_FOLDERS: Final = 2**16
_ROLES: Final = 1024
_PACKED: Final = {b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}

_igzip: Any = igzip
_DAMAGED: Any = (isal_zlib.error, igzip.BadGzipFile)


class TarListing(Listing):
    """Tar files one after the other; each is read from its beginning, and its samples are held one at a time.

    Names are looked at first, and the labels, which are short: which members make a sample (`_Reading`), how many there
    are, and what is left out. Where no sample has a label, the folders are the classes, as in a tree of files.
    """

    kind = "webdataset"
    encoded = True

    def __init__(self, paths: list[Path], labels: bool = True) -> None:
        """Look at all members; raise DataError where they are no samples, or only some of those have labels."""
        self.paths = paths
        self._wanted = labels
        self._replaced: dict[Path, frozenset[int]] = {}
        readings, beside = self._looked_at()
        if any(self._replaced.values()):
            readings, beside = self._looked_at()
        self._way = _chosen(readings, paths[0], beside)
        taken = readings[_WAYS.index(self._way)]
        self.n_items = taken.images
        self.labelled = bool(taken.labelled)
        for part in (taken.lonely, taken.others, beside):
            self.left_out.join(part)
        self._depth = 0
        if labels and not self.labelled:
            self._depth, classes = _classes(taken.folders, paths[0])
            self.labelled, self.classes = bool(classes), classes or None
            if classes:
                taken.twins.require_none(str(paths[0]), lambda folder: _parts(folder)[self._depth])

    def _looked_at(self) -> tuple[list[_Reading], LeftOut]:
        """Read all names, and note which members are replaced by later ones; those that were noted before are passed over."""
        beside, readings = LeftOut(), [_Reading(way) for way in _WAYS]
        self._image_bytes = 0
        for path in self.paths:
            # of several members with one name the last replaces the others, as when the tar is unpacked; 16 bytes a member
            names, places = array("Q"), array("Q")
            for member in _members(path, beside, self._wanted, self._replaced.get(path), images=False):
                name = "/".join((*_parts(member.folder), member.base))
                digest = hashlib.blake2b(name.encode(errors="surrogateescape"), digest_size=8).digest()
                names.append(int.from_bytes(digest, "little"))
                places.append(member.at)
                self._image_bytes += member.size if member.is_image else 0
                for reading in readings:
                    reading.add(member)
            for reading in readings:
                reading.end()
            order = np.argsort(found := np.array(names, np.uint64), kind="stable")
            again = found[order[1:]] == found[order[:-1]]
            self._replaced.setdefault(path, frozenset(places[at] for at in order[:-1][again]))
        return readings, beside

    def key(self) -> list[str]:
        """Return the files."""
        return file_keys(self.paths)

    def encoded_bytes(self) -> int:
        """Return the bytes of the images; of files that are not compressed at most the files' own."""
        if any(is_gzip(path) for path in self.paths):
            return self._image_bytes
        return sum(path.stat().st_size for path in self.paths)

    def batches(self, first: int, items: int = BATCH_ITEMS, nbytes: int = BATCH_BYTES) -> Iterator[Batch]:
        """Yield samples; those before `first` are read and passed over."""
        samples = itertools.islice(self._items(), first, None)
        return batched("", samples, first, items, nbytes, self.labelled)

    def _items(self) -> Iterator[Item]:
        place = {name: number for number, name in enumerate(self.classes or ())}
        for path in self.paths:
            reading = _Reading(self._way)
            members = _members(path, LeftOut(), self._wanted, self._replaced[path], images=True)
            for member in itertools.chain(members, [None]):
                for image, label in reading.end() if member is None else reading.add(member):
                    if self.classes:
                        label = place[_parts(image.folder)[self._depth]]
                    yield Item(image.name, image.data, len(image.data), label)


class _Member(NamedTuple):
    """A member of a tar that is an image or a label.

    name : what messages call it. folder, base : of its name. label : what a label says, None for an image.
    at : where its header begins.
    """

    name: str
    folder: str
    base: str
    size: int
    data: bytes
    label: int | None
    at: int

    @property
    def is_image(self) -> bool:
        """Whether it is an image."""
        return self.label is None

    @property
    def plain(self) -> bool:
        """Whether its name has one dot."""
        return self.base.count(".") == 1

    @property
    def stem(self) -> str:
        """What comes before the last dot of its name."""
        return self.base.rpartition(".")[0]

    @property
    def suffix(self) -> str:
        """What follows the first dot of its name."""
        return self.base.partition(".")[2]


_WAYS: Final = ("first dot", "last dot", "plain names")


class _Reading:
    """One way to tell which members make a sample, and what comes of it; members of a sample follow one another.

    - "first dot": those that agree up to the first dot of the last part of their names, which is WebDataset's own rule;
      so 7.input.jpg and 7.cls are a sample.
    - "last dot": those that agree up to the last dot, as people mean it who have dots in their names: 22.05.jpg, 22.05.cls.
    - "plain names": as "first dot", and of several images or labels that with one dot alone is taken: 7.jpg, not 7.seg.png.
    """

    def __init__(self, way: str) -> None:
        self.way = way
        self.images, self.labelled = 0, 0
        self.lonely = LeftOut()  # labels without an image
        self.others = LeftOut()  # images and labels beside the plain ones
        self.problem = ""
        self.bare, self.with_label = "", ""  # the first image without, and with a label
        self.folders: dict[str, str] = {}  # and the first image in each
        self.twins = Twins()
        self.roles: set[str] = set()  # endings of images that WebDataset takes for one sample
        self.roles_repeat = False
        self._roles_of: tuple[str, str] | None = None
        self._key: tuple[str, str] | None = None
        self._image: _Member | None = None
        self._label: _Member | None = None

    def add(self, member: _Member) -> list[tuple[_Member, int | None]]:
        """Take a member in; return the sample that ends before it, an image and its label, or nothing where none does."""
        ended: list[tuple[_Member, int | None]] = []
        stem = member.stem if self.way == "last dot" else member.base.partition(".")[0]
        key = (member.folder, stem)
        if key != self._key:
            ended, self._key = self.end(), key
        if member.is_image:
            self._note_role(member, key)
            self._image = self._one_of(self._image, member, "image")
        else:
            self._label = self._one_of(self._label, member, "label")
        return ended

    def end(self) -> list[tuple[_Member, int | None]]:
        """End the sample at hand and return it, or nothing where there is none."""
        image, label = self._image, self._label
        self._key = self._image = self._label = None
        if image is None:
            if label is not None:
                self.lonely.add(f"{label.name} is a label without an image beside it")
            return []
        self.images += 1
        if label is None:
            self.bare = self.bare or image.name
        else:
            self.labelled += 1
            self.with_label = self.with_label or image.name
        if len(self.folders) <= MOST_FOLDERS:
            self.folders.setdefault(image.folder, image.name)
            self.twins.add(image.folder, image.name)
        return [(image, None if label is None else label.label)]

    def _one_of(self, before: _Member | None, member: _Member, what: str) -> _Member:
        """Return which of two images or labels of a sample is taken."""
        if before is None:
            return member
        if what == "label" and (before.label, before.stem) == (
            member.label,
            member.stem,
        ):  # in .cls and in .json
            return member
        if self.way == "plain names" and before.plain != member.plain:
            kept, other = (before, member) if before.plain else (member, before)
            self.others.add(f"{other.name} is a second {what} of the sample of {kept.name}")
            return kept
        self.problem = self.problem or (
            f"{member.name} is a second {what} of the sample of {before.name}, whose names agree up to the first dot; keep one "
            f"of them, or rename them, so that only the names of one sample agree."
        )
        return before

    def _note_role(self, member: _Member, key: tuple[str, str]) -> None:
        """Notice endings as in 7.left.jpg, 7.right.jpg, 8.left.jpg, 8.right.jpg, which are parts of samples."""
        if self._image is not None and self._roles_of in (None, key):
            self._roles_of = key
            if len(self.roles) < _ROLES:
                self.roles |= {one.suffix for one in (self._image, member) if not one.plain}
        elif self._roles_of != key:
            self.roles_repeat = self.roles_repeat or member.suffix in self.roles


def _chosen(readings: list[_Reading], path: Path, beside: LeftOut) -> str:
    """Return the way to read that leaves nothing out, WebDataset's first, or else the least; raise DataError where none fits."""
    own = readings[0]
    if not own.images:
        holds = f"; it begins with {beside.first[0]}" if beside.first else ""
        raise DataError(
            f"{path} holds no member with the ending of an image (.jpg, .png, .webp and others){holds}; name a tar of images."
        )
    for reading in readings:
        guessed = reading.way == "last dot" and not reading.labelled and own.roles_repeat
        if not (reading.problem or guessed or reading.lonely.count) and reading.labelled in (
            0,
            reading.images,
        ):
            return reading.way
    for reading in readings:
        if not reading.problem and reading.labelled == reading.images:
            return reading.way
    if own.problem:
        raise DataError(own.problem)
    if own.lonely.count:
        raise DataError(
            f"{own.bare} has no label, and {own.lonely.first[0]}; let the members of a sample have one name and follow one "
            f"another (`tar --sort=name`), or pass {option('labels_from', 'none')}."
        )
    raise DataError(
        f"{own.bare} has no label, but {own.with_label} has a label; fix the files, or pass {option('labels_from', 'none')}."
    )


def _parts(folder: str) -> tuple[str, ...]:
    """Return the folders on the way to a member, of which none leads up and out."""
    return tuple(part for part in posixpath.normpath(f"/{folder}").split("/") if part)


def _classes(folders: dict[str, str], path: Path) -> tuple[int, list[str]]:
    """Return how many folders lie around all images, and the names of the folders of classes in these; [] for none."""
    parts = [_parts(folder) for folder in folders]
    depth = next(
        depth
        for depth in range(len(min(parts, key=len)) + 1)
        if len({found[: depth + 1] for found in parts}) > 1 or any(len(found) == depth for found in parts)
    )
    names = sorted({found[depth] for found in parts if len(found) > depth})
    if not names:
        return 0, []
    if len(folders) > MOST_FOLDERS:
        raise DataError(
            f"{path} has more than {MOST_FOLDERS:,} folders, too many for classes; pass {option('labels_from', 'none')}."
        )
    loose = [name for found, name in zip(parts, folders.values(), strict=True) if len(found) == depth]
    if loose:
        raise DataError(
            f"{loose[0]} lies beside the folders of classes, such as {names[0]}; move it into one of them, or "
            f"pass {option('labels_from', 'none')}."
        )
    if all(name.lower() in SETS for name in names):
        raise DataError(
            f"{path} holds the sets {', '.join(names)}; unpack it and import the folder, or make a tar of each set."
        )
    return depth, names


def _label(member: str, ending: str, data: bytes) -> int | None:
    if ending == "cls":
        return label_of(data, member)
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise DataError(f"{member} is not valid JSON; fix it.") from None
    if not isinstance(found, dict) or "label" not in found:
        return None
    label = found["label"]
    if type(label) is not int:
        raise DataError(
            f"{member} has the label {str(label)[:40]!r}, but a label is a whole number; fix it."
        )
    return label_of(str(label), member)


def _members(
    path: Path, beside: LeftOut, labels: bool, replaced: Container[int] | None, images: bool
) -> Iterator[_Member]:
    """Yield the images, with their bytes where `images` says so, and the labels, where these are wanted.

    What is `replaced` by a later member, and whatever else there is, goes to `beside`; folders, hidden files and labels that
    are not wanted are passed by.
    """
    with _opened(path) as (archive, stream):
        while (member := archive.next()) is not None:
            archive.members.clear()  # type: ignore[attr-defined]  # else the archive remembers every member
            folder, _, base = member.name.rpartition("/")
            stem, _, ending = base.rpartition(".")
            name, ending = f"{path}:{member.name}", ending.lower()
            if member.isdir() or base.startswith("."):
                continue
            picture = bool(stem) and f".{ending}" in endings()
            if not (member.isreg() and stem and (picture or ending in ("cls", "json"))):
                what = UNREAD_KIND if f".{ending}" in UNREAD else NO_IMAGE
                beside.add(f"{name}: {what if member.isreg() else 'a link or a device, not a file'}")
                continue
            if not picture and not labels:
                continue
            if replaced is not None and member.offset in replaced:
                beside.add(f"{name}: its name comes again, and the last member of a name is taken")
                continue
            if member.size > (MOST_IMAGE_BYTES if picture else MOST_TEXT_BYTES):
                raise DataError(too_long(name, member.size))
            data = b""
            if images or not picture:
                part = archive.extractfile(member)
                data = b"" if part is None else part.read()
                if len(data) != member.size:
                    raise DataError(_cut_short(path))
            label = None if picture else _label(name, ending, data)
            if picture or label is not None:
                yield _Member(name, folder, base, member.size, data, label, member.offset)
        # a whole archive ends with a block of zeros; tarfile takes any block that is no header for its end
        if stream.last != bytes(tarfile.BLOCKSIZE):
            raise DataError(_cut_short(path))
        while piece := stream.read(MOST_TEXT_BYTES):  # the checksum of gzip lies at its very end
            if piece.count(0) < len(piece):
                raise DataError(
                    f"{path} goes on behind its end mark: it is several tar files joined, or parts of it were not downloaded; "
                    f"give the tar files one by one, or download it again."
                )


class _Guarded:
    """A stream that refuses to read more at once than any member may hold: tar headers may be forged."""

    def __init__(self, stream: IO[bytes], path: Path) -> None:
        self._stream, self._path = stream, path
        self.seek, self.tell = stream.seek, stream.tell
        self.last = b""

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= MOST_IMAGE_BYTES:
            raise DataError(
                f"{self._path} lists a member of {size:,} bytes, which is not possible; copy or download it again."
            )
        self.last = self._stream.read(size)
        return self.last


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[tarfile.TarFile, Any]]:
    try:
        with _igzip.open(path) if is_gzip(path) else open(path, "rb") as stream:
            guarded = _Guarded(stream, path)
            with tarfile.open(fileobj=guarded, mode="r:", encoding="utf-8") as archive:  # type: ignore[call-overload]
                archive.members.clear()
                yield archive, guarded
    except (tarfile.ReadError, EOFError, *_DAMAGED) as error:
        raise DataError(_cut_short(path)) from error
    except (tarfile.TarError, ValueError) as error:
        raise DataError(
            f"{path} is not a complete tar file ({error}); copy or download it again."
        ) from error
    except OSError as error:
        raise unreadable(path, error) from error


def _cut_short(path: Path) -> str:
    with open(path, "rb") as file:
        start = file.read(6)
    for magic, program in _PACKED.items():
        if start.startswith(magic):
            return f"{path} is packed with {program}, but a tar file may be packed with gzip alone; unpack it with {program} -d."
    return f"{path} is no tar file, damaged or cut short; copy or download it again in full."
