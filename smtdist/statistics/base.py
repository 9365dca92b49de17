"""What a sum over samples must offer so that the engine can compute it anywhere, in pieces, and merge the pieces."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from smtdist.statistics import limbs

State: TypeAlias = dict[str, NDArray[Any]]
"""A partial sum: named arrays on the host, nothing else, so that it travels and is stored without pickle."""
Layout: TypeAlias = dict[str, tuple[tuple[int, ...], Any]]
"""Shapes and types of the arrays of a state, by name."""


class Statistic(ABC):
    """A declared reduction: zero, update with a batch, merge two partial sums.

    Laws (tested for every statistic): `merge` is associative with `zero` as its neutral element, and
    updating with samples one by one, in batches, or in partials that are merged gives the same state. Where
    `exact` is true the state is made of integers (or of sets), merging is commutative too, and all of this
    holds bit for bit in any order; otherwise the engine merges along a fixed tree.
    """

    exact: bool = True
    """Whether partial sums may meet in any order without changing a bit. Others must add the same bits
    whatever the batch and the threads: they work in tiles of fixed size."""
    on_device: bool = False
    """Whether a worker with a GPU keeps the state there while it streams; partial sums travel on the host."""

    IN_LIMBS: ClassVar[tuple[str, ...]] = ()
    """Sums of whole numbers that are two arrays of a state, `x_high` and `x_low` (`smtdist.statistics.limbs`)."""

    least_samples: int = 1
    """Samples that an update takes about as long for as for one: a smaller batch wastes time, and saves no memory to speak of."""

    def layout(self) -> Layout:
        """Return the arrays of the sum over no samples: all that it takes where `zero` and `state_bytes` are as here."""
        raise NotImplementedError

    def zero(self) -> State:
        """Return the sum over no samples."""
        return {name: np.zeros(shape, dtype) for name, (shape, dtype) in self.layout().items()}

    @abstractmethod
    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Add a batch (samples, height, width, channels) to `state` in place; return the positions it added."""

    def merge(self, left: State, right: State) -> State:
        """Return the sum over both, by adding; may reuse the memory of `left`, never changes `right`."""
        for name in left:
            left[name] += right[name]
        return self._carried(left)

    def without(self, left: State, right: State) -> State:
        """Return the sum over samples less that over some of them, in the memory of `left`; for exact sums, which are added."""
        for name in left:
            left[name] -= right[name]
        return self._carried(left)

    def _carried(self, state: State) -> State:
        for name in self.IN_LIMBS:
            if f"{name}_high" in state:
                limbs.carry(state[f"{name}_high"], state[f"{name}_low"])
        return state

    def state_bytes(self) -> int:
        """Return the largest size of a state."""
        return sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in self.layout().values())

    @abstractmethod
    def batch_bytes(self, images: int) -> int:
        """Return the workspace that `update` needs for a batch of so many images."""

    def merge_bytes(self) -> int | None:
        """Return the workspace of `merge` beside the two sums; None: that of a batch."""
        return None

    def swept_bytes(self, images: int) -> int:
        """Return the bytes of the sums that a batch of so many images passes over, where that takes time."""
        return 0

    def device_batch_bytes(self, images: int) -> int:
        """Return the workspace of a batch on a device."""
        return self.batch_bytes(images)

    def rehearsed(self) -> Statistic:
        """Return what sums some of the samples as this one sums all of them: as long, and with a state as large."""
        return self

    def miniature(self) -> Statistic:
        """Return a cheap twin with the same code paths, to compile and warm them before memory is measured."""
        return self


def prefixed(prefix: str, state: dict[str, Any]) -> dict[str, Any]:
    """Return what is held by name under names that begin with a prefix: a part of a larger state."""
    return {f"{prefix}{name}": value for name, value in state.items()}


def part_of(state: State, prefix: str) -> State:
    """Return the part of a state that `prefixed` has put there, sharing its arrays."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def check_state(state: Mapping[str, NDArray[np.generic]], like: Mapping[str, NDArray[np.generic]]) -> bool:
    """Tell whether a stored state has the names, types and ranks of `like`."""
    return state.keys() == like.keys() and all(
        state[name].dtype == like[name].dtype and state[name].ndim == like[name].ndim for name in like
    )
