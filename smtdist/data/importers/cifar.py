"""CIFAR-10 and CIFAR-100 as they are distributed: Python batches (pickles, never run) and binary batches.

A pickle is a program: it may call any function of any module. Its reader here knows the instructions that build
numbers, strings, lists and dictionaries, and four names, for which it puts in stand-ins that only remember
what they were given; any other instruction or name ends it. It is Python's own unpickler in Python: its
memory is a dictionary, so that a forged index takes no room, and lengths are cut by the end of the data.
"""

from __future__ import annotations

import io
import math
import os
import pickle
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from smtdist.data.importers.arrays import ArrayListing, ArrayPart, check_label_count, rows_of
from smtdist.data.importers.items import Labels, first_bytes, unreadable
from smtdist.errors import DataError

_OPCODES: Final = (
    pickle.PROTO,
    pickle.FRAME,
    pickle.STOP,
    pickle.MARK,
    pickle.NONE,
    pickle.NEWTRUE,
    pickle.NEWFALSE,
    pickle.INT,
    pickle.BININT,
    pickle.BININT1,
    pickle.BININT2,
    pickle.LONG1,
    pickle.STRING,
    pickle.BINSTRING,
    pickle.SHORT_BINSTRING,
    pickle.UNICODE,
    pickle.BINUNICODE,
    pickle.SHORT_BINUNICODE,
    pickle.BINUNICODE8,
    pickle.BINBYTES,
    pickle.SHORT_BINBYTES,
    pickle.BINBYTES8,
    pickle.EMPTY_TUPLE,
    pickle.TUPLE,
    pickle.TUPLE1,
    pickle.TUPLE2,
    pickle.TUPLE3,
    pickle.EMPTY_LIST,
    pickle.LIST,
    pickle.APPEND,
    pickle.APPENDS,
    pickle.EMPTY_DICT,
    pickle.DICT,
    pickle.SETITEM,
    pickle.SETITEMS,
    pickle.PUT,
    pickle.BINPUT,
    pickle.LONG_BINPUT,
    pickle.MEMOIZE,
    pickle.GET,
    pickle.BINGET,
    pickle.LONG_BINGET,
    pickle.GLOBAL,
    pickle.STACK_GLOBAL,
    pickle.REDUCE,
)
_TYPES: Final = {name: np.dtype(name) for name in ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8")}
_MISTAKES: Final = (
    pickle.UnpicklingError,
    EOFError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    struct.error,
)


class _Type:
    """Stands in for numpy.dtype."""

    __slots__ = ("name", "order")

    def __init__(self, name: Any) -> None:
        self.name, self.order = name.decode("ascii") if isinstance(name, bytes) else str(name), "<"

    def set_state(self, state: Any) -> None:
        self.order = state[1].decode("ascii") if isinstance(state[1], bytes) else str(state[1])


class _Array:
    """Stands in for numpy.ndarray: keeps shape, type and bytes."""

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state: tuple[Any, ...] = ()

    def set_state(self, state: Any) -> None:
        self.state = state

    def values(self) -> npt.NDArray[Any]:
        _, shape, kind, fortran, data = self.state
        if not isinstance(kind, _Type) or kind.name not in _TYPES or not isinstance(data, bytes):
            raise ValueError("an array of another type than whole numbers")
        dtype = _TYPES[kind.name].newbyteorder(">" if kind.order == ">" else "<")
        if not all(type(length) is int and length >= 0 for length in shape):
            raise ValueError("an array without a shape")
        if math.prod(shape) * dtype.itemsize != len(data):
            raise ValueError("an array whose length does not fit its shape")
        return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")


def _encoded(text: Any, codec: Any) -> bytes:
    """Stand in for _codecs.encode, by which Python 3 writes bytes for Python 2."""
    if type(text) is not str or codec not in ("latin1", b"latin1"):
        raise ValueError("a codec other than latin1")
    return text.encode("latin1")


_NAMES: Final[dict[tuple[str, str], Callable[..., Any]]] = {
    ("_reconstruct", "numpy"): lambda *_: _Array(),
    ("dtype", "numpy"): lambda name, *_: _Type(name),
    ("ndarray", "numpy"): lambda *_: None,
    ("encode", "_codecs"): _encoded,
}
_MODULES: Final = {
    "numpy": "numpy",
    "numpy.core.multiarray": "numpy",
    "numpy._core.multiarray": "numpy",
    "_codecs": "_codecs",
}


class _Reader(pickle._Unpickler):
    stack: list[Any]
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        code[0]: pickle._Unpickler.dispatch[code[0]] for code in _OPCODES
    }

    def find_class(self, module: str, name: str) -> Any:
        make = _NAMES.get((name, _MODULES.get(module, "")))
        if make is None:
            raise DataError(f"it names {module}.{name}, which no batch of CIFAR does, and was not run.")
        return make

    def load_build(self) -> None:
        state, made = self.stack.pop(), self.stack[-1]
        if not isinstance(made, _Type | _Array) or type(state) is not tuple:
            raise ValueError("a state of something that is not an array")
        made.set_state(state)

    dispatch[pickle.BUILD[0]] = load_build


