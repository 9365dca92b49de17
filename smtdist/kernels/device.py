"""Which array library an array belongs to, and the only transfers between host and device."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

import numpy as np

from smtdist.errors import ConfigurationError
from smtdist.kernels.gpu.staging import Uploads
from smtdist.kernels.types import Array

PRODUCTS_VARIABLE = "SMTDIST_PRODUCTS"
"""Environment variable that names how patches and atoms are multiplied; a GPU heeds "float32" alone."""
SINGLE_TO_DOUBLE = 87  # cudaDevAttrSingleToDoublePrecisionPerfRatio
LARGEST_RATIO = 8
Batches: TypeAlias = Iterator[tuple[int, Array]]
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
    if not gpu_available():
        raise ConfigurationError(
            "A CUDA device was asked for, but CuPy is not installed or finds none; install smtdist[gpu] or use the CPU."
        )
    _refuse_rounding()
    return importlib.import_module("cupy").asarray(x)


def _refuse_rounding() -> None:
    """Codes are what exact products of float32 make them."""
    if os.environ.get("CUPY_TF32", "0") not in ("", "0"):
        raise ConfigurationError(
            "CUPY_TF32 lets CuPy round what it multiplies, and codes would differ from the CPU's; unset it."
        )


def like(reference: Array, x: Array) -> Any:
    """Return `x` where `reference` is: on the host as NumPy, on a device as CuPy.

    >>> like(np.zeros(1), [1, 2])
    array([1, 2])
    """
    xp = array_module(reference)
    return to_host(x) if xp is np else xp.asarray(x)


def gpu_available() -> bool:
    """Return whether CuPy can be imported and sees a device; never raises."""
    # plans ask thousands of times, and Python looks through all its folders for a module that it did not find before
    if "cupy" not in sys.modules and not _cupy_installed():
        return False
    try:
        cupy = importlib.import_module("cupy")
        return bool(cupy.cuda.runtime.getDeviceCount() > 0)
    except Exception:  # a broken driver shows itself in many ways, and all of them mean "no"
        return False


@functools.cache
def _cupy_installed() -> bool:
    return importlib.util.find_spec("cupy") is not None


def device_name() -> str | None:
    """Return the name of the current CUDA device, None where there is none."""
    if not gpu_available():
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
    runtime = importlib.import_module("cupy").cuda.runtime
    return int(runtime.deviceGetAttribute(SINGLE_TO_DOUBLE, runtime.getDevice())) <= LARGEST_RATIO


def place(x: Array) -> Any:
    """Return the array on the device where there is one, else as it is: the one decision of where kernels run.

    Inside `uploading` a batch may be there already.

    >>> place(np.arange(2))
    array([0, 1])
    """
    if not gpu_available():
        return x
    uploads = _uploads.get()
    found = None if uploads is None else uploads.place(x)
    return to_device(x) if found is None else found


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
    if not gpu_available():
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
