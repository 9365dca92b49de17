"""Representations of many fitted settings from one encoding of the images, judged one after the other.

They lie in memory that is used again, or in a temporary file.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import h5py
import numpy as np
from numpy.typing import NDArray

from smtdist.configuration import Configuration
from smtdist.data.netcdf import chunks_of
from smtdist.data.source import Source
from smtdist.data.writing import lenient
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.memory import memory_limit, readable
from smtdist.engine.passes import Engine
from smtdist.kernels.nested import nests
from smtdist.kernels.threads import run_ranges, single_blas
from smtdist.models.tuning.members import (
    Member,
    Room,
    Slice,
    Slices,
    members_of,
    represent_slices,
    slices_of,
)
from smtdist.models.tuning.shared import Counter, Fitted

MEMORY_SHARE = 3
"""Representations that fit this part (1/3) of the memory limit stay in memory."""
BLOCK_BYTES = 256 * 1024**2
"""Representations to learn from at a time, where this process makes them: fresh memory costs as much as filling it."""
RESULT_BYTES = 128 * 1024**2
"""Of the representations that a task sends, at most."""

R = TypeVar("R")
Found = TypeVar("Found", covariant=True)
Place = tuple[int, Slice]
Group = dict[int, Member]


class Learner(Protocol[Found]):
    """Learns from blocks of images, which it does not keep."""

    def learn(self, known: Any, first: int, /) -> None:
        """Take the representations (rows, features) of the images from number `first` on."""

    def result(self) -> Found:
        """Judge by all blocks."""


@dataclass(frozen=True)
class Judge(Generic[R]):
    """What judges the representations of a slice, those of the images to learn from and those to judge by.

    whole : takes both at once, (n, features) each; `at_once` may work side by side, each with BLAS on one
        thread.
    begin : takes those to judge by, and the most rows of a block; None for one that needs all at once.
    """

    whole: Callable[[Any, Any], R]
    begin: Callable[[Any, int], Learner[R]] | None = None
    at_once: int = 1


def score(
    fitted: Sequence[Fitted],
    trials: Sequence[Configuration],
    known: Source,
    asked: Source,
    judge: Judge[R],
    engine: Engine,
) -> list[R]:
    """Return what `judge` finds for every trial.

    Each image is decoded, whitened and encoded once for all members that fit into memory together and whose
    codes nest, and embedded once a member; slices normalise and pool by themselves. Memory: the
    representations of such a group, a third of the limit at most: for a judge that learns block by block
    those of the images to judge by and of a block, else those of all; what is larger for a single member
    goes to a temporary file. And what `judge` takes, `at_once` times. Judges run side by side, each with
    BLAS on one thread: with more, BLAS threads that wait for one another cost several times what they bring
    where other processes work too.
    """
    members, places = members_of(fitted, trials)
    return _Scoring(members, known, asked, judge, engine).run(places)


class _Scoring(Generic[R]):
    """One call of `score`."""

    def __init__(
        self, members: list[Member], known: Source, asked: Source, judge: Judge[R], engine: Engine
    ) -> None:
        self.known, self.asked, self.judge, self.engine = known, asked, judge, engine
        largest = max(member.sample_bytes for member in members)
        # a block of one image at least
        self.gradual = judge.begin is not None and (asked.n_samples + 1) * largest <= room_bytes()
        self.kept = asked.n_samples + (1 if self.gradual else known.n_samples)
        self.groups = list(_groups(members, self.kept))
        total = known.n_samples + asked.n_samples
        self.images = Counter(engine, "transform", len(self.groups) * total)
        self.scored = Counter(
            engine, "scores", sum(len(member.slices) for member in members), "combination"
        )
        self.found: dict[Place, R] = {}

    def run(self, places: list[Place]) -> list[R]:
        sizes = [_size(group, self.asked.n_samples + self.block(group)) for group in self.groups]
        # one piece of memory serves all groups: fresh pages cost as much as filling them
        memory = np.empty(max([size for size in sizes if size <= room_bytes()], default=0), np.uint8)
        counts = (self.asked.n_samples, self.known.n_samples)
        for group, size in zip(self.groups, sizes, strict=True):
            members = tuple(group.values())
            if self.gradual:
                self.by_blocks(group, memory)
            elif size <= len(memory):
                asked = in_memory(members, counts[0], memory)
                self.whole(group, asked, in_memory(members, counts[1], memory[_size(group, counts[0]) :]))
            else:
                with in_file(members, counts, size, self.engine) as (asked, known):
                    self.whole(group, asked, known)
        self.images.end()
        self.scored.end()
        return [self.found[place] for place in places]

    def block(self, group: Group) -> int:
        """Images to learn from at a time."""
        if not self.gradual:
            return self.known.n_samples
        sample = _size(group, 1)
        spare = room_bytes() - self.asked.n_samples * sample
        if isinstance(self.engine.executor, SerialExecutor):
            spare = min(spare, BLOCK_BYTES)  # elsewhere a block keeps all workers busy
        rows, chunk = max(1, spare // sample), self.known.chunk_samples
        return min(rows // chunk * chunk if rows >= chunk else rows, self.known.n_samples)

    def by_blocks(self, group: Group, memory: Any) -> None:
        """Judge all slices of a group while the images to learn from pass by."""
        assert self.judge.begin is not None
        members = tuple(group.values())
        slices, rows = slices_of(members, self.engine), self.block(group)
        asked = in_memory(members, self.asked.n_samples, memory)
        fill(slices, self.asked, asked, self.engine, self.images, (0, self.asked.n_samples))
        known = in_memory(members, rows, memory[_size(group, self.asked.n_samples) :])
        begun = [
            (key, self.judge.begin(test_z, rows), train_z)
            for key, train_z, test_z in self.cases(group, known, asked)
        ]
        # the largest first, so that threads end together
        begun.sort(key=lambda one: -one[2].shape[1])
        for start in range(0, self.known.n_samples, rows):
            stop = min(start + rows, self.known.n_samples)
            fill(slices, self.known, known, self.engine, self.images, (start, stop))
            _side_by_side([partial(one.learn, z[: stop - start], start) for _, one, z in begun])
        for key, learner, _ in begun:
            self.found[key] = learner.result()
            self.scored.step()

    def whole(self, group: Group, asked: Side, known: Side) -> None:
        """Judge all slices of a group by all images."""
        slices = slices_of(tuple(group.values()), self.engine)
        for side, source in ((known, self.known), (asked, self.asked)):
            fill(slices, source, side, self.engine, self.images, (0, source.n_samples))
        cases = self.cases(group, known, asked)
        # files are read by one thread at a time anyway
        step = 1 if known.flat is None else max(1, min(self.judge.at_once, self.engine.executor.threads()))
        for start in range(0, len(cases), step):
            part = cases[start : start + step]
            if self.judge.at_once == 1:  # it shares its work among threads by itself
                results = [self.judge.whole(train_z, test_z) for _, train_z, test_z in part]
            else:
                results = _side_by_side([partial(self.judge.whole, *z) for _, *z in part])
            self.found |= zip((key for key, _, _ in part), results, strict=True)
            self.scored.step(len(part))

    def cases(self, group: Group, known: Side, asked: Side) -> list[tuple[Place, Any, Any]]:
        """Return the place of every slice, and its representations to learn from and to judge by."""
        return [
            ((i, part), known.views[place][number], asked.views[place][number])
            for place, (i, member) in enumerate(group.items())
            for number, part in enumerate(member.slices)
        ]


def _size(group: Group, samples: int) -> int:
    return samples * sum(member.sample_bytes for member in group.values())


def _side_by_side(calls: Sequence[Callable[[], R]]) -> list[R]:
    """Return the results of calls that run on the kernels' threads, each with BLAS on one."""
    results: dict[int, R] = {}

    def work(start: int, stop: int) -> None:
        for i in range(start, stop):
            results[i] = calls[i]()

    with single_blas():
        run_ranges(work, [(i, i + 1) for i in range(len(calls))])
    return [results[i] for i in range(len(calls))]