def read_pickle(data: bytes, name: str) -> dict[str, Any]:
    """Return the dictionary that a pickle holds: strings, bytes, numbers, lists and arrays of whole numbers.

    Keys come as str. Memory: a few times the data. Raises DataError, naming what the pickle wanted to call,
    for any that holds more than that.
    """
    try:
        value = _Reader(io.BytesIO(data), fix_imports=False, encoding="bytes").load()
        if type(value) is not dict:
            raise ValueError("no dictionary")
        texts = (key.decode("latin1") if isinstance(key, bytes) else str(key) for key in value)
        entries = (one.values() if isinstance(one, _Array) else one for one in value.values())
        return dict(zip(texts, entries, strict=True))
    except DataError as error:
        raise DataError(f"{name} is refused as a pickle: {error}") from None
    except (*_MISTAKES, RecursionError, OverflowError, MemoryError) as error:
        reason = " ".join(str(error).split())[:120].rstrip(".") or type(error).__name__
        raise DataError(
            f"{name} is not a complete batch of CIFAR ({reason}); download it again."
        ) from error


SIDE: Final = 32
PIXELS: Final = 3 * SIDE * SIDE
MOST_BATCH_BYTES: Final = 2**30
_TRAIN: Final = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "train")
_TEST: Final = ("test_batch", "test")
_CLASSES: Final = ("batches.meta", "meta", "batches.meta.txt", "fine_label_names.txt")


@dataclass(frozen=True)
class _Images(ArrayPart):
    """One batch of images with labels, which may have coarse labels, too."""

    path: Path
    count: int
    coarse: bool
    dtype = np.dtype(np.uint8)
    labelled = True

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]  # an attribute of the base class, computed here
        return (self.count, SIDE, SIDE, 3)


class _Binary(_Images):
    """Records of one label (CIFAR-10) or two, coarse and fine (CIFAR-100), and 3,072 bytes of pixels."""

    def blocks(self, first: int, rows: int) -> Iterator[tuple[npt.NDArray[Any], Labels | None]]:
        labels = 1 + self.coarse
        shape = self.count, PIXELS + labels
        with open(self.path, "rb") as file:
            for data in rows_of(file, shape, self.dtype, first, rows, str(self.path)):
                yield _rows_first(data[:, labels:]), data[:, labels - 1].astype(np.int64)


class _Python(_Images):
    """One pickled batch: read whole, 30 MB for 10,000 images."""

    def blocks(self, first: int, rows: int) -> Iterator[tuple[npt.NDArray[Any], Labels | None]]:
        data, labels, _ = _read_batch(self.path)
        for start in range(first, self.count, rows):
            yield _rows_first(data[start : start + rows]), labels[start : start + rows]


