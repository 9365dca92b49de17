"""The CUDA source of this package, compiled by NVRTC through CuPy, and launched with arguments of the types it declares."""

from __future__ import annotations

import functools
import importlib
from pathlib import Path
from typing import Any, Final

import numpy as np

FILES: Final = ("sums.cu", "codes.cu")
OPTIONS: Final = ("--std=c++17",)
"""Of NVRTC; CuPy adds the architecture of the device."""
WARP: Final = 32
BLOCK_WARPS: Final = 8
MOST_BLOCKS: Final = 4096
"""Blocks of a launch, at most: a few for each place on the device; a warp takes several patches beyond that."""


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


def launch(name: str, warps: int, *arguments: Any) -> None:
    """Start a kernel of which each warp takes every n-th patch; whole numbers are int64 unless they have a type.

    Arrays must be C-contiguous: nothing checks what a raw kernel is given.
    """
    if warps < 1:
        return
    given = tuple(np.int64(value) if type(value) is int else value for value in arguments)
    assert all(value.flags.c_contiguous for value in given if not isinstance(value, np.generic))
    blocks = min(MOST_BLOCKS, -(-warps // BLOCK_WARPS))
    kernel(name)((blocks,), (BLOCK_WARPS * WARP,), given)
