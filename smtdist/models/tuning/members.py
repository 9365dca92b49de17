"""Settings that share codes or components, and their representations of a batch of images."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.configuration import Configuration
from smtdist.data.source import Source
from smtdist.engine import worker
from smtdist.engine.memory import BUDGET_SHARE, readable
from smtdist.engine.passes import Engine
from smtdist.errors import MemoryBudgetError
from smtdist.kernels import memory, representation
from smtdist.kernels.cpu.table import Table, columns_of, table_of
from smtdist.kernels.device import gpu_available, is_host, place
from smtdist.kernels.nested import nested_pieces
from smtdist.kernels.representation import pooled_slices, slice_places
from smtdist.kernels.threads import set_threads
from smtdist.kernels.types import ALL_POSITIONS, Array, Codes, Encoder
from smtdist.models.represent import BATCH_BYTES, DEVICE_BATCH_BYTES
from smtdist.models.tuning.shared import Fitted

Slice = tuple[int, int]
Flat = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Member:
    """Settings that differ in their slice of the components only: `slices` are (first, last) components, ascending."""

    encoder: Encoder
    components: Table | Array  # (K, L), the transpose of P
    slices: tuple[Slice, ...]
    size: int
    stride: int
    dtype: str

    @property
    def pooled(self) -> int:
        """Pooled positions of an image."""
        geometry = self.encoder.whitener.geometry
        return math.prod(
            representation.pooled_shape(geometry.rows, geometry.columns, self.size, self.stride)
        )

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
class Room:
    """Memory for the representations of `samples` samples from `first` on: a flat array for each member.

    The arrays may lie on the device where kernels run.
    """

    flat: tuple[Flat, ...]
    samples: int
    first: int

    @classmethod
    def empty(cls, members: Sequence[Member], samples: int, first: int) -> Room:
        """Return new room."""
        flat = (np.empty(samples * sum(member.features), member.dtype) for member in members)
        return cls(tuple(flat), samples, first)


@dataclass(frozen=True, eq=False)
class Slices:
    """Represents images for every member; those whose encoders nest in the first's share its codes.

    `room` is where representations belong; None where tasks run elsewhere and return theirs.
    """

    members: tuple[Member, ...]
    batch: int
    threads: int
    room: Room | None = None

    def __call__(self, images: NDArray[np.generic], room: Room, start: int) -> None:
        """Represent a batch (B, H, W, C), samples `start` and on."""
        raw = place(images)
        encoders = list({id(member.encoder): member.encoder for member in self.members}.values())
        for group in [encoders] if is_host(raw) else [[encoder] for encoder in encoders]:
            longest = group[0]
            geometry = longest.whitener.geometry
            capacity = memory.code_capacity(geometry, len(longest.atoms), longest.form, len(images))
            for at, count, codes in nested_pieces(raw, group, False, capacity, spread=True):
                for member, flat in zip(self.members, room.flat, strict=True):
                    for encoder, own in zip(group, codes, strict=True):
                        if member.encoder is encoder:
                            member.write(own, count, flat, room.samples, start - room.first + at)


def represent_slices(slices: Slices, source: Source, start: int, stop: int) -> tuple[Flat, ...] | None:
    """Represent samples [start, stop) of a source for every member: in the room if there is one, else return them."""
    set_threads(slices.threads)
    if gpu_available():  # components are put there once, not for every batch
        placed = (replace(one, components=place(columns_of(one.components))) for one in slices.members)
        slices = replace(slices, members=tuple(placed))
    room = slices.room or Room.empty(slices.members, stop - start, start)
    with source.opened() as reader:
        for first, images in worker.batches(reader, start, stop, stop - start, slices.batch):
            with worker.located(source.name, first):
                slices(images, room, first)
    return None if slices.room is not None else room.flat


def members_of(
    fitted: Sequence[Fitted], trials: Sequence[Configuration]
) -> tuple[list[Member], list[tuple[int, Slice]]]:
    """Return the members, and for every trial its member and slice."""
    found: dict[tuple[int, int, int, str], tuple[Fitted, set[Slice]]] = {}
    wanted = []
    for own, settings in zip(fitted, trials, strict=True):
        geometry = own.encoder.whitener.geometry
        size, step = representation.asked_windows(
            geometry.rows, geometry.columns, settings.pool_size, settings.pool_stride
        )
        key = (id(own), size, step, settings.dtype)
        part = (settings.drop_components, settings.drop_components + settings.n_components)
        found.setdefault(key, (own, set()))[1].add(part)
        wanted.append((key, part))
    members = []
    for key, (own, parts) in found.items():
        assert own.embedding is not None
        longest = max(stop for _, stop in parts)
        table = table_of(own.embedding.components[:longest].T)
        members.append(Member(own.encoder, table, tuple(sorted(parts)), *key[1:]))
    numbers = {key: number for number, key in enumerate(found)}
    return members, [(numbers[key], part) for key, part in wanted]


def slices_of(members: tuple[Member, ...], engine: Engine) -> Slices:
    """Choose the batch within a worker's budget."""
    longest = members[0].encoder
    geometry = longest.whitener.geometry
    n_atoms = len(longest.atoms)
    form = longest.form
    whitener, threads = replace(longest.whitener, sampling=ALL_POSITIONS), engine.executor.threads()
    encoders = len({id(member.encoder) for member in members})
    components = max(member.components.shape[1] for member in members)
    on_device = gpu_available()
    enough = DEVICE_BATCH_BYTES if on_device else BATCH_BYTES

    def needed(images: int) -> int:
        encoding = memory.batch_bytes(whitener, n_atoms, form, images).encoding
        bits = encoders * images * geometry.positions * (8 * -(-n_atoms // 64) + 16)
        capacity = memory.code_capacity(geometry, n_atoms, form, images) if form == "bits" else 0
        # a device embeds all images of a batch before it pools them, the CPU one for each thread
        embedded = images if on_device else threads
        sums = 4 * embedded * geometry.positions * components
        return encoding + bits + 2 * encoders * capacity + sums

    budget = int(BUDGET_SHARE * engine.executor.limit_bytes())
    batch = 64
    while batch > 1 and needed(batch) > min(budget, enough):
        batch //= 2
    if needed(batch) > budget:
        raise MemoryBudgetError(
            f"Embedding one image for {len(members)} settings needs {readable(needed(1))}, more than the "
            f"{readable(budget)} a worker may use; vary fewer values, or use larger workers."
        )
    return Slices(members, batch, threads)
