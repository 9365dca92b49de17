"""Sums over sparse codes: activity, second moments, per-image counts and their outer products; integers, exact.

K x K sums are added into the upper triangle of `out` (diagonal included); its lower triangle is never
touched. An `out` of fewer rows takes the first rows of the sum: with the codes `from_atom` leaves, any tile
of rows.
"""

from __future__ import annotations

from smtdist.errors import ConfigurationError
from smtdist.kernels.context import add_second_order, add_window_cooccurrence, degrees, kept_mask
from smtdist.kernels.cpu import scatter as cpu
from smtdist.kernels.device import array_module, is_host
from smtdist.kernels.generic import scatter as generic
from smtdist.kernels.gpu import scatter as gpu
from smtdist.kernels.types import Array, Codes

__all__ = [
    "add_activity",
    "add_image_outer",
    "add_moments",
    "add_outer_of",
    "add_second_moment",
    "add_second_order",
    "add_window_cooccurrence",
    "degrees",
    "from_atom",
    "image_counts",
    "kept_mask",
    "symmetric",
]


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
    """Add Σ a_i a_iᵀ to the upper triangle of `out`: V of SMT 2023, eq. 5, before its division by N.

    out : int32 or int64 (K, K); the caller keeps int32 below its limit (an entry grows by at most N a call).
    Memory (CPU): 2 bytes an entry and, for codes that are lists, 64 bytes a patch and 512 atoms, of 32,768
    patches at a time; 1,344 bytes an atom and thread. (GPU) where products are cheaper than a count for
    each pair (`smtdist.kernels.gpu.choice`), codes as 1 byte an entry, of up to 1 GiB, and 4 KiB an atom.

    >>> import numpy as np
    >>> out = np.zeros((2, 2), np.int64)
    >>> add_second_moment(out, Codes(np.array([0, 2, 3]), np.array([0, 1, 1], np.uint16), 2))
    >>> out.tolist()
    [[1, 1], [0, 2]]
    """
    _check_out(out, codes)
    body = cpu if is_host(out) else gpu
    body.add_second_moment(out, codes)


def add_moments(second: Array | None, deficit: Array, codes: Codes, weights: Array) -> None:
    """Add Σ a_i a_iᵀ to `second` (unless None) and Σ w_i a_i a_iᵀ to `deficit`.

    The first-order context scatter is A diag(deg) Aᵀ - cooccurrence; with w = full degree - deg, nearly all
    zero, A diag(deg) Aᵀ is full degree x second - deficit, so that one full sweep is enough.

    second : int32 or int64 (K, K); deficit : int64 (K, K); weights : whole numbers (N,), zeros are skipped.
    """
    _check_out(deficit, codes)
    if second is not None:
        add_second_moment(second, codes)
    body = cpu if is_host(deficit) else gpu
    body.add_weighted_moment(deficit, codes, weights)


def image_counts(codes: Codes, images: int) -> Array:
    """Return s = A 1 of every image, int32 (B, K): how often each atom is active in it. Memory: 4 K bytes an image.

    >>> import numpy as np
    >>> image_counts(Codes(np.array([0, 2, 3]), np.array([0, 1, 1], np.uint16), 2), 1).tolist()
    [[1, 2]]
    """
    _positions(codes, images)
    body = cpu if is_host(codes.indptr) else gpu
    return body.image_counts(codes, images)


def add_image_outer(out: Array, codes: Codes, images: int, weights: Array | None = None) -> None:
    """Add Σ_b w_b s_b s_bᵀ to the upper triangle of `out`, s_b = A_b 1 (w = 1 where None).

    For a whole-image context the first-order scatter is n Σ a aᵀ - s sᵀ. Products run in float32 only while
    max_k Σ_b s_bk² < 2^24 (by Cauchy-Schwarz then every sum is below it, hence exact), else in float64
    below 2^53.

    out : int32 or int64 (K, K); weights : whole numbers (B,). Memory: 8 K bytes an image and row panels of
        16 MiB.
    """
    _check_out(out, codes)
    add_outer_of(out, image_counts(codes, images), weights)


def add_outer_of(out: Array, counts: Array, weights: Array | None = None) -> None:
    """Add what `add_image_outer` does, from the counts of images, (B, K) of `image_counts`, which may be of several pieces."""
    body = cpu if is_host(out) else generic
    body.add_outer_of(out, counts, weights)


def from_atom(codes: Codes, low: int) -> Codes:
    """Return the codes of the atoms from `low` on, numbered from zero. Memory: 2 bytes an entry, 8 a patch.

    >>> import numpy as np
    >>> left = from_atom(Codes(np.array([0, 2, 3]), np.array([0, 2, 1], np.uint16), 3), 1)
    >>> left.indptr.tolist(), left.indices.tolist(), left.n_atoms
    ([0, 1, 2], [1, 0], 2)
    """
    body = cpu if is_host(codes.indptr) else gpu
    return body.from_atom(codes, low) if low else codes


def symmetric(upper: Array) -> Array:
    """Return the full symmetric matrix of an upper triangle; what lies below the diagonal is ignored.

    >>> import numpy as np
    >>> symmetric(np.array([[1, 2], [9, 3]])).tolist()
    [[1, 2], [2, 3]]
    """
    return mirror_upper(upper.copy())


def mirror_upper(upper: Array) -> Array:
    """Copy the upper triangle over the lower one, in place and by panels, and return the array.

    >>> import numpy as np
    >>> mirror_upper(np.array([[1, 2], [9, 3]])).tolist()
    [[1, 2], [2, 3]]
    """
    xp = array_module(upper)
    for start in range(0, len(upper), 1024):  # panels keep the transposed copy small
        stop = start + 1024
        upper[stop:, start:stop] = upper[start:stop, stop:].T
        block = upper[start:stop, start:stop]
        block[...] = xp.triu(block) + xp.triu(block, 1).T
    return upper


def _positions(codes: Codes, images: int) -> int:
    if images < 1 or codes.n_patches % images:
        raise ConfigurationError(
            f"Codes of {codes.n_patches} patches are not those of {images} whole images."
        )
    return codes.n_patches // images


def _check_out(out: Array, codes: Codes) -> None:
    rows, columns = out.shape
    if columns != codes.n_atoms or rows > columns or out.dtype.name not in ("int32", "int64"):
        raise ConfigurationError(
            f"The sum over {codes.n_atoms} atoms needs an int32 or int64 matrix of that size, or its first rows, not "
            f"{out.dtype} {out.shape}."
        )
