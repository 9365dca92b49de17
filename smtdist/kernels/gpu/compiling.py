"""How long CuPy compiles: its own kernels and ours, each when it is first used; binaries are kept on disk."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from smtdist.kernels.gpu import card


@contextmanager
def compile_timer() -> Iterator[Callable[[], float]]:
    """Yield a function that returns the seconds for which code was compiled for the GPU inside the block so far.

    What is on disk already costs nothing here. 0 without CuPy, or with one that compiles in another way.
    """
    compiler: Any = None if card.missing() else getattr(sys.modules["cupy"].cuda, "compiler", None)
    original: Any = getattr(compiler, "compile_using_nvrtc", None)
    seconds = 0.0

    def timed(*arguments: Any, **options: Any) -> Any:
        nonlocal seconds
        started = time.perf_counter()
        try:
            return original(*arguments, **options)
        finally:
            seconds += time.perf_counter() - started

    if original is not None:
        compiler.compile_using_nvrtc = timed  # CuPy looks it up at each call
    try:
        yield lambda: seconds
    finally:
        if original is not None:
            compiler.compile_using_nvrtc = original
