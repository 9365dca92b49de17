"""What the machine can do, measured beside the work: rates of matrix products, of memory and of a disk."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

WORK = 4e11
"""Operations of a bare product at a time: a second or two, whose time is scaled up; its result has room already."""


def bare_product(rows: int, inner: int, columns: int, threads: int) -> Callable[[], dict[str, Any]]:
    """Prepare the sgemm of (rows x inner) by (inner x columns); for many columns a part, whose time is scaled up."""
    draw = np.random.default_rng(0)
    part = min(columns, 16384, max(1024, int(WORK / (2 * rows * inner))))
    left = draw.standard_normal((rows, inner), dtype=np.float32)
    right = draw.standard_normal((inner, part), dtype=np.float32)
    out = np.empty((rows, part), np.float32)

    def work() -> dict[str, Any]:
        with threadpool_limits(threads, user_api="blas"):
            started = time.perf_counter()
            np.matmul(left, right, out=out)
            spent = time.perf_counter() - started
        return {
            "seconds": spent * columns / part,
            "gflops": float(f"{2e-9 * rows * inner * part / spent:.4g}"),
        }

    return work


def memory_rate(megabytes: int, turns: int = 5) -> float:
    """Return bytes a second of a copy that leaves the caches, reads and writes counted."""
    source = np.ones(megabytes << 17)
    target = np.empty_like(source)
    return _rate(lambda: np.copyto(target, source), 2 * source.nbytes, turns)


def disk_rates(folder: str | None, megabytes: int, turns: int = 3) -> tuple[float, float]:
    """Return bytes a second of writing a file through to the disk, and of reading it with an empty cache of pages."""
    data = os.urandom(1 << 20) * megabytes
    with tempfile.TemporaryDirectory(dir=folder) as name:
        path = Path(name, "block")

        def write() -> None:
            with path.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())

        def forget() -> None:
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

        written = _rate(write, len(data), turns)
        return written, _rate(path.read_bytes, len(data), turns, forget)


def _rate(
    function: Callable[[], object], amount: int, turns: int, before: Callable[[], None] | None = None
) -> float:
    seconds = []
    for _ in range(turns + 1):
        if before is not None:
            before()
        started = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - started)
    return amount / statistics.median(seconds[1:])


def machine_floors(tiny: bool, threads: int = 2, folder: str | None = None) -> dict[str, float]:
    """Return the rates of this machine now: GFLOP/s of sgemm for patches of 36 and 108 pixels, GB/s of memory and disk."""
    size = 256 if tiny else 8192
    found = {}
    for pixels in (36, 108):
        work = bare_product(size, pixels, size, threads)
        found[f"sgemm_{pixels}_gflops"] = statistics.median(work()["gflops"] for _ in range(6))
    found["memory_gigabytes"] = round(memory_rate(8 if tiny else 512) / 1e9, 2)
    written, read = disk_rates(folder, 1 if tiny else 256)
    return {
        **found,
        "disk_write_gigabytes": round(written / 1e9, 2),
        "disk_read_gigabytes": round(read / 1e9, 2),
    }
