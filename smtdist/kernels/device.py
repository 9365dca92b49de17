"""Which array library an array belongs to, and the only transfers between host and device."""

from __future__ import annotations

import importlib
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias, TypeVar

import numpy as np

from smtdist.errors import ConfigurationError
from smtdist.kernels.gpu import card
from smtdist.kernels.gpu.staging import Uploads
from smtdist.kernels.types import Array

PRODUCTS_VARIABLE = "SMTDIST_PRODUCTS"
"""Environment variable that names how patches and atoms are multiplied; a GPU heeds "float32" alone."""
ROUNDING = (
    "CUPY_TF32",
    "NVIDIA_TF32_OVERRIDE",
    "CUBLAS_EMULATE_SINGLE_PRECISION",
    "CUBLAS_EMULATE_DOUBLE_PRECISION",
    "CUBLAS_EMULATION_STRATEGY",
)
"""Environment variables that let CuPy, or the libraries below it, make products of numbers of fewer bits."""
Batches: TypeAlias = Iterator[tuple[int, Array]]
T = TypeVar("T")
_made: dict[tuple[int, Callable[[Array], Any]], Any] = {}
_uploads: ContextVar[Uploads | None] = ContextVar("uploads", default=None)


def array_module(*arrays: Array) -> Any:
    """Return CuPy if one of the arrays is a CuPy array, else NumPy.

    CuPy is never imported by this: an array of CuPy exists only where CuPy is imported already.

    >>> array_module(np.zeros(3)).__name__
    'numpy'
    """
    cupy = sys.modules.get("cupy")
    if cupy is not None and any(isinstance(array, cupy.ndarray) for array in arrays):
        return cupy
    return np


def is_host(*arrays: Array) -> bool:
    """Return whether the CPU bodies can take these arrays.

    >>> is_host(np.zeros(3), None)
    True
    """
    return array_module(*arrays) is np


def to_host(x: Array) -> Any:
    """Return the array as a NumPy array; a NumPy array comes back as it is.

    >>> to_host(np.arange(2))
    array([0, 1])
    """
    xp = array_module(x)
    return np.asarray(x) if xp is np else xp.asnumpy(x)


def to_device(x: Array) -> Any:
    """Return the array as a CuPy array on the current device.

    Raises ConfigurationError where there is no CuPy or no CUDA device, for which ask `gpu_available` first,
    and where CuPy is told to round products.
    """
    if not _in_use():
        raise ConfigurationError(f"A GPU was asked for, and there is none to use: {card.missing()}")
    _refuse_rounding()
    return importlib.import_module("cupy").asarray(x)


def _refuse_rounding() -> None:
    """Whitening, codes and sums are what exact products of float32 and float64 make them."""
    for name in ROUNDING:
        if os.environ.get(name, "").strip().lower() not in ("", "0", "default"):
            raise ConfigurationError(
                f"{name} is {os.environ[name]!r}, which lets a GPU round what it multiplies, and sums would differ from the "
                f"CPU's; unset it."
            )


def like(reference: Array, x: Array) -> Any:
    """Return `x` where `reference` is: on the host as NumPy, on a device as CuPy.

    >>> like(np.zeros(1), [1, 2])
    array([1, 2])
    """
    xp = array_module(reference)
    return to_host(x) if xp is np else xp.asarray(x)


def once(source: Array, make: Callable[[Array], T]) -> T:
    """Return what a function makes of an array, made when it is first asked for and kept while the array lives.

    For what stays the same from batch to batch, like atoms: nobody may write to the array.

    >>> total, numbers = np.sum, np.arange(3)
    >>> once(numbers, total) is once(numbers, total)
    True
    """
    key = (id(source), make)
    if key not in _made:
        _made[key] = make(source)
        weakref.finalize(source, _made.pop, key, None).atexit = False
    found: T = _made[key]
    return found


def beside(reference: Array, x: Array) -> Any:
    """Return `x` where `reference` is, as `like` does; to a device it is copied once, and kept there while it lives."""
    return like(reference, x) if is_host(reference) or not is_host(x) else once(x, to_device)


def gpu_available() -> bool:
    """Return whether CuPy can be imported and sees a device; never raises, and `card.missing` says why not."""
    return not card.missing()


def _in_use() -> bool:
    """Return whether there is a device, and it is this process's to use."""
    return gpu_available() and card.taken()


def device_name() -> str | None:
    """Return the name of the current CUDA device, None where there is none to use."""
    if not _in_use():
        return None
    runtime = importlib.import_module("cupy").cuda.runtime
    name: bytes = runtime.getDeviceProperties(runtime.getDevice())["name"]
    return name.decode()


def multiplies_float64() -> bool:
    """Return whether the current device multiplies in float64 at a share of its speed that is worth choosing it for.

    Cards for games and for inference have a 32nd or 64th of the speed of float32, where those for science have half.
    """
    if not gpu_available():
        return False
    return not card.slow_double()


def place(x: Array) -> Any:
    """Return the array on the device where there is one, else as it is: the one decision of where kernels run.

    Inside `uploading` a batch may be there already.

    >>> place(np.arange(2))
    array([0, 1])
    """
    if not _in_use():
        return x
    uploads = _uploads.get()
    placed = None if uploads is None else uploads.place(x)
    return to_device(x) if placed is None else placed


def kept(source: Any, step: int) -> Any:
    """Return a copy of rows (n, ...) on the device, made of `step` rows at a time; they are sliced, of any kind, one at least."""
    found = None
    for start in range(0, len(source), step):
        stop = min(start + step, len(source))
        block = to_device(np.asarray(source[start:stop]))
        if found is None:
            found = array_module(block).empty((len(source), *block.shape[1:]), block.dtype)
        found[start:stop] = block
    return found


@contextmanager
def uploading() -> Iterator[Callable[[Batches], Batches]]:
    """Yield what hands on batches, so that each is copied to the device while the one before it is worked on.

    They are (number of the first sample, samples), and what is placed is the samples, whole. Without a
    device they are handed on as they are. Memory: two batches of pinned memory, two on the device, and one
    more batch in advance.

    >>> with uploading() as ahead:
    ...     [int(place(samples).sum()) for _, samples in ahead(iter([(0, np.ones(2)), (2, np.ones(1))]))]
    [2, 1]
    """
    if not _in_use():
        yield lambda batches: batches
        return
    _refuse_rounding()
    uploads = Uploads(importlib.import_module("cupy"))
    token = _uploads.set(uploads)
    try:
        yield uploads.ahead
    finally:
        _uploads.reset(token)
        uploads.close()
