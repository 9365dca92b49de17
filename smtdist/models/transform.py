"""Images to representations: streamed, in any order, same bits, whatever encodes them."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from smtdist.configuration import Configuration
from smtdist.data import retry
from smtdist.data.retry import Ranges
from smtdist.data.source import Source
from smtdist.engine import plan as pass_plan
from smtdist.engine import worker
from smtdist.engine.memory import peak_bytes, reset_peak, resident_bytes
from smtdist.engine.passes import Engine
from smtdist.errors import SmtdistError
from smtdist.kernels.device import uploading
from smtdist.kernels.threads import set_threads
from smtdist.models.represent import Representer, joined

RESULT_BYTES = 32 * 1024**2


class Represents(Protocol):
    """A fitted model that turns images into representations.

    asked : its settings, as JSON. dtype : of the numbers of a representation. positions : of an image.
    scaling : what becomes of encoded images first. votes : settings that say how neighbours vote.
    fingerprint : of the samples it was fitted on, if known.
    """

    @property
    def asked(self) -> str: ...  # noqa: D102
    @property
    def fingerprint(self) -> str: ...  # noqa: D102
    @property
    def scaling(self) -> Configuration | None: ...  # noqa: D102
    @property
    def votes(self) -> Configuration: ...  # noqa: D102
    @property
    def dtype(self) -> str: ...  # noqa: D102
    @property
    def positions(self) -> int: ...  # noqa: D102

    def require_images(self, source: Source) -> None:
        """Refuse images of another shape than the model was fitted on."""

    def representation_shape(
        self, n_components: int | None = None, drop: int | None = None
    ) -> tuple[int, ...]:
        """Return the shape of one image's representation with so many components, after those that are dropped."""
        ...

    def representer(
        self, source: Source, engine: Engine, n_components: int | None = None, drop: int | None = None
    ) -> Representer:
        """Return what represents a batch, within a worker's budget; refuse a model too large for it."""
        ...


@dataclass(frozen=True)
class Concatenate:
    """The representations of several models side by side, (B, features): "original + greyscale" of SMT 2023, section 4."""

    parts: tuple[Representer, ...]
    dtype: str

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
        flat = [part(images).reshape(len(images), -1) for part in self.parts]
        return np.concatenate(flat, axis=1, dtype=self.dtype)


def feature_count(
    model: Represents, n_components: int | None, drop: int | None, others: Sequence[Represents] = ()
) -> int:
    """Return the features of a representation; `others` have the components they were fitted for."""
    shapes = [
        model.representation_shape(n_components, drop),
        *(one.representation_shape() for one in others),
    ]
    return sum(map(math.prod, shapes))


def _warmed(represent: Representer, source: Source, start: int, stop: int) -> int:
    """Represent one patterned image, so that kernels are loaded, and return the bytes then in memory."""
    set_threads(represent.threads)
    pattern = (np.arange(math.prod(source.shape[1:])) * 37 % 251).reshape(1, *source.shape[1:])
    with contextlib.suppress(SmtdistError):  # the pattern may lie outside the pixel range
        represent((pattern if source.dtype.kind == "u" else pattern / 250).astype(source.dtype))
    return resident_bytes()


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


def transform(
    model: Represents,
    source: Source,
    engine: Engine,
    *,
    n_components: int | None = None,
    drop: int | None = None,
    others: Sequence[Represents] = (),
    held_bytes: int = 0,
) -> Iterator[tuple[int, NDArray[np.floating[Any]]]]:
    """Yield (first sample, representations (m, ...)) for all samples, in whatever order they end.

    With `others` the representations of all models are concatenated to (m, features), from one read of the
    data. Where the engine skips samples that cannot be read, theirs are NaN, and `engine.skipped` has their
    ranges in the end. `held_bytes`: what the caller keeps of the results in memory, which counts where this
    process does the work.
    """
    for one in (model, *others):
        one.require_images(source)
    own = model.representer(source, engine, n_components, drop)
    more = [other.representer(source, engine) for other in others]
    represent: Representer = Concatenate((own, *more), model.dtype) if more else own
    features = feature_count(model, n_components, drop, others)
    sample = features * np.dtype(model.dtype).itemsize
    step = min(
        source.n_samples, source.chunk_samples * max(1, RESULT_BYTES // (source.chunk_samples * sample))
    )
    ranges = [(start, min(start + step, source.n_samples)) for start in range(0, source.n_samples, step)]
    ((_, baseline),) = engine.map(_warmed, represent, source, ranges[:1])
    # a result waits for the driver while the next is made, in parts that are then joined
    piece = step * sample
    projected = baseline + max(represent.working_bytes + 2 * piece, 3 * piece) + pass_plan.ALLOWANCE
    if engine.executor.alone:
        projected += held_bytes
    started, done, peak = time.perf_counter(), 0, 0
    slots = engine.executor.slots()
    engine.events.started(
        "transform", source.n_samples, len(ranges), workers=slots, projected_bytes=projected
    )
    how = (represent, engine.on_bad_chunk == "skip")
    left_out = list[tuple[int, int]]()
    for (start, stop), (result, bad, highest) in engine.map(_represented, how, source, ranges):
        left_out.extend(bad)
        done, peak = done + stop - start, max(peak, highest)
        read = done * source.stored_bytes // source.n_samples
        engine.events.progress("transform", done, done * model.positions, read)
        yield start, result
    engine.skipped[source.name, source.n_samples] = retry.joined_ranges(left_out)
    engine.events.emit(
        "pass_finished",
        **{"pass": "transform"},
        seconds=time.perf_counter() - started,
        n_samples=done,
        n_positions=done * model.positions,
        read_bytes=source.stored_bytes,
        peak_bytes=peak,
        projected_bytes=projected,
        resumed_leaves=0,
        n_skipped=retry.count(left_out),
    )


def represented(
    model: Represents,
    source: Source,
    engine: Engine,
    *,
    n_components: int | None = None,
    drop: int | None = None,
    others: Sequence[Represents] = (),
) -> NDArray[np.floating[Any]]:
    """Return the representations of all samples in memory, (n, ...), or (n, features) with `others`."""
    shape = model.representation_shape(n_components, drop)
    if others:
        shape = (feature_count(model, n_components, drop, others),)
    z: NDArray[Any] = np.empty((source.n_samples, *shape), model.dtype)
    for first, values in transform(
        model, source, engine, n_components=n_components, drop=drop, others=others, held_bytes=z.nbytes
    ):
        z[first : first + len(values)] = values
    return z
