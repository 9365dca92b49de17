"""Which samples are in a sum, and which sums may meet: what makes adding and withdrawing safe."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from smtdist.data.fingerprint import Digests, fingerprint
from smtdist.errors import ModelError, option
from smtdist.kernels.context import COARSE_BITS
from smtdist.kernels.device import to_host
from smtdist.statistics.cooccurrence import CodeSums

REPEATED_SHARE: Final = 0.05
"""Real data sets hold a few samples twice; beyond this share of the smaller side the same data are being added again."""

Entry = Mapping[str, Any]
"""One line of the audit: action ("added" or "withdrawn"), fingerprint, n_samples, source."""

_OPPOSITE: Final = {"added": "withdrawn", "withdrawn": "added"}


@dataclass(frozen=True)
class Origin:
    """What a sum was made of.

    `basis` hashes everything that codes and contexts depend on (whitening, atoms, settings): sums add up
    only where it is equal. `samples` are the hashes of the samples in the sum, in the order they were
    added. `atom_samples` are those of the samples that atoms were taken from. `audit` lists what was added
    and withdrawn, in order. `repeated` counts the samples that were added since the sum was read or made,
    though they were in already. Memory: 8 bytes a sample.
    """

    basis: str
    samples: Digests
    atom_samples: Digests
    audit: tuple[Entry, ...]
    repeated: int = 0

    @property
    def fingerprint(self) -> str:
        """One hash of all samples in order."""
        return fingerprint(self.samples)

    def plus(self, other: Self, *, repeats: bool = False) -> Self:
        """Return the origin of a sum of both, which says how many samples are in both.

        Refuses other codes and, unless `repeats`, the same data again: more than `REPEATED_SHARE` of the
        smaller side in both.
        """
        self._require_basis(other)
        smaller = min(len(self.samples), len(other.samples))
        shared = smaller - len(_without(*sorted((self.samples, other.samples), key=len)))
        if not repeats and shared > REPEATED_SHARE * smaller:
            raise ModelError(
                f"{shared:,} of {smaller:,} samples are in the sums already, so they would count twice; leave them out, or "
                f"pass {option('allow_repeats', True)} if they are meant to."
            )
        samples = np.concatenate([self.samples, other.samples])
        audit = (*self.audit, *other.audit)
        return type(self)(self.basis, samples, self.atom_samples, audit, self.repeated + shared)

    def minus(self, other: Self) -> Self:
        """Return the origin without the samples of `other`; refuse what was never added, and what atoms need.

        An atom taken from a sample keeps that sample's pixels, so the sample cannot be withdrawn while the
        atom stays.
        """
        self._require_basis(other)
        unknown = len(_without(other.samples, self.samples))
        if unknown:
            raise ModelError(
                f"{unknown:,} of the {len(other.samples):,} samples to withdraw are not in the sums; "
                f"withdraw only what was added."
            )
        left = _without(self.samples, other.samples)
        lost = np.setdiff1d(self.atom_samples, left)
        if len(lost):
            raise ModelError(
                f"{len(lost):,} of the samples to withdraw supplied atoms of the dictionary, or landmarks; fit again without "
                f"them, which chooses others."
            )
        undone = tuple({**entry, "action": _OPPOSITE[entry["action"]]} for entry in other.audit)
        return type(self)(self.basis, left, self.atom_samples, (*self.audit, *undone), self.repeated)

    def _require_basis(self, other: Self) -> None:
        if self.basis != other.basis:
            raise ModelError(
                "The sums were made with another whitening, dictionary, patch or code, or with second-order weights on another "
                f"grid, so they cannot be combined; make both with {option('base')} and the same model."
            )


class Additive:
    """Sums that add and subtract where their origins allow it: `a + b`, `a - b`, `a.plus(b, repeats=True)`."""

    n_samples: int
    n_positions: int
    activity: NDArray[np.int64]
    origin: Origin | None
    _unnamed: ClassVar[str] = (
        "These sums do not name their samples, so they cannot be added or subtracted; fit again to have them do."
    )

    def __add__(self, other: Self) -> Self:
        return self.plus(other)

    def __sub__(self, other: Self) -> Self:
        """Return the sums without the samples of `other`."""
        mine, theirs = self._origins(other)
        return self._summed(other, -1, mine.minus(theirs))

    def plus(self, other: Self, *, repeats: bool = False) -> Self:
        """Return the sums of the samples of both; `repeats` lets the same samples count again."""
        mine, theirs = self._origins(other)
        return self._summed(other, 1, mine.plus(theirs, repeats=repeats))

    def _summed(self, other: Self, sign: int, origin: Origin) -> Self:
        """Return self + sign x other, number by number."""
        found = {
            name: getattr(self, name) + sign * getattr(other, name)
            for name in ("n_samples", "n_positions", "activity")
        }
        made: Self = replace(self, **found, **self._combined(other, sign), origin=origin)  # type: ignore[type-var]
        return made

    def _combined(self, other: Self, sign: int) -> dict[str, Any]:
        """Return all other fields of self + sign x other that differ from those of self."""
        raise NotImplementedError

    def _origins(self, other: Self) -> tuple[Origin, Origin]:
        if self.origin is None or other.origin is None:
            raise ModelError(self._unnamed)
        return self.origin, other.origin


def _without(samples: Digests, removed: Digests) -> Digests:
    """Return `samples` in order, less one occurrence for each of `removed`.

    Which one matters where a sample is in twice. Samples that were added together go together: the last run
    that is `removed`. Where there is none, the last occurrences go.

    >>> _without(np.array([7, 8, 7, 9], np.uint64), np.array([7, 8], np.uint64)).tolist()
    [7, 9]
    >>> _without(np.array([7, 8, 7, 9], np.uint64), np.array([7], np.uint64)).tolist()
    [7, 8, 9]
    """
    if 0 < len(removed) <= len(samples):
        ends = samples[: len(samples) - len(removed) + 1], samples[len(removed) - 1 :]
        starts = np.flatnonzero((ends[0] == removed[0]) & (ends[1] == removed[-1]))
        for start in starts[::-1].tolist():
            if np.array_equal(samples[start : start + len(removed)], removed):
                return np.concatenate([samples[:start], samples[start + len(removed) :]])
    keys = np.concatenate([samples, removed])
    _, key = np.unique(keys, return_inverse=True)
    n_keys = int(key.max(initial=-1)) + 1
    to_drop = np.bincount(key[len(samples) :], minlength=n_keys)
    before_the_end = _occurrence(key[: len(samples)][::-1])[::-1]
    return samples[before_the_end >= to_drop[key[: len(samples)]]]


def _occurrence(key: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many equal keys stand before each: 0 for the first."""
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(key) else np.zeros(0, np.int64)
    lengths = np.diff(np.r_[starts, len(key)])
    result = np.empty(len(key), np.int64)
    result[order] = np.arange(len(key)) - np.repeat(starts, lengths)
    return result


def basis(sums: CodeSums, *more: Any) -> str:
    """Return a hash of all that the codes and contexts of these sums depend on, and of `more`.

    >>> from smtdist.kernels.types import Geometry
    >>> _digest(Geometry(4, 4, 1, 2)) == _digest(Geometry(4, 4, 1, 2)) != _digest(Geometry(4, 4, 1, 3))
    True
    """
    if sums.second_order and sums.weight_bits != COARSE_BITS:
        more = *more, f"second-order weights on a grid of 2^-{sums.weight_bits}"
    return _digest((sums.encoder, sums.context, sums.order, sums.flip, *more))


def _digest(value: Any) -> str:
    digest = hashlib.blake2b(digest_size=16)
    _absorb(digest, value)
    return digest.hexdigest()


def _absorb(digest: Any, value: Any) -> None:
    if is_dataclass(value) and not isinstance(value, type):
        for one in fields(value):
            digest.update(one.name.encode())
            _absorb(digest, getattr(value, one.name))
    elif isinstance(value, tuple | list):
        digest.update(f"({len(value)}".encode())
        for one in value:
            _absorb(digest, one)
    elif hasattr(value, "dtype") and value.ndim > 0:
        array = to_host(value)
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    else:
        digest.update(f"{value!r};".encode())
