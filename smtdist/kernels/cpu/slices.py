"""Pooled representations of several slices of the components at once, compiled."""

from __future__ import annotations

import numpy as np

from smtdist.kernels.cpu.jit import compiled
from smtdist.kernels.threads import even_ranges, run_ranges
from smtdist.kernels.types import Array, Codes


@compiled
def embed_image(indptr: Array, indices: Array, components_t: Array, first: int, sums: Array) -> None:
    """Write P a of every patch of the image that begins with patch `first`, atoms ascending."""
    length = components_t.shape[1]
    for patch in range(sums.shape[0]):
        line = sums[patch]
        line[:] = 0
        for entry in range(indptr[first + patch], indptr[first + patch + 1]):
            column = components_t[np.int64(indices[entry])]
            for component in range(length):
                line[component] += column[component]


@compiled
def slice_weights(sums: Array, starts: Array, stops: Array, weights: Array) -> None:
    """Write 1 / ‖slice‖ of every patch and slice, 0 for a slice of zeros; slices of one start are ascending."""
    for patch in range(sums.shape[0]):
        line = sums[patch]
        total, at, begin = 0.0, 0, -1
        for number in range(len(starts)):
            if starts[number] != begin:
                begin = starts[number]
                total, at = 0.0, begin
            for component in range(at, stops[number]):
                value = np.float64(line[component])
                total += value * value
            at = stops[number]
            weights[patch, number] = 1 / np.sqrt(total) if total > 0 else 0.0


@compiled
def pool_image(
    sums: Array, weights: Array, columns: int, size: int, stride: int, starts: Array, stops: Array, out: Array
) -> None:
    """Write the unit window sums of the slices of one image, side by side, to out (rows', columns', all)."""
    for row in range(out.shape[0]):
        for column in range(out.shape[1]):
            result = out[row, column]
            result[:] = 0
            for down in range(size):
                for across in range(size):
                    patch = (row * stride + down) * columns + column * stride + across
                    line = sums[patch]
                    offset = 0
                    for number in range(len(starts)):
                        begin, length = starts[number], stops[number] - starts[number]
                        weight = weights[patch, number]
                        target, values = result[offset : offset + length], line[begin : begin + length]
                        for component in range(length):
                            target[component] += weight * values[component]
                        offset += length
            offset = 0
            for number in range(len(starts)):
                length = stops[number] - starts[number]
                target = result[offset : offset + length]
                total = 0.0
                for component in range(length):
                    value = np.float64(target[component])
                    total += value * value
                if total > 0:
                    scale = np.float32(1 / np.sqrt(total))
                    for component in range(length):
                        target[component] *= scale
                offset += length


def pooled_slices(
    codes: Codes,
    images: int,
    grid: tuple[int, int],
    components_t: Array,
    slices: list[tuple[int, int]],
    size: int,
    stride: int,
    out: Array,
) -> None:
    """Fill out (images, rows', columns', all); see `smtdist.kernels.slices`."""
    rows, columns = grid
    starts = np.array([start for start, _ in slices], np.int64)
    stops = np.array([stop for _, stop in slices], np.int64)

    def work(first: int, last: int) -> None:
        sums = np.empty((rows * columns, components_t.shape[1]), np.float32)
        weights = np.empty((rows * columns, len(slices)), np.float32)
        for image in range(first, last):
            embed_image(codes.indptr, codes.indices, components_t, image * rows * columns, sums)
            slice_weights(sums, starts, stops, weights)
            pool_image(sums, weights, columns, size, stride, starts, stops, out[image])

    run_ranges(work, even_ranges(images, max(1, 1024 // (rows * columns))))
