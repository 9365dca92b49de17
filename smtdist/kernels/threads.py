"""The threads of the CPU kernels: one small pool for the process, and BLAS kept from adding its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import OpenBLASController, ThreadpoolController

from smtdist.errors import ConfigurationError


class _State:
    """What the module remembers; a forked child starts without the parent's threads."""

    def __init__(self) -> None:
        self.count = available_cores()
        self.pool: ThreadPoolExecutor | None = None
        self.pool_key = (0, 0)
        self.blas: list[Any] | None = None
        self.lock = threading.Lock()
        self.blas_depth = 0
        self.blas_before: list[int] = []


def available_cores() -> int:
    """Return the cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_state = _State()
_inside = threading.local()


def set_threads(n: int) -> None:
    """Set how many threads the CPU kernels use from now on; results do not depend on it.

    >>> before = threads()
    >>> set_threads(1)
    >>> threads()
    1
    >>> set_threads(before)
    """
    if n < 1:
        raise ConfigurationError(f"The kernels cannot use {n} threads; give a whole number of at least 1.")
    _state.count = int(n)


def threads() -> int:
    """Return how many threads the CPU kernels use; at first, the cores this process may run on."""
    return _state.count


def run_ranges(function: Callable[[int, int], object], bounds: Sequence[tuple[int, int]]) -> None:
    """Run function(start, stop) for every range, on `threads()` threads, in no particular order.

    Ranges must not depend on one another. The first error is raised once all ranges have ended. Inside a
    range, further calls run directly.

    >>> done = []
    >>> run_ranges(lambda start, stop: done.append(stop - start), [(0, 3), (3, 5)])
    >>> sorted(done)
    [2, 3]
    """
    if threads() == 1 or len(bounds) <= 1 or getattr(_inside, "active", False):
        for start, stop in bounds:
            function(start, stop)
        return
    key = (os.getpid(), threads())
    with _state.lock:
        if _state.pool is None or _state.pool_key != key:
            if _state.pool is not None and _state.pool_key[0] == os.getpid():
                _state.pool.shutdown(wait=False)
            _state.pool = ThreadPoolExecutor(threads(), thread_name_prefix="smtdist-kernel")
            _state.pool_key = key
        pool = _state.pool
    futures = [pool.submit(_marked, function, start, stop) for start, stop in bounds]
    errors = [future.exception() for future in futures]
    for error in errors:
        if error is not None:
            raise error


def _marked(function: Callable[[int, int], object], start: int, stop: int) -> None:
    _inside.active = True
    try:
        function(start, stop)
    finally:
        _inside.active = False


def even_ranges(total: int, step: int) -> list[tuple[int, int]]:
    """Return the ranges of `step` that cover 0 to `total`.

    >>> even_ranges(5, 2)
    [(0, 2), (2, 4), (4, 5)]
    """
    return [(start, min(start + step, total)) for start in range(0, total, step)]


def numpy_blas() -> str:
    """Return the BLAS that NumPy multiplies with: name, version and the kernel for this processor, as far as it tells.

    NumPy and SciPy may bring one each; NumPy's lies beside it. What threadpoolctl does not know, such as Accelerate, has
    the name that NumPy was built with.
    """
    known = ThreadpoolController().select(user_api="blas").info()
    beside = {Path(np.__file__).parent, Path(np.__file__).parent.parent / "numpy.libs"}
    own = [one for one in known if beside & set(Path(one["filepath"]).parents)]
    for one in own or known[:1]:
        names = (one["internal_api"], one["version"], one.get("architecture"))
        return " ".join(str(name) for name in names if name)
    built: Any = np.show_config(mode="dicts")
    blas = built.get("Build Dependencies", {}).get("blas", {})
    return f"{blas.get('name', 'BLAS')} {blas.get('version', '')}".strip()


@contextmanager
def single_blas() -> Iterator[None]:
    """Keep BLAS to the calling thread while our own threads run the tiles.

    The limit belongs to the process, so nested and concurrent uses share one: the first sets it, the last
    lifts it.
    """
    with _state.lock:
        if _state.blas is None:
            _state.blas = ThreadpoolController().select(user_api="blas").lib_controllers
        if _state.blas_depth == 0:
            _state.blas_before = [library.num_threads for library in _state.blas]
            _limit_blas(_state.blas, [1] * len(_state.blas))
        _state.blas_depth += 1
    try:
        yield
    finally:
        with _state.lock:
            _state.blas_depth -= 1
            if _state.blas_depth == 0:
                _limit_blas(_state.blas, _state.blas_before)


def _limit_blas(libraries: Sequence[Any], counts: Sequence[int]) -> None:
    """Set the threads of each library, from whatever thread.

    Since threadpoolctl 3.8 OpenBLAS heeds only the thread that set it last, as long as that one lives; but
    the first to ask for one thread here need not be the last to need it.
    """
    disown = getattr(OpenBLASController, "clear_controlling_thread", lambda force: None)
    disown(force=True)
    for library, count in zip(libraries, counts, strict=True):
        library.set_num_threads(count)
    disown(force=True)
