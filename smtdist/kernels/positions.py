"""Which positions of an image are coded: all, those on a stride, or a seeded random few; and back to the grid."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import ConfigurationError
from smtdist.kernels.device import array_module, like
from smtdist.kernels.hashing import keyed_hashes
from smtdist.kernels.mirrored import mirrored_positions
from smtdist.kernels.threads import even_ranges, run_ranges
from smtdist.kernels.types import Array, Codes, Geometry, Whitener

DRAW_POSITIONS = 1 << 15
"""Positions that a thread hashes at a time, in whole images."""


def lattice(geometry: Geometry, stride: int) -> NDArray[np.int32]:
    """Return the positions on every `stride`-th row and column, ascending, as numbers on the grid of all positions.

    >>> lattice(Geometry(4, 5, 1, 2), 2).tolist()
    [0, 2, 8, 10]
    """
    rows = np.arange(0, geometry.rows, stride)
    columns = np.arange(0, geometry.columns, stride)
    return (rows[:, None] * geometry.columns + columns).reshape(-1).astype(np.int32)


def lattice_positions(whitener: Whitener, images: int) -> NDArray[np.int32] | None:
    """Return the positions that are coded without a draw, int32 (images, l): the lattice; None where that is all."""
    if whitener.sampling.stride == 1:
        return None
    return np.tile(lattice(whitener.geometry, whitener.sampling.stride), (images, 1))


def drawn_positions(whitener: Whitener, samples: NDArray[np.uint64], view: int) -> NDArray[np.int32] | None:
    """Return the positions of each image that a fit codes, ascending, int32 (images, m); None where that is all.

    They are the m of the lattice with the smallest hashes of (seed, sample, position, view), so that they
    do not depend on batches or workers, and fewer positions are a subset of more. A mirrored image (view 1)
    is drawn anew, on the lattice of its own positions; with `sampling.mirrored` it has the mirror images of
    the image's patches.

    samples : what each image is known by; the hash of its content draws the same positions wherever it is
    met again. Memory: 4 m bytes an image, and 24 bytes for each of `DRAW_POSITIONS` positions (or one
    image's) a thread.

    >>> from smtdist.kernels.types import PixelScale, Sampling
    >>> scale = PixelScale(0.0, 255.0, False)
    >>> whitener = Whitener(Geometry(4, 5, 1, 2), scale, False, "patch", 1, None, 1.0, None, Sampling(1, 3))
    >>> samples = np.array([5, 9, 2], np.uint64)
    >>> whole = drawn_positions(whitener, samples, 0)
    >>> whole.shape, bool((whole[1:] == drawn_positions(whitener, samples[1:], 0)).all())
    ((3, 3), True)
    """
    sampling, geometry, m = whitener.sampling, whitener.geometry, whitener.drawn
    rows, columns = whitener.lattice
    if m == rows * columns:
        return lattice_positions(whitener, len(samples))
    places = lattice(geometry, sampling.stride)
    result = np.empty((len(samples), m), np.int32)

    hashed = places
    if view and sampling.mirrored:  # a place has the hash of where it lies in the image
        hashed, view = mirrored_positions(geometry, places), 0

    def draw(start: int, stop: int) -> None:
        hashes = keyed_hashes(sampling.seed, samples[start:stop], hashed, view)
        smallest = np.argpartition(hashes, m - 1, axis=1)[:, :m]
        smallest.sort(axis=1)
        result[start:stop] = places[smallest]

    run_ranges(draw, even_ranges(len(samples), max(1, DRAW_POSITIONS // len(places))))
    return result


def on_grid(codes: Codes, at: Array, positions: int) -> Codes:
    """Return codes of chosen positions as codes of all: what is not chosen has no entry, and is no site.

    codes : of B m patches; at : (B, m), ascending numbers below `positions`, the size of an image's grid.
    Entries are shared, not copied. Memory: 9 bytes a position, and 16 a chosen one in passing.

    >>> codes = Codes(np.array([0, 1, 3]), np.array([4, 2, 3], np.uint16), 5)
    >>> on_grid(codes, np.array([[1, 3]]), 5).indptr.tolist()
    [0, 0, 1, 1, 3, 3]
    """
    if codes.n_patches != at.size:
        raise ConfigurationError(
            f"Codes of {codes.n_patches} patches do not fit {at.size} chosen positions."
        )
    xp = array_module(codes.indptr)
    images = len(at)
    indptr = xp.zeros(images * positions + 1, dtype=xp.int64)
    first = 1 + positions * xp.arange(images, dtype=xp.int64)[:, None]
    places = (first + like(codes.indptr, at)).reshape(-1)
    indptr[places] = xp.diff(codes.indptr)
    xp.cumsum(indptr, out=indptr)
    if codes.sites is None:
        return Codes(indptr, codes.indices, codes.n_atoms)
    sites = xp.zeros(images * positions, dtype=bool)
    sites[places - 1] = codes.sites
    return Codes(indptr, codes.indices, codes.n_atoms, sites=sites)


def lattice_numbers(at: Array, whitener: Whitener) -> Array:
    """Return positions on the lattice by their numbers on the lattice instead of the grid of all positions.

    >>> from smtdist.kernels.types import PixelScale, Sampling
    >>> scale = PixelScale(0.0, 255.0, False)
    >>> whitener = Whitener(Geometry(4, 5, 1, 2), scale, False, "patch", 1, None, 1.0, None, Sampling(2))
    >>> lattice_numbers(np.array([[0, 2, 8, 10]]), whitener).tolist()
    [[0, 1, 2, 3]]
    """
    stride, columns = whitener.sampling.stride, whitener.geometry.columns
    return at // columns // stride * whitener.lattice[1] + at % columns // stride
