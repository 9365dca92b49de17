"""What dictionaries are made from: a seeded random sample of distinct patches, and rounds of k-means.

The sample is a mergeable sketch: the patches with the smallest hashes. A round (1-sparse dictionary learning, SMT 2023,
appendix D) is who is nearest to whom, and the sums that follow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels import codes as code_kernels
from smtdist.kernels import hashing, memory
from smtdist.kernels import positions as lattices
from smtdist.kernels.codes import add_label_sums
from smtdist.kernels.device import like, place, to_host
from smtdist.kernels.mirrored import mirrored_pixels
from smtdist.kernels.types import Array, Encoder, Whitener
from smtdist.statistics.base import Layout, State, Statistic, part_of, prefixed
from smtdist.statistics.patch_rows import drawn_views

FEW = 4
"""Below one patch in so many of an image, they are whitened one by one instead of all together."""
ALL: Final = 2**64 - 1
"""The largest hash that there is."""
SWEEPS = 4
"""A batch has at least one patch for so many of a full sketch, if memory allows: each batch sorts all of the sketch."""
_FIELDS = ("hash", "vector", "sample", "position", "view")


@dataclass(frozen=True)
class Candidates(Statistic):
    """The `size` distinct non-constant patches with the smallest hashes of (seed, sample, position, view).

    The positions are those on the stride, whether or not a fit codes them. Each patch on the integer grid
    counts once, under its smallest hash; patches that are equal on the grid are the same atom. The sketch
    of a union is the sketch of the sketches, so partials merge in any order, and a smaller sketch is a
    prefix of a larger one, so dictionaries nest. With `mirrored`, patches that are the mirror images of one another
    are the same atom, too. Patches of larger hashes than `cut` are left out. `numbers` are those of the samples that it
    is given, where these are some of more. Memory: (2 pixels + 21) bytes a candidate, twice while it is updated, with
    `mirrored` thrice.
    """

    whitener: Whitener
    flip: bool
    size: int
    seed: int
    mirrored: bool = False
    cut: int = ALL
    numbers: NDArray[np.int64] | None = None

    @property
    def places(self) -> NDArray[np.int32]:
        """Positions of an image that patches are drawn from."""
        return lattices.lattice(self.whitener.geometry, self.whitener.sampling.stride)

    @property
    def views(self) -> tuple[int, ...]:
        """Of an image: 0 as it is, 1 mirrored."""
        return (0, 1) if self.flip else (0,)

    @property
    def n_hashes(self) -> int:
        """Patches of an image that have a hash."""
        rows, columns = self.whitener.sampling.lattice(self.whitener.geometry)
        return rows * columns * len(self.views)  # without a list of the places, which no memory may hold

    def below(self, count: int, samples: int) -> Candidates:
        """Return the same of the patches of so many samples whose hashes are the smallest: about `count` of them."""
        return replace(self, cut=min(ALL, count * (ALL + 1) // (samples * self.n_hashes)))

    def holders(self, start: int, stop: int, above: int) -> NDArray[np.int64]:
        """Return which of some samples have a hash beyond `above` that is not cut off; they need not be looked at for that."""
        found = [
            hashing.holders(self.seed, start, stop, self.places, view, above, self.cut)
            for view in self.views
        ]
        return np.unique(np.concatenate(found))

    @property
    def least_samples(self) -> int:  # type: ignore[override]  # a field of the base class, computed here
        """Samples of a batch: of fewer, a large sketch would be put in order too often."""
        return max(1, self.size // (SWEEPS * self.n_hashes))

    def layout(self) -> Layout:
        """Return an empty sketch."""
        return {
            "n_samples": ((), np.int64),
            "n_positions": ((), np.int64),
            "hash": ((0,), np.uint64),
            "vector": ((0, self.whitener.geometry.pixels), np.int16),
            "sample": ((0,), np.int64),
            "position": ((0,), np.int32),
            "view": ((0,), np.uint8),
        }

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Add a batch of raw images; only images that hold a small enough hash are whitened, of few only these."""
        places = self.places
        samples = np.arange(first_sample, first_sample + len(images))
        samples = samples if self.numbers is None else self.numbers[samples]
        for view in self.views:
            hashes = hashing.keyed_hashes(self.seed, samples.astype(np.uint64), places, view)
            small = (hashes <= self._cut(state)).sum(axis=1)
            rows = np.flatnonzero(small)
            if len(rows):
                hashes, most = hashes[rows], int(small.max())
                if most > len(places) // FEW:
                    at = lattices.lattice_positions(self.whitener, len(rows))
                else:  # of few patches an image, only those of the smallest hashes are made
                    order = np.argpartition(hashes, most - 1, axis=1)[:, :most]
                    hashes, at = np.take_along_axis(hashes, order, axis=1), places[order]
                    del order
                grid, constant = code_kernels.grid_patches(
                    place(images[rows]), self.whitener, bool(view), at
                )
                where = np.broadcast_to(places, hashes.shape) if at is None else at
                self._add(state, grid, to_host(constant), hashes, samples[rows], where, view)
        state["n_samples"] += len(images)
        positions = len(images) * self.n_hashes
        state["n_positions"] += positions
        return positions

    def _add(
        self,
        state: State,
        grid: Array,
        constant: NDArray[np.bool_],
        hashes: NDArray[np.uint64],
        samples: NDArray[np.int64],
        positions: NDArray[np.int32],
        view: int,
    ) -> None:
        """Add patches on the grid (p, B m), but for constant ones; `hashes` and `positions` are (B, m)."""
        free = np.flatnonzero((hashes.reshape(-1) <= self._cut(state)) & ~constant)
        found = hashes.reshape(-1)[free]
        order = np.argsort(found, kind="stable")
        # by ascending hash and a sketch's worth at a time: what is beyond the cut by then is never copied
        for start in range(0, len(free), self.size):
            piece = order[start : start + self.size]
            if found[piece[0]] > self._cut(state):
                break
            at = free[piece]
            image, column = np.divmod(at, hashes.shape[1])
            sketch = {
                "hash": found[piece],
                "vector": to_host(grid[:, like(grid, at)]).T.astype(np.int16),
                "sample": samples[image],
                "position": positions[image, column],
                "view": np.full(len(at), view, np.uint8),
            }
            self._insert(state, sketch)

    def merge(self, left: State, right: State) -> State:
        """Keep the smallest hashes of both."""
        for name in ("n_samples", "n_positions"):
            left[name] += right[name]
        self._insert(left, {name: right[name] for name in _FIELDS})
        return left

    def _cut(self, state: State) -> np.uint64:
        hashes = state["hash"]
        return np.uint64(hashes[-1] if len(hashes) == self.size else self.cut)

    def _insert(self, state: State, more: State) -> None:
        joined = {
            name: np.concatenate([state[name], more[name].astype(state[name].dtype)]) for name in _FIELDS
        }
        order = np.argsort(joined["hash"], kind="stable")
        if (np.diff(joined["hash"][order]) == 0).any():
            # hashes of different positions may collide in principle; sample, position and view settle their order
            order = np.lexsort([joined[name] for name in ("view", "position", "sample", "hash")])
        compared = np.ascontiguousarray(joined["vector"])
        if (
            self.mirrored
        ):  # the same for patches that are the same atom: the larger of a patch and its mirror image
            vectors, compared = compared, np.take(compared, mirrored_pixels(self.whitener.geometry), axis=1)
            differ = vectors != compared
            first = differ.argmax(axis=1)[:, None]
            larger = np.take_along_axis(vectors, first, 1) > np.take_along_axis(compared, first, 1)
            np.copyto(compared, vectors, where=larger)
            del differ, first, larger, vectors
        keep = order[_first_of_equals(compared, order)[: self.size]]
        for name in _FIELDS:
            state[name] = joined[name][keep]

    def state_bytes(self) -> int:
        """Return the size of a full sketch."""
        return self.size * (2 * self.whitener.geometry.pixels + 21)

    def batch_bytes(self, images: int) -> int:
        """Return the workspace of a batch: whitened patches and their hashes, and two sketches while they are joined."""
        whitener = self.whitener.undrawn
        expected = len(self.places) * self.cut / ALL  # of a view; no image has many more
        most = int(expected + 6 * math.sqrt(expected) + 4)
        if most < len(self.places) // FEW:
            whitener = replace(whitener, sampling=whitener.sampling._replace(positions=most))
        encoding: int = memory.batch_bytes(whitener, 0, "labels", images).encoding
        return encoding + 40 * images * len(self.places) + self.merge_bytes()

    def merge_bytes(self) -> int:
        """Return the workspace of `merge`: two sketches joined, in order, and made distinct."""
        return 6 * self.state_bytes() + 8 * hashing.ROWS * (self.whitener.geometry.pixels + 3)

    def miniature(self) -> Candidates:
        """Return a sketch of few patches, which is soon full: then few of an image's are whitened."""
        return _Rehearsal(self.whitener, self.flip, 8, self.seed, self.mirrored)


