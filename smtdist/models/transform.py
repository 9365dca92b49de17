"""Images to representations, and samples to embedded rows: streamed, in any order, same bits, whatever encodes them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.data import retry
from smtdist.data.retry import Ranges
from smtdist.data.source import Source
from smtdist.engine import plan as pass_plan
from smtdist.engine import worker
from smtdist.engine.memory import peak_bytes, reset_peak
from smtdist.engine.passes import Engine
from smtdist.kernels.device import uploading
from smtdist.kernels.threads import set_threads
from smtdist.models.readout import ImageTransform
from smtdist.models.represent import Representer, joined
from smtdist.models.transform_plan import TransformPlan

ROWS: Final = 1024  # samples that a worker embeds at a time
RANGE: Final = 16 * ROWS  # samples of a task that embeds

Embed = Callable[[NDArray[Any]], NDArray[np.floating[Any]]]


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

    Kernels are loaded where the work will be done. Refuses images that the model does not take, and a model too
    large for a worker.
    """
    model.require_images(source)
    represent = model.representer(source, engine)
    features = math.prod(model.representation_shape())
    return TransformPlan.of(represent, source, engine, features, np.dtype(model.dtype))


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


def embedded(
    embed: Embed, source: Source, engine: Engine
) -> Iterator[tuple[int, NDArray[np.floating[Any]]]]:
    """Yield (first sample, embedded samples (m, ...)) for all samples, in whatever order they end."""
    step = source.chunk_samples * max(1, RANGE // source.chunk_samples)
    ranges = [(start, min(start + step, source.n_samples)) for start in range(0, source.n_samples, step)]
    for (start, _), values in engine.map(_embed_range, embed, source, ranges):
        yield start, values


def _embed_range(embed: Embed, source: Source, start: int, stop: int) -> NDArray[np.floating[Any]]:
    parts = []
    with source.opened() as reader:
        for first, samples in worker.batches(reader, start, stop, pass_plan.block_samples(source), ROWS):
            with worker.located(source.name, first):
                parts.append(embed(samples))
    return np.concatenate(parts)
