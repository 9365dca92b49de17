"""Drawn patches: where they are in images, how a statistic gets them as rows, their moments, and a seeded sample of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from smtdist.data.fingerprint import sample_digests
from smtdist.kernels import contrast, hashing
from smtdist.kernels import positions as lattices
from smtdist.kernels.threads import even_ranges, run_ranges, single_blas
from smtdist.kernels.types import Whitener
from smtdist.statistics.base import Layout, State, Statistic

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

GROUP_BYTES: Final = 64 * 2**20
GROUP_MOST: Final = 4096
PANEL: Final = 256
"""Rows of one panel of a product, which one thread makes."""


@dataclass(frozen=True, eq=False)
class PatchRows:
    """Whitened patches of images (height, width, channels) as rows of p numbers.

    patch : side in pixels. count : patches an image that a fit takes, None for all. mean, whiten : (p,),
    (p, p), None before they are known: rows are then contrast-normalised only. pixel_range : (black, white)
    of float images. flip : every image is seen mirrored left to right too, with patches drawn anew. grey :
        colour becomes luminance first.
    """

    shape: tuple[int, int, int]
    patch: int
    count: int | None
    contrast: float
    seed: int
    mean: Float64 | None = None
    whiten: Float64 | None = None
    pixel_range: tuple[float, float] | None = None
    flip: bool = False
    grey: bool = False

    @property
    def channels(self) -> int:
        """Channels of a patch."""
        return 1 if self.grey else self.shape[2]

    @property
    def n_inputs(self) -> int:
        """p."""
        return self.patch * self.patch * self.channels

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of positions in an image."""
        return self.shape[0] - self.patch + 1, self.shape[1] - self.patch + 1

    @property
    def positions(self) -> int:
        """Patches of an image."""
        return self.grid[0] * self.grid[1]

    @property
    def drawn(self) -> int:
        """Patches an image that a fit takes."""
        return self.positions if self.count is None else min(self.count, self.positions)

    def places(self, images: NDArray[np.generic], view: int) -> NDArray[np.int64]:
        """Return the positions that round `view` takes of each image."""
        all_of_them = self.drawn == self.positions
        digests = np.zeros(len(images), np.uint64) if all_of_them else sample_digests(images)
        return contrast.drawn_places(digests, self.positions, self.count, self.seed, view)

    def raw(self, images: NDArray[np.generic], places: NDArray[np.int64]) -> Float32:
        """Return the patches at `places` as they are, float32 (m k, p) in [0, 1]."""
        found = contrast.pixels(images, self.pixel_range)
        return np.asarray(
            contrast.patches_at(contrast.luminance(found) if self.grey else found, places, self.patch)
        )

    def prepared(self, raw: Float32) -> Float32:
        """Return raw patches normalised, and whitened where that is known."""
        if self._whitening is None:
            return np.asarray(contrast.normalised(raw, self.contrast))
        with single_blas():
            return np.asarray(contrast.whitened(raw, *self._whitening, self.contrast))

    @cached_property
    def _whitening(self) -> tuple[Float32, Float32] | None:
        """Mean and ZCA matrix rounded to float32, once."""
        if self.mean is None or self.whiten is None:
            return None
        return self.mean.astype(np.float32), self.whiten.astype(np.float32)

    def rows(self, images: NDArray[np.generic], places: NDArray[np.int64]) -> Float32:
        """Return the patches at `places` normalised and whitened, float32 (m k, p)."""
        return self.prepared(self.raw(images, places))

    def groups(
        self, images: NDArray[np.generic], view: int, rows: int
    ) -> Iterator[tuple[Float32, NDArray[np.int64]]]:
        """Yield drawn patches and their places in groups of whole images, about `rows` of them, from the start of the batch.

        Mirrored images follow those they are of.
        """
        step = max(1, rows // self.drawn)
        for start in range(0, len(images), step):
            part = images[start : start + step]
            for seen in (part, np.ascontiguousarray(part[:, :, ::-1])) if self.flip else (part,):
                places = self.places(seen, view)
                yield self.rows(seen, places), places

    def group_rows(self, numbers: int) -> int:
        """Return the rows of a group that needs so many float32 numbers a row; never of memory or threads."""
        return max(32, min(GROUP_MOST, GROUP_BYTES // (4 * max(1, numbers))))

    def group_bytes(self, numbers: int) -> int:
        """Return the workspace of a group: its numbers, patches in four steps, whole images in float, the whitening."""
        rows = max(self.group_rows(numbers), self.drawn)
        step = max(1, rows // self.drawn)
        # in float, in grey, and mirrored
        image = (8 + 8 * self.grey + 8 * self.flip) * int(np.prod(self.shape)) + 24 * self.positions
        return rows * (4 * numbers + 20 * self.n_inputs) + step * image + self.whitening_bytes

    @property
    def whitening_bytes(self) -> int:
        """Bytes of the ZCA matrix in float32."""
        return 0 if self.whiten is None else 4 * self.n_inputs**2


class PatchSums(Statistic, ABC):
    """Float sums over drawn patches, in groups of fixed size along the fixed tree; `view` tells the draws of rounds apart."""

    patches: PatchRows
    view: int
    exact = False

    @property
    @abstractmethod
    def numbers(self) -> int:
        """float32 numbers a row of a group takes."""

    @abstractmethod
    def add(self, state: State, rows: Float32) -> None:
        """Add a group of patches (n, p), normalised and whitened, and count them in `n`."""

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Add the drawn patches of a batch; return how many they are."""
        before = int(state["n"])
        for rows, _ in self.patches.groups(images, self.view, self.patches.group_rows(self.numbers)):
            self.add(state, rows)
        return int(state["n"]) - before


@dataclass(frozen=True, eq=False)
class RowMoments(PatchSums):
    """Σ x and Σ x xᵀ of contrast-normalised drawn patches: what ZCA is made from; float64 along the fixed tree."""

    patches: PatchRows
    view = 0

    def layout(self) -> Layout:
        """Return arrays of 8 p² bytes, and little more."""
        p = self.patches.n_inputs
        return {"n": ((), np.int64), "total": ((p,), np.float64), "moment": ((p, p), np.float64)}

    @property
    def numbers(self) -> int:
        """p."""
        return self.patches.n_inputs

    def add(self, state: State, rows: Float32) -> None:
        """Add a group."""
        wide = rows.astype(np.float64)
        state["n"] += len(rows)
        state["total"] += wide.sum(axis=0)
        add_panels(state["moment"], wide, wide)

    def batch_bytes(self, images: int) -> int:
        """Return the workspace of a group, whatever the batch: bits must not follow the memory."""
        return self.patches.group_bytes(3 * self.patches.n_inputs) + 8 * self.patches.n_inputs**2


@dataclass(frozen=True, eq=False)
class RowSample(Statistic):
    """The `size` patches with the smallest hashes of (seed, image, position), at most `each` of an image.

    A start for atoms, and for units that died. The sample of a union is the sample of the samples.
    """

    patches: PatchRows
    size: int
    each: int = 1
    view = 1

    def layout(self) -> Layout:
        """Return an empty sample."""
        return {"hash": ((0,), np.uint64), "rows": ((0, self.patches.n_inputs), np.float32)}

    def rehearsed(self) -> RowSample:
        """Return what takes as many patches from fewer images: all of each."""
        return replace(self, each=self.patches.positions)

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Keep what is drawn of a batch; return how many it was drawn from."""
        digests = sample_digests(images)
        seed, positions = self.patches.seed, self.patches.positions
        places = contrast.drawn_places(digests, positions, self.each, seed, self.view)
        hashes = np.take_along_axis(
            hashing.keyed_hashes(seed, digests, positions, self.view), places, axis=1
        )
        order = np.argsort(hashes.reshape(-1), kind="stable")[: self.size]
        image, which = np.unravel_index(order, hashes.shape)
        raw = np.empty((len(order), self.patches.n_inputs), np.float32)
        for at, (i, k) in enumerate(zip(image, which, strict=True)):
            raw[at] = self.patches.raw(images[i : i + 1], places[i : i + 1, k : k + 1])[0]
        more = self.patches.prepared(raw)
        _keep(state, hashes.reshape(-1)[order], more, self.size)
        return int(hashes.size)

    def merge(self, left: State, right: State) -> State:
        """Keep the smallest hashes of both."""
        _keep(left, right["hash"], right["rows"], self.size)
        return left

    def state_bytes(self) -> int:
        """Return the size of a full sample."""
        return self.size * (4 * self.patches.n_inputs + 8)

    def batch_bytes(self, images: int) -> int:
        """Return the workspace of a batch: hashes of all positions, and two samples while they are joined."""
        hashes = 40 * images * self.patches.positions
        return (
            hashes
            + 5 * self.state_bytes()
            + 16 * int(np.prod(self.patches.shape))
            + self.patches.whitening_bytes
        )

    def miniature(self) -> RowSample:
        """Return a sample of few."""
        return replace(self, size=2)


def _keep(state: State, hashes: NDArray[np.uint64], rows: Float32, size: int) -> None:
    joined = np.concatenate([state["hash"], hashes])
    both = np.concatenate([state["rows"], rows])
    # equal images have equal hashes: their patches are kept once
    _, first = np.unique(joined, return_index=True)
    state["hash"], state["rows"] = joined[first[:size]], both[first[:size]]


def add_panels(total: Float64, left: NDArray[np.floating], right: NDArray[np.floating]) -> None:
    """Add leftᵀ right to a float64 sum in panels of fixed size, on all threads: the same bits for any number of them."""

    def panel(start: int, stop: int) -> None:
        total[start:stop] += left[:, start:stop].T @ right

    with single_blas():
        run_ranges(panel, even_ranges(left.shape[1], PANEL))


def drawn_views(
    whitener: Whitener, images: NDArray[np.generic], flip: bool
) -> Iterator[tuple[bool, NDArray[np.int32] | None]]:
    """Yield (mirrored, positions (images, m) or None for all) for each view of a batch of raw images.

    A draw is keyed by the hash of the sample's content, not by its number: the same sample has the same
    positions in every pass and in every file, so that its sums can be added and withdrawn. Memory: see
    `drawn_positions`.
    """
    drawn = whitener.sampling.positions is not None
    samples = sample_digests(images) if drawn else np.zeros(len(images), np.uint64)
    for mirrored in (False, True) if flip else (False,):
        yield mirrored, lattices.drawn_positions(whitener, samples, int(mirrored))
