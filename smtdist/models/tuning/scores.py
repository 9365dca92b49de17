"""Representations of many fitted settings from one encoding of the images, judged one after the other."""

from __future__ import annotations

import itertools
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import h5py
import numpy as np
from numpy.typing import NDArray

from smtdist.configuration import Configuration
from smtdist.data.source import Source
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.memory import BUDGET_SHARE, memory_limit, readable
from smtdist.engine.passes import Engine
from smtdist.engine.worker import batches, located
from smtdist.errors import MemoryBudgetError
from smtdist.kernels.device import is_host, place
from smtdist.kernels.memory import batch_bytes, code_capacity
from smtdist.kernels.nested import nested_pieces, nests
from smtdist.kernels.representation import pooled_shape
from smtdist.kernels.slices import pooled_slices, slice_places
from smtdist.kernels.threads import run_ranges, set_threads, single_blas
from smtdist.kernels.types import Codes, Encoder
from smtdist.models.tuning.shared import Counter, Fitted

MEMORY_SHARE = 3
"""Representations that fit this part (1/3) of the memory limit stay in memory."""
BATCH_BYTES = 256 * 1024**2
RESULT_BYTES = 128 * 1024**2

Slice = tuple[int, int]
Flat = NDArray[np.floating[Any]]
R = TypeVar("R")
Judge = Callable[[Any, Any], R]
"""Takes the representations of the images to learn from and of those to judge by, (n, features) each."""


@dataclass(frozen=True)
class Member:
    """Settings that differ in their slice of the components only: `slices` are (first, last) components, ascending."""

    encoder: Encoder
    components: NDArray[np.float32]  # (K, L), the transpose of P
    slices: tuple[Slice, ...]
    size: int
    stride: int
    dtype: str

    @property
    def pooled(self) -> int:
        """Pooled positions of an image."""
        geometry = self.encoder.whitener.geometry
        return math.prod(pooled_shape(geometry.rows, geometry.columns, self.size, self.stride))

    @property
    def features(self) -> list[int]:
        """Features of each slice."""
        return [(stop - start) * self.pooled for start, stop in self.slices]

    def write(self, codes: Codes, images: int, flat: Flat, samples: int, first: int) -> None:
        """Represent images by their codes, in a flat array of so many samples, from sample `first` on."""
        places = slice_places(self.slices, self.pooled, samples)[:-1] + first * np.array(self.features)
        geometry = self.encoder.whitener.geometry
        pooled_slices(
            codes, images, geometry, self.components, self.slices, self.size, self.stride, flat, places
        )

    def views(self, flat: Flat, samples: int) -> list[Flat]:
        """Return the representations of every slice in a flat array, (samples, features)."""
        places = slice_places(self.slices, self.pooled, samples)
        return [flat[start:stop].reshape(samples, -1) for start, stop in itertools.pairwise(places)]

    @property
    def sample_bytes(self) -> int:
        """Bytes of one image's representations, all slices."""
        return sum(self.features) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, eq=False)
class Slices:
    """Represents images for every member; those whose encoders nest in the first's share its codes.

    `room` holds for every member the flat array of its representations of all samples; None where tasks run
    elsewhere and return theirs.
    """

    members: tuple[Member, ...]
    batch: int
    threads: int
    room: tuple[Flat, ...] | None = None

    def __call__(self, images: NDArray[np.generic], room: Sequence[Flat], samples: int, first: int) -> None:
        """Represent a batch (B, H, W, C) into arrays of so many samples, from sample `first` on."""
        raw = place(images)
        encoders = list({id(member.encoder): member.encoder for member in self.members}.values())
        for group in [encoders] if is_host(raw) else [[encoder] for encoder in encoders]:
            longest = group[0]
            geometry = longest.whitener.geometry
            capacity = code_capacity(geometry, len(longest.atoms), longest.feature, len(images))
            for at, count, codes in nested_pieces(raw, group, False, capacity, spread=True):
                for member, flat in zip(self.members, room, strict=True):
                    for encoder, own in zip(group, codes, strict=True):
                        if member.encoder is encoder:
                            member.write(own, count, flat, samples, first + at)


def represent_slices(slices: Slices, source: Source, start: int, stop: int) -> list[Flat] | None:
    """Represent samples [start, stop) of a source for every member: in the room if there is one, else return them."""
    set_threads(slices.threads)
    result, samples, base = slices.room, source.n_samples, start
    if slices.room is None:
        samples, base = stop - start, 0
        result = tuple(np.empty(samples * sum(member.features), member.dtype) for member in slices.members)
    assert result is not None
    with source.opened() as reader:
        for first, images in batches(reader, start, stop, stop - start, slices.batch):
            with located(source.name, first):
                slices(images, result, samples, base + first - start)
    return None if slices.room is not None else list(result)


