"""Sums over sparse codes: activity, second moments, per-image counts and their outer products; integers, exact.

K x K sums are added into the upper triangle of `out` (diagonal included); its lower triangle is never
touched. An `out` of fewer rows takes the first rows of the sum: with the codes `from_atom` leaves, any tile
of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from smtdist.errors import ConfigurationError, TooLargeError
from smtdist.kernels.context import COARSE_BITS, whole_weights
from smtdist.kernels.cpu import scatter as cpu
from smtdist.kernels.device import array_module, is_host, like, to_host
from smtdist.kernels.gpu import scatter as gpu
from smtdist.kernels.types import Array, Codes

DEVIATION_BYTES = 64 << 20
"""Rows of a second-order sum that are made at a time before they are added to two limbs."""


def add_activity(out: Array, codes: Codes, weights: Array | None = None) -> None:
    """Add Σ a_i, or Σ w_i a_i, to `out`: how often each atom is active.

    out : int64 (K,); weights : whole numbers (N,). Memory: 8 bytes an atom, and 16 an entry with weights.

    >>> import numpy as np
    >>> out = np.zeros(2, np.int64)
    >>> add_activity(out, Codes(np.array([0, 2, 3]), np.array([0, 1, 1], np.uint16), 2))
    >>> out.tolist()
    [1, 2]
    """
    body = cpu if is_host(out) else gpu
    if weights is None:
        body.add_activity(out, codes)
    else:
        body.add_weighted_activity(out, codes, weights)


def add_second_moment(out: Array, codes: Codes) -> None:
    """Add Σ a_i a_iᵀ to the upper triangle of `out`: V of SMT 2023, eq. 3, before its division by N.

    out : int32 or int64 (K, K); the caller keeps int32 below its limit (an entry grows by at most N a call).
    Memory (CPU): 2 bytes an entry and, for codes that are lists, 64 bytes a patch and 512 atoms, of 32,768
    patches at a time; 1,344 bytes an atom and thread. (GPU) none for codes that are bits; see `smtdist.kernels.gpu.tensor`.

    >>> import numpy as np
    >>> out = np.zeros((2, 2), np.int64)
    >>> add_second_moment(out, Codes(np.array([0, 2, 3]), np.array([0, 1, 1], np.uint16), 2))
    >>> out.tolist()
    [[1, 1], [0, 2]]
    """
    _check_out(out, codes)
    body = cpu if is_host(out) else gpu
    body.add_second_moment(out, codes)


def image_counts(codes: Codes, images: int) -> Array:
    """Return s = A 1 of every image, int32 (B, K): how often each atom is active in it. Memory: 4 K bytes an image.

    >>> import numpy as np
    >>> image_counts(Codes(np.array([0, 2, 3]), np.array([0, 1, 1], np.uint16), 2), 1).tolist()
    [[1, 2]]
    """
    if images < 1 or codes.n_patches % images:
        raise ConfigurationError(
            f"Codes of {codes.n_patches} patches are not those of {images} whole images."
        )
    body = cpu if is_host(codes.anchor) else gpu
    return body.image_counts(codes, images)


def add_outer_of(out: Array, counts: Array, weights: Array | None = None, most: int | None = None) -> None:
    """Add Σ_b w_b s_b s_bᵀ to the upper triangle of `out`, s_b = A_b 1 (w = 1 where None).

    For a whole-image context the first-order scatter is n Σ a aᵀ - s sᵀ. Products in floats run in float32 only while
    max_k Σ_b s_bk² < 2^24 (by Cauchy-Schwarz then every sum is below it, hence exact), else in float64 below 2^53.

    out : int32 or int64 (K, K); counts : of images, (B, K) of `image_counts`, which may be of several pieces; weights : whole
        numbers (B,); most : no count is larger, where that is known: then a device need not be asked.
    Memory: 8 K bytes an image and row panels of 16 MiB; on a device without weights one byte a count and digit of 7 bits.
    """
    if is_host(out):
        cpu.add_outer_of(out, counts, weights)
    else:
        gpu.add_outer_of(out, counts, weights, most)


def add_whole_second_order(out: Array, codes: Codes, kept: Array, counts: Array, usual: int) -> None:
    """Add to `out` what whole images add to A L Aᵀ beyond an image of `usual` kept patches, L = rint(2^20 D Dᵀ).

    Images that keep as many add nothing: their sums follow from the second moment and the counts of all. Sums of older files
    go on with these weights; new ones have `whole_second_order`.

    out : int64 (K, K). kept : bool (B, R, C). counts : s of the images, (B, K).
    Raises ConfigurationError where a call could pass 2^63.
    """
    if codes.n_patches * kept[0].size >= 2**38:
        raise ConfigurationError("A batch of this many patches could overflow int64; use a smaller batch.")
    moments, outer = _beyond_usual(kept, usual, COARSE_BITS)
    _add_weighted(out, codes, counts, moments, outer)


def whole_second_order(
    codes: Codes, kept: Array, counts: Array, usual: int, bits: int, rows: int
) -> Iterator[tuple[int, int, Array]]:
    """Yield what whole images add to 2^bits A D Dᵀ Aᵀ beyond an image of `usual` kept patches, in pieces.

    D Dᵀ has the weights of `whole_weights`. A piece (first row, shift, panel) stands for 2^shift times a panel, int64
    (rows, K - first row), of which the upper triangle is filled. Weights are cut into as many digits as sums in int64 and
    products in float64 need to be exact: one for 10,000 patches of which each atom is active in a tenth, three for 590,000.

    counts : s of the images, (B, K). rows : of the sum. Memory: `DEVIATION_BYTES`, and what `add_outer_of` takes.
    """
    moments, outer = _beyond_usual(kept, usual, bits)
    if not (moments.any() or outer.any()):
        return
    largest = [int(count) for count in to_host(counts.max(axis=1)).tolist()]
    squares = sum(count * (count + 1) for count in largest)
    digit = min(62 - squares.bit_length(), 53 - 2 * max(largest).bit_length())
    if digit < 1:
        raise TooLargeError(
            "An image has too many patches for exact second-order sums; use smaller images."
        )
    xp, most = array_module(counts), int(max(np.abs(moments).max(), np.abs(outer).max()))
    step = deviation_rows(codes.n_atoms)
    for first in range(0, rows, step):
        part, own = from_atom(codes, first), xp.ascontiguousarray(counts[:, first:])
        for shift in range(0, most.bit_length(), digit):
            weights = (
                np.sign(one) * (np.abs(one) >> shift & ((1 << digit) - 1)) for one in (moments, outer)
            )
            panel = xp.zeros((min(step, rows - first), part.n_atoms), dtype=xp.int64)
            _add_weighted(panel, part, own, *weights)
            yield first, shift, panel
            del panel  # so that there is only one


def deviation_rows(n_atoms: int) -> int:
    """Return the rows of a panel of `whole_second_order`.

    >>> deviation_rows(8192), deviation_rows(64) >= 64
    (1024, True)
    """
    return max(64, DEVIATION_BYTES // (8 * n_atoms))


def _beyond_usual(kept: Array, usual: int, bits: int) -> tuple[Array, Array]:
    """Return the weights of A Aᵀ and minus s sᵀ of images, less those of one of `usual` patches, int64 (B,) on the host."""
    sites = to_host(kept.sum(axis=(1, 2))).tolist()
    weights = {each: whole_weights(each, bits) for each in {usual, *sites}}
    return tuple(np.array([weights[each][i] - weights[usual][i] for each in sites]) for i in (0, 1))  # type: ignore[return-value]


def _add_weighted(out: Array, codes: Codes, counts: Array, moments: Array, outer: Array) -> None:
    """Add Σ_b m_b A Aᵀ - o_b s sᵀ of images with weights on the host."""
    if moments.any():
        patches = np.repeat(moments, codes.n_patches // len(moments))
        add_weighted_moment(out, codes, patches)
    some = np.flatnonzero(outer)
    if len(some):
        add_outer_of(out, counts[like(out, some)], like(out, -outer[some]))


def add_weighted_moment(out: Array, codes: Codes, weights: Array) -> None:
    """Add Σ w_i a_i a_iᵀ to the upper triangle of `out`.

    The first-order context scatter is A diag(deg) Aᵀ - cooccurrence; with w = full degree - deg, nearly all
    zero, A diag(deg) Aᵀ is full degree x second moment - Σ w_i a_i a_iᵀ, so that one full sweep is enough.

    out : int32 or int64 (K, K); weights : whole numbers (N,), zeros are skipped; on the host or where the codes are.
    """
    _check_out(out, codes)
    body = cpu if is_host(out) else gpu
    body.add_weighted_moment(out, codes, weights)


def from_atom(codes: Codes, low: int) -> Codes:
    """Return the codes of the atoms from `low` on, numbered from zero. Memory: 2 bytes an entry, 8 a patch.

    >>> import numpy as np
    >>> left = from_atom(Codes(np.array([0, 2, 3]), np.array([0, 2, 1], np.uint16), 3), 1)
    >>> left.indptr.tolist(), left.indices.tolist(), left.n_atoms
    ([0, 1, 2], [1, 0], 2)
    """
    body = cpu if is_host(codes.anchor) else gpu
    return body.from_atom(codes, low) if low else codes


MIRRORED_ROWS: Final = 1024
"""Rows that are copied to the other triangle at a time."""


def mirror_upper(upper: Array) -> Array:
    """Copy the upper triangle over the lower one, in place and by panels, and return the array.

    >>> import numpy as np
    >>> mirror_upper(np.array([[1, 2], [9, 3]])).tolist()
    [[1, 2], [2, 3]]
    """
    xp = array_module(upper)
    for start in range(0, len(upper), MIRRORED_ROWS):  # panels keep the transposed copy small
        stop = start + MIRRORED_ROWS
        upper[stop:, start:stop] = upper[start:stop, stop:].T
        block = upper[start:stop, start:stop]
        block[...] = xp.triu(block) + xp.triu(block, 1).T
    return upper


def _check_out(out: Array, codes: Codes) -> None:
    rows, columns = out.shape
    if columns != codes.n_atoms or rows > columns or out.dtype.name not in ("int32", "int64"):
        raise ConfigurationError(
            f"The sum over {codes.n_atoms} atoms needs an int32 or int64 matrix of that size, or its first rows, not "
            f"{out.dtype} {out.shape}."
        )
