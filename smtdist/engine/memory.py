"""What a process may use and what it has used: control-group limits, and the peak of the resident set."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import re
import resource
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil

from smtdist.errors import ConfigurationError, MemoryBudgetError

ENDED_SHARE = 0.93
"""Of a worker's limit: Dask's nanny ends a worker beyond 95 %."""
BUDGET_SHARE = 0.55
"""Share of a worker's limit that a pass may plan for: Dask spills from 60 % and pauses at 80 %."""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # glibc's malloc.h
OWN_PAGES = 4 * 2**20
"""Bytes from which an array has pages of its own, which go back when it is dropped; smaller ones use the same heap again."""
IDLE_HEAP = 16 * 2**20
"""Free bytes at the end of a heap that are kept for what comes next."""
SOLVE_LEAST = 4 * 2**20
"""The least a solve takes: a process's first has pages of BLAS, LAPACK and NumPy come into memory, 2.2 MiB as measured, beside
matrices of a few atoms; those of more than 200 are counted generously enough to cover them."""


CLUSTER_ROOM = 56 * 2**20
"""Bytes that the threads of a cluster map in this process, stacks and all: 55 MiB as measured, with one arena."""
BLAS_ROOM = 256 * 2**20
"""Bytes that the first products of NumPy and of SciPy, and kernels that are compiled, map beside the libraries: 167 MiB as
measured, with threads that are there already."""


@functools.cache
def settle_heap() -> None:
    """Tell the allocator of this process when to give memory back, where it is glibc's; done before its first task.

    Where the address space is limited, this also makes sure that BLAS gets its buffers (`require_room`).

    Left alone it raises both thresholds with the arrays it sees dropped, up to 32 and 64 MiB, and sums land
    between workspaces in heaps that can then not shrink: a long pass grew by 80 MiB. Dask's nannies fix
    them so low (64 KiB) that each workspace comes as fresh pages, for which coding patches took 1.4 times
    as long.
    """
    require_room()
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, OWN_PAGES)
        mallopt(M_TRIM_THRESHOLD, IDLE_HEAP)


_stated: list[int] = []


@contextlib.contextmanager
def stated_limit(size: int | None) -> Iterator[None]:
    """Let this process use no more than so many bytes meanwhile, where a number is given."""
    _stated.extend([] if size is None else [size])
    try:
        yield
    finally:
        if size is not None:
            _stated.remove(size)


def memory_limit() -> int:
    """Return the bytes that may be resident in this process: the tightest of what it was told, and of all limits it is under."""
    return min([*_machine_limits(), *process_limits()])


