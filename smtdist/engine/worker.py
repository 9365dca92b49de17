"""What runs on a worker: stream leaves through a statistic, merge two partial sums, map a range of samples.

Plain functions of plain arguments: no executor, no open handle and no shared state is visible here.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.data import retry
from smtdist.data.fingerprint import Check, Digests, sample_digests
from smtdist.data.retry import Ranges
from smtdist.data.source import Reader, Source, read_ahead
from smtdist.engine import preload, unchanged
from smtdist.engine.checkpoint import PassFolder
from smtdist.engine.events import COUNTED, Report
from smtdist.engine.executor import StopRequest, Window, opened
from smtdist.engine.memory import (
    device_limited,
    device_memory,
    memory_limit,
    memory_now,
    peak_bytes,
    readable,
    release_device,
    reset_peak,
    resident_bytes,
)
from smtdist.engine.partial import Counters, Cover, Partial, StoredPartial, copy, join, merge
from smtdist.engine.plan import SMALL_STATE
from smtdist.engine.tree import Node
from smtdist.engine.unchanged import Checks
from smtdist.errors import DataError, MemoryBudgetError, SmtdistError, device_is_full
from smtdist.kernels.device import gpu_available, place, to_host, uploading
from smtdist.kernels.gpu import card, compiling
from smtdist.kernels.threads import even_ranges, set_threads
from smtdist.statistics.base import State, Statistic

_FITTING: dict[Any, int] = {}  # the batch that the GPU had memory for, where it is smaller than planned

Permit = Callable[[], AbstractContextManager[Any]]
"""Makes the context in which a partial is written; an executor may limit how many write at once."""


@dataclass(frozen=True)
class Job:
    """What all tasks of a pass share; sent to each worker once."""

    statistic: Statistic
    source: Source
    name: str
    bounds: tuple[int, ...]
    batch: int
    block: int
    threads: int
    fingerprint: bool
    folder: PassFolder | None  # of the checkpoint
    skip: bool = False  # leave out samples that cannot be read
    expected: Ranges | None = None  # what an earlier pass over the same samples has left out
    checks: Checks | None = None  # what an earlier pass over the same samples has read
    alone: bool = False  # this process does all the work: the sum that a task is given is its own
    token: str = ""  # of this pass alone, for those who look at its tasks
    stop: StopRequest | None = None  # at which a task of this process ends with the leaf that it is at
    device_bytes: int = 0  # that the pass may take of a GPU's memory
    in_files: bool = (
        False  # each task writes its sum to the folder, since a worker has no room for more than one
    )


def accumulate(
    job: Job,
    task: str,
    covers: Cover,
    start: Partial | StoredPartial | None,
    data: Source | None,
    *,
    report: Report,
    permit: Permit,
) -> Partial | StoredPartial:
    """Sum over the leaves of `covers`, on top of `start`; exact statistics only.

    The result is the partial itself. Where sums are kept in files it is a file, and running twice is
    harmless: the file of the same leaves is the same sum. `start` in memory may be another task's too, so
    it is copied, unless this process does all the work; in a file it is then replaced once the new file is whole.
    """
    reset_peak()
    set_threads(job.threads)
    wanted = join(start.covers, covers) if start is not None else covers
    if done := _in_file(job, wanted):
        return done
    if isinstance(start, StoredPartial):
        partial = _loaded(job, start)
    elif start is not None:
        partial = start if job.alone else copy(start)
    else:
        partial = Partial(job.statistic.zero(), (), Counters())
    with opened((job.token, task)) as window:
        _stream(job, data, task, covers, partial, report, window)
    return _hand_over(job, partial, [start], permit)


def subtree(
    job: Job, task: str, node: Node, data: Source | None, *, report: Report, permit: Permit
) -> Partial | StoredPartial:
    """Sum over the leaves under a node of the fixed tree, along that tree; for floating-point statistics."""
    reset_peak()
    set_threads(job.threads)
    n_leaves = len(job.bounds) - 1
    first, last = node.leaves(n_leaves)
    if done := _in_file(job, ((first, last),)):
        return done

    def value(node: Node) -> Partial:
        begin, end = node.leaves(n_leaves)
        if node.level == 0:
            leaf = Partial(job.statistic.zero(), (), Counters())
            _stream(job, data, f"{task}.{begin}", ((begin, end),), leaf, report)
            return leaf
        left = value(Node(node.level - 1, 2 * node.index))
        right = Node(node.level - 1, 2 * node.index + 1)
        return left if right.first >= n_leaves else merge(job.statistic, left, value(right))

    return _hand_over(job, value(node), [], permit)


def combine(
    job: Job,
    left: Partial | StoredPartial,
    right: Partial | StoredPartial,
    *,
    report: Report,
    permit: Permit,
) -> Partial | StoredPartial:
    """Merge two partial sums; where sums are kept in files the file of both replaces theirs.

    Neither is changed, but an exact sum that this process alone has.
    """
    reset_peak()
    if done := _in_file(job, join(left.covers, right.covers)):
        return done
    own = job.alone and job.statistic.exact
    first = _loaded(job, left) if isinstance(left, StoredPartial) else left if own else copy(left)
    second = _loaded(job, right) if isinstance(right, StoredPartial) else right
    return _hand_over(job, merge(job.statistic, first, second), [left, right], permit)


def store(
    job: Job, partial: Partial, included: tuple[StoredPartial, ...], *, report: Report, permit: Permit
) -> StoredPartial:
    """Write a sum that stays where it is to the checkpoint folder; the files of sums that it includes are deleted."""
    assert job.folder is not None, "only a pass with a checkpoint stores sums"
    reset_peak()
    started = time.monotonic()
    with permit():
        stored = job.folder.find(partial.covers) or job.folder.save(partial)
        for old in included:
            job.folder.discard(old)
    return replace(stored, seconds=time.monotonic() - started, peak_bytes=peak_bytes())


def _in_file(job: Job, covers: Cover) -> StoredPartial | None:
    """Return what a task has to make where it lies in a file already, because the task is run again."""
    return job.folder.find(covers) if job.folder is not None and job.in_files else None


def _loaded(job: Job, stored: StoredPartial) -> Partial:
    assert job.folder is not None, "only a pass with a checkpoint has sums in files"
    return job.folder.load(stored)


def _hand_over(
    job: Job, partial: Partial, included: list[Partial | StoredPartial | None], permit: Permit
) -> Partial | StoredPartial:
    partial.counters.peak_bytes = max(partial.counters.peak_bytes, peak_bytes())
    if job.folder is None or not job.in_files:
        return partial
    with permit():
        stored = job.folder.save(partial)
        for old in included:
            if isinstance(old, StoredPartial):
                job.folder.discard(old)
    return stored


def _stream(
    job: Job,
    data: Source | None,
    task: str,
    covers: Cover,
    partial: Partial,
    report: Report,
    window: Window | None = None,
) -> None:
    """Add leaves to a partial, batch by batch, reporting the task's running totals.

    Where the GPU has no memory left for a batch, the sum is begun again as it was given, with half of it, down to one sample.
    """
    given = partial.state
    partial.state = {}  # a sum is on the host or on the device, unless a batch may fail there
    known = (type(job.statistic), job.statistic.state_bytes(), job.batch)
    kept = gpu_available() and (job.statistic.on_device or known[1] <= SMALL_STATE)
    while True:
        batch, state = _FITTING.get(known, job.batch), given
        try:
            with device_limited(job.device_bytes):
                if job.statistic.on_device:
                    state = {name: place(value) for name, value in given.items()}
                elif kept:
                    state = {name: value.copy() for name, value in given.items()}
                counters, done = _add(job, batch, data, task, covers, state, partial.covers, report, window)
            break
        except Exception as error:  # whose frames hold arrays of the batch
            if not (kept and device_is_full(error)):
                raise
            said = str(error)
        del state
        release_device()
        if batch == 1:
            raise MemoryBudgetError(
                f"The {job.name} pass has no memory left on the GPU for one sample at a time, though it may use "
                f"{readable(job.device_bytes)} there ({said}); end other programs that use it, or take a smaller dictionary."
            )
        _FITTING[known] = (batch + 1) // 2
        told = f"{job.name}: the GPU has no memory left for a batch of {batch}, so that at most {_FITTING[known]} are taken"
        report({"remark": f"{told}, with the same result; other programs may use it"})
    del given
    partial.state = {name: to_host(value) for name, value in state.items()}
    partial.counters = partial.counters + counters
    partial.covers = join(partial.covers, done)
    if preload.sharers() > 1:
        del state
        release_device()


def _add(
    job: Job,
    batch: int,
    data: Source | None,
    task: str,
    covers: Cover,
    state: State,
    before: Cover,
    report: Report,
    window: Window | None,
) -> tuple[Counters, Cover]:
    """Add leaves to a sum that covers those of `before`; return what was done, and the leaves, fewer after a request to stop."""
    found: list[tuple[int, int]] = []
    skipped = found if job.skip else None
    counters = Counters()
    leaves = [leaf for start, stop in covers for leaf in range(start, stop)]
    blocks = [
        one for leaf in leaves for one in block_ranges(job.bounds[leaf], job.bounds[leaf + 1], job.block)
    ]
    readings: list[tuple[list[Digests] | None, Check]] = []  # of the leaves that have been begun

    def read(reader: Reader) -> Iterator[tuple[int, NDArray[np.generic]]]:
        # one run of batches over all leaves: a device copies the next one also where a leaf is one batch
        for leaf in leaves:
            digests: list[Digests] | None = [] if job.fingerprint else None
            readings.append((digests, Check()))
            begin, end = job.bounds[leaf], job.bounds[leaf + 1]
            yield from batches(reader, begin, end, job.block, batch, digests, skipped, readings[-1][1])

    def require_sound(number: int) -> None:
        """Compare a leaf, all of which has been read, with what earlier passes have read of it."""
        leaf, (digests, check) = leaves[number], readings[number]
        begin, end = job.bounds[leaf], job.bounds[leaf + 1]
        if digests is not None:
            counters.digests[leaf] = np.concatenate(digests)
        if job.expected is not None and (job.expected or found):  # all passes sum over the same samples
            then = retry.within(job.expected, begin, end)
            now = retry.joined_ranges(retry.within(found, begin, end))
            if now != then:
                raise DataError(
                    f"{job.source.name}, samples {begin} to {end - 1}: an earlier pass skipped "
                    f"{retry.phrase(then) or 'none'} of them, the {job.name} pass {retry.phrase(now) or 'none'}, so the "
                    f"storage is not reliable; restore the data from a good copy and start again."
                )
        counters.checks[leaf] = check.value
        unchanged.require_same(job.source, job.bounds, job.checks, {leaf: check.value})

    with (
        retry.opened_patiently(data or job.source) as opened_reader,
        read_ahead(opened_reader, blocks) as reader,
        uploading() as ahead,
    ):
        number = sound = 0
        for first, images in ahead(read(reader)):
            while first >= job.bounds[leaves[number] + 1]:
                number += 1
            for one in range(sound, number):
                require_sound(one)
            if number > sound and job.stop is not None and job.stop.is_set():
                covers = _first(covers, number)  # what has been read beyond them is forgotten
                break
            sound = number
            with located(job.source.name, first):
                counters.n_positions += job.statistic.update(state, images, first)
            counters.n_samples += len(images)
            counters.read_bytes = reader.read_bytes
            ended = number + (first + len(images) == job.bounds[leaves[number] + 1])
            counted = {name: getattr(counters, name) for name in COUNTED}
            report({"pass": job.name, "task": task, "leaves": ended, **counted, **memory_now()})
            if window is not None and window.asked:
                window.answer(join(before, _first(covers, ended)), state)
        else:
            for one in range(sound, len(leaves)):
                require_sound(one)
    ranges = [retry.within(found, job.bounds[start], job.bounds[stop]) for start, stop in covers]
    counters.skipped = retry.joined_ranges([one for some in ranges for one in some])
    return counters, covers


def _first(covers: Cover, count: int) -> Cover:
    """Return the first leaves of a cover."""
    found = []
    for start, stop in covers:
        if count > 0:
            found.append((start, min(stop, start + count)))
        count -= stop - start
    return tuple(found)


@contextlib.contextmanager
def located(name: str, first: int) -> Iterator[None]:
    """Say where a batch begins that cannot be used; kernels know its images by their place in it only."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{name}, counting from sample {first}: {error.sentence}") from error


