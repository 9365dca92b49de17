"""Sparse binary codes of patches: every atom above a threshold ("gq") or the nearest one ("vq"), exactly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal, TypeAlias

import numpy as np

from smtdist.errors import ConfigurationError, DataError, MemoryBudgetError
from smtdist.kernels.cpu import codes as cpu
from smtdist.kernels.cpu import marked as cpu_marked
from smtdist.kernels.cpu.codes import PatchSource
from smtdist.kernels.cpu.dictionary import dictionary_of
from smtdist.kernels.cpu.jit import compiled
from smtdist.kernels.cpu.unit_patches import digits_of, fits, unit_patches
from smtdist.kernels.device import array_module, beside, is_host, like, once, to_host
from smtdist.kernels.generic import codes as generic
from smtdist.kernels.gpu import codes as gpu
from smtdist.kernels.gpu.marks import Marks
from smtdist.kernels.mirrored import mirrored_pixels
from smtdist.kernels.patches import centred_patches, check_patches
from smtdist.kernels.pixels import mirrored, pixel_grid
from smtdist.kernels.positions import lattice_positions, on_grid
from smtdist.kernels.threads import even_ranges, run_ranges, single_blas
from smtdist.kernels.types import Array, Codes, Encoder, Whitener
from smtdist.kernels.whitening import contrast_floor, grid_scale, image_whitenings, unit_grid

SLICE_PATCHES = 2048
"""Patches that a thread takes from raw pixels to codes in one go, in whole images."""
PAIRS: Final = "pairs"
View: TypeAlias = bool | Literal["pairs"]
"""What is coded of images: they (False), their mirror images (True), or both by turns: each image, then its mirror image."""


def gq_codes(
    grid: Array,
    atoms: Array,
    cut: int,
    constant: Array,
    constant_patch: str,
    zero_code: str,
    images: int = 1,
) -> Codes:
    """Return f_gq, the atoms with ⟨atom, patch⟩ >= t, of every patch (SMT 2023, section 3: the general sparse feature).

    The threshold is `cut`, an integer dot product on the grid (`threshold_cut`). A constant patch is the
    zero vector: under constant_patch = "activate_best" its best atom is the first, otherwise it has no
    active atom. A patch that no atom reaches has its best atom under zero_code = "activate_best" (ties: the
    lowest), otherwise none. Under "keep" a patch without an active atom is a site all the same (a = 0, as
    printed); under "leave_out" it is none.

    grid : float32 (p, N); atoms : float32 (K, p), both whole numbers; constant : bool (N,); images : that the patches are
    of, all of as many: a device keeps the bits of each image apart.
    Memory: K / 8 bytes a patch, 2 bytes an entry, and tiles of 0.75 MiB a thread.

    >>> atoms = np.array([[4.0, 0.0], [0.0, 4.0]], np.float32)
    >>> codes = gq_codes(atoms.T, atoms, 5, np.zeros(2, bool), "leave_out", "leave_out")
    >>> codes.indptr.tolist(), codes.indices.tolist()
    ([0, 1, 2], [0, 1])
    """
    check_atoms(len(grid), atoms)
    policy = constant_patch == "activate_best", zero_code == "activate_best"
    if is_host(grid):
        result = cpu.gq_codes(grid, like(grid, atoms), int(cut), constant, *policy)
    else:
        result = gpu.gq_codes(grid, beside(grid, atoms), int(cut), constant, policy, images)
    result.sites = sites(result.active, constant, constant_patch, zero_code)
    return result


def keeps(constant_patch: str, zero_code: str) -> bool:
    """Tell whether a patch without an active atom can be a site."""
    return "keep" in (constant_patch, zero_code)


def sites(active: Array, constant: Array, constant_patch: str, zero_code: str) -> Array | None:
    """Return which patches are sites, bool (N,): those with an active atom, and those that their policy keeps.

    active : how many atoms each patch has. None where no policy keeps any: then the codes themselves tell. Memory: 3 bytes a
    patch.

    >>> sites(np.array([1, 0, 0]), np.array([False, False, True]), "leave_out", "keep").tolist()
    [True, True, False]
    """
    if not keeps(constant_patch, zero_code):
        return None
    if constant_patch == zero_code:
        return array_module(active).ones(len(active), dtype=bool)
    return (
        (active > 0) | constant if constant_patch == "keep" else active >= constant
    )  # none is enough for one that varies


def nearest_atoms(
    grid: Array, atoms: Array, euclidean: bool, constant: Array | None = None
) -> tuple[Array, Array]:
    """Return the nearest atom of every patch and its dot product: argmax ⟨g, a⟩, or of 2⟨g, a⟩ - ‖a‖² if Euclidean.

    Ties go to the lowest atom (f_vq of SMT 2023, section 3: vector quantisation). Of the patches that are `constant`,
    bool (N,), all zero on the grid, the CPU looks for the nearest atom once only: on MNIST they are a third.

    grid : float32 (p, N); atoms : float32 (K, p), whole numbers of norm at most 4096.
    Returns labels int32 (N,) and dots float32 (N,). Memory: tiles of 0.75 MiB, and with `constant` 8 p KiB,
    a thread.

    >>> atoms = np.array([[4.0, 0.0], [0.0, 3.0]], np.float32)
    >>> [x.tolist() for x in nearest_atoms(np.array([[1.0], [2.0]], np.float32), atoms, False)]
    [[1], [6.0]]
    """
    check_atoms(len(grid), atoms)
    if is_host(grid):
        labels, dots = cpu.nearest_atoms(grid, like(grid, atoms), euclidean, constant)
    else:
        labels, dots = generic.nearest_atoms(grid, beside(grid, atoms), euclidean)
    return labels, dots


def vq_codes(grid: Array, atoms: Array, euclidean: bool, constant: Array, constant_patch: str) -> Codes:
    """Return f_vq, the nearest atom of every patch, as codes; constant patches by `constant_patch` as in `gq_codes`.

    Memory: 14 bytes a patch beyond `nearest_atoms`.
    """
    labels, _ = nearest_atoms(grid, atoms, euclidean, constant)
    xp = array_module(grid)
    keep = xp.ones(len(labels), dtype=bool) if constant_patch == "activate_best" else ~constant
    indptr = xp.zeros(len(labels) + 1, dtype=xp.int64)
    indptr[1:] = xp.cumsum(keep)
    found = Codes(indptr, labels[keep].astype(xp.uint16), len(atoms))
    found.sites = sites(keep, constant, constant_patch, "leave_out")
    return found


def check_atoms(p: int, atoms: Array) -> None:
    """Refuse atoms (K, p) of another size, too many of them, or longer than the grid allows."""
    if atoms.ndim != 2 or atoms.shape[1] != p:
        raise ConfigurationError(
            f"Atoms of shape {atoms.shape} do not fit patches of {p} pixels; expected (K, p)."
        )
    if not 0 < len(atoms) <= 65536:
        raise ConfigurationError(f"A dictionary has {len(atoms)} atoms; give 1 to 65,536.")
    if once(atoms, longest) > 2**24:
        raise DataError(
            "An atom is longer than 4,096 grid units, beyond what float32 sums exactly; scale it first."
        )


def longest(atoms: Array) -> float:
    """Return the largest squared norm of atoms (K, p)."""
    return float(generic.square_norms(atoms).max())


def grid_patches(
    images: Array, whitener: Whitener, view: View, at: Array | None = None
) -> tuple[Array, Array]:
    """Return patches of raw images as unit vectors on the grid: pixels, mean, whitening, norm.

    images : (B, H, W[, C]) as stored; view : as in `encode_pieces`; at : the positions to take of each image,
    int32 (B, m), or None for all n. Returns grid float32 (p, B m) and constant bool (B m,), of pairs twice as many.
    Memory: 4 p bytes a patch for the result; on the CPU the steps run in slices of images, 20 p bytes a
    patch.
    """
    source, number = patch_source(images, whitener, view, at), coded(images, view)
    if not is_host(images):
        return source(0, number)
    n = whitener.geometry.positions if at is None else at.shape[1]
    grid = np.empty((whitener.geometry.pixels, number * n), np.float32)
    constant = np.empty(number * n, np.bool_)

    def work(first: int, last: int) -> None:
        here = slice(first * n, last * n)
        grid[:, here], constant[here] = source(first, last)

    with single_blas():
        run_ranges(work, image_slices(number, n, whitener))
    return grid, constant


def image_slices(images: int, patches: int, whitener: Whitener) -> list[tuple[int, int]]:
    """Return the ranges of images, of so many patches each, that the CPU takes from raw pixels to codes in one go.

    They begin at even numbers where there is room for two: pairs stay together.
    """
    own = whitener.own_ridge is not None  # a Σ of its own is that of all patches
    made = whitener.geometry.positions if own else patches
    most = max(1, SLICE_PATCHES // made)
    return even_ranges(images, most if most == 1 else most // 2 * 2)


def patch_source(images: Array, whitener: Whitener, view: View, at: Array | None = None) -> PatchSource:
    """Return the function that makes what `grid_patches` returns, of a range of the coded images in one go."""
    if view == PAIRS:
        return _paired_source(images, whitener)
    geometry = whitener.geometry
    floor_sum = contrast_floor(whitener.min_contrast, geometry.pixels, whitener.scale)
    ridge = whitener.own_ridge
    digits = digits_of(whitener) if is_host(images) and at is None and ridge is None else None
    order = mirrored_pixels(geometry) if view else None

    def source(first: int, last: int) -> tuple[Array, Array]:
        grid = pixel_grid(images[first:last], whitener.scale, whitener.grey, first)
        grid = mirrored(grid) if view else grid
        if digits is not None and fits(grid, digits):
            check_patches(grid, geometry, whitener.mean)
            grid, constant = unit_patches(grid, whitener, digits, floor_sum, grid_scale(geometry.pixels))
        else:
            means = whitener.mean, whitener.mean_context, whitener.global_mean
            centred = centred_patches(grid, geometry, *means, None if at is None else at[first:last])
            matrix = whitener.whiten
            if ridge is not None:
                every = centred if at is None else centred_patches(grid, geometry, *means)
                matrix = image_whitenings(every, last - first, ridge, order)
            grid, constant = unit_grid(centred, matrix, floor_sum)
        return grid, constant

    return source


def are_paired(whitener: Whitener) -> bool:
    """Tell whether images and mirror images are coded as `PAIRS`, which gains where each image has a Σ of its own.

    All patches are taken, on no stride, the mean is made of the image, and a slice has room for two.
    """
    own = whitener.own_ridge is not None and whitener.global_mean is None
    every = whitener.drawn == whitener.geometry.positions and whitener.sampling.stride == 1
    return own and every and 2 * whitener.drawn <= SLICE_PATCHES


def _paired_source(images: Array, whitener: Whitener) -> PatchSource:
    """Return the `patch_source` of images and mirror images by turns: 2 i is image i, and 2 i + 1 its mirror image.

    What is exact is made of the image and mirrored: patches minus their mean, and the root of their Σ, which takes as long as
    all the rest. Lengths, whose last bits go with the order of the pixels, are those of each.
    """
    geometry, order = whitener.geometry, mirrored_pixels(whitener.geometry)
    floor_sum = contrast_floor(whitener.min_contrast, geometry.pixels, whitener.scale)
    ridge = whitener.own_ridge
    assert ridge is not None

    def source(first: int, last: int) -> tuple[Array, Array]:
        first, last = first // 2, last // 2
        count, pixels = last - first, geometry.pixels
        grid = pixel_grid(images[first:last], whitener.scale, whitener.grey, first)
        centred = centred_patches(grid, geometry, whitener.mean, whitener.mean_context, None)
        roots = image_whitenings(centred, count, ridge, None)
        xp, reverse = array_module(centred), beside(centred, order)
        both = xp.empty((pixels, count, 2, geometry.rows, geometry.columns))
        both[:, :, 0] = centred.reshape(pixels, count, geometry.rows, geometry.columns)
        both[:, :, 1] = both[reverse, :, 0, :, ::-1]
        matrices = xp.stack([roots, roots[:, reverse][:, :, reverse]], axis=1)
        return unit_grid(both.reshape(pixels, -1), matrices.reshape(-1, pixels, pixels), floor_sum)

    return source


def noting_source(
    images: Array, encoders: Sequence[Encoder], view: View, at: Array | None
) -> tuple[PatchSource, Array]:
    """Return a source of patches that notes which are constant in an array, bool (N,), empty where nobody asks."""
    whitener = encoders[0].whitener
    n = whitener.geometry.positions if at is None else at.shape[1]
    source = patch_source(images, whitener, view, at)
    if not any(keeps(one.constant_patch, one.zero_code) for one in encoders):
        return source, np.empty(0, np.bool_)
    constants = np.empty(coded(images, view) * n, np.bool_)

    def noting(first: int, last: int) -> tuple[Array, Array]:
        grid, constant = source(first, last)
        constants[first * n : last * n] = constant
        return grid, constant

    return noting, constants


def coded(images: Array, view: View) -> int:
    """Return how many images are coded: mirror images count, too."""
    return len(images) * (2 if view == PAIRS else 1)


def encode_pieces(
    images: Array, encoder: Encoder, view: View, capacity: int, at: Array | None = None
) -> Iterator[tuple[int, int, Codes]]:
    """Yield (first image, images, codes) of whole images in order, each with at most `capacity` entries.

    images : raw, (B, H, W[, C]). view : what is coded of them; of `PAIRS`, for encoders that `are_paired`, there are twice as
    many. Memory: see `smtdist.kernels.memory`.

    The codes are of all n patches of an image; those that are not on the stride of the encoder's sampling
    have no entry, and cost nothing but 8 bytes. With `at`, ascending positions int32 (B, m), the codes are
    of these m patches of each image alone; other patches are never made.

    Raises MemoryBudgetError where `capacity` is below one image's worst case, K entries a patch (1 for "vq").
    """
    patches = encoder.whitener.sampling.undrawn.drawn(encoder.whitener.geometry)
    worst = (patches if at is None else at.shape[1]) * (len(encoder.atoms) if encoder.form == "bits" else 1)
    if capacity < worst:
        raise MemoryBudgetError(
            f"One image can have {worst:,} active entries, but the buffer for codes holds {capacity:,}; "
            "enlarge it, or use fewer atoms or smaller images."
        )
    chosen = lattice_positions(encoder.whitener, len(images)) if at is None else at
    for first, count, codes in _pieces(images, encoder, view, capacity, chosen):
        if at is None and chosen is not None:  # those off the stride are empty
            codes = on_grid(codes, chosen[first : first + count], encoder.whitener.geometry.positions)
        yield first, count, codes


def _pieces(
    images: Array, encoder: Encoder, view: View, capacity: int, at: Array | None
) -> Iterator[tuple[int, int, Codes]]:
    whitener, number = encoder.whitener, coded(images, view)
    if encoder.form == "bits" and is_host(
        images
    ):  # slices of images go from pixels to bits without ever meeting
        atoms = encoder.atoms
        n = whitener.geometry.positions if at is None else at.shape[1]
        check_atoms(whitener.geometry.pixels, atoms)
        rule = cpu.Rule(
            dictionary_of(atoms, at_cut=True),
            encoder.cut,
            encoder.constant_patch == "activate_best",
            encoder.zero_code == "activate_best",
        )
        source, constants = noting_source(images, [encoder], view, at)
        bits, indptr = cpu.mark_all(source, image_slices(number, n, whitener), n, number * n, rule)
        own = sites(np.diff(indptr), constants, encoder.constant_patch, encoder.zero_code)
        whole = Codes(indptr, None, len(atoms), bits, own)
        for start, stop in image_cuts(indptr, number, capacity):
            yield start, stop - start, cpu_marked.part_of(whole, start * n, stop * n)
        return
    grid, constant = grid_patches(images, whitener, view, at)
    if encoder.form == "labels":
        codes = vq_codes(grid, encoder.atoms, encoder.euclidean, constant, encoder.constant_patch)
    else:
        codes = gq_codes(
            grid,
            encoder.atoms,
            encoder.cut,
            constant,
            encoder.constant_patch,
            encoder.zero_code,
            number,
        )
    del grid, constant  # not while codes are summed
    if codes.n_patches * codes.n_atoms <= capacity:  # nobody need ask a device how many entries there are
        yield 0, number, codes
        return
    step = codes.n_patches // max(1, number)
    for start, stop in image_cuts(codes.indptr, number, capacity):
        ends = codes.indptr[start * step : stop * step + 1]
        own = None if codes.sites is None else codes.sites[start * step : stop * step]
        if isinstance(codes.bits, Marks):  # lists of this piece alone
            marks = codes.bits.part(start * step, stop * step)
            yield start, stop - start, Codes(ends - ends[0], None, codes.n_atoms, marks, own)
            continue
        entries = codes.indices[int(ends[0]) : int(ends[-1])]
        yield start, stop - start, Codes(ends - ends[0], entries, codes.n_atoms, sites=own)


def image_cuts(indptr: Array, images: int, capacity: int) -> list[tuple[int, int]]:
    """Return ranges of whole images, in order, with at most `capacity` entries each."""
    if images == 0:
        return [(0, 0)]
    ends = to_host(indptr[:: (len(indptr) - 1) // images])
    cuts, start = [], 0
    while start < images:
        stop = int(np.searchsorted(ends, ends[start] + capacity, side="right")) - 1
        stop = min(max(stop, start + 1), images)
        cuts.append((start, stop))
        start = stop
    return cuts


@compiled
def add_label_sums(counts: Array, sums: Array, labels: Array, grid: Array) -> None:
    """Add every patch to the sum of its label, and one to its count; label -1 is left out.

    `counts` (K,) and `sums` (K, p) are int64 and change in place; `labels` is (N,), `grid` (p, N) holds
    integers.
    """
    pixels, patches = grid.shape
    for start in range(0, patches, 256):  # blocks: the grid is pixel-major, the sums are atom-major
        stop = min(start + 256, patches)
        for i in range(start, stop):
            if labels[i] >= 0:
                counts[labels[i]] += 1
                for j in range(pixels):
                    sums[labels[i], j] += np.int64(grid[j, i])
