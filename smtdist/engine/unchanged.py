"""What the passes of a run have read, so that data which change under it end it instead of going into its sums.

The bytes of each leaf have a CRC-32, which travels with partial sums and through the checkpoint folder. The first
pass over a source sets them; every later one compares, where it reads. A first pass has nothing to compare with, and
rounds over some of the chunks have other leaves: where files have other times, sizes or inodes after one of these, the
data are read again.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from smtdist.data import identity
from smtdist.data.source import Source
from smtdist.data.views import whole_of
from smtdist.errors import DataError
from smtdist.statistics.base import Layout, State, Statistic

Checks = dict[int, int]
"""CRC-32 of the samples of a leaf, as they were read, by the number of the leaf."""


@dataclass
class Reading:
    """What is known of a source: the stamps of its files before it was read, and the checks that a pass has set."""

    source: weakref.ref[Source]
    stamps: list[tuple[int, ...]]
    checks: Checks | None = None


@dataclass(eq=False)
class Readings:
    """The sources that a run has read, each known by itself and not by its name."""

    suspect: bool = False  # whether files were touched since an earlier run, from which sums are there
    _known: list[Reading] = field(default_factory=list, init=False)

    def of(self, source: Source) -> Reading:
        """Return what is known of a source, or of what its samples are of; a new one is looked at before it is read."""
        whole = whole_of(source)
        self._known = [known for known in self._known if known.source() is not None]
        for known in self._known:
            if known.source() is whole:
                return known
        self._known.append(Reading(weakref.ref(whole), [] if self.suspect else identity.stamps(whole)))
        return self._known[-1]


def require_same(source: Source, bounds: tuple[int, ...], then: Checks | None, now: Checks) -> None:
    """End the run where leaves that two passes have read differ."""
    for leaf, value in now.items():
        if then and then.get(leaf, value) != value:
            raise changed(f"{source.name}, samples {bounds[leaf]} to {bounds[leaf + 1] - 1}")


def changed(what: str) -> DataError:
    """Return the refusal of data that have changed."""
    return DataError(
        f"{what}: the contents are not what this run has read before, so the data have changed under it; restore them, or start "
        f"again with the data as they are now."
    )


class Again(Statistic):
    """Counts samples, and does nothing else: for a pass that only compares."""

    def layout(self) -> Layout:
        """Return one number."""
        return {"samples": ((), np.int64)}

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Count a batch."""
        state["samples"] += len(images)
        return 0

    def batch_bytes(self, images: int) -> int:
        """Return 0: counting takes none."""
        return 0
