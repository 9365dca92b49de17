"""What the patches of a mirror image are: those of the image with their columns reversed, in reversed columns."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels.cpu.jit import compiled
from smtdist.kernels.device import array_module, is_host
from smtdist.kernels.threads import even_ranges, run_ranges
from smtdist.kernels.types import Array, Codes, Geometry, Whitener

IMAGES = 8
"""Images that a thread takes at a time."""


def is_symmetric(whitener: Whitener) -> bool:
    """Tell whether the patches that are taken of a mirror image are those of the image, mirrored.

    They lie on a symmetric lattice, and are all of it or drawn for both. A contextual mean is a rounded quotient of whole
    numbers, which is the same for both.
    """
    sampling, geometry = whitener.sampling, whitener.geometry
    drawn_apart = sampling.positions is not None and not sampling.mirrored
    return not drawn_apart and (geometry.columns - 1) % sampling.stride == 0


@functools.cache
def mirrored_pixels(geometry: Geometry) -> NDArray[np.intp]:
    """Return the order in which a mirrored patch has the pixels of the patch, (p,); nobody may write to it.

    >>> mirrored_pixels(Geometry(4, 4, 1, 2)).tolist()
    [1, 0, 3, 2]
    """
    side = geometry.patch
    return np.arange(geometry.pixels).reshape(side, side, geometry.channels)[:, ::-1].reshape(-1)


def mirrored_positions(geometry: Geometry, positions: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return where patches of an image lie in its mirror image.

    >>> mirrored_positions(Geometry(4, 5, 1, 2), np.array([0, 5], np.int32)).tolist()
    [3, 6]
    """
    rows, columns = np.divmod(positions, geometry.columns)
    return (rows * geometry.columns + geometry.columns - 1 - columns).astype(np.int32)


def mirrored_codes(codes: Codes, columns: int) -> Codes:
    """Return the codes of mirror images by a dictionary whose second half are the mirror images of the first.

    codes : of whole images, whose patches lie in so many columns. Memory: as much as the codes; on a device 40 bytes an
    active atom.

    >>> codes = Codes(np.array([0, 1, 3]), np.array([0, 1, 2], np.uint16), 4)
    >>> other = mirrored_codes(codes, 2)
    >>> other.indptr.tolist(), other.indices.tolist()
    ([0, 2, 3], [0, 3, 2])
    """
    xp = array_module(codes.indptr)

    def reversed_rows(values: Array) -> Array:
        return values.reshape(-1, columns)[:, ::-1].reshape(-1)

    counts = reversed_rows(xp.diff(codes.indptr))
    begins = xp.concatenate([xp.zeros(1, xp.int64), xp.cumsum(counts)])
    sites = None if codes.sites is None else reversed_rows(codes.sites)
    if is_host(codes.indptr):
        lists, found = (codes.indptr, codes.indices), np.empty(len(codes.indices), np.uint16)
        run_ranges(
            lambda start, stop: _write_mirrored(
                *lists, columns, codes.n_atoms // 2, begins, found, start, stop
            ),
            even_ranges(codes.n_patches // columns, IMAGES * columns),
        )
        return Codes(begins, found, codes.n_atoms, sites=sites)
    indices, half = codes.indices.astype(xp.int64), codes.n_atoms // 2
    firsts = reversed_rows(codes.indptr[:-1])
    below = xp.concatenate([xp.zeros(1, xp.int64), xp.cumsum(indices < half)])
    low = reversed_rows(below[codes.indptr[1:]] - below[codes.indptr[:-1]])
    # the place of each entry in its patch, and from there on what comes first: those of the second half
    patch = xp.repeat(xp.arange(len(counts)), counts)
    place = xp.arange(len(indices)) - begins[patch]
    taken = indices[firsts[patch] + (place + low[patch]) % counts[patch]]
    found = xp.where(taken < half, taken + half, taken - half).astype(xp.uint16)
    return Codes(begins, found, codes.n_atoms, sites=sites)


@compiled
def _write_mirrored(
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
