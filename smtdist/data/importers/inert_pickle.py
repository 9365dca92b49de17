"""The pickles of CIFAR's Python batches, read without making any object that they name.

A pickle is a program: it may call any function of any module. This reader knows the instructions that build
numbers, strings, lists and dictionaries, and four names, for which it puts in stand-ins that only remember
what they were given; any other instruction or name ends it. It is Python's own unpickler in Python: its
memory is a dictionary, so that a forged index takes no room, and lengths are cut by the end of the data.
"""

from __future__ import annotations

import io
import math
import pickle
import struct
from collections.abc import Callable
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

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


class _Name:
    """What a name in the pickle becomes: callable by this reader alone."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make = make


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
        return _Name(make)

    def load_reduce(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if not isinstance(function, _Name) or type(arguments) is not tuple:
            raise ValueError("a call of something that is not a name")
        self.stack.append(function.make(*arguments))

    def load_build(self) -> None:
        state, made = self.stack.pop(), self.stack[-1]
        if not isinstance(made, _Type | _Array) or type(state) is not tuple:
            raise ValueError("a state of something that is not an array")
        made.set_state(state)

    dispatch[pickle.REDUCE[0]] = load_reduce
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
        return {
            _text(key): entry.values() if isinstance(entry, _Array) else entry
            for key, entry in value.items()
        }
    except DataError as error:
        raise DataError(f"{name} is refused as a pickle: {error}") from None
    except (*_MISTAKES, RecursionError, OverflowError, MemoryError) as error:
        reason = " ".join(str(error).split())[:120].rstrip(".") or type(error).__name__
        raise DataError(
            f"{name} is not a complete batch of CIFAR ({reason}); download it again."
        ) from error


def _text(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)
