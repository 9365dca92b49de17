"""Images to representations: planned, streamed in any order, same bits, whatever encodes them, and written to open files."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.data import retry
from smtdist.data.array import ArraySource
from smtdist.data.netcdf import chunks_of
from smtdist.data.retry import Ranges
from smtdist.data.source import Source
from smtdist.engine import plan as pass_plan
from smtdist.engine import worker
from smtdist.engine.memory import memory_limit, peak_bytes, readable, reset_peak, resident_bytes
from smtdist.engine.passes import Engine
from smtdist.errors import MemoryBudgetError, SmtdistError, counted
from smtdist.kernels.device import uploading
from smtdist.kernels.threads import set_threads
from smtdist.models.readout import ImageTransform
from smtdist.models.represent import Representer, joined
from smtdist.models.store import Array, save_rows, version

RESULT_BYTES: Final = 32 * 1024**2
TIMED_SECONDS: Final = 1.0
"""A worker represents images for so long, at least, before its pace is told."""
FASTER: Final = 0.8
SLOWER: Final = 1.6
"""The range of times about what was timed: other images, and others who use the machine."""


@dataclass(frozen=True)
class TransformPlan:
    """What representing all samples of a source will take.

    Attributes
    ----------
    represent : what does it. n_samples : images. features : numbers of an image, of `itemsize` bytes each.
    step : images of a task.
    baseline : bytes that a worker has in memory once kernels are loaded. driver_baseline : those of this process.
    slots : tasks at once. alone : whether this process does the work.
    pace : seconds an image of one worker, None where it was not measured.
    carried : bytes of images that travel with a worker's tasks, from memory or a Dask array.
    """

    represent: Representer
    n_samples: int
    features: int
    itemsize: int
    step: int
    baseline: int
    driver_baseline: int
    slots: int
    alone: bool
    pace: float | None = None
    carried: int = 0

    def timed(self, source: Source, engine: Engine) -> TransformPlan:
        """Return the plan with the pace of a worker, which represents some images of the source."""
        ((_, pace),) = engine.map(_paced, self.represent, source, [(0, self.n_samples)])
        return replace(self, pace=pace)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Samples of each task."""
        starts = range(0, self.n_samples, self.step)
        return [(start, min(start + self.step, self.n_samples)) for start in starts]

    @property
    def size_bytes(self) -> int:
        """Of all representations."""
        return self.n_samples * self.features * self.itemsize

    @property
    def piece_bytes(self) -> int:
        """Of what a task returns."""
        return self.step * self.features * self.itemsize

    @property
    def worker_bytes(self) -> int:
        """Peak of a worker: a result waits while the next is made, in parts that are then joined."""
        piece = self.piece_bytes
        working = max(self.represent.working_bytes + 2 * piece, 3 * piece)
        return self.baseline + working + self.carried + pass_plan.ALLOWANCE

    def driver_bytes(self, held_bytes: int = 0) -> int:
        """Peak of this process, which keeps so many bytes of results: a worker's too where it does the work."""
        if self.alone:
            return self.worker_bytes + held_bytes
        return self.driver_baseline + held_bytes + 3 * self.piece_bytes + pass_plan.ALLOWANCE

    @property
    def seconds(self) -> tuple[float, float] | None:
        """Least and most time that is expected; None where no pace was measured."""
        if self.pace is None:
            return None
        rounds = math.ceil(len(self.ranges) / max(1, self.slots))
        longest = self.pace * min(self.n_samples, rounds * self.step)
        return FASTER * self.pace * self.n_samples / max(1, self.slots), SLOWER * longest

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain JSON types: bytes, and seconds as [least, most]."""
        return {
            "n_samples": self.n_samples,
            "n_features": self.features,
            "bytes_per_image": self.features * self.itemsize,
            "representation_bytes": self.size_bytes,
            "tasks": len(self.ranges),
            "workers": 0 if self.alone else self.slots,
            "driver_peak_bytes": self.driver_bytes(),
            "worker_peak_bytes": 0 if self.alone else self.worker_bytes,
            "seconds_per_image": self.pace,
            "seconds": self.seconds,
        }

    def require_room(
        self, held_bytes: int = 0, remedy: str = "represent fewer images, or pool more"
    ) -> None:
        """Refuse, before an image is represented, what this process has no memory for with so many bytes of results."""
        needed, limit = self.driver_bytes(held_bytes), memory_limit()
        if needed > limit:
            raise MemoryBudgetError(
                f"Representing {self.n_samples:,} images by {self.features:,} numbers each needs {readable(needed)}, of which "
                f"{readable(held_bytes)} are kept, and {readable(limit)} may be used; {remedy}."
            )

    def size_phrase(self) -> str:
        """Say how large the representations are.

        >>> TransformPlan(None, 1000, 512, 4, 100, 0, 0, 1, True).size_phrase()
        '1,000 images x 512 numbers of 4 bytes: 2.0 KiB an image, 2.0 MiB in all'
        """
        each = self.features * self.itemsize
        return (
            f"{counted(self.n_samples, 'image')} x {self.features:,} numbers of {self.itemsize} bytes: "
            f"{readable(each)} an image, {readable(self.size_bytes)} in all"
        )


def _warmed(represent: Representer, source: Source, start: int, stop: int) -> int:
    """Represent one patterned image, so that kernels are loaded, and return the bytes then in memory."""
    set_threads(represent.threads)
    pattern = (np.arange(math.prod(source.shape[1:])) * 37 % 251).reshape(1, *source.shape[1:])
    with contextlib.suppress(SmtdistError):  # the pattern may lie outside the pixel range
        represent((pattern if source.dtype.kind in "iu" else pattern / 250).astype(source.dtype))
    return resident_bytes()


def _paced(represent: Representer, source: Source, start: int, stop: int) -> float:
    """Return the seconds an image: some are read and represented, a batch or until `TIMED_SECONDS` have passed."""
    set_threads(represent.threads)
    done, size, taken = 0, min(stop - start, 8), list[tuple[int, float]]()
    with source.opened() as reader:
        while size and sum(seconds for _, seconds in taken) < TIMED_SECONDS:
            began = time.perf_counter()
            represent(reader.read(start + done, start + done + size))
            taken.append((size, time.perf_counter() - began))
            done += size
            size = min(represent.batch, 4 * size, stop - start - done)
    # of the largest batch: small ones share out less evenly among threads
    most, seconds = max(taken)
    return seconds / most


def _represented(
    how: tuple[Representer, bool], source: Source, start: int, stop: int
) -> tuple[NDArray[np.floating[Any]], Ranges, int]:
    """Represent samples [start, stop) of a source; return that, ranges that cannot be read, and the resident set's peak.

    What cannot be read is NaN where it is to be skipped, which `how` says beside what represents; else an error.
    """
    reset_peak()
    represent, skipping = how
    skipped: list[tuple[int, int]] | None = [] if skipping else None
    pieces = list(_pieces(represent, source, start, stop, skipped))
    if skipped is None:
        return joined([values for _, values in pieces]), (), peak_bytes()
    blank = np.zeros((1, *source.shape[1:]), source.dtype)
    like = pieces[0][1] if pieces else represent(blank)
    result = np.full((stop - start, *like.shape[1:]), np.nan, like.dtype)
    for first, values in pieces:
        result[first - start : first - start + len(values)] = values
    return result, retry.joined_ranges(skipped), peak_bytes()


def _pieces(
    represent: Representer,
    source: Source,
    start: int,
    stop: int,
    skipped: list[tuple[int, int]] | None,
) -> Iterator[tuple[int, NDArray[np.floating[Any]]]]:
    set_threads(represent.threads)
    with retry.opened_patiently(source) as reader, uploading() as ahead:
        block = pass_plan.block_samples(source)
        batches = worker.batches(reader, start, stop, block, represent.batch, skipped=skipped)
        for first, images in ahead(batches):
            with worker.located(source.name, first):
                yield first, represent(images)


def planned(model: ImageTransform, source: Source, engine: Engine) -> TransformPlan:
    """Return what representing all samples will take.

    One patterned image is represented on each worker, so that its kernels are loaded. Refuses images that the model does not
    take, and a model too large for a worker.
    """
    model.require_images(source)
    represent, executor = model.representer(source, engine), engine.executor
    features, itemsize = math.prod(model.representation_shape()), np.dtype(model.dtype).itemsize
    chunk = source.chunk_samples
    step = min(source.n_samples, chunk * max(1, RESULT_BYTES // (chunk * features * itemsize)))
    # earlier passes leave more in memory on some workers than on others
    warmed = engine.map(_warmed, represent, source, [(0, 1)] * max(1, executor.slots()))
    baseline = max(held for _, held in warmed)
    waiting = 1 if executor.alone else 2  # tasks a worker has at once, one under way
    return TransformPlan(
        represent=represent,
        n_samples=source.n_samples,
        features=features,
        itemsize=itemsize,
        step=step,
        baseline=baseline,
        driver_baseline=resident_bytes(),
        slots=executor.slots(),
        alone=executor.alone,
        carried=source.carried_bytes(waiting * step) if isinstance(source, ArraySource) else 0,
    )


def transform(
    model: ImageTransform, source: Source, engine: Engine
) -> Iterator[tuple[int, NDArray[np.floating[Any]]]]:
    """Yield (first sample, representations (m, ...)) for all samples, in whatever order they end.

    Where the engine skips samples that cannot be read, theirs are NaN, and `engine.skipped` has their
    ranges in the end.
    """
    plan = planned(model, source, engine)
    yield from as_planned(plan, model.positions, source, engine)


def as_planned(
    plan: TransformPlan, positions: int, source: Source, engine: Engine, held_bytes: int = 0
) -> Iterator[tuple[int, NDArray[np.floating[Any]]]]:
    """Yield what `transform` yields, for which a plan is there.

    positions : of an image. held_bytes : of results, these and others, that the caller has in memory in the end.
    """
    started, done, peak, own_peak = time.perf_counter(), 0, 0, 0
    projected = plan.driver_bytes(held_bytes) if plan.alone else plan.worker_bytes
    engine.events.started(
        "transform",
        source.n_samples,
        len(plan.ranges),
        workers=plan.slots,
        projected_bytes=projected,
        unit=source.unit,
    )
    reset_peak()
    how = (plan.represent, engine.on_bad_chunk == "skip")
    left_out = list[tuple[int, int]]()
    for (start, stop), (result, bad, highest) in engine.map(_represented, how, source, plan.ranges):
        left_out.extend(bad)
        done, peak = done + stop - start, max(peak, highest)
        read = done * source.stored_bytes // source.n_samples
        engine.events.progress("transform", done, done * positions, read)
        yield start, result
        own_peak = max(own_peak, peak_bytes())  # what became of the result included
    engine.skipped[source.name, source.n_samples] = retry.joined_ranges(left_out)
    driver = (
        {} if plan.alone else {"driver_bytes": plan.driver_bytes(held_bytes), "driver_peak_bytes": own_peak}
    )
    engine.events.emit(
        "pass_finished",
        **{"pass": "transform"},
        seconds=time.perf_counter() - started,
        n_samples=done,
        n_positions=done * positions,
        read_bytes=source.stored_bytes,
        peak_bytes=max(peak, own_peak) if plan.alone else peak,
        projected_bytes=projected,
        resumed_leaves=0,
        n_skipped=retry.count(left_out),
        **driver,
    )


def represented(
    model: ImageTransform,
    source: Source,
    engine: Engine,
    *,
    remedy: str = "represent fewer images at a time, or write them to a file with smtdist transform",
) -> NDArray[np.floating[Any]]:
    """Return the representations of all samples in memory, (n, ...).

    Refused before an image is represented where they do not fit in memory beside the work (MemoryBudgetError, which
    ends in `remedy`).
    """
    shape = model.representation_shape()
    plan = planned(model, source, engine)
    plan.require_room(plan.size_bytes, remedy)
    z: NDArray[Any] = np.empty((source.n_samples, *shape), model.dtype)
    for first, values in as_planned(plan, model.positions, source, engine, z.nbytes):
        z[first : first + len(values)] = values
    return z


ARRAYS: Final = {"z": Array(("sample", "feature")), "labels": Array(("sample",), optional=True)}


def file_bytes(n_samples: int, features: int, itemsize: int) -> int:
    """Return about how many bytes `save_representation` writes: whole chunks, labels, and what HDF5 adds."""
    rows, _ = chunks_of((n_samples, features), itemsize)
    chunks = -(-n_samples // rows)
    return chunks * (rows * features * itemsize + 64) + 16 * n_samples + 8 * features + 2**14


def save_representation(
    path: str | os.PathLike[str],
    pieces: Iterable[tuple[int, NDArray[np.floating[Any]]]],
    n_samples: int,
    feature_shape: tuple[int, ...],
    dtype: str,
    attributes: dict[str, Any],
    *,
    overwrite: bool = False,
    ending: Callable[[], dict[str, Any]] = dict,
    labels: NDArray[np.int64] | None = None,
    names: Sequence[str] = (),
) -> int:
    """Write `z(sample, feature)` piece by piece as they come, in any order; return the file's bytes.

    A feature runs pooled row, pooled column, component; where models are concatenated, `feature_shape` is
    (features,). `labels` are those of the samples, where there are some, `names` what these numbers mean.
    `ending` returns attributes that are known once all pieces have come. Memory: one piece.
    """
    features = int(np.prod(feature_shape))
    return save_rows(
        path,
        {"z": ARRAYS["z"]._replace(dtype=dtype)},
        {"sample": np.arange(n_samples), "feature": np.arange(features)},
        ((first, values.reshape(len(values), features)) for first, values in pieces),
        {**version("smt"), "feature_shape": list(feature_shape), **attributes},
        ordered=False,
        beside={} if labels is None else {"labels": labels},
        names=names,
        ending=ending,
        overwrite=overwrite,
    )