def block_ranges(start: int, stop: int, block: int) -> list[tuple[int, int]]:
    """Return what is read at once of samples `start` to `stop`.

    >>> block_ranges(0, 10, 4)
    [(0, 4), (4, 8), (8, 10)]
    """
    return [(start + first, start + last) for first, last in even_ranges(stop - start, block)]


def batches(
    reader: Reader,
    start: int,
    stop: int,
    block: int,
    batch: int,
    digests: list[Digests] | None = None,
    skipped: list[tuple[int, int]] | None = None,
    check: Check | None = None,
) -> Iterator[tuple[int, NDArray[np.generic]]]:
    """Read [start, stop) in blocks of whole chunks, each once, and cut the blocks into batches.

    With `digests` the hashes of the samples are appended to it; with `skipped` the ranges that cannot be
    read are appended to that, left out, and have zeros for hashes. `check` takes in all that is read.
    """
    for begin, end in block_ranges(start, stop, block):
        hashes = np.zeros(end - begin, np.uint64)
        for first, images in retry.sound_pieces(reader, begin, end, skipped):
            if check is not None:
                check.add(images)
            if digests is not None:
                hashes[first - begin : first - begin + len(images)] = sample_digests(images)
            for at in range(0, len(images), batch):
                yield first + at, images[at : at + batch]
        if digests is not None:
            digests.append(hashes)


