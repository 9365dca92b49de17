"""What a batch costs on a device: plain arithmetic over the arrays that are alive there at the same time."""

from __future__ import annotations

from typing import Final

from smtdist.kernels.generic import scatter
from smtdist.kernels.gpu import codes, tensor
from smtdist.kernels.gpu.marks import row_words
from smtdist.kernels.gpu.source import WARP
from smtdist.kernels.scatter import deviation_rows
from smtdist.kernels.types import Whitener

POOL_ROUNDING: Final = 1 << 20
"""What CuPy's pool, which hands out multiples of 512 bytes, loses in the small arrays of a batch."""


def encoding_bytes(whitener: Whitener, n_atoms: int, form: str, images: int) -> int:
    """Return the peak of turning raw images into codes, these included.

    Whitening and norms hold two float64 copies of the patches, thresholds one block of products and whole words of
    bits an atom. Both count: CuPy's pool does not make one large piece of memory of several small ones.
    """
    geometry, patches = whitener.geometry, images * whitener.drawn
    numbers = images * geometry.height * geometry.width * geometry.channels
    pixels = 12 * numbers + (24 * numbers if whitener.scale.is_float else 0)
    box = 5 * 8 * images * (geometry.height + 1) * (geometry.width + 1) * geometry.channels
    # patches that are drawn are chosen, for each pixel of the patch, from all there are
    chosen = (
        16 * images * geometry.positions * geometry.channels + 16 * patches
        if patches < images * geometry.positions
        else 0
    )
    whitening = pixels + box + chosen + 20 * geometry.pixels * patches + 48 * patches
    if whitener.ridge is not None:  # a matrix for each image, by all of its patches
        whitening += images * (56 * geometry.pixels**2 + 8 * geometry.pixels * geometry.positions)
    grid = (4 * geometry.pixels + 1) * patches + 4 * geometry.pixels * n_atoms
    each = codes.patch_bytes(n_atoms, geometry.pixels)
    block = min(codes.SLICE_BYTES, each * patches) + (4 + 12 * geometry.pixels) * n_atoms
    if form == "bits":
        return whitening + grid + bits_bytes(whitener, n_atoms, images) + 32 * patches + block
    return whitening + grid + 3 * block + 64 * patches  # scores and what they are made of


def device_batch_bytes(
    whitener: Whitener,
    n_atoms: int,
    form: str,
    images: int,
    capacity: int,
    context: int | None,
    second_order: bool,
) -> int:
    """Return the peak on a device of a batch of images that becomes codes and is added to sums, these left out.

    capacity : entries of a piece of codes at most; context, second_order : of the neighbourhood.
    """
    geometry = whitener.geometry
    # two batches, one at work and one on its way; as much is pinned on the host
    numbers = images * geometry.height * geometry.width * geometry.channels
    staging = 2 * numbers * whitener.scale.raw_bytes
    encoding = encoding_bytes(whitener, n_atoms, form, images)
    # the codes of a piece, and what adding them to the sums takes
    patches = images * whitener.drawn
    bits = bits_bytes(whitener, n_atoms, images) if form == "bits" else 0
    held = bits + 2 * capacity + 32 * patches
    panels = 4 * max(8 * n_atoms, min(scatter.PANEL_BYTES, 8 * n_atoms**2))
    # products: of bits none; where the card has none of these, rows of bytes or of float32; with weights, of bits once more
    words = bits // (4 * n_atoms)
    rows = max(WARP * min(words, tensor.BYTES_WORDS), 5 * WARP * min(words, tensor.FLOAT_WORDS))
    products = (
        2 * rows * n_atoms + 16 * min(tensor.PANEL, n_atoms) * n_atoms + bits if bits else 24 * patches
    )
    if context is None:
        around = 48 * n_atoms * (images + 2 * WARP) + panels
        if second_order:
            # a panel of what is beyond the usual, and as it is added to two limbs, and counts and codes from its row on
            panel = 8 * n_atoms * min(n_atoms, deviation_rows(n_atoms))
            held += 2 * panel + 24 * n_atoms * images + 2 * capacity
    else:
        rows, columns = whitener.lattice
        positions = rows * columns
        reach = min(context // whitener.sampling.stride, max(rows, columns))
        # box sums of one image's dense codes
        around = 8 * n_atoms * (6 * positions + 4 * (rows + columns + 1)) + panels + 96 * images * positions
        if second_order:
            square = 8 * positions * positions + (4 * (4 * reach + 1) ** 2 + 160) * positions
            around = max(around, square + 24 * n_atoms * positions + panels)
    return staging + encoding + held + max(products, around) + POOL_ROUNDING


def bits_bytes(whitener: Whitener, n_atoms: int, images: int) -> int:
    """Return the bytes of the bits of a batch."""
    return 4 * n_atoms * row_words(images, whitener.drawn)
