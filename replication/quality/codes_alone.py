"""Codes pooled as they are (SMT 2023, Figure 6), and codes pooled before they are embedded: no K numbers a patch to add up."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels.cpu.jit import ZERO, compiled
from smtdist.kernels.cpu.slices import LANES, square_sum
from smtdist.kernels.cpu.table import columns_of
from smtdist.kernels.representation import pooled_shape
from smtdist.kernels.threads import even_ranges, run_ranges
from smtdist.kernels.types import Codes
from smtdist.models.tuning.members import Flat, Member


class CodesAlone(Member):
    """A member whose components are the identity: it represents images to the same bits, many times faster."""

    def write(self, codes: Codes, images: int, flat: Flat, samples: int, first: int) -> None:
        """Represent images by their codes, in a flat array of so many samples, from sample `first` on."""
        geometry = self.encoder.whitener.geometry
        shape = pooled_shape(geometry.rows, geometry.columns, self.size, self.stride)
        out = flat.reshape(samples, shape[0] * shape[1], -1)[first : first + images]
        window = (geometry.rows, geometry.columns, shape[1], self.size, self.stride)
        run_ranges(
            lambda start, stop: pool_codes(codes.indptr, codes.indices, window, start, stop, out),
            even_ranges(images, 1),
        )


class PooledFirst(Member):
    """A member that embeds the sum of the codes of a window: patches are not normalised, windows are.

    In place of the mean of P a / ‖P a‖ it takes that of P a, which is P times the mean of a.
    """

    def write(self, codes: Codes, images: int, flat: Flat, samples: int, first: int) -> None:
        """Represent images by their codes, in a flat array of so many samples, from sample `first` on."""
        geometry = self.encoder.whitener.geometry
        shape = pooled_shape(geometry.rows, geometry.columns, self.size, self.stride)
        window = (geometry.rows, geometry.columns, shape[1], self.size, self.stride)
        components, views = columns_of(self.components), self.views(flat, samples)
        sums = shape[0] * shape[1], components.shape[0]

        def work(start: int, stop: int) -> None:
            for image in range(start, stop):
                embedded = (
                    summed_codes(codes.indptr, codes.indices, window, image, np.zeros(sums, np.float32))
                    @ components
                )
                for (begin, end), view in zip(self.slices, views, strict=True):
                    part = embedded[:, begin:end]
                    norms = np.linalg.norm(part, axis=1, keepdims=True)
                    view[first + image] = (part / np.where(norms > 0, norms, 1)).ravel()

        run_ranges(work, even_ranges(images, 1))


@compiled
def pool_codes(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    window: tuple[int, int, int, int, int],
    start: int,
    stop: int,
    out: NDArray[Any],
) -> None:
    """Write the unit window sums of the unit codes of images start to stop, as `pool_image` does of embeddings."""
    lanes = np.empty(LANES)
    for image in range(start, stop):
        for pooled in range(out.shape[1]):
            line = out[image, pooled]
            line[:] = 0
            _add_window(indptr, indices, window, image, pooled, True, line)
            total = square_sum(line, ZERO, len(line), lanes)
            scale = 1 / np.sqrt(total) if total > 0 else 0.0
            for atom in range(len(line)):
                line[atom] = np.float32(scale * np.float64(line[atom]))


@compiled
def summed_codes(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    window: tuple[int, int, int, int, int],
    image: int,
    out: NDArray[Any],
) -> NDArray[Any]:
    """Return `out`, (windows, K) zeros, with the window sums of the codes of an image."""
    for pooled in range(len(out)):
        _add_window(indptr, indices, window, image, pooled, False, out[pooled])
    return out


@compiled
def _add_window(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    window: tuple[int, int, int, int, int],
    image: int,
    pooled: int,
    unit: bool,
    line: NDArray[Any],
) -> None:
    """Add the codes of a window's patches to `line`, of unit length where `unit`."""
    rows, columns, across, size, stride = window
    corner = image * rows * columns + pooled // across * stride * columns + pooled % across * stride
    for down in range(size):
        for beside in range(size):
            patch = corner + down * columns + beside
            first, last = indptr[patch], indptr[patch + 1]
            if first < last:
                share = np.float32(1 / np.sqrt(np.float64(last - first))) if unit else np.float32(1)
                for entry in range(first, last):
                    line[np.int64(indices[entry])] += share
