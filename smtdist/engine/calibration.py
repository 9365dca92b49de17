"""How fast this machine is, from real kernels on real samples and a deadline: what `forecast` counts with."""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import h5py
import numpy as np
import psutil
from numpy.typing import NDArray
from scipy.linalg.blas import dsymv

from smtdist.data.source import Source
from smtdist.engine.forecast import Pace, Rates, SolveSpeed, solve_seconds
from smtdist.engine.memory import settle_heap
from smtdist.engine.stored import write_arrays
from smtdist.errors import SmtdistError, option
from smtdist.kernels.threads import available_cores
from smtdist.solve import generalized

SECONDS: Final = 10.0
"""What a calibration may take in all."""
REPEATED_BELOW: Final = 0.4
"""A measurement shorter than this many seconds is taken three times, and its median counts."""
REPEATED_FOR: Final = 0.01
MOST_REPEATED: Final = 31
"""Calls that take less in all are repeated so often at most."""
GROWTH: Final = 4
"""A measurement grows by this factor until it has the real size or its time is up."""
ANSWER_SECONDS: Final = 300.0
"""How long after its deadline a process may answer: it keeps that between measurements, and compiles kernels before."""
PIECE: Final = 32 * 2**20
"""Bytes that are copied, added, stored and sent."""
TRIED_ROWS: Final = (384, 1024)
"""Eigensolves that are tried, as time allows."""
CACHED: Final = 1024
STREAMED: Final = 3072
"""Rows of matrices that fit a processor's caches, and that do not (72 MiB)."""


@dataclass(frozen=True)
class Calibration:
    """What was measured: the pace of each pass by its name, rates of bytes, the speed of the solve.

    `solve` is None of a run that solves nothing. `seconds` is what measuring took, `compile_seconds` what
    compiling kernels took before, which a fit then finds on disk, `start_seconds` what a worker process took
    to start, `where` says what was measured. `others` is the share of this machine's processors that other
    work had meanwhile.
    """

    paces: Mapping[str, Pace]
    rates: Rates
    solve: SolveSpeed | None
    seconds: float
    start_seconds: float
    where: str
    compile_seconds: float = 0.0
    others: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as plain JSON types."""
        return {
            "seconds": self.seconds,
            "compile_seconds": self.compile_seconds,
            "start_seconds": self.start_seconds,
            "where": self.where,
            "others": self.others,
            "passes": {name: pace.to_dict() for name, pace in self.paces.items()},
            "rates": {f"{name}_bytes_per_second": value for name, value in asdict(self.rates).items()},
            "solve": self.solve and asdict(self.solve),
        }


def others_share() -> Callable[[], float]:
    """Return a function that says what share of this machine's processors other work has had since, from 0 to 1.

    On a virtual machine that includes what its host gave to others (steal).
    """

    def seconds() -> tuple[float, float, float]:
        times, own = psutil.cpu_times(), os.times()
        idle = times.idle + getattr(times, "iowait", 0.0)
        # guests of this machine are counted in `user` already
        whole = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        return whole, whole - idle, own.user + own.system + own.children_user + own.children_system

    before = seconds()

    def share() -> float:
        whole, busy, own = (now - then for now, then in zip(seconds(), before, strict=True))
        return min(1.0, max(0.0, busy - own) / whole) if whole > 0 else 0.0

    return share


def mean_paces(found: Sequence[Mapping[str, Pace]]) -> dict[str, Pace]:
    """Return the paces that workers have together who take tasks as they fall free: the mean of theirs."""
    means = {}
    for name in found[0]:
        paces = [one[name] for one in found]
        # processes that ran out of time have fewer points of a curve
        points = zip(*(pace.add for pace in paces), strict=False)
        add = tuple((fmean(at for at, _ in same), fmean(cost for _, cost in same)) for same in points)
        means[name] = Pace(
            fmean(pace.read for pace in paces),
            add,
            max(pace.start for pace in paces),
            max((pace.basis for pace in paces), key=len),
        )
    return means


@dataclass(frozen=True)
class Deadline:
    """A moment, by the clock that all processes of a machine share."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Return the moment so many seconds from now."""
        return cls(time.time() + seconds)

    @property
    def left(self) -> float:
        """Seconds left; never below zero."""
        return max(0.0, self.at - time.time())

    def later(self, seconds: float) -> Deadline:
        """Return the moment so many seconds after this one."""
        return Deadline(self.at + seconds)

    def share(self, part: float) -> Deadline:
        """Return the moment when this part of what is left is over."""
        return Deadline.after(part * self.left)