def room_bytes() -> int:
    """Return how large representations in memory may be."""
    return memory_limit() // MEMORY_SHARE


def _groups(members: Sequence[Member], samples: int) -> Iterator[Group]:
    """Yield members, by their numbers, that are represented at once: codes nest, and all fits in memory."""
    left = sorted(range(len(members)), key=lambda i: -len(members[i].encoder.atoms))
    while left:
        first = members[left[0]]
        group = {left[0]: first}
        for i in left[1:]:
            larger = {**group, i: members[i]}
            if nests(members[i].encoder, first.encoder) and _size(larger, samples) <= room_bytes():
                group = larger
        yield group
        left = [i for i in left if i not in group]


@dataclass(frozen=True, eq=False)
class Side:
    """Room for the representations of some samples: `views[member][slice]` is (samples, features).

    `flat` holds the same memory for each member, or is None where it is a file.
    """

    views: list[list[Any]]
    flat: tuple[NDArray[np.floating[Any]], ...] | None


def in_memory(members: Sequence[Member], samples: int, memory: NDArray[np.uint8]) -> Side:
    """Return room for so many samples at the beginning of `memory`."""
    taken, flat = 0, []
    for member in members:
        end = taken + samples * member.sample_bytes
        flat.append(memory[taken:end].view(member.dtype))
        taken = end
    return Side(
        [member.views(own, samples) for member, own in zip(members, flat, strict=True)], tuple(flat)
    )


