"""What importers have in common: a listing of a source, and batches of its items in order."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from smtdist.data.locations import require_no_pipe
from smtdist.errors import DataError, option

MOST_IMAGE_BYTES: Final = 256 * 2**20
"""An encoded image that is longer is refused before it is read."""

BATCH_ITEMS: Final = 256
BATCH_BYTES: Final = 4 * 2**20

ROLE: Final = re.compile("(image|img|mask|label|annotation|segmentation)s?|seg|gt|ground_?truth|rgb|depth")
"""What folders of pictures in one of several roles are called, in small letters."""
_ROLE_ENDING: Final = re.compile(f"[-_ ]({ROLE.pattern})$")

Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ImportOptions:
    """What of a source is imported, and what becomes of it.

    Attributes
    ----------
    group : the HDF5 group that images are written to; of a folder of CIFAR, its test batch where that is called test.
    layout : "plain", "encoded", or "auto": encoded for encoded sources that are not scaled.
    resize, crop : see `smtdist.data.decode.resized`.
    verify : decode images that are kept as they are, to find damaged ones.
    skip : leave unreadable images out instead of ending.
    workers : processes that read and decode; 0: this one.
    overwrite : replace the file, or give up an unfinished import of other data or options.
    append : add a group to a file that exists.
    use_labels : whether labels are imported.
    labels : a file of labels, for arrays and IDX.
    array, label_array : members of an .npz.
    image_column, label_column : columns of Parquet files.
    """

    group: str = "train"
    layout: str = "auto"
    resize: int | None = None
    crop: int | None = None
    verify: bool = True
    skip: bool = False
    workers: int = 1
    overwrite: bool = False
    append: bool = False
    use_labels: bool = True
    labels: Path | None = None
    array: str | None = None
    label_array: str | None = None
    image_column: str | None = None
    label_column: str | None = None

    @property
    def scales(self) -> bool:
        """Whether images change their size."""
        return self.resize is not None or self.crop is not None


USUAL: Final = ImportOptions()


@dataclass(frozen=True)
class Batch:
    """Items of a source that follow one another.

    Attributes
    ----------
    origin : what messages call the file they are from.
    first : the place of the first item in it.
    data : encoded images, or pixels (n, H, W[, C]), or None: `names` are files that are yet to be read.
    labels : a class a sample, None for a source without labels.
    names : what messages call each item; None: origin and place.
    """

    origin: str
    first: int
    data: Sequence[bytes] | npt.NDArray[Any] | None
    labels: Labels | None
    names: Sequence[str] | None = None

    def __len__(self) -> int:
        known = self.names if self.data is None else self.data
        assert known is not None
        return len(known)

    def name(self, index: int) -> str:
        """Return what messages call an item.

        >>> Batch("a.npz", 7, [b""], None).name(0)
        'a.npz, sample 7'
        """
        return f"{self.origin}, sample {self.first + index}" if self.names is None else self.names[index]

    def read(self, index: int) -> bytes | npt.NDArray[Any]:
        """Return an image, encoded or pixels, read now if it is a file of its own."""
        if self.data is not None:
            return self.data[index]
        assert self.names is not None
        return read_whole(self.names[index])


class Twins:
    """Tells folders of the same pictures in two roles, such as images and their masks, from folders of classes.

    Two folders are twins if both are called like roles, or one is and both hold files of the same names. Memory: two
    numbers a folder.
    """

    def __init__(self) -> None:
        self._held: dict[str, tuple[int, int]] = {}

    def add(self, folder: str, path: str) -> None:
        """Note a file of a folder."""
        stem = _ROLE_ENDING.sub("", os.path.basename(path).partition(".")[0].lower())
        count, total = self._held.get(folder, (0, 0))
        self._held[folder] = count + 1, total + hash(stem)  # in any order

    def require_none(self, origin: str, class_of: Callable[[str], str] = str) -> None:
        """Raise DataError for twins among the folders, or what `class_of` makes one of."""
        held: dict[str, tuple[int, int]] = {}
        for folder, (count, total) in self._held.items():
            before = held.get(name := class_of(folder), (0, 0))
            held[name] = before[0] + count, before[1] + total
        for role in (name for name in held if ROLE.fullmatch(name.lower())):
            for other, files in held.items():
                if other != role and (ROLE.fullmatch(other.lower()) or files == held[role]):
                    raise DataError(
                        f"The folders {role} and {other} of {origin} hold the same pictures in two roles and are no classes; "
                        f"import one of them alone, or pass {option('labels_from', 'none')}."
                    )


@dataclass
class LeftOut:
    """What an import leaves out of a source: how many, and a sentence for each of the first few."""

    NAMED: ClassVar = 5
    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, sentence: str) -> None:
        """Count one more."""
        self.count += 1
        if len(self.first) < self.NAMED:
            self.first.append(sentence)

    def join(self, other: LeftOut) -> None:
        """Count what another has counted."""
        self.count += other.count
        self.first = [*self.first, *other.first][: self.NAMED]


class Listing:
    """A source of images, looked at but not yet read.

    Attributes
    ----------
    kind : the word for it on the command line.
    encoded : whether its items are the bytes of encoded images; else pixels.
    shape, dtype : of each image, for pixels: (H, W[, C]).
    n_items : samples, None where only reading tells.
    labelled : whether each sample has a label.
    classes : names of the classes, None where the source has none.
    left_out_is : what messages call one thing that it leaves out.
    """

    kind: str
    encoded: bool
    shape: tuple[int, ...] = ()
    dtype: np.dtype[Any] = np.dtype(np.uint8)
    n_items: int | None = None
    labelled: bool = False
    classes: list[str] | None = None
    left_out_is: str = "part of the source"

    @cached_property
    def left_out(self) -> LeftOut:
        """What of the source is not imported."""
        return LeftOut()

    def key(self) -> list[str]:
        """Return what tells this source from others and from what it may become: names, sizes and times of files."""
        raise NotImplementedError

    def batches(self, first: int, items: int = BATCH_ITEMS, nbytes: int = BATCH_BYTES) -> Iterator[Batch]:
        """Yield all items from number `first` on, in order, at most `items` and about `nbytes` at once."""
        raise NotImplementedError

    def encoded_bytes(self) -> int | None:
        """Return about how many bytes the encoded images of an archive have in all; None for what is no archive."""
        return None


class Item(NamedTuple):
    """An encoded image of a source: what messages call it, its bytes unless it is a file of its own, and how many they are."""

    name: str
    data: bytes | None
    size: int
    label: int | None


def batched(
    origin: str, samples: Iterable[Item], first: int, items: int, nbytes: int, labelled: bool
) -> Iterator[Batch]:
    """Yield batches of samples, the first of which is number `first` of their source, as `Listing.batches` does."""
    held: list[Item] = []
    size = 0

    def batch() -> Batch:
        data = [one.data for one in held if one.data is not None]
        labels = [one.label for one in held if one.label is not None]
        names = [one.name for one in held]
        return Batch(origin, first, data or None, np.array(labels, np.int64) if labelled else None, names)

    for sample in samples:
        if held and (len(held) == items or size + sample.size > nbytes):
            yield batch()
            first, size, held = first + len(held), 0, []
        held.append(sample)
        size += sample.size
    if held:
        yield batch()


def read_whole(path: str) -> bytes:
    """Return the bytes of a file of at most `MOST_IMAGE_BYTES`; three calls of the system, for small files."""
    try:
        file = os.open(path, os.O_RDONLY)
        try:
            size = os.fstat(file).st_size
            if size > MOST_IMAGE_BYTES:
                raise DataError(too_long(path, size))
            data = os.read(file, size)
            while len(data) < size and (more := os.read(file, size - len(data))):
                data += more
        finally:
            os.close(file)
    except OSError as error:
        raise unreadable(path, error) from error
    return data


def first_bytes(path: Path, count: int) -> bytes:
    """Return the bytes that a file begins with; DataError where it cannot be read."""
    require_no_pipe(path)
    try:
        with open(path, "rb") as file:
            return file.read(count)
    except OSError as error:
        raise unreadable(path, error) from error


def too_long(name: str, size: int) -> str:
    """Say that an encoded image is longer than any should be."""
    return f"{name}: the image has {size:,} bytes, more than {MOST_IMAGE_BYTES:,}; leave it out or make it smaller."


def unreadable(path: str | Path, error: OSError) -> DataError:
    """Return the error for a file that the system does not hand out."""
    if isinstance(error, FileNotFoundError):
        return DataError(f"There is no file {path}; check the name.")
    return DataError(
        f"{path} cannot be read: {error.strerror or error}; check its permissions and the disk."
    )


def file_keys(paths: Sequence[Path]) -> list[str]:
    """Return name, size and time of files, to notice that one was replaced."""
    keys = []
    for path in paths:
        status = path.stat()
        keys.append(f"{path.absolute()} {status.st_size} {status.st_mtime_ns}")
    return keys


def label_of(text: bytes | str, name: str) -> int:
    """Return a label that is written in a file of its own.

    >>> label_of(b" 7 ", "a.cls")
    7
    """
    plain = text if isinstance(text, str) else text.decode(errors="replace")
    written = re.fullmatch(r"[-+]?[0-9]{1,19}", plain.strip())
    if not written or not -(2**63) <= int(plain) < 2**63:
        raise DataError(f"{name} holds {plain[:40]!r}, but a label is a whole number; fix it.")
    return int(plain)
