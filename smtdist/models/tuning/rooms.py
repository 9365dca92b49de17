"""Room for the representations of a part of the images: memory that is used again, or a temporary file."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from smtdist.data.deflate import chunks_of
from smtdist.data.source import Source
from smtdist.data.writing import lenient
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.memory import readable
from smtdist.engine.passes import Engine
from smtdist.models.tuning.members import Member, Room, Slices, represent_slices
from smtdist.models.tuning.shared import Counter

RESULT_BYTES = 128 * 1024**2


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
            yield [
                Side([_stored(file, f"{side}/{i}", one, count) for i, one in enumerate(members)], None)
                for side, count in enumerate(samples)
            ]


def _stored(file: Any, name: str, member: Member, samples: int) -> list[Any]:
    dtype, shapes = np.dtype(member.dtype), [(samples, features) for features in member.features]
    return [
        file.create_dataset(f"{name}/{number}", shape, dtype, chunks=chunks_of(shape, dtype.itemsize))
        for number, shape in enumerate(shapes)
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
