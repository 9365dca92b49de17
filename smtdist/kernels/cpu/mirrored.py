"""Codes of mirror images from those of images, compiled."""

from __future__ import annotations

import numpy as np

from smtdist.kernels.cpu.jit import compiled
from smtdist.kernels.threads import even_ranges, run_ranges
from smtdist.kernels.types import Array

IMAGES = 8
"""Images that a thread takes at a time."""


@compiled
def write_mirrored(
    indptr: Array,
    indices: Array,
    columns: int,
    half: int,
    begins: Array,
    found: Array,
    start: int,
    stop: int,
) -> None:
    """Write the atoms of rows of patches start to stop, from the last patch of a row to the first."""
    for row in range(start, stop):
        for column in range(columns):
            own = row * columns + columns - 1 - column
            at = begins[row * columns + column]
            first, last = indptr[own], indptr[own + 1]
            # atoms ascend, so those of the second half come first: they become those of the first half
            cut = first
            while cut < last and indices[cut] < half:
                cut += 1
            for entry in range(cut, last):
                found[at] = indices[entry] - half
                at += 1
            for entry in range(first, cut):
                found[at] = indices[entry] + half
                at += 1


def mirrored_lists(indptr: Array, indices: Array, columns: int, n_atoms: int, begins: Array) -> Array:
    """Return the atoms of all patches of mirror images, which begin at `begins`."""
    found = np.empty(len(indices), np.uint16)
    rows = (len(indptr) - 1) // columns
    run_ranges(
        lambda start, stop: write_mirrored(
            indptr, indices, columns, n_atoms // 2, begins, found, start, stop
        ),
        even_ranges(rows, IMAGES * columns),
    )
    return found
