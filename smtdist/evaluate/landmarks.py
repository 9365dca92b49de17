"""The kernel of `cosine_rows` through m landmarks: features whose ridge regression is sums, at any number of images."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from smtdist.evaluate.cosine_rows import Comparer, Near, Scale, parts_of, view_bytes
from smtdist.evaluate.cosine_rows import near as ready
from smtdist.kernels.products import Ordered, ordered_bytes
from smtdist.kernels.threads import even_ranges, run_ranges
from smtdist.models import readout
from smtdist.statistics.base import Layout, State, Statistic

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

JITTER: Final = 1e-7
"""Of the kernel of landmarks, as a share of its mean diagonal: what float32 leaves uncertain in it."""
ROWS: Final = 256
"""Images that are compared with the landmarks at a time."""
PIECE: Final = 128
"""Rows that one thread solves for."""
BLOCK: Final = 256
"""Columns of R that are solved for together."""


@dataclass(frozen=True)
class FeatureMoments(Statistic):
    """Σ x and Σ x² of the first `n_features` numbers of rows, float64, along the fixed tree; n_samples beside them."""

    n_features: int
    exact = False

    def layout(self) -> Layout:
        """Return two numbers a feature, and a counter."""
        size = (self.n_features,)
        return {"n_samples": ((), np.int64), "total": (size, np.float64), "squares": (size, np.float64)}

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Add rows, one after another."""
        rows = images.reshape(len(images), -1)
        for start, stop in even_ranges(len(rows), ROWS):
            block = rows[start:stop, : self.n_features].astype(np.float64)
            state["total"] += block.sum(axis=0)
            state["squares"] += np.einsum("nf,nf->f", block, block)
            del block  # not while the next one is made
        state["n_samples"] += len(rows)
        return len(rows)

    def batch_bytes(self, images: int) -> int:
        """Return the workspace of a batch: a block in float64."""
        return 8 * (min(images, ROWS) + 2) * self.n_features


def scales_of(layout: readout.Layout, moments: State) -> tuple[tuple[Scale, ...], ...]:
    """Return how each part is scaled, from the moments of training rows: those of an image and its mirror image together."""
    n, total, squares = int(moments["n_samples"]), moments["total"], moments["squares"]
    found = []
    for columns in layout:
        scales = []
        for one in columns:
            places = [one.start] if one.mirrored is None else [one.start, one.mirrored]
            cuts = [slice(place, place + one.block.size) for place in places]
            if one.block.counts:
                sums, more = (np.sum([array[cut] for cut in cuts], axis=0) for array in (total, squares))
                scales.append(Scale.from_sums(sums, more, n * len(cuts)))
            else:
                scales.append(Scale())
        found.append(tuple(scales))
    return tuple(found)


@dataclass(frozen=True, eq=False)
class LandmarkFeatures:
    """φ(x) = R⁻ᵀ k(L, x) of rows x, where RᵀR is the kernel of the landmarks L: φ(x)·φ(y) ≈ k(x, y), and is k for landmarks.

    landmarks : (m, F) rows. layout : where their parts are. root : (m, m) R, upper triangular. Memory: 8 m² + 4 m F
    bytes, and again as much for the views of the landmarks.
    """

    landmarks: Float32
    layout: readout.Layout
    comparer: Comparer
    root: Float64

    @classmethod
    def of(cls, landmarks: Float32, layout: readout.Layout, comparer: Comparer) -> LandmarkFeatures:
        """Return the features for these landmarks. Time: m² F and m³/3 operations."""
        sets = parts_of(landmarks, layout)
        views = comparer.views(sets, slice(None))
        kernel = comparer.kernel(views, views, np.empty((len(landmarks), len(landmarks)), np.float32))
        matrix = kernel.astype(np.float64)
        matrix[np.diag_indices_from(matrix)] += JITTER * float(np.diagonal(kernel).mean(dtype=np.float64))
        return cls(landmarks, layout, comparer, scipy.linalg.cholesky(matrix, overwrite_a=True))

    @property
    def size(self) -> int:
        """Landmarks, m."""
        return len(self.landmarks)

    @property
    def largest(self) -> float:
        """A bound of |φ|: the root of the largest value of the kernel."""
        return float((2.0 * len(self.layout)) ** 0.5)

    def __call__(self, rows: NDArray[np.generic]) -> Float64:
        """Return φ of rows (n, F), (n, m)."""
        near = self._near
        found = np.empty((len(rows), self.size))
        for start, stop in even_ranges(len(rows), ROWS):
            views = self.comparer.views(parts_of(rows[start:stop], self.layout), slice(None))
            kernel = self.comparer.kernel(views, near, np.empty((stop - start, self.size), np.float32))
            self._whiten(kernel, found[start:stop])
        return found

    @cached_property
    def _near(self) -> list[Near]:
        """The views of the landmarks, made anew where the features have travelled."""
        return ready(self.comparer.views(parts_of(self.landmarks, self.layout), slice(None)))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_near", "_inverses")}

    def _whiten(self, kernel: Float32, out: Float64) -> None:
        """Solve φ R = k in pieces of fixed size on all threads.

        Block by block of columns, by products alone: SciPy's triangular solvers hold the interpreter lock, so that
        threads would wait for each other.
        """
        for (first, last), inverse in zip(even_ranges(self.size, BLOCK), self._inverses, strict=True):
            before = Ordered(self.root[:first, first:last])

            def work(
                start: int,
                stop: int,
                before: Ordered = before,
                inverse: Ordered = inverse,
                first: int = first,
                last: int = last,
            ) -> None:
                right = kernel[start:stop, first:last].astype(np.float64)
                right -= before(out[start:stop, :first])
                out[start:stop, first:last] = inverse(right)

            run_ranges(work, even_ranges(len(kernel), PIECE))

    @cached_property
    def _inverses(self) -> list[Ordered]:
        """The inverses of the blocks on R's diagonal."""
        cuts = [slice(*one) for one in even_ranges(self.size, BLOCK)]
        return [
            Ordered(scipy.linalg.solve_triangular(self.root[cut, cut], np.eye(cut.stop - cut.start)))
            for cut in cuts
        ]

    def working_bytes(self, rows: int) -> int:
        """Return what φ of so many rows takes: itself, a block of views and of the kernel, and the views of the landmarks."""
        sets = parts_of(np.broadcast_to(np.float32(0), (1, self.landmarks.shape[1])), self.layout)
        views = view_bytes(sets, self.size) + view_bytes(sets, ROWS)
        return views + 8 * (rows + 3 * ROWS) * self.size + ordered_bytes(self.size, BLOCK, 8)
