"""Images to representations: codes, embedding, pooling; streamed, in any order, same bits (SMT 2023, section 2)."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.data.retry import Ranges, joined_ranges, opened_patiently
from smtdist.data.retry import count as count_samples
from smtdist.data.source import Source
from smtdist.engine.memory import BUDGET_SHARE, peak_bytes, readable, reset_peak, resident_bytes
from smtdist.engine.passes import Engine
from smtdist.engine.plan import ALLOWANCE, block_samples
from smtdist.engine.worker import batches, located
from smtdist.errors import MemoryBudgetError, ModelError, SmtdistError
from smtdist.kernels.codes import encode_pieces
from smtdist.kernels.device import place, to_host, uploading
from smtdist.kernels.memory import batch_bytes, code_capacity
from smtdist.kernels.representation import represent
from smtdist.kernels.threads import set_threads
from smtdist.kernels.types import Encoder
from smtdist.models.model import Model, image_geometry

BATCH_BYTES = 256 * 1024**2
RESULT_BYTES = 32 * 1024**2


@dataclass(frozen=True)
class Represent:
    """z = pool(L2(P f(x))), L2 at each pooled position; zero where a patch has no code.

    Memory: a batch's codes, patch embeddings (positions x components x 4 bytes) of one image for each thread, on a device of
    all, and the result.
    """

    encoder: Encoder
    components: NDArray[np.float32]  # (K, L)
    size: int
    stride: int
    dtype: str
    batch: int
    threads: int
    working_bytes: int = 0  # of a batch and of reading, as planned

    def __call__(self, images: NDArray[np.generic]) -> NDArray[np.floating[Any]]:
        """Represent a batch (B, H, W, C): returns (B, rows', columns', L)."""
        geometry = self.encoder.whitener.geometry
        parts = []
        capacity = code_capacity(
            geometry,
            len(self.encoder.atoms),
            self.encoder.feature,
            len(images),
            self.encoder.whitener.sampling.undrawn,
        )
        for _, count, codes in encode_pieces(place(images), self.encoder, False, capacity):
            grid = (count, geometry.rows, geometry.columns)
            parts.append(to_host(represent(codes, self.components, *grid, self.size, self.stride)))
        return _joined(parts).astype(self.dtype, copy=False)


@dataclass(frozen=True)
class Concatenate:
    """The representations of several models side by side, (B, features): "original + greyscale" of SMT 2023, section 4."""

    parts: tuple[Represent, ...]

    @property
    def batch(self) -> int:
        """Images that every part can take at once."""
        return min(part.batch for part in self.parts)

    @property
    def threads(self) -> int:
        """Threads of a task."""
        return self.parts[0].threads

    @property
    def working_bytes(self) -> int:
        """What the part that needs most needs: they follow one another."""
        return max(part.working_bytes for part in self.parts)

    def __call__(self, images: NDArray[np.generic]) -> NDArray[np.floating[Any]]:
        """Represent a batch (B, H, W, C), read and decoded once for all models."""
        dtype = self.parts[0].dtype
        return np.concatenate(
            [part(images).reshape(len(images), -1) for part in self.parts], axis=1, dtype=dtype
        )


def feature_count(
    model: Model, n_components: int | None, drop: int | None, others: Sequence[Model] = ()
) -> int:
    """Return the features of a representation; `others` have the components they were fitted for."""
    counts = [
        model.components(n_components, drop).shape[1],
        *(other.components().shape[1] for other in others),
    ]
    shapes = (one.feature_shape(count) for one, count in zip((model, *others), counts, strict=True))
    return sum(math.prod(shape) for shape in shapes)


def representer(
    model: Model, source: Source, engine: Engine, n_components: int | None, drop: int | None
) -> Represent:
    """Choose the batch within a worker's budget; refuse a model too large for it."""
    components = model.components(n_components, drop)
    encoder, settings, geometry = model.encoder, model.settings, model.geometry
    rows, columns, count = model.feature_shape(components.shape[1])
    threads = engine.executor.threads()
    reading = (
        block_samples(source) * source.sample_bytes + source.reader_bytes + threads * source.thread_bytes
    )

    def needed(images: int) -> int:
        stages = batch_bytes(
            geometry,
            len(encoder.atoms),
            encoder.feature,
            images,
            components=count,
            pooled=rows * columns,
            raw_bytes=encoder.whitener.scale.raw_bytes,
            sampling=encoder.whitener.sampling.undrawn,
        )
        return reading + max(stages.encoding, stages.embedding)

    budget = int(BUDGET_SHARE * engine.executor.limit_bytes())
    batch = min(256, block_samples(source))
    while batch > 1 and needed(batch) > min(budget, reading + BATCH_BYTES):
        batch //= 2
    if needed(batch) > budget:
        raise MemoryBudgetError(
            f"Embedding one image needs {readable(needed(1))}, more than the {readable(budget)} a worker may plan for; "
            f"use fewer components or larger workers."
        )
    return Represent(
        encoder,
        components,
        settings.pool_size,
        settings.pool_stride,
        settings.dtype,
        batch,
        threads,
        needed(batch),
    )


