"""Pooled representations of several slices of the components at once, compiled."""

from __future__ import annotations

import numpy as np

from smtdist.kernels.cpu.jit import ZERO, compiled
from smtdist.kernels.cpu.table import Table, add_atoms
from smtdist.kernels.threads import even_ranges, run_ranges
from smtdist.kernels.types import Array, Codes

LANES = 16


@compiled
def square_sum(line: Array, start: int, stop: int, lanes: Array) -> float:
    """Return the sum of squares from `start` to `stop`, in float64 and 16 lanes."""
    lanes[:] = 0
    after = start + (stop - start) // LANES * LANES
    for component in range(start, after, LANES):
        for lane in range(LANES):
            value = np.float64(line[component + lane])
            lanes[lane] += value * value
    total = 0.0
    for lane in range(LANES):
        total += lanes[lane]
    for component in range(after, stop):
        value = np.float64(line[component])
        total += value * value
    return total


@compiled
def slice_weights(sums: Array, edges: Array, first: Array, last: Array, weights: Array) -> None:
    """Write 1 / ‖slice‖ of every patch and slice, 0 for a slice of zeros.

    Slice s is edges[first[s]] to edges[last[s]]: squares between two edges are added once for all slices.
    """
    parts, lanes = np.empty(len(edges) - 1), np.empty(LANES)
    for patch in range(sums.shape[0]):
        for part in range(len(parts)):
            parts[part] = square_sum(sums[patch], edges[part], edges[part + 1], lanes)
        for number in range(len(first)):
            total = 0.0
            for part in range(first[number], last[number]):
                total += parts[part]
            weights[patch, number] = 1 / np.sqrt(total) if total > 0 else 0.0


@compiled
def pool_image(
    sums: Array,
    weights: Array,
    shape: tuple[int, int, int, int, int],
    starts: Array,
    stops: Array,
    places: Array,
    units: Array,
    out: Array,
) -> None:
    """Write the unit window sums of slice s of one image to the flat `out` from places[s] on, position by position.

    shape : pooled rows and columns, columns of positions, size and stride of a window; units : room for the
    unit vectors of one slice. Products run in float64 and are rounded once, so that a window of opposite
    vectors is zero.
    """
    rows, across, columns, size, stride = shape
    result, lanes = np.empty(units.shape[1], np.float32), np.empty(LANES)
    for number in range(len(starts)):
        begin, length = starts[number], stops[number] - starts[number]
        for patch in range(sums.shape[0]):
            weight = weights[patch, number]
            line = sums[patch, begin : begin + length]
            unit = units[patch]
            for component in range(length):
                unit[component] = np.float32(weight * np.float64(line[component]))
        for pooled in range(rows * across):
            corner = pooled // across * stride * columns + pooled % across * stride
            for component in range(length):
                result[component] = 0
            for down in range(size):
                for beside in range(size):
                    unit = units[corner + down * columns + beside]
                    for component in range(length):
                        result[component] += unit[component]
            total = square_sum(result, ZERO, length, lanes)
            scale = 1 / np.sqrt(total) if total > 0 else 0.0
            target = out[places[number] + pooled * length : places[number] + (pooled + 1) * length]
            for component in range(length):
                target[component] = np.float32(scale * np.float64(result[component]))


def pooled_slices(
    codes: Codes,
    images: int,
    shape: tuple[int, int, int, int, int, int],
    table: Table,
    slices: list[tuple[int, int]],
    places: Array,
    out: Array,
) -> None:
    """Write slice s of image i to out[places[s] + i x features:]; see `smtdist.kernels.representation`.

    shape : rows of positions, then as in `pool_image`.
    """
    n, window, (n_atoms, length) = shape[0] * shape[3], shape[1:], table.shape
    indptr, indices = codes.indptr, codes.indices
    starts, stops = (np.array(ends, np.int64) for ends in zip(*slices, strict=True))
    edges = np.unique(np.concatenate([starts, stops]))
    first, last = np.searchsorted(edges, starts), np.searchsorted(edges, stops)
    features = (stops - starts) * (shape[1] * shape[2])

    def work(begin: int, end: int) -> None:
        sums = np.empty((n, length), np.float32)
        weights = np.empty((n, len(slices)))
        units = np.empty((n, int(np.max(stops - starts))), np.float32)
        for image in range(begin, end):
            add_atoms(indptr, indices, n_atoms, table.values, n_atoms, image * n, sums)
            slice_weights(sums, edges, first, last, weights)
            pool_image(sums, weights, window, starts, stops, places + image * features, units, out)

    run_ranges(work, even_ranges(images, max(1, 1024 // n)))