def _first_of_equals(vectors: NDArray[np.int16], order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the places in an order at which rows stand that are equal to none before, ascending.

    Rows are told apart by 64 bits, and where two have the same, compared.

    >>> _first_of_equals(np.array([[1, 2], [3, 4], [1, 2]], np.int16), np.array([2, 1, 0])).tolist()
    [0, 1]
    """
    marks = hashing.row_hashes(vectors)[order]
    _, first, group = np.unique(marks, return_index=True, return_inverse=True)
    again = np.ones(len(order), bool)
    again[first] = False
    again = np.flatnonzero(again)
    if (vectors[order[again]] != vectors[order[first[group[again]]]]).any():
        whole = np.ascontiguousarray(vectors[order])
        rows = whole.view(np.dtype((np.void, whole.shape[1] * whole.itemsize))).reshape(-1)
        _, first = np.unique(rows, return_index=True)
    return np.sort(first)


class _Rehearsal(Candidates):
    """A sketch that meets enough samples to take both ways, of all patches of an image and of few."""

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Add a batch four times, as different samples."""
        return sum(super(_Rehearsal, self).update(state, images, first_sample + at) for at in range(4))


SPARE: Final = "spare_"
"""How names begin in the state of the spares."""


@dataclass(frozen=True)
class Centroids(Statistic):
    """Per atom: how many patches are nearest to it, and the integer sum of their grid vectors.

    `spares` is a seeded random sample of the round's patches, to reseed atoms that nobody was nearest to.
    Memory: 8 (pixels + 1) bytes an atom, plus the spares.
    """

    encoder: Encoder
    flip: bool
    spares: Candidates

    def layout(self) -> Layout:
        """Return the sums, and the spares that none is drawn for yet."""
        n_atoms, pixels = self.encoder.atoms.shape
        return {
            "n_samples": ((), np.int64),
            "n_positions": ((), np.int64),
            "fit": ((), np.int64),
            "counts": ((n_atoms,), np.int64),
            "sums": ((n_atoms, pixels), np.int64),
            **prefixed(SPARE, self.spares.layout()),
        }

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Assign the patches of a batch that a fit codes to their nearest atoms, but for constant ones."""
        kept = 0
        for mirror, at in drawn_views(self.encoder.whitener, images, self.flip):
            kept += self._assign(state, images, mirror, at)
        spare = part_of(state, SPARE)
        self.spares.update(spare, images, first_sample)
        state.update(prefixed(SPARE, spare))
        state["n_samples"] += len(images)
        state["n_positions"] += kept
        return kept

    def _assign(
        self, state: State, images: NDArray[np.generic], mirror: bool, at: NDArray[np.int32] | None
    ) -> int:
        """Add one view; its patches are gone when it returns, before the spares are made."""
        grid, constant = code_kernels.grid_patches(place(images), self.encoder.whitener, mirror, at)
        labels, dots = code_kernels.nearest_atoms(
            grid, self.encoder.atoms, self.encoder.euclidean, constant
        )
        labels, constant = to_host(labels), to_host(constant)
        labels = np.where(constant, -1, labels)
        add_label_sums(state["counts"], state["sums"], labels, to_host(grid))
        state["fit"] += np.int64(to_host(dots)[~constant].sum(dtype=np.float64))
        return int((~constant).sum())

    def merge(self, left: State, right: State) -> State:
        """Add `right` to `left`."""
        for name in ("n_samples", "n_positions", "fit", "counts", "sums"):
            left[name] += right[name]
        left.update(prefixed(SPARE, self.spares.merge(part_of(left, SPARE), part_of(right, SPARE))))
        return left

    def state_bytes(self) -> int:
        """Return the size of the sums and the spares."""
        n_atoms, pixels = map(int, self.encoder.atoms.shape)
        return 8 * n_atoms * (pixels + 1) + self.spares.state_bytes()

    def batch_bytes(self, images: int) -> int:
        """Return the workspace of a batch."""
        whitener, n_atoms = self.encoder.whitener, len(self.encoder.atoms)
        nearest = memory.batch_bytes(whitener, n_atoms, "labels", images)
        return max(nearest.encoding, self.spares.batch_bytes(images))

    def merge_bytes(self) -> int:
        """Return the workspace of `merge`: that of the spares."""
        return self.spares.merge_bytes()

    def miniature(self) -> Centroids:
        """Return the same round with few atoms."""
        return replace(
            self,
            encoder=replace(self.encoder, atoms=self.encoder.atoms[:8]),
            spares=self.spares.miniature(),
        )