@contextmanager
def in_file(
    members: Sequence[Member], samples: Sequence[int], size: int, engine: Engine
) -> Iterator[list[Side]]:
    """Yield rooms for so many samples each in a temporary file that is deleted at the end."""
    with tempfile.TemporaryDirectory(prefix="smtdist-tune-") as folder:
        path = Path(folder, "z.h5")
        engine.note(
            f"The representations take {readable(size)}; they go to {path}, which is deleted at the end"
        )
        with lenient(path) as raw, h5py.File(raw, "w") as file:

            def stored(name: str, member: Member, shape: tuple[int, int]) -> Any:
                dtype = np.dtype(member.dtype)
                return file.create_dataset(name, shape, dtype, chunks=chunks_of(shape, dtype.itemsize))

            yield [
                Side(
                    [
                        [stored(f"{side}/{i}/{j}", one, (count, n)) for j, n in enumerate(one.features)]
                        for i, one in enumerate(members)
                    ],
                    None,
                )
                for side, count in enumerate(samples)
            ]


def fill(
    slices: Slices, source: Source, room: Side, engine: Engine, images: Counter, span: tuple[int, int]
) -> None:
    """Write the representations of the samples of a source within `span`, the first of them at the room's beginning."""
    begin, end = span
    step = source.chunk_samples
    sample = sum(member.sample_bytes for member in slices.members)
    if room.flat is not None and isinstance(engine.executor, SerialExecutor):
        # tasks of this process write where their results belong
        slices = replace(slices, room=Room(room.flat, len(room.views[0][0]), begin))
    else:
        while step > 1 and step * sample > RESULT_BYTES:
            step = -(-step // 2)
    # pieces end where chunks end
    edges = [begin, *range(begin // step * step + step, end, step), end]
    for (start, stop), results in engine.map(
        represent_slices, slices, source, list(itertools.pairwise(edges))
    ):
        for member, values, targets in zip(slices.members, results or [], room.views, strict=False):
            for part, target in zip(member.views(values, stop - start), targets, strict=True):
                target[start - begin : stop - begin] = part
        images.step(stop - start)
