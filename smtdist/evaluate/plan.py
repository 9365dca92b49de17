"""What an evaluation will take: representations of both groups, memory of each process stage by stage, and time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.engine import calibration
from smtdist.engine.memory import memory_limit, readable, resident_bytes
from smtdist.engine.plan import ALLOWANCE
from smtdist.errors import MemoryBudgetError, option
from smtdist.models import transform

LESS: Final = f"learn from fewer images ({option('limit')}), or pool more ({option('pool')})"
REMEDIES: Final = {
    "transform": LESS,
    "directions": f"ask for fewer directions ({option('leading')}), or pool more ({option('pool')})",
    "knn": LESS,
    "linear": LESS,
    "svm": f"use {option('metric', 'kernel')}, which takes less, fewer features ({option('pool')}) or images ({option('limit')})",
    "kernel": LESS,
}
"""What to do where a step does not fit in memory."""
STORED_REMEDY: Final = f"transform fewer images ({option('limit')}) or features ({option('pool')}) to files"


@dataclass(frozen=True, eq=False)
class Shape:
    """What planning needs to know of representations that are not made yet: shape, type, and rows stored together."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, chosen: Any) -> NDArray[Any]:
        """Return as many zeros as there would be numbers; they take no memory."""
        return np.asarray(np.broadcast_to(self.dtype.type(0), self.shape)[chosen])


@dataclass(frozen=True)
class Stage:
    """A step of an evaluation: its name, and the peak bytes of this process meanwhile."""

    name: str
    driver_bytes: int


@dataclass(frozen=True)
class EvaluationPlan:
    """What an evaluation will take.

    Attributes
    ----------
    transforms : what representing the images takes, those to learn from first; none of stored representations.
    held : whether representations stay in memory; else they go to a temporary file.
    stages : in order. judging : least and most seconds of the classifier, None where that is not known.
    """

    transforms: tuple[transform.TransformPlan, ...]
    held: bool
    stages: tuple[Stage, ...]
    judging: tuple[float, float] | None = None

    @property
    def driver_bytes(self) -> int:
        """Largest peak of this process."""
        return max(stage.driver_bytes for stage in self.stages)

    @property
    def worker_bytes(self) -> int:
        """Largest peak of a worker; 0 where this process does all."""
        return max((one.worker_bytes for one in self.transforms if not one.alone), default=0)

    @property
    def size_bytes(self) -> int:
        """Of both representations."""
        return sum(one.size_bytes for one in self.transforms)

    @property
    def disk_bytes(self) -> int:
        """Of a temporary file, while the command runs."""
        return 0 if self.held else self.size_bytes

    @property
    def seconds(self) -> tuple[float, float] | None:
        """Least and most time of representing all images; None where no pace was measured."""
        each = [one.seconds for one in self.transforms if one.seconds is not None]
        return (sum(one[0] for one in each), sum(one[1] for one in each)) if each else None

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain JSON types: bytes, and seconds as [least, most]."""
        return {
            "transforms": [one.to_dict() for one in self.transforms],
            "representation_bytes": self.size_bytes,
            "in_memory": self.held,
            "stages": [vars(one) for one in self.stages],
            "driver_peak_bytes": self.driver_bytes,
            "worker_peak_bytes": self.worker_bytes,
            "disk_bytes": self.disk_bytes,
            "limit_bytes": memory_limit(),
            "representing_seconds": self.seconds,
            "judging_seconds": self.judging,
        }

    def require_room(self, *, files: bool = False) -> None:
        """Refuse, before an image is coded, what this process has no memory for; `files`: representations are stored."""
        for stage in self.stages:
            if stage.driver_bytes > memory_limit():
                remedy = STORED_REMEDY if files else REMEDIES[stage.name]
                raise MemoryBudgetError(
                    f"The step {stage.name!r} of this evaluation needs {readable(stage.driver_bytes)}, and "
                    f"{readable(memory_limit())} may be used; {remedy}."
                )


def stages_of(
    transforms: Sequence[transform.TransformPlan],
    held: bool,
    name: str,
    judging_bytes: int,
    directions: tuple[int, int] | None = None,
) -> tuple[Stage, ...]:
    """Return the stages; `held` says whether representations stay in memory.

    name, judging_bytes : of the classifier. directions : bytes that finding them takes, and that representations
    along them take, which is what is held from then on.
    """
    base, found, kept = resident_bytes(), list[Stage](), 0
    for plan in transforms:
        kept += plan.size_bytes if held else 0
        found.append(Stage("transform", plan.driver_bytes(kept)))
    # what passes leave in the heap: a result at least
    base += max((plan.piece_bytes for plan in transforms), default=0) + ALLOWANCE
    if directions is not None:
        finding, along = directions
        found.append(Stage("directions", base + kept + finding + along))
        kept = along
    found.append(Stage(name, base + kept + judging_bytes))
    return tuple(found)


def multiplied(work: float) -> tuple[float, float]:
    """Return the least and most seconds of so many multiplications of a matrix product, by how fast this machine is now."""
    size = 768
    left = np.ones((size, size), np.float32)
    left @ left
    each = calibration.timed(lambda: left @ left) / size**3
    return transform.FASTER * each * work, 3 * transform.SLOWER * each * work
