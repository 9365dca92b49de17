"""Sparse binary codes of patches: every atom above a threshold ("gq") or the nearest one ("vq"), exactly."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smtdist.errors import ConfigurationError, DataError, MemoryBudgetError
from smtdist.kernels.cpu import codes as cpu
from smtdist.kernels.device import array_module, is_host, like, to_host
from smtdist.kernels.generic import codes as generic
from smtdist.kernels.patches import centred_patches
from smtdist.kernels.pixels import mirrored, pixel_grid
from smtdist.kernels.types import Array, Codes, Encoder, Whitener
from smtdist.kernels.whitening import contrast_floor, unit_grid


def gq_codes(
    grid: Array, atoms: Array, cut: int, constant: Array, constant_patch: str, zero_code: str
) -> Codes:
    """Return f_gq, the atoms with ⟨atom, patch⟩ >= t, of every patch (SMT 2023, eq. 2: general sparse coding).

    The threshold is `cut`, an integer dot product on the grid (`threshold_cut`). A constant patch has no code under
    constant_patch = "leave_out"; under "activate_best" it is the zero vector, and its best atom is the first. A
    patch that no atom reaches has no code under zero_code = "leave_out", else its best atom; ties: the lowest.

    grid : float32 (p, N); atoms : float32 (K, p), both whole numbers; constant : bool (N,).
    Memory: K / 8 bytes a patch, 2 bytes an entry, and tiles of 0.5 MiB a thread.

    >>> atoms = np.array([[4.0, 0.0], [0.0, 4.0]], np.float32)
    >>> codes = gq_codes(atoms.T, atoms, 5, np.zeros(2, bool), "leave_out", "leave_out")
    >>> codes.indptr.tolist(), codes.indices.tolist()
    ([0, 1, 2], [0, 1])
    """
    _check_atoms(grid, atoms)
    body = cpu if is_host(grid) else generic
    best_constant, best_zero = constant_patch == "activate_best", zero_code == "activate_best"
    return body.gq_codes(grid, like(grid, atoms), int(cut), constant, best_constant, best_zero)


def nearest_atoms(grid: Array, atoms: Array, euclidean: bool) -> tuple[Array, Array]:
    """Return the nearest atom of every patch and its dot product: argmax ⟨g, a⟩, or of 2⟨g, a⟩ - ‖a‖² if Euclidean.

    Ties go to the lowest atom (SMT 2023, eq. 1: vector quantisation).

    grid : float32 (p, N); atoms : float32 (K, p), whole numbers of norm at most 4096.
    Returns labels int32 (N,) and dots float32 (N,). Memory: tiles of 0.5 MiB a thread.

    >>> atoms = np.array([[4.0, 0.0], [0.0, 3.0]], np.float32)
    >>> [x.tolist() for x in nearest_atoms(np.array([[1.0], [2.0]], np.float32), atoms, False)]
    [[1], [6.0]]
    """
    _check_atoms(grid, atoms)
    body = cpu if is_host(grid) else generic
    return body.nearest_atoms(grid, like(grid, atoms), euclidean)


def vq_codes(grid: Array, atoms: Array, euclidean: bool, constant: Array, constant_patch: str) -> Codes:
    """Return f_vq, the nearest atom of every patch, as codes; constant patches by `constant_patch` as in `gq_codes`.

    Memory: 14 bytes a patch beyond `nearest_atoms`.
    """
    labels, _ = nearest_atoms(grid, atoms, euclidean)
    xp = array_module(grid)
    keep = xp.ones(len(labels), dtype=bool) if constant_patch == "activate_best" else ~constant
    indptr = xp.zeros(len(labels) + 1, dtype=xp.int64)
    indptr[1:] = xp.cumsum(keep)
    return Codes(indptr, labels[keep].astype(xp.uint16), len(atoms))


def _check_atoms(grid: Array, atoms: Array) -> None:
    if atoms.ndim != 2 or atoms.shape[1] != grid.shape[0]:
        raise ConfigurationError(
            f"Atoms of shape {atoms.shape} meet patches of {grid.shape[0]} pixels; expected (K, p)."
        )
    if not 0 < len(atoms) <= 65536:
        raise ConfigurationError(f"A dictionary has {len(atoms)} atoms; give 1 to 65,536.")
    if float(generic.square_norms(atoms).max()) > 2**24:
        raise DataError(
            "An atom is longer than 4,096 grid units, beyond what float32 sums exactly; scale it first."
        )


def grid_patches(images: Array, whitener: Whitener, mirror: bool) -> tuple[Array, Array]:
    """Return every patch of raw images as a unit vector on the grid: pixels, mean, whitening, norm.

    images : (B, H, W[, C]) as stored. Returns grid float32 (p, B n) and constant bool (B n,).
    Memory: 4 p bytes a patch for the result; the steps run in slices of images.
    """
    if is_host(images):
        return cpu.grid_patches(images, whitener, mirror, grid_slice)
    return grid_slice(images, whitener, mirror)


def grid_slice(images: Array, whitener: Whitener, mirror: bool) -> tuple[Array, Array]:
    """Return what `grid_patches` returns, in one go."""
    grid = pixel_grid(images, whitener.scale, whitener.grey)
    grid = mirrored(grid) if mirror else grid
    geometry = whitener.geometry
    centred = centred_patches(grid, geometry, whitener.mean, whitener.mean_context, whitener.global_mean)
    return unit_grid(
        centred, whitener.whiten, contrast_floor(whitener.min_contrast, geometry.pixels, whitener.scale)
    )


def encode(images: Array, encoder: Encoder, mirror: bool) -> Codes:
    """Return the codes of every patch of raw images (B, H, W[, C]); with `mirror`, of the mirrored images instead.

    Memory: see `smtdist.kernels.memory`; `encode_pieces` bounds it whatever the images hold.
    """
    grid, constant = grid_patches(images, encoder.whitener, mirror)
    return _codes_of(grid, constant, encoder)


def _codes_of(grid: Array, constant: Array, encoder: Encoder) -> Codes:
    if encoder.feature == "vq":
        return vq_codes(grid, encoder.atoms, encoder.euclidean, constant, encoder.constant_patch)
    return gq_codes(grid, encoder.atoms, encoder.cut, constant, encoder.constant_patch, encoder.zero_code)


def encode_pieces(
    images: Array, encoder: Encoder, mirror: bool, capacity: int
) -> Iterator[tuple[int, int, Codes]]:
    """Yield (first image, images, codes) of whole images in order, each with at most `capacity` entries.

    Raises MemoryBudgetError where `capacity` is below one image's worst case, n K entries (n for "vq").
    """
    positions = encoder.whitener.geometry.positions
    worst = positions * (len(encoder.atoms) if encoder.feature == "gq" else 1)
    if capacity < worst:
        raise MemoryBudgetError(
            f"One image can have {worst:,} active entries, but the buffer for codes holds {capacity:,}; enlarge it, "
            "or use fewer atoms or smaller images."
        )
    codes = encode(images, encoder, mirror)
    yield from _split(codes, len(images), capacity)


def _split(codes: Codes, images: int, capacity: int) -> Iterator[tuple[int, int, Codes]]:
    if images == 0:
        return
    step = codes.n_patches // images
    ends = to_host(codes.indptr[::step])
    start = 0
    while start < images:
        stop = int(np.searchsorted(ends, ends[start] + capacity, side="right")) - 1
        stop = min(max(stop, start + 1), images)
        first, last = int(ends[start]), int(ends[stop])
        indptr = codes.indptr[start * step : stop * step + 1] - first
        yield start, stop - start, Codes(indptr, codes.indices[first:last], codes.n_atoms)
        start = stop
