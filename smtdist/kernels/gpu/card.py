"""Whether this process has a GPU to use, and if not, why: looked for once, and told in a sentence by whoever asks."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import os
import sys
from contextlib import suppress
from typing import Any, Final

ABSENT: Final = "CuPy is not installed; install smtdist[cuda], or smtdist[cuda12] for a driver of CUDA 12."
DISTRIBUTIONS: Final = ("cupy", "cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x")
"""Packages that bring CuPy, each with files of the same names."""
VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
NO_DEVICE: Final = f"CuPy finds no GPU; check that nvidia-smi lists one, and that {VISIBLE} names it."
HIDDEN: Final = ("", "-1", "NoDevFiles")
"""What that variable is where somebody wants no GPU to be used."""
COMPUTE_MODE, DOUBLE_RATIO = 20, 87
"""Attributes of a device, by CUDA's numbers: who may use it, and how many times slower float64 is than float32."""
PROHIBITED: Final = 2
SLOW_DOUBLE: Final = 8
"""Times by which float64 may be slower until a user is told; 2 on cards for computing, 32 or 64 on others."""
_why: dict[str, str] = {}
"""Why there is none, "" where there is one, under "none"; under "taken" the same of one that was to be used."""


def missing() -> str:
    """Return why there is no GPU to use, with what to do, or "" where there is one; never raises.

    It is looked for once: plans ask thousands of times, and each look for a missing module goes through all folders.
    """
    if "none" not in _why:
        _why["none"] = _looked_for()
    return _why.get("taken", "") or _why["none"]


def taken() -> bool:
    """Return whether the GPU is this process's to use, from now on: another may have one that serves one process at a time."""
    if "taken" not in _why and not missing():
        _why["taken"] = ""
        try:
            importlib.import_module("cupy").cuda.runtime.memGetInfo()  # which makes a context
        except Exception as error:
            _why["taken"] = _explained(error)
    return not missing()


def remarks() -> tuple[str, ...]:
    """Return what a user should know of the GPU that was looked for, if it was."""
    if "none" not in _why or (why := missing()) == ABSENT or (why and os.environ.get(VISIBLE) in HIDDEN):
        return ()
    return (f"The CPU does all the work: {why}",) if why else slow_double()


@functools.cache
def _ratio(cupy: Any) -> int:
    """Return how many times slower the current device is in float64 than in float32; 1 where it does not say."""
    with suppress(Exception):
        runtime = cupy.cuda.runtime
        return int(runtime.deviceGetAttribute(DOUBLE_RATIO, runtime.getDevice()))
    return 1


def slow_double() -> tuple[str, ...]:
    """Return the sentence on a GPU that is slow in float64, if this one is."""
    ratio = _ratio(sys.modules["cupy"])
    if ratio <= SLOW_DOUBLE:
        return ()
    return (
        f"This GPU is {ratio} times slower in float64 than in float32, and the root of each image's Σ, the solve and linear "
        f"probes need float64: a fit takes longer, and a linear probe of many rows may take an hour; for that use a GPU for "
        f"computing, or the CPU by setting {VISIBLE} to -1.",
    )


def count() -> int:
    """Return how many GPUs this process sees, 0 where it can use none."""
    return 0 if missing() else int(importlib.import_module("cupy").cuda.runtime.getDeviceCount())


def _looked_for() -> str:
    if "cupy" not in sys.modules and importlib.util.find_spec("cupy") is None:
        return ABSENT
    several = [name for name in DISTRIBUTIONS if _version(name)]
    if len(several) > 1:
        return (
            f"{' and '.join(several)} are installed, which overwrite each other's files; uninstall all of "
            f"them, then install one."
        )
    try:
        runtime = importlib.import_module("cupy").cuda.runtime
    except Exception as error:  # ImportError, or what a library raises as it is loaded
        return (
            f"CuPy cannot be imported ({_first_line(error)}); uninstall it, then install smtdist[cuda], or "
            f"smtdist[cuda12] for a driver of CUDA 12."
        )
    try:
        number = runtime.getDeviceCount()
        mode = runtime.deviceGetAttribute(COMPUTE_MODE, runtime.getDevice()) if number else None
    except Exception as error:  # a broken driver shows itself in many ways
        return _explained(error)
    if not number:
        return NO_DEVICE
    if mode == PROHIBITED:
        return "The compute mode of the GPU prohibits its use; have nvidia-smi set it to DEFAULT."
    return ""


def _explained(error: Exception) -> str:
    """Return a sentence on what CUDA says when it is asked for a device."""
    said = _first_line(error)
    if "InsufficientDriver" in said:
        runtime = sys.modules["cupy"].cuda.runtime
        with suppress(Exception):
            driver, own = (
                _cuda(version()) for version in (runtime.driverGetVersion, runtime.runtimeGetVersion)
            )
            if driver == "0.0":
                return "CuPy is installed and no NVIDIA driver; install the driver, or uninstall CuPy."
            return (
                f"The NVIDIA driver is of CUDA {driver}, too old for CuPy, which is for CUDA {own}; update "
                f"the driver, or uninstall CuPy and install smtdist[cuda12]."
            )
    if "NoDevice" in said:
        return NO_DEVICE
    if "DevicesUnavailable" in said:
        return (
            "The GPU is busy: its compute mode lets one process at a time use it, and another does; wait "
            "until that ends, or have nvidia-smi set the mode to DEFAULT."
        )
    if "MemoryAllocation" in said:
        return "Other programs have all memory of the GPU; end them, and start again."
    return f"CUDA fails when it is asked for a GPU ({said}); check that nvidia-smi lists one."


def _version(name: str) -> str:
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(name) or "unknown"
    return ""


def _first_line(error: Exception) -> str:
    cause = error.__cause__ or error  # CuPy wraps what the loader says in a page of advice
    lines = [line.strip() for line in str(cause).splitlines() if line.strip(" =-")]
    return (lines[0] if lines else type(error).__name__).rstrip(".")


def _cuda(version: int) -> str:
    """Return a version as people write it.

    >>> _cuda(12040)
    '12.4'
    """
    return f"{version // 1000}.{version % 1000 // 10}"
