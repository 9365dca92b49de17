"""A partial sum and what it covers: the proof that every leaf is counted exactly once."""

from __future__ import annotations

from dataclasses import dataclass, field

from smtdist.data import retry
from smtdist.data.fingerprint import Digests
from smtdist.data.retry import Ranges
from smtdist.engine.unchanged import Checks
from smtdist.statistics.base import State, Statistic

Cover = tuple[tuple[int, int], ...]
"""Disjoint, ascending, non-adjacent ranges of leaves."""


@dataclass
class Counters:
    """What was done to get a partial sum."""

    n_samples: int = 0
    n_positions: int = 0
    read_bytes: int = 0
    peak_bytes: int = 0
    digests: dict[int, Digests] = field(default_factory=dict)  # leaf -> hashes of its samples, where taken
    checks: Checks = field(default_factory=dict)  # of what was read of each leaf
    skipped: Ranges = ()  # samples that could not be read, where that is allowed

    def __add__(self, other: Counters) -> Counters:
        return Counters(
            self.n_samples + other.n_samples,
            self.n_positions + other.n_positions,
            self.read_bytes + other.read_bytes,
            max(self.peak_bytes, other.peak_bytes),
            {**self.digests, **other.digests},
            {**self.checks, **other.checks},
            retry.joined_ranges(self.skipped + other.skipped),
        )


@dataclass
class Partial:
    """A sum over the leaves in `covers`."""

    state: State
    covers: Cover
    counters: Counters


@dataclass(frozen=True)
class StoredPartial:
    """A partial sum in a file of the checkpoint folder."""

    path: str
    covers: Cover
    seconds: float = 0.0  # that writing it took, and the wait before that
    peak_bytes: int = 0  # of the process that wrote it, meanwhile


def join(left: Cover, right: Cover) -> Cover:
    """Return the union of two covers; sharing a leaf is a bug that must never pass silently.

    >>> join(((0, 2), (5, 6)), ((2, 5),))
    ((0, 6),)
    """
    ranges: list[tuple[int, int]] = []
    for start, stop in sorted(left + right):
        if ranges and start < ranges[-1][1]:
            raise AssertionError(f"leaves {start} to {min(stop, ranges[-1][1])} would be counted twice")
        if ranges and start == ranges[-1][1]:
            ranges[-1] = (ranges[-1][0], stop)
        else:
            ranges.append((start, stop))
    return tuple(ranges)


def missing(covers: Cover, n_leaves: int) -> Cover:
    """Return the leaves that are not covered.

    >>> missing(((1, 2), (4, 5)), 6)
    ((0, 1), (2, 4), (5, 6))
    """
    gaps, at = [], 0
    for start, stop in (*covers, (n_leaves, n_leaves)):
        if at < start:
            gaps.append((at, start))
        at = stop
    return tuple(gaps)


def merge(statistic: Statistic, left: Partial, right: Partial) -> Partial:
    """Return the sum of both; may reuse the memory of `left`."""
    covers = join(left.covers, right.covers)
    return Partial(statistic.merge(left.state, right.state), covers, left.counters + right.counters)


def copy(partial: Partial) -> Partial:
    """Return a partial whose state may be changed."""
    return Partial(
        {name: value.copy() for name, value in partial.state.items()}, partial.covers, partial.counters
    )
