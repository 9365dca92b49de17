"""What representing images will take: numbers, memory of each process, and time as a few images tell it."""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from smtdist.data.array import ArraySource
from smtdist.data.source import Source
from smtdist.engine import plan as pass_plan
from smtdist.engine.memory import memory_limit, readable, resident_bytes
from smtdist.engine.passes import Engine
from smtdist.errors import MemoryBudgetError, SmtdistError, counted
from smtdist.kernels.threads import set_threads
from smtdist.models.represent import Representer

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

    @classmethod
    def of(
        cls, represent: Representer, source: Source, engine: Engine, features: int, dtype: np.dtype[Any]
    ) -> TransformPlan:
        """Return the plan; one patterned image is represented on a worker, so that its kernels are loaded."""
        sample = features * dtype.itemsize
        step = min(
            source.n_samples,
            source.chunk_samples * max(1, RESULT_BYTES // (source.chunk_samples * sample)),
        )
        ((_, baseline),) = engine.map(_warmed, represent, source, [(0, step)])
        executor = engine.executor
        waiting = 1 if executor.alone else 2  # tasks a worker has at once, one under way
        return cls(
            represent=represent,
            n_samples=source.n_samples,
            features=features,
            itemsize=dtype.itemsize,
            step=step,
            baseline=baseline,
            driver_baseline=resident_bytes(),
            slots=executor.slots(),
            alone=executor.alone,
            carried=source.carried_bytes(waiting * step) if isinstance(source, ArraySource) else 0,
        )

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
