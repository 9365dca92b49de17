"""Which array library an array belongs to, and the only transfers between host and device."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np

from smtdist.errors import ConfigurationError
from smtdist.kernels.types import Array


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

    Raises ConfigurationError where there is no CuPy or no CUDA device; ask `gpu_available` first.
    """
    if not gpu_available():
        raise ConfigurationError(
            "A CUDA device was asked for, but CuPy is not installed or finds none; install smtdist[gpu] or use the CPU."
        )
    return importlib.import_module("cupy").asarray(x)


def like(reference: Array, x: Array) -> Any:
    """Return `x` where `reference` is: on the host as NumPy, on a device as CuPy.

    >>> like(np.zeros(1), [1, 2])
    array([1, 2])
    """
    xp = array_module(reference)
    return to_host(x) if xp is np else xp.asarray(x)


def gpu_available() -> bool:
    """Return whether CuPy can be imported and sees a device; never raises."""
    try:
        cupy = importlib.import_module("cupy")
        return bool(cupy.cuda.runtime.getDeviceCount() > 0)
    except Exception:  # a broken driver shows itself in many ways, and all of them mean "no"
        return False


def place(x: Array) -> Any:
    """Return the array on the device where there is one, else as it is: the one decision of where kernels run.

    >>> place(np.arange(2))
    array([0, 1])
    """
    return to_device(x) if gpu_available() else x