def cifar_listing(paths: list[Path], group: str, labelled: bool = True) -> ArrayListing:
    """Look at batches, or at a folder of them: its test batch for a group called test, else those to train with."""
    files: list[Path] = []
    for path in paths:
        files += batches_in(path, group) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{paths[0]} holds no batch of CIFAR; name the files.")
    parts = [_part(path) for path in files]
    classes = _class_names(files[0].parent) if labelled else None
    listing = ArrayListing("cifar", parts, files, classes, labelled)
    for folder in (path for path in paths if path.is_dir()):
        for other in ("train", "test"):
            for batch in batches_in(folder, other):
                if batch not in files:
                    listing.left_out.add(
                        f"{batch}: of another set; import it as the group {other}, and append that"
                    )
    for part in parts:
        if labelled and part.coarse:
            listing.left_out.add(f"{part.path}: its coarse labels; the fine ones are taken")
    return listing


def batches_in(folder: Path, group: str = "train") -> list[Path]:
    """Return the batches in a folder, in order; none where it is no folder of CIFAR."""
    names = _TEST if group.rpartition("/")[2].startswith("test") else _TRAIN
    found = [folder / f"{name}{ending}" for name in names for ending in ("", ".bin")]
    return [path for path in found if path.is_file()]


def _part(path: Path) -> _Images:
    if first_bytes(path, 1) == b"\x80" and path.suffix != ".bin":
        _, labels, coarse = _read_batch(path)
        return _Python(path, len(labels), coarse)
    size = path.stat().st_size
    fits = [extra for extra in (1, 2) if size and size % (PIXELS + extra) == 0]
    if len(fits) == 2:  # by chance: then the names tell
        fits = [2 if path.stem in ("train", "test") else 1]
    if not fits:
        raise DataError(
            f"{path} has {size:,} bytes, which is not a whole number of CIFAR records (3,073 or 3,074 bytes each); download "
            f"it again."
        )
    return _Binary(path, size // (PIXELS + fits[0]), fits[0] == 2)


def _read_batch(path: Path) -> tuple[npt.NDArray[np.uint8], Labels, bool]:
    """Return pixels and labels of a pickled batch, and whether it has coarse labels, too."""
    batch = read_pickle(_whole(path), str(path))
    data = batch.get("data")
    labels = batch.get("labels", batch.get("fine_labels"))
    if (
        not isinstance(data, np.ndarray)
        or data.dtype != np.uint8
        or data.ndim != 2
        or data.shape[1] != PIXELS
    ):
        raise DataError(f"{path} has no data of uint8 (samples, 3072); name a batch of CIFAR.")
    if isinstance(labels, list) and all(type(label) is int and 0 <= label < 2**31 for label in labels):
        labels = np.array(labels, np.int64)
    if not isinstance(labels, np.ndarray) or labels.ndim != 1:
        raise DataError(f"{path} has no labels or fine_labels of whole numbers; name a batch of CIFAR.")
    check_label_count(len(labels), len(data), str(path), "it")
    return data, labels.astype(np.int64), "coarse_labels" in batch


def _whole(path: Path) -> bytes:
    try:
        size = os.stat(path).st_size
        if size > MOST_BATCH_BYTES:
            raise DataError(
                f"{path} has {size:,} bytes, far more than a batch of CIFAR; name another file."
            )
        return path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error


def _rows_first(planes: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return (n, 32, 32, 3) from three planes of rows, red, green and blue."""
    return np.ascontiguousarray(planes.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1))


def _class_names(folder: Path) -> list[str] | None:
    """Return the names that are distributed beside the batches, if they are there."""
    for name in _CLASSES:
        path = folder / name
        if not path.is_file() or path.stat().st_size > 2**20:
            continue
        if path.suffix == ".txt":
            return path.read_text("utf-8", "backslashreplace").split()
        meta = read_pickle(_whole(path), str(path))
        names = meta.get("label_names", meta.get("fine_label_names"))
        if isinstance(names, list):
            return [text.decode("latin1") if isinstance(text, bytes) else str(text) for text in names]
    return None