def timed(call: Callable[[], object]) -> float:
    """Return the seconds of a call; of a short one the median of three, of one of microseconds that of many.

    A call of microseconds may wait for a thread to wake, a thousand times as long.
    """
    taken: list[float] = []
    while (
        not taken
        or (len(taken) < 3 and taken[0] < REPEATED_BELOW)
        or (sum(taken) < REPEATED_FOR and len(taken) < MOST_REPEATED)
    ):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def sizes_up_to(largest: int) -> list[int]:
    """Return growing sizes that end in `largest`.

    >>> sizes_up_to(1000), sizes_up_to(3)
    ([15, 62, 250, 1000], [1, 3])
    """
    sizes = [largest]
    while len(sizes) < 4 and sizes[0] > 1:
        sizes.insert(0, max(1, sizes[0] // GROWTH))
    return sizes


def grown(measure: Callable[[int], float], largest: int, deadline: Deadline) -> tuple[float, int]:
    """Return what `measure(largest)` is or would be, and the largest size that was measured.

    Sizes grow while the next is expected to end in time; what is left out follows along the line through
    the last two.
    """
    found: list[tuple[int, float]] = []
    for size in sizes_up_to(largest):
        if found and along_line(found, size) > deadline.left:
            break
        found.append((size, measure(size)))
    return along_line(found, largest), found[-1][0]


def along_line(found: Sequence[tuple[int, float]], size: int) -> float:
    """Return the time at a size, on the line through the last two (size, seconds), or in proportion to one.

    >>> along_line([(1, 3.0), (2, 4.0)], 10), along_line([(2, 4.0)], 10), along_line([(1, 4.0), (2, 4.0)], 2)
    (12.0, 20.0, 4.0)
    """
    last, seconds = found[-1]
    if last == size:
        return seconds
    if len(found) == 1:
        return seconds * size / last
    before, earlier = found[-2]
    slope = max(0.0, seconds - earlier) / (last - before)
    return seconds + slope * (size - last)


def read_sample(source: Source, wanted: int, deadline: Deadline) -> tuple[NDArray[Any], float]:
    """Read about `wanted` samples, from rows of chunks spread over the source; return them and the seconds of one.

    The first read opens caches and loads decoders, so where there is a second one, only those after it
    count. What is in the system's cache is faster than a disk: a first pass over data that nobody has
    touched may take longer.
    """
    row, n_samples = min(source.chunk_samples, source.n_samples), source.n_samples
    rows = max(2, -(-wanted // row))
    starts = np.unique(np.linspace(0, max(0, -(-n_samples // row) - 1), rows).astype(int)) * row
    parts, taken = [], []
    with source.opened() as reader:
        for start in starts.tolist():
            started = time.perf_counter()
            parts.append(reader.read(start, min(start + row, n_samples)))
            taken.append((time.perf_counter() - started) / len(parts[-1]))
            if deadline.left < taken[-1] * row:
                break
    pace = taken[0] if len(taken) == 1 else sum(taken[1:]) / len(taken[1:])
    return np.concatenate(parts)[: max(1, wanted)], pace


def byte_rates(folder: Path | None, deadline: Deadline) -> Rates:
    """Measure copying, adding, storing, loading and sending a sum of 32 MiB; files are written into `folder` and deleted.

    Files go through the system's cache, as those of a checkpoint do; sending is through this machine's
    loopback.
    """
    sums = np.ones(PIECE // 8, np.int64)
    more = sums.copy()
    copy, merge = timed(sums.copy), timed(lambda: np.add(sums, more, out=sums))
    write = load = 0.0
    # in the folder, or the nearest one above it that is there and may be written to; else the system's own
    above = () if folder is None else (folder.absolute(), *folder.absolute().parents)
    there = next((path for path in above if path.is_dir()), None)
    writable = there if there is not None and os.access(there, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="smtdist-plan-", dir=writable) as place:
        path = Path(place, "sum.h5")
        write = timed(lambda: write_arrays(path, {"sum": sums}, {}))
        load = timed(lambda: _loaded(path))
    send = _loopback_seconds(sums.tobytes()) if deadline.left > 0.5 else copy
    return Rates(*(PIECE / max(seconds, 1e-9) for seconds in (copy, merge, write, load, send)))


def _loaded(path: Path) -> NDArray[Any]:
    with h5py.File(path, "r", locking=False) as file:
        return np.asarray(file["sum"][()])


def _loopback_seconds(data: bytes) -> float:
    """Return the seconds to send bytes to another thread through a socket."""
    left, right = socket.socketpair()
    room = bytearray(len(data))

    def receive() -> None:
        view, at = memoryview(room), 0
        while at < len(room):
            at += right.recv_into(view[at:])

    with left, right:
        receiver = threading.Thread(target=receive)
        started = time.perf_counter()
        receiver.start()
        left.sendall(data)
        receiver.join()
        return time.perf_counter() - started


def solve_speed(n_atoms: int, n_components: int, diagonal: bool, deadline: Deadline) -> SolveSpeed:
    """Measure products of matrices, of a matrix in and beyond the caches with a vector, and real solves of few rows.

    The time at K follows from `forecast.solve_seconds`, of which a factor and a time for each row are fitted to the
    solves that were tried.
    """
    draw = np.random.default_rng(0)
    square = draw.standard_normal((CACHED, CACHED))
    multiply = CACHED**3 / timed(lambda: square @ square)
    stream_cached = _stream(square)
    rows = min(STREAMED, max(CACHED, n_atoms))
    stream = stream_cached if rows == CACHED else _stream(np.ones((rows, rows)))
    speed = SolveSpeed(multiply, min(stream, stream_cached), stream_cached, 4 * CACHED**2)
    sizes: list[int] = []
    times: list[float] = []
    modelled: list[float] = []
    for size in TRIED_ROWS:
        if sizes and solve_seconds(size, n_components, diagonal, speed) > deadline.left:
            break
        count = max(1, min(size, round(n_components * size / n_atoms)))
        tried = draw.standard_normal((size, 2 * size))
        moment = tried @ tried.T / size + np.eye(size)
        scatter = moment[::-1, ::-1].copy()
        given = np.diagonal(moment).copy() if diagonal else moment
        sizes.append(size)
        times.append(timed(lambda c=scatter, v=given, k=count: generalized.smallest_components(c, v, k)))  # type: ignore[misc]
        modelled.append(solve_seconds(size, count, diagonal, replace(speed, factor=1.0, row_seconds=0.0)))
        factor, row_seconds = fitted_factors(np.array(sizes), np.array(times), np.array(modelled))
        speed = replace(speed, factor=factor, row_seconds=row_seconds, size=size)
        if size >= n_atoms:
            break
    return speed


def fitted_factors(
    sizes: NDArray[np.int64], times: NDArray[np.float64], modelled: NDArray[np.float64]
) -> tuple[float, float]:
    """Return f and r, neither negative, for which f modelled + r sizes comes nearest to times, relative to each.

    >>> f, r = fitted_factors(np.array([10, 20]), np.array([3.0, 10.0]), np.array([1.0, 4.0]))
    >>> round(f, 6), round(r, 6)
    (2.0, 0.1)
    """
    parts = np.stack([modelled / times, sizes / times], axis=1)
    if len(sizes) > 1:  # of one solve nobody can tell what goes with its rows
        factor, row = np.linalg.lstsq(parts, np.ones(len(sizes)))[0].tolist()
        if factor > 0 and row > 0:
            return factor, row
    return float(times[-1] / modelled[-1]), 0.0


def _stream(square: NDArray[np.float64]) -> float:
    vector = np.ones(len(square))
    matrix = square.T  # the order of LAPACK, without a copy
    return 4.0 * len(square) ** 2 / timed(lambda: dsymv(1.0, matrix, vector))


def on_processes(
    count: int, function: Callable[..., Any], *arguments: Any, deadline: Deadline
) -> list[tuple[float, Any]]:
    """Call a function in so many fresh processes at once; return what each does, after the seconds it took to start.

    Those that fail are left out. They stand for workers: as many, at the same time, and with nothing in
    memory that a worker has not. Raises SmtdistError where none answers.
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environment |= {
        name: str(max(1, available_cores() // count))
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    }
    command = [sys.executable, "-P", "-c", f"from {__name__} import serve; serve()"]
    question = pickle.dumps((function, arguments), pickle.HIGHEST_PROTOCOL)
    with contextlib.ExitStack() as stack:
        processes, started = [], time.time()
        for _ in range(count):
            room = stack.enter_context(tempfile.TemporaryFile())
            room.write(question)
            room.seek(0)
            process = subprocess.Popen(
                command,
                stdin=room,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=environment,
            )
            stack.callback(process.kill)
            processes.append(process)
        answers = [_answer(process, deadline) for process in processes]
    good = [(ready - started, result) for ready, result in filter(None, answers)]
    if not good:
        raise SmtdistError(
            f"The calibration's processes gave no answer; plan with {option('calibrate', False)}, which gives no times."
        )
    return good


def _answer(process: subprocess.Popen[bytes], deadline: Deadline) -> Any:
    try:
        output, _ = process.communicate(timeout=deadline.left + ANSWER_SECONDS)
        return pickle.loads(output) if process.returncode == 0 else None
    except (subprocess.TimeoutExpired, EOFError, pickle.UnpicklingError):
        process.kill()
        process.communicate()
        return None


def serve() -> None:
    """Answer the one question on standard input; what a process of a calibration does."""
    import distributed.worker  # noqa: F401  # a worker has it in memory, and the plan counts that

    settle_heap()
    function, arguments = pickle.load(sys.stdin.buffer)
    ready = time.time()
    pickle.dump((ready, function(*arguments)), sys.stdout.buffer, pickle.HIGHEST_PROTOCOL)