def probe(
    statistic: Statistic,
    shape: tuple[int, ...],
    dtype: str,
    threads: int,
    *,
    report: Report | None = None,
    permit: Permit | None = None,
) -> tuple[int, int | None, float, tuple[str, ...]]:
    """Compile and warm the kernels of a pass on one image of noise.

    Returns the bytes then resident, the memory of the GPU where there is one, the seconds that compiling took, and what
    a user should know of the GPU.
    """
    from smtdist.kernels.cpu.jit import compile_timer  # half a second, which only workers need

    set_threads(threads)
    numbers, limit = math.prod(shape[1:]), memory_limit()
    if 16 * numbers > limit:  # the noise below, and what is made of it
        raise MemoryBudgetError(
            f"A sample of {' x '.join(f'{size:,}' for size in shape[1:])} numbers needs {readable(16 * numbers)} before it is "
            f"coded, and {readable(limit)} may be used; give smaller samples, or more memory."
        )
    twin = statistic.miniature()
    state: State = {name: place(value) if twin.on_device else value for name, value in twin.zero().items()}
    noise = np.random.default_rng(0).integers(0, 251, (1, *shape[1:]))
    image = noise.astype(dtype) if np.dtype(dtype).kind in "iu" else (noise / 250).astype(dtype)
    with (
        compile_timer() as compiled,
        compiling.compile_timer() as compiled_for_gpu,
        contextlib.suppress(ArithmeticError, SmtdistError),  # the noise may lie outside the pixel range
    ):
        twin.update(state, image, 0)
    device, seconds = device_memory(), compiled() + compiled_for_gpu()
    return resident_bytes(), device and device // preload.sharers(), seconds, card.remarks()
