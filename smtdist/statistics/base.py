"""What a sum over samples must offer so that the engine can compute it anywhere, in pieces, and merge the pieces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

State: TypeAlias = dict[str, NDArray[Any]]
"""A partial sum: named arrays on the host, nothing else, so that it travels and is stored without pickle."""


class Statistic(Protocol):
    """A declared reduction: zero, update with a batch, merge two partial sums.

    Laws (tested for every statistic): `merge` is associative with `zero` as its neutral element, and
    updating with samples one by one, in batches, or in partials that are merged gives the same state. Where
    `exact` is true the state is made of integers (or of sets), merging is commutative too, and all of this
    holds bit for bit in any order; otherwise the engine merges along a fixed tree.
    """

    @property
    def exact(self) -> bool:
        """Whether partial sums may meet in any order without changing a bit."""
        ...

    @property
    def on_device(self) -> bool:
        """Whether a worker with a GPU keeps the state there while it streams; partial sums travel on the host."""
        ...

    def zero(self) -> State:
        """Return the sum over no samples."""
        ...

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Add a batch (samples, height, width, channels) to `state` in place; return the positions it added."""
        ...

    def merge(self, left: State, right: State) -> State:
        """Return the sum over both; may reuse the memory of `left`, never changes `right`."""
        ...

    def state_bytes(self) -> int:
        """Return the largest size of a state."""
        ...

    def batch_bytes(self, images: int) -> int:
        """Return the workspace that `update` needs for a batch of so many images."""
        ...

    def merge_bytes(self) -> int | None:
        """Return the workspace of `merge` beside the two sums; None: that of a batch (`Costs`)."""
        ...

    def swept_bytes(self, images: int) -> int:
        """Return the bytes of the sums that a batch of so many images passes over (`Costs`: none that take time)."""
        ...

    def device_batch_bytes(self, images: int) -> int:
        """Return the workspace of a batch on a device (`Costs`: that on the host)."""
        ...

    def miniature(self) -> Statistic:
        """Return a cheap twin with the same code paths, to compile and warm them before memory is measured."""
        ...


class Costs:
    """What a pass plans for a statistic that says nothing else of itself."""

    def merge_bytes(self) -> int | None:
        """Return the workspace of `merge` beside the two sums; None: that of a batch."""
        return None

    def swept_bytes(self, images: int) -> int:
        """Return the bytes of the sums that a batch of so many images passes over, where that takes time."""
        return 0

    def device_batch_bytes(self, images: int) -> int:
        """Return the workspace of a batch on a device."""
        return self.batch_bytes(images)

    def batch_bytes(self, images: int) -> int:
        """Return the workspace that `update` needs for a batch of so many images."""
        raise NotImplementedError


def check_state(state: Mapping[str, NDArray[np.generic]], like: Mapping[str, NDArray[np.generic]]) -> bool:
    """Tell whether a stored state has the names, types and ranks of `like`."""
    return state.keys() == like.keys() and all(
        state[name].dtype == like[name].dtype and state[name].ndim == like[name].ndim for name in like
    )