def score(
    fitted: Sequence[Fitted],
    trials: Sequence[Configuration],
    known: Source,
    asked: Source,
    judge: Judge[R],
    engine: Engine,
    *,
    at_once: int = 1,
) -> list[R]:
    """Return what `judge` finds for every trial.

    Each image is decoded, whitened and encoded once for all members that fit into memory together and whose codes
    nest, and embedded once a member; slices normalise and pool by themselves. Memory: the representations of such a
    group, a third of the limit at most; those of a member that is larger by itself go to a temporary file; and what
    `judge` takes, `at_once` times. Judges run side by side, each with BLAS on one thread: with more, BLAS threads
    that wait for one another cost several times what they bring where other processes work too.
    """
    members, places = _members(fitted, trials)
    found: dict[tuple[int, Slice], R] = {}
    total = known.n_samples + asked.n_samples
    groups = list(_groups(members, total))
    images = Counter(engine, "transform", len(groups) * total)
    scored = Counter(engine, "scores", sum(len(member.slices) for member in members))
    sizes = [sum(members[i].sample_bytes for i in group) * total for group in groups]
    # one piece of memory serves all groups: fresh pages cost as much as filling them
    memory = np.empty(max([size for size in sizes if size <= room_bytes()], default=0), np.uint8)
    for group, size in zip(groups, sizes, strict=True):
        chosen = tuple(members[i] for i in group)
        with _room(chosen, (known.n_samples, asked.n_samples), size, memory, engine) as room:
            for side, source in enumerate((known, asked)):
                _fill(_slices(chosen, engine), source, room[side], engine, images)
            waiting = [
                ((i, part), room[0].views[place][number], room[1].views[place][number])
                for place, i in enumerate(group)
                for number, part in enumerate(members[i].slices)
            ]
            # files are read by one thread at a time anyway
            step = 1 if room[0].flat is None else max(1, min(at_once, engine.executor.threads()))
            for start in range(0, len(waiting), step):
                found |= _judged(waiting[start : start + step], judge, alone=at_once == 1)
                scored.step(min(step, len(waiting) - start))
    images.end()
    scored.end()
    return [found[place] for place in places]


def _judged(waiting: list[tuple[Any, Any, Any]], judge: Judge[R], alone: bool) -> dict[Any, R]:
    """Judge several slices side by side; `alone`: one that shares its work among threads by itself."""
    if alone:
        return {key: judge(known, asked) for key, known, asked in waiting}
    found: dict[Any, R] = {}

    def work(start: int, stop: int) -> None:
        for key, known, asked in waiting[start:stop]:
            found[key] = judge(known, asked)

    with single_blas():
        run_ranges(work, [(i, i + 1) for i in range(len(waiting))])
    return found


def room_bytes() -> int:
    """Return how large representations in memory may be."""
    return memory_limit() // MEMORY_SHARE


def _members(
    fitted: Sequence[Fitted], trials: Sequence[Configuration]
) -> tuple[list[Member], list[tuple[int, Slice]]]:
    """Return the members, and for every trial its member and slice."""
    keys: dict[tuple[Any, ...], int] = {}
    firsts: list[tuple[Fitted, Configuration]] = []
    slices: list[set[Slice]] = []
    places = []
    for own, settings in zip(fitted, trials, strict=True):
        key = (id(own), settings.pool_size, settings.pool_stride, settings.dtype)
        number = keys.setdefault(key, len(keys))
        if number == len(firsts):
            firsts.append((own, settings))
            slices.append(set())
        part = (settings.drop, settings.drop + settings.n_components)
        slices[number].add(part)
        places.append((number, part))
    members = []
    for (own, settings), parts in zip(firsts, slices, strict=True):
        assert own.embedding is not None
        longest = max(stop for _, stop in parts)
        components = np.ascontiguousarray(own.embedding.components[:longest].T, np.float32)
        members.append(
            Member(
                own.encoder,
                components,
                tuple(sorted(parts)),
                settings.pool_size,
                settings.pool_stride,
                settings.dtype,
            )
        )
    return members, places


def _groups(members: Sequence[Member], samples: int) -> Iterator[list[int]]:
    """Yield numbers of members that are represented at once: codes nest, and all fits in memory."""
    left = sorted(range(len(members)), key=lambda i: -len(members[i].encoder.atoms))
    while left:
        first, group, taken = members[left[0]], [left[0]], members[left[0]].sample_bytes * samples
        for i in left[1:]:
            size = members[i].sample_bytes * samples
            if nests(members[i].encoder, first.encoder) and taken + size <= room_bytes():
                group.append(i)
                taken += size
        yield group
        left = [i for i in left if i not in group]


def _slices(members: tuple[Member, ...], engine: Engine) -> Slices:
    """Choose the batch within a worker's budget."""
    longest = members[0].encoder
    geometry = longest.whitener.geometry
    encoders = len({id(member.encoder) for member in members})

    def needed(images: int) -> int:
        stages = batch_bytes(
            geometry,
            len(longest.atoms),
            longest.feature,
            images,
            raw_bytes=longest.whitener.scale.raw_bytes,
        )
        bits = encoders * images * geometry.positions * (8 * -(-len(longest.atoms) // 64) + 16)
        lists = (
            encoders * 2 * code_capacity(geometry, len(longest.atoms), longest.feature, images)
            if longest.feature == "gq"
            else 0
        )
        sums = (
            4 * engine.executor.threads() * geometry.positions * max(len(one.components.T) for one in members)
        )
        return stages.encoding + bits + lists + sums

    budget = int(BUDGET_SHARE * engine.executor.limit_bytes())
    batch = 64
    while batch > 1 and needed(batch) > min(budget, BATCH_BYTES):
        batch //= 2
    if needed(batch) > budget:
        raise MemoryBudgetError(
            f"Embedding one image for {len(members)} settings needs {readable(needed(1))}, more than the "
            f"{readable(budget)} a worker may plan for; vary fewer values, or use larger workers."
        )
    return Slices(members, batch, engine.executor.threads())


@dataclass(frozen=True, eq=False)
class _Side:
    """Room for the representations of one source: `views[member][slice]` is (samples, features).

    `flat` holds the same memory for each member, or is None where it is a file.
    """

    views: list[list[Any]]
    flat: tuple[Flat, ...] | None


def _fill(slices: Slices, source: Source, room: _Side, engine: Engine, images: Counter) -> None:
    """Write the representations of a source into the arrays of every member and slice."""
    step, sample = source.chunk_samples, sum(member.sample_bytes for member in slices.members)
    if room.flat is not None and isinstance(engine.executor, SerialExecutor):
        # tasks of this process write where their results belong
        slices = replace(slices, room=room.flat)
    else:
        while step > 1 and step * sample > RESULT_BYTES:
            step = -(-step // 2)
    ranges = [(start, min(start + step, source.n_samples)) for start in range(0, source.n_samples, step)]
    for (start, stop), results in engine.map(represent_slices, slices, source, ranges):
        for member, values, targets in zip(slices.members, results or [], room.views, strict=False):
            for part, target in zip(member.views(values, stop - start), targets, strict=True):
                target[start:stop] = part
        images.step(stop - start)


@contextmanager
def _room(
    members: tuple[Member, ...],
    samples: tuple[int, int],
    size: int,
    memory: NDArray[np.uint8],
    engine: Engine,
) -> Iterator[tuple[_Side, _Side]]:
    """Yield room for both sources: in `memory`, or in a temporary file that is deleted at the end."""
    if size <= len(memory):
        taken, sides = 0, []
        for count in samples:
            flat = []
            for member in members:
                end = taken + count * member.sample_bytes
                flat.append(memory[taken:end].view(member.dtype))
                taken = end
            views = [member.views(own, count) for member, own in zip(members, flat, strict=True)]
            sides.append(_Side(views, tuple(flat)))
        yield sides[0], sides[1]
        return
    descriptor, path = tempfile.mkstemp(prefix="smtdist-tune-", suffix=".h5")
    os.close(descriptor)
    try:
        text = f"The representations take {readable(size)}; they go to {path}, which is deleted at the end"
        engine.events.emit("note", text=text)
        with h5py.File(path, "w") as file:
            first, second = (
                _Side([_stored(file, f"{side}/{i}", one, count) for i, one in enumerate(members)], None)
                for side, count in enumerate(samples)
            )
            yield first, second
    finally:
        Path(path).unlink(missing_ok=True)


def _stored(file: Any, name: str, member: Member, samples: int) -> list[Any]:
    dtype = np.dtype(member.dtype)
    return [
        file.create_dataset(
            f"{name}/{number}",
            (samples, features),
            dtype,
            chunks=(max(1, min(samples, 2**20 // (features * dtype.itemsize))), features),
        )
        for number, features in enumerate(member.features)
    ]
