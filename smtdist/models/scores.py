"""Representations of many fitted settings from one encoding of the images, judged one after the other."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import h5py
import numpy as np
from numpy.typing import NDArray

from smtdist.configuration import Configuration
from smtdist.data.source import Source
from smtdist.engine.memory import BUDGET_SHARE, memory_limit, readable
from smtdist.engine.passes import Engine
from smtdist.engine.worker import batches, located
from smtdist.errors import MemoryBudgetError
from smtdist.kernels.device import is_host, place
from smtdist.kernels.memory import batch_bytes, code_capacity
from smtdist.kernels.nested import nested_pieces, nests
from smtdist.kernels.representation import pooled_shape
from smtdist.kernels.slices import pooled_slices
from smtdist.kernels.threads import set_threads
from smtdist.kernels.types import Encoder
from smtdist.models.shared import Counter, Fitted

MEMORY_SHARE = 3
"""Representations that fit this part (1/3) of the memory limit stay in memory."""
BATCH_BYTES = 256 * 1024**2
RESULT_BYTES = 128 * 1024**2

Slice = tuple[int, int]
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

    @property
    def sample_bytes(self) -> int:
        """Bytes of one image's representations, all slices."""
        return sum(self.features) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Slices:
    """Represents a batch for every member; those whose encoders nest in the first's share its codes."""

    members: tuple[Member, ...]
    batch: int
    threads: int

    def __call__(self, images: NDArray[np.generic]) -> list[NDArray[np.floating[Any]]]:
        """Return for every member (B, rows', columns', components of all slices side by side)."""
        raw = place(images)
        encoders = list({id(member.encoder): member.encoder for member in self.members}.values())
        groups = [encoders] if is_host(raw) else [[encoder] for encoder in encoders]
        parts: dict[int, list[NDArray[np.floating[Any]]]] = {i: [] for i in range(len(self.members))}
        for group in groups:
            longest = group[0]
            geometry = longest.whitener.geometry
            capacity = code_capacity(geometry, len(longest.atoms), longest.feature, len(images))
            for _, count, codes in nested_pieces(raw, group, False, capacity, spread=True):
                for encoder, own in zip(group, codes, strict=True):
                    for i, member in enumerate(self.members):
                        if member.encoder is encoder:
                            values = pooled_slices(
                                own,
                                count,
                                geometry.rows,
                                geometry.columns,
                                member.components,
                                member.slices,
                                member.size,
                                member.stride,
                            )
                            parts[i].append(values.astype(member.dtype, copy=False))
        return [np.concatenate(parts[i]) if len(parts[i]) > 1 else parts[i][0] for i in parts]


def represent_slices(slices: Slices, source: Source, start: int, stop: int) -> list[NDArray[Any]]:
    """Represent samples [start, stop) of a source for every member."""
    set_threads(slices.threads)
    with source.opened() as reader:
        parts = []
        for first, images in batches(reader, start, stop, stop - start, slices.batch):
            with located(source.name, first):
                parts.append(slices(images))
    return [np.concatenate(own) if len(own) > 1 else own[0] for own in zip(*parts, strict=True)]


def score(
    fitted: Sequence[Fitted],
    trials: Sequence[Configuration],
    known: Source,
    asked: Source,
    judge: Judge[R],
    engine: Engine,
) -> list[R]:
    """Return what `judge` finds for every trial.

    Each image is decoded, whitened and encoded once for all members that fit into memory together and whose codes
    nest, and embedded once a member; slices normalise and pool by themselves. Memory: the representations of such a
    group, a third of the limit at most; those of a member that is larger by itself go to a temporary file.
    """
    members, places = _members(fitted, trials)
    found: dict[tuple[int, Slice], R] = {}
    total = known.n_samples + asked.n_samples
    groups = list(_groups(members, total))
    images = Counter(engine, "transform", len(groups) * total)
    scored = Counter(engine, "scores", sum(len(member.slices) for member in members))
    for group in groups:
        chosen = tuple(members[i] for i in group)
        with _room(chosen, (known.n_samples, asked.n_samples), engine) as room:
            slices = _slices(chosen, engine)
            for side, source in enumerate((known, asked)):
                _fill(slices, source, [own[side] for own in room], engine, images)
            for i, own in zip(group, room, strict=True):
                for number, part in enumerate(members[i].slices):
                    found[i, part] = judge(own[0][number], own[1][number])
                    scored.step()
    images.end()
    scored.end()
    return [found[place] for place in places]


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
            if nests(members[i].encoder, first.encoder) and taken + size <= memory_limit() // MEMORY_SHARE:
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
        results = 2 * images * sum(sum(member.features) * 4 for member in members)
        return stages.encoding + bits + lists + results

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


def _fill(slices: Slices, source: Source, room: list[list[Any]], engine: Engine, images: Counter) -> None:
    """Write the representations of a source into the arrays of every member and slice."""
    step, sample = source.chunk_samples, sum(member.sample_bytes for member in slices.members)
    while step > 1 and step * sample > RESULT_BYTES:
        step = -(-step // 2)
    ranges = [(start, min(start + step, source.n_samples)) for start in range(0, source.n_samples, step)]
    for (start, stop), results in engine.map(represent_slices, slices, source, ranges):
        for member, values, targets in zip(slices.members, results, room, strict=True):
            offset = 0
            for (first, last), target in zip(member.slices, targets, strict=True):
                part = values[..., offset : offset + last - first]
                target[start:stop] = part.reshape(stop - start, -1)
                offset += last - first
        images.step(stop - start)


@contextmanager
def _room(
    members: tuple[Member, ...], sides: tuple[int, int], engine: Engine
) -> Iterator[list[tuple[list[Any], list[Any]]]]:
    """Yield for every member the arrays of its slices for both sides: in memory, or in a temporary file."""
    size = sum(member.sample_bytes for member in members) * sum(sides)
    if size <= memory_limit() // MEMORY_SHARE:
        yield [
            (
                [np.empty((sides[0], features), member.dtype) for features in member.features],
                [np.empty((sides[1], features), member.dtype) for features in member.features],
            )
            for member in members
        ]
        return
    descriptor, path = tempfile.mkstemp(prefix="smtdist-tune-", suffix=".h5")
    os.close(descriptor)
    try:
        text = f"The representations take {readable(size)}; they go to {path}, which is deleted at the end"
        engine.events.emit("note", text=text)
        with h5py.File(path, "w") as file:
            yield [_stored(file, f"{i}", member, sides) for i, member in enumerate(members)]
    finally:
        Path(path).unlink(missing_ok=True)


def _stored(file: Any, name: str, member: Member, sides: tuple[int, int]) -> tuple[list[Any], list[Any]]:
    def create(side: int, number: int, features: int) -> Any:
        dtype = np.dtype(member.dtype)
        rows = max(1, min(sides[side], 2**20 // (features * dtype.itemsize)))
        shape = (sides[side], features)
        return file.create_dataset(f"{name}/{side}/{number}", shape, dtype, chunks=(rows, features))

    created = [[create(side, i, n) for i, n in enumerate(member.features)] for side in (0, 1)]
    return created[0], created[1]