def worker_limit(workers: int) -> int:
    """Return the bytes that each of so many workers of this machine may use, beside this process."""
    return min([min(_machine_limits()) // (workers + 1), *process_limits()])


def process_limits() -> list[int]:
    """Return what limits of the address space and of data leave to this process alone (`ulimit -v`, h_vmem of batch systems).

    They bound what is mapped, which is far more than what is resident: libraries, stacks and room for the allocator. Before a
    run has started its threads, what these will map is left out, so that a plan promises no more than the run will find.
    """
    later = CLUSTER_ROOM if threading.active_count() == 1 else 0
    return [soft - mapped - later + resident_bytes() for soft, mapped in _mapped()]


def limited_by(limit: int) -> str:
    """Return in words what sets a limit of this process, as the end of a sentence on it, where that is no memory."""
    mapped = process_limits()
    return (
        " beside what is mapped (ulimit -v or -d, or h_vmem of a batch system)"
        if mapped and limit >= min(mapped)
        else ""
    )


def require_driver(
    step: str, working_bytes: int, baseline: int | None = None, limit: int | None = None
) -> None:
    """Refuse a step for which the driver has too little memory beside its baseline; MemoryBudgetError.

    The driver is this process, with what it has in memory now, unless told otherwise.
    """
    needed = working_bytes + (resident_bytes() if baseline is None else baseline)
    limit = memory_limit() if limit is None else limit
    if needed > limit:
        raise MemoryBudgetError(
            f"The {step} needs {readable(needed)} on the driver, which may use {readable(limit)}{limited_by(limit)}; use a "
            f"smaller model or a larger machine for the driver.",
            f"The {step} does not fit into the {readable(limit)} of the driver",
        )


def _mapped() -> list[tuple[int, int]]:
    """Return each limit of what is mapped that is set, with what is mapped."""
    used = psutil.Process().memory_info()
    found = []
    for name, mapped in (("RLIMIT_AS", used.vms), ("RLIMIT_DATA", getattr(used, "data", 0))):
        soft = resource.getrlimit(getattr(resource, name))[0]
        found += [] if soft == resource.RLIM_INFINITY else [(soft, mapped)]
    return found


def require_room() -> None:
    """Let BLAS map its buffers now, where what is mapped is limited, or raise a sentence where they have no room.

    Without room OpenBLAS looks for it for ever, inside of a call that no signal ends.
    """
    if not _mapped():
        return
    with contextlib.suppress(
        OSError, AttributeError
    ):  # each thread would map an arena of 64 MiB and more of its own
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)
    import numpy as np
    import scipy.linalg  # with the threads of its BLAS

    for soft, mapped in _mapped():
        if soft - mapped < BLAS_ROOM:
            raise MemoryBudgetError(
                f"This process may map {readable(soft)} (ulimit -v or -d, or h_vmem of a batch system); libraries map "
                f"{readable(mapped)} of it and need {readable(BLAS_ROOM)} more before any data are read; raise the limit."
            )
    square = np.eye(512)
    scipy.linalg.cholesky(square @ square)


def _machine_limits() -> list[int]:
    """Return what this process was told to use, the machine's memory, and the limits of its control groups."""
    limits = [*_stated, psutil.virtual_memory().total]
    for path in (
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        *_own_groups(),
    ):
        with contextlib.suppress(OSError, ValueError):
            limits.append(int(Path(path).read_text()))
    return limits


def _own_groups() -> list[str]:
    """Return the limit files of the control groups this process is in, all levels up."""
    paths = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            base, name = (
                ("/sys/fs/cgroup", "memory.max")
                if not controllers
                else ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            )
            if controllers and "memory" not in controllers.split(","):
                continue
            while group not in ("/", ""):
                paths.append(f"{base}{group}/{name}")
                group = group.rsplit("/", 1)[0]
    return paths


def reset_peak() -> None:
    """Start a new peak measurement, where the kernel offers it (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """Return the largest resident set since the last `reset_peak`; where it is unknown, the present one."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resident_bytes()


def resident_bytes() -> int:
    """Return the resident set now."""
    return int(psutil.Process().memory_info().rss)


def size_of(text: str) -> int:
    """Read a number of bytes as people write it; GB are powers of ten, GiB of two.

    >>> size_of("16GB"), size_of("1.5 GiB"), size_of("4096")
    (16000000000, 1610612736, 4096)
    """
    found = re.fullmatch(r"\s*([0-9.]+)\s*([kKMGTP]?)(i?)[bB]?\s*", text)
    try:
        if found is None:
            raise ValueError
        number = float(found[1])
    except ValueError:
        raise ConfigurationError(f"{text!r} is not a number of bytes; write it as 16GB or 16GiB.") from None
    base = 1024 if found[3] else 1000
    size = int(number * base ** "_kMGTP".index(found[2].replace("K", "k") or "_"))
    if size < 1:
        raise ConfigurationError(f"{text!r} is not an amount of memory; give at least one byte.")
    return size


def memory_now() -> dict[str, int]:
    """Return the resident set, and the memory in use on the current CUDA device where kernels run there."""
    found = {"memory_bytes": resident_bytes()}
    device = _device_info()
    if device is not None:
        free, total = device
        found["device_bytes"] = total - free
    return found


def device_memory() -> int | None:
    """Return the memory of the current CUDA device that arrays can take, None where kernels run on no device."""
    return device_free() or None


def device_free() -> int:
    """Return the memory of the current CUDA device that arrays can take, 0 where kernels run on no device."""
    from smtdist.kernels.device import gpu_available  # with NumPy, which has no room under some limits

    device = _device_info() if gpu_available() else None  # which imports CuPy
    if device is None:
        return 0
    # what CuPy's pool holds for later arrays is not the device's any more, but free
    pool = sys.modules["cupy"].get_default_memory_pool()
    free, limit = device[0] + int(pool.free_bytes()), int(pool.get_limit())
    return min(free, max(0, limit - int(pool.used_bytes()))) if limit else free


def release_device() -> None:
    """Give the GPU back what CuPy's pool holds for later arrays."""
    if (cupy := sys.modules.get("cupy")) is not None:
        cupy.get_default_memory_pool().free_all_blocks()


@contextlib.contextmanager
def device_limited(size: int) -> Iterator[None]:
    """Let arrays take no more of the GPU than so many bytes beside those that are there; 0: without a limit.

    CuPy's pool refuses what is beyond before it gives back what it holds, so much of that is given back now.
    """
    cupy = sys.modules.get("cupy")
    if not size or cupy is None:
        yield
        return
    pool = cupy.get_default_memory_pool()
    if pool.free_bytes() > size // 2:
        pool.free_all_blocks()
    before, wanted = int(pool.get_limit()), size + int(pool.used_bytes())
    pool.set_limit(size=min(before or wanted, wanted))
    try:
        yield
    finally:
        pool.set_limit(size=before)


def _device_info() -> tuple[int, int] | None:
    cupy = sys.modules.get("cupy")  # imported already where a device is used
    if cupy is not None:
        with contextlib.suppress(Exception):  # no device, or a driver that does not say
            free, total = cupy.cuda.runtime.memGetInfo()
            return int(free), int(total)
    return None


def readable(size: float) -> str:
    """Write a number of bytes for a person.

    >>> readable(512), readable(3 * 1024**2), readable(1.5 * 1024**3)
    ('512 B', '3.0 MiB', '1.5 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError
