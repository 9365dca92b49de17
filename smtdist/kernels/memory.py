"""What a batch costs in memory: plain arithmetic over the buffers that the kernels allocate."""

from __future__ import annotations

from typing import NamedTuple

from smtdist.kernels import device
from smtdist.kernels.codes import SLICE_PATCHES
from smtdist.kernels.cpu import byte_tiles, jit
from smtdist.kernels.cpu import context as cpu_context
from smtdist.kernels.cpu import dictionary as cpu_dictionary
from smtdist.kernels.cpu import moment as cpu_moment
from smtdist.kernels.cpu import second_order as cpu_second_order
from smtdist.kernels.cpu.counters import PLANES_WORDS
from smtdist.kernels.cpu.scatter import WEIGHTED_PATCHES
from smtdist.kernels.cpu.unit_patches import CHUNK as UNITS_CHUNK
from smtdist.kernels.cpu.unit_patches import MOST_DIGITS, MOST_PIXELS
from smtdist.kernels.cpu.whitening import CHUNK
from smtdist.kernels.positions import DRAW_POSITIONS
from smtdist.kernels.scatter import deviation_rows
from smtdist.kernels.threads import threads
from smtdist.kernels.types import ALL_POSITIONS, Geometry, Sampling, Whitener
from smtdist.kernels.whitening import MOMENT_SLICE


class BatchBytes(NamedTuple):
    """Bytes that live at the same time while a batch goes through a stage."""

    whitening: int
    """Peak of centring and summing the patch moments."""
    encoding: int
    """Peak of turning raw images into codes, these included."""
    scatter: int
    """Peak of adding codes to sums, codes included, K x K outputs left out."""
    embedding: int
    """Peak of embedding and pooling, codes included."""


BLAS_BYTES = 8 << 20
"""What BLAS keeps for itself once products are large, as measured; the one image of few patches that a worker tries
before its memory is measured does not show it."""
TILE_BYTES = 4 * cpu_dictionary.TILE_PATCHES * cpu_dictionary.TILE_ATOMS
LIMB_ROWS = 64
"""Rows of a sum that are added to two limbs at a time (`smtdist.statistics.limbs`)."""
NEIGHBOUR_BYTES = 34
"""Of a position, drawn or not, while its neighbours are counted: offset, kept, box sums of degrees, weight."""


def code_capacity(
    geometry: Geometry, n_atoms: int, form: str, images: int, sampling: Sampling = ALL_POSITIONS
) -> int:
    """Return the entries to provide for a batch's codes: 1/32 of all atoms a patch, at least one image's worst.

    Denser batches are taken in several pieces. Patches that `sampling` leaves out need no room.

    >>> code_capacity(Geometry(32, 32, 3, 6), 2048, "bits", 1)
    1492992
    """
    n = sampling.drawn(geometry)
    if form == "labels":
        return images * n
    return max(n * n_atoms, images * n * max(1, n_atoms // 32))


def batch_bytes(
    whitener: Whitener,
    n_atoms: int,
    form: str,
    images: int,
    *,
    components: int = 0,
    pooled: int = 0,
    context: int | None = None,
    second_order: bool = False,
) -> BatchBytes:
    """Return the peak working memory of each stage for a batch of images, on the present number of threads.

    components : L; pooled : pooled positions per image; context, second_order : of the neighbourhood, for the
    stage of the sums.

    >>> from smtdist.kernels.types import PixelScale
    >>> whitener = Whitener(Geometry(32, 32, 3, 6), PixelScale(0.0, 255.0, False), False, "patch", 1, None, 1.0, None)
    >>> batch_bytes(whitener, 2048, "bits", 8).whitening > 8 * 729 * 108 * 8
    True
    """
    geometry, sampling, raw_bytes = whitener.geometry, whitener.sampling, whitener.scale.raw_bytes
    n, p = sampling.drawn(geometry), geometry.pixels
    patches = images * n
    numbers = images * geometry.height * geometry.width * geometry.channels
    passing = 8 if raw_bytes == 1 else 24  # of a number while it is brought to the pixel grid
    raw = numbers * raw_bytes
    capacity = code_capacity(geometry, n_atoms, form, images, sampling)
    codes = 2 * capacity + 20 * patches  # entries; where they begin, and which patches are sites
    # one thread's slice of images: centred in float64, or as pixels in pairs with their means; a chunk whitened, the grid, a
    # tile of products
    own = (
        whitener.ridge is not None
    )  # patches are whitened by their image's Σ, for which all of its patches are made
    slice_images = min(images, max(1, SLICE_PATCHES // (geometry.positions if own else n)))
    chunk = p * max(8 * CHUNK, (4 * MOST_DIGITS + 8) * UNITS_CHUNK)
    work = threads() * (slice_images * n * (12 * p + 64) + TILE_BYTES + chunk + numbers // images * 8)
    if own:
        work += threads() * slice_images * (16 * geometry.positions * p + 96 * p * p)
    elif p <= MOST_PIXELS:
        work += 48 * p * p  # the digits of the whitening
    if form == "bits" and p >= cpu_dictionary.TILED_PIXELS:
        work += byte_tiles.atoms_bytes(n_atoms, p) + byte_tiles.PACKING
    if n < geometry.positions:
        # few patches an image make slices of many images, whose pixels count; and where the patches lie
        work += threads() * passing * slice_images * (numbers // images)
        work += threads() * 24 * min(DRAW_POSITIONS, images * geometry.positions)
        raw += 4 * patches
    bits = jit.BLOCK // 8 * -(-n_atoms // jit.BLOCK) * (patches + 1) if form == "bits" else 0
    if form == "bits":
        encoding = raw + 4 * n_atoms * p + bits + max(work + 8 * patches, codes)
    else:
        encoding = raw + 4 * n_atoms * p + (4 * p + 1) * patches + max(work, codes + 8 * patches)
    # the bits of a batch stay while the codes of all but its last piece are summed
    scatter = (
        raw
        + bits
        + codes
        + _scatter_bytes(geometry, n_atoms, form, images, context, second_order, sampling)
    )
    embedded = (
        images if device.gpu_available() else min(images, threads())
    )  # images whose patches are embedded at a time
    embedding = raw + bits + codes + 4 * components * (embedded * geometry.positions + 4 * images * pooled)
    whitening = raw + max(passing * numbers, 4 * numbers + 8 * p * patches) + 16 * p * p * threads()
    if n < geometry.positions:
        whitening += BLAS_BYTES if patches <= MOMENT_SLICE else 4 * BLAS_BYTES
        encoding += BLAS_BYTES if form == "labels" else 0
    return BatchBytes(whitening, encoding, scatter, embedding)


def _scatter_bytes(
    geometry: Geometry,
    n_atoms: int,
    form: str,
    images: int,
    context: int | None,
    second_order: bool,
    sampling: Sampling,
) -> int:
    """Workspace of the sums beside codes and K x K outputs: whichever of their steps needs most."""
    n = sampling.drawn(geometry)
    patches = images * n
    capacity = code_capacity(geometry, n_atoms, form, images, sampling)
    run = min(patches, cpu_moment.RUN_PATCHES)
    row = jit.BLOCK // 8 * -(-n_atoms // jit.BLOCK)
    members = 4 * capacity * run // patches
    cuts = 24 * n_atoms * (2 + run // cpu_moment.PART_PATCHES)
    # patches with a weight are listed for each bit of it, in two bytes an entry, behind four tables of atoms and parts; or
    # those of one weight are copied, chosen by a byte for each entry
    weighted, levels = min(patches, WEIGHTED_PATCHES), n.bit_length()
    if second_order:
        levels = max(levels, cpu_moment.MOST_LEVELS)
    lists = 32 * levels * n_atoms * -(-weighted // cpu_moment.PART_PATCHES)
    chosen = max(5, 2 * levels) * capacity * weighted // patches + 24 * weighted + lists
    moment = row * run + members + cuts + threads() * 4096 * PLANES_WORDS + chosen if form == "bits" else 0
    if context is None:
        # counts of images wait while moments are summed, and are joined
        outer = 24 * n_atoms * images + threads() * (3 << 20)
        panel = 0
        if second_order:
            # some rows of what is beyond the usual, codes and counts from these on, and weights of patches
            panel = 8 * min(n_atoms, deviation_rows(n_atoms)) * n_atoms + 40 * LIMB_ROWS * n_atoms
            panel += 2 * capacity + 20 * patches + 4 * n_atoms * images
            outer += 24 * n_atoms * images
        return max(moment + 4 * n_atoms * images, outer) + panel + NEIGHBOUR_BYTES * patches
    # windows slide over the lattice, the holes that a draw leaves in it included
    drawn, (rows, columns) = n, sampling.lattice(geometry)
    n, patches = rows * columns, images * rows * columns
    d = min(context // sampling.stride, max(rows, columns))
    near = 4 * capacity + 72 * n_atoms + 8 * n_atoms * threads()
    if form == "bits" and drawn * n_atoms >= cpu_context.LONG_CODES * n:  # else an image never has so many
        step = max(n, min(patches, cpu_context.RUN_PATCHES))
        near = (
            row * step * (1 + max(4, cpu_context.window_size((rows, columns), d).bit_length()))
            + 4 * capacity * step // patches
            + 72 * n_atoms
        )
    shifts = 4 * (4 * d + 1) ** 2
    weighted_sums = (
        4 * n_atoms * min(patches, cpu_second_order.patches_at_once(n_atoms)) if form == "bits" else 0
    )
    tables = max(shifts * n, min(cpu_second_order.SHIFT_BYTES, shifts * patches)) + weighted_sums
    second = tables + 4 * capacity if second_order else 0
    return max(moment, near, second) + NEIGHBOUR_BYTES * patches