def _warmed(represent: Represent | Concatenate, source: Source, start: int, stop: int) -> int:
    """Represent one patterned image, so that kernels are loaded, and return the bytes then in memory."""
    set_threads(represent.threads)
    pattern = (np.arange(math.prod(source.shape[1:])) * 37 % 251).reshape(1, *source.shape[1:])
    with contextlib.suppress(SmtdistError):  # the pattern may lie outside the pixel range
        represent((pattern if source.dtype.kind == "u" else pattern / 250).astype(source.dtype))
    return resident_bytes()


def _measured_range(
    how: tuple[Callable[..., Any], Represent | Concatenate], source: Source, start: int, stop: int
) -> tuple[Any, int]:
    """Represent samples [start, stop) of a source in one of the two ways below; return that and the resident set's peak."""
    reset_peak()
    function, represent = how
    result = function(represent, source, start, stop)
    return result, peak_bytes()


def represent_range(
    represent: Represent | Concatenate, source: Source, start: int, stop: int
) -> NDArray[np.floating[Any]]:
    """Represent samples [start, stop) of a source."""
    return _joined([values for _, values in _pieces(represent, source, start, stop, None)])


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Concatenate; a single part, large as it may be, is not copied."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def represent_sound(
    represent: Represent | Concatenate, source: Source, start: int, stop: int
) -> tuple[NDArray[np.floating[Any]], Ranges]:
    """Represent the samples in [start, stop) that can be read; the others are NaN, and their ranges are returned."""
    skipped: list[tuple[int, int]] = []
    pieces = list(_pieces(represent, source, start, stop, skipped))
    blank = np.zeros((1, *source.shape[1:]), source.dtype)
    like = pieces[0][1] if pieces else represent(blank)
    result = np.full((stop - start, *like.shape[1:]), np.nan, like.dtype)
    for first, values in pieces:
        result[first - start : first - start + len(values)] = values
    return result, joined_ranges(skipped)


def _pieces(
    represent: Represent | Concatenate,
    source: Source,
    start: int,
    stop: int,
    skipped: list[tuple[int, int]] | None,
) -> Iterator[tuple[int, NDArray[np.floating[Any]]]]:
    set_threads(represent.threads)
    with opened_patiently(source) as reader, uploading() as ahead:
        for first, images in ahead(
            batches(reader, start, stop, block_samples(source), represent.batch, skipped=skipped)
        ):
            with located(source.name, first):
                yield first, represent(images)


def transform(
    model: Model,
    source: Source,
    engine: Engine,
    *,
    n_components: int | None = None,
    drop: int | None = None,
    others: Sequence[Model] = (),
) -> Iterator[tuple[int, NDArray[np.floating[Any]]]]:
    """Yield (first sample, representations (m, rows', columns', L)) for all samples, in whatever order they end.

    With `others` the representations of all models are concatenated to (m, features), from one read of the data. Where the
    engine skips samples that cannot be read, theirs are NaN, and `engine.skipped` has their ranges in the end.
    """
    for one in (model, *others):
        _require_images(one, source)
    own = representer(model, source, engine, n_components, drop)
    more = [representer(other, source, engine, None, None) for other in others]
    represent = Concatenate((own, *more)) if more else own
    features = feature_count(model, n_components, drop, others)
    sample = features * np.dtype(model.settings.dtype).itemsize
    geometry = model.geometry
    step = min(
        source.n_samples, source.chunk_samples * max(1, RESULT_BYTES // (source.chunk_samples * sample))
    )
    ranges = [(start, min(start + step, source.n_samples)) for start in range(0, source.n_samples, step)]
    ((_, baseline),) = engine.map(_warmed, represent, source, ranges[:1])
    # a result waits for the driver while the next is made, in parts that are then joined; what the caller keeps of
    # them is not counted
    piece = step * sample
    projected = baseline + max(represent.working_bytes + 2 * piece, 3 * piece) + ALLOWANCE
    started, done, peak = time.perf_counter(), 0, 0
    engine.events.emit(
        "pass_started",
        **{"pass": "transform"},
        n_samples=source.n_samples,
        n_leaves=len(ranges),
        resumed_leaves=0,
        workers=engine.executor.slots(),
        projected_bytes=projected,
    )
    skipping, left_out = engine.on_bad_chunk == "skip", list[tuple[int, int]]()
    function = represent_sound if skipping else represent_range
    for (start, stop), (found, highest) in engine.map(_measured_range, (function, represent), source, ranges):
        result, bad = found if skipping else (found, ())
        left_out.extend(bad)
        done, peak = done + stop - start, max(peak, highest)
        engine.events.emit(
            "progress",
            **{"pass": "transform"},
            n_samples=done,
            n_positions=done * geometry.positions,
            read_bytes=done * source.stored_bytes // source.n_samples,
        )
        yield start, result
    engine.skipped[source.name, source.n_samples] = joined_ranges(left_out)
    engine.events.emit(
        "pass_finished",
        **{"pass": "transform"},
        seconds=time.perf_counter() - started,
        n_samples=done,
        n_positions=done * geometry.positions,
        read_bytes=source.stored_bytes,
        peak_bytes=peak,
        projected_bytes=projected,
        resumed_leaves=0,
        n_skipped=count_samples(left_out),
    )


def _require_images(model: Model, source: Source) -> None:
    geometry = image_geometry(model.settings, source.shape, source.name)
    if geometry != model.geometry:
        raise ModelError(
            f"The model takes images of (height, width, channels) = {tuple(model.geometry[:3])}, {source.name} has "
            f"{tuple(geometry[:3])}; give images like those it was fitted on."
        )
