"""The CUDA source of this package, compiled by NVRTC through CuPy, and launched with arguments of the types it declares."""

from __future__ import annotations

import functools
import importlib
import re
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

FILES: Final = ("warps.cu", "codes.cu", "sums.cu", "patches.cu", "whitening.cu", "representation.cu")
OPTIONS: Final = ("--std=c++17", "--fmad=false")
"""Of NVRTC; a product that is fused with a sum is rounded once, unlike on a CPU. CuPy adds the architecture of the device."""
WARP: Final = 32
BLOCK_WARPS: Final = 8
MOST_BLOCKS: Final = 4096
"""Blocks of a launch, at most: a few for each place on the device; a warp takes several patches beyond that."""
TYPES: Final = {
    "int64": "int64",
    "int": "int32",
    "unsigned": "uint32",
    "float": "float32",
    "double": "float64",
    "bool": "bool",
    "atom_t": "uint16",
    "signed char": "int8",
}
"""NumPy's names of the types that kernels declare."""
Parameter: TypeAlias = tuple[str, bool, str]
"""Type as it is declared, whether an array of it is wanted, name."""


@functools.cache
def text() -> str:
    """Return the whole source, one translation unit."""
    return "\n".join(Path(__file__).with_name(name).read_text() for name in FILES)


@functools.cache
def _module() -> Any:
    """Compile the source when its first kernel is launched; CuPy keeps the binary of each device, on disk too."""
    return importlib.import_module("cupy").RawModule(code=text(), options=OPTIONS)


def kernel(name: str) -> Any:
    """Return a kernel that takes (grid, block, arguments)."""
    return _module().get_function(name)


@functools.cache
def signatures(code: str) -> dict[str, tuple[Parameter, ...]]:
    """Return the parameters of each kernel of a source.

    >>> signatures('extern "C" __global__ void twice(const int64 *in, float by) {}')
    {'twice': (('int64', True, 'in'), ('float', False, 'by'))}
    """
    found = {}
    for name, inside in re.findall(r'extern "C" __global__ void (\w+)\(([^)]*)\)', code):
        declared = (
            re.fullmatch(r"\s*(?:const )?([\w ]+?) (\*?)(\w+)\s*", one) for one in inside.split(",")
        )
        found[name] = tuple((one[1], bool(one[2]), one[3]) for one in declared if one)
    return found


def launch(name: str, warps: int, *arguments: Any) -> None:
    """Start a kernel of which each warp takes every n-th piece of the work; whole numbers are int64 unless they have a type."""
    launch_blocks(name, min(MOST_BLOCKS, -(-warps // BLOCK_WARPS)), BLOCK_WARPS * WARP, *arguments)


def launch_blocks(name: str, blocks: int, threads: int, *arguments: Any) -> None:
    """Start a kernel in so many blocks of so many threads, if any.

    Raises TypeError for what is not as the kernel declares it: CUDA would take any bytes.
    """
    if blocks < 1:
        return
    given = tuple(np.int64(value) if type(value) is int else value for value in arguments)
    for value, (kind, array, parameter) in zip(given, signatures(text())[name], strict=True):
        if value.dtype.name != TYPES[kind] or array == isinstance(value, np.generic):
            raise TypeError(f"{name} declares {kind} {'*' * array}{parameter}, and is given {value.dtype}")
        if array and not value.flags.c_contiguous:
            raise TypeError(f"{name} needs {parameter} as one contiguous array")
    kernel(name)((blocks,), (threads,), given)
