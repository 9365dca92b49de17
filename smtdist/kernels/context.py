"""Sums over neighbouring patches of an image: who is kept, how many neighbours, co-occurrence, second order."""

from __future__ import annotations

from smtdist.errors import ConfigurationError
from smtdist.kernels.cpu import context as cpu
from smtdist.kernels.cpu import second_order
from smtdist.kernels.device import array_module, is_host
from smtdist.kernels.generic import context as generic
from smtdist.kernels.types import Array, Codes

SIGNIFICANT_BITS = 30
"""That weights of whole images have at least."""
COARSE_BITS = generic.SCALE_BITS
"""Bits behind the point of weights of most windows, and of all contexts in files of schemas 1 and 2."""
FINE_BITS = COARSE_BITS + generic.FINE_BITS
"""Those of `fine_window`."""
FINE_WINDOW = 384
"""Reach times rows or columns from which on the coarser weights are too coarse: a disc is off by up to 1e-4.

A weight is off by at most 2^-21. Sums of codes of single patches are then off by less than 1e-6, but differences of smooth codes
cancel: a disc of half the width is off by 3e-5 (a reach of 3, 32 positions a side) to 1.2e-4 (6, 64). The second digit takes as
long as the first, and errors are a thousandth."""


def kept_mask(codes: Codes, shape: tuple[int, int, int]) -> Array:
    """Return which patches are kept, bool (images, rows, columns): the sites that the codes name, else those with an atom.

    >>> import numpy as np
    >>> kept_mask(Codes(np.array([0, 0, 2]), np.array([0, 1], np.uint16), 2), (1, 1, 2)).tolist()
    [[[False, True]]]
    """
    _check_shape(codes, shape)
    kept = codes.active > 0 if codes.sites is None else codes.sites
    return kept.reshape(shape)


def degrees(kept: Array, reach: int | None) -> Array:
    """Return the number of kept neighbours within `reach` rows and columns, itself left out; 0 where not kept.

    kept : bool (B, R, C); reach : positions, None for the whole image. Returns int32 (B, R, C).

    >>> import numpy as np
    >>> degrees(np.ones((1, 1, 3), bool), 1).tolist()
    [[[1, 2, 1]]]
    """
    xp = array_module(kept)
    near = kept.sum(axis=(1, 2), keepdims=True) if reach is None else generic.box_sum(kept, reach)
    return xp.where(kept, near - 1, 0).astype(xp.int32)


def add_window_cooccurrence(out: Array, codes: Codes, kept: Array, d: int) -> None:
    """Add Σ a_i a_jᵀ over ordered pairs i ≠ j of kept patches at most d rows and d columns apart.

    The result is symmetric; its upper triangle is added to `out`.

    out : int32 or int64 (K, K); an entry grows by at most N ((2d + 1)² - 1) a call. kept : bool (B, R, C).
    Memory (CPU): 10 bytes an entry, 8 K bytes a thread.

    >>> import numpy as np
    >>> out = np.zeros((2, 2), np.int64)
    >>> codes = Codes(np.array([0, 1, 2]), np.array([0, 1], np.uint16), 2)
    >>> add_window_cooccurrence(out, codes, np.ones((1, 1, 2), bool), 1)
    >>> out.tolist()
    [[0, 1], [0, 0]]
    """
    _check_shape(codes, kept.shape)
    body = cpu if is_host(out) else generic
    body.add_window_cooccurrence(out, codes, kept, min(d, max(kept.shape[1:])))


def whole_weights(sites: int, bits: int) -> tuple[int, int]:
    """Return what A Aᵀ and minus s sᵀ of a whole image with so many kept patches count in its A D Dᵀ Aᵀ, times 2^bits.

    That is n / (n - 1)² (n A Aᵀ - s sᵀ), with s = A 1: the weight of s sᵀ is rounded once, halves up, and the other is n
    times as large. On the grid of `COARSE_BITS` both entries of the operator, n / (n - 1) on its diagonal and
    n / (n - 1)² beside it, are rounded; that is kept for the sums of older files. One patch has no difference.

    >>> [weight / 2**40 for weight in whole_weights(3, 40)], whole_weights(1, 40)
    ([2.25, 0.75], (0, 0))
    """
    if sites < 2:
        return 0, 0
    less = sites - 1
    if bits == COARSE_BITS:
        beside = round((1 << bits) * (sites / less**2))
        return round((1 << bits) * (sites / less)) + beside, beside
    beside = ((sites << bits + 1) + less**2) // (2 * less**2)
    return sites * beside, beside


def weight_bits(most: int) -> int:
    """Return the bits behind the point with which n / (n - 1)² has at least 30 significant ones, for n of up to `most`.

    >>> weight_bits(729), whole_weights(729, weight_bits(729))[1].bit_length()
    (40, 31)
    """
    return SIGNIFICANT_BITS + most.bit_length()


def fine_window(reach: int, lattice: tuple[int, int]) -> bool:
    """Return whether second-order weights of windows have a second digit, by their reach and the rows and columns of positions.

    With a reach of 1, weights inside an image are exact.

    >>> fine_window(6, (27, 27)), fine_window(1, (500, 500)), fine_window(6, (64, 64))
    (False, False, True)
    """
    return reach > 1 and reach * max(lattice) >= FINE_WINDOW


def add_second_order(out: Array, codes: Codes, kept: Array, reach: int, *, fine: bool = False) -> None:
    """Add Σ A L Aᵀ with L = rint(2^20 D Dᵀ) of windows: the second-order objective ‖PAD‖² of SMT 2018 and 2023.

    Column i of D is e_i minus the mean of the kept neighbours of i; patches without any have no column.
    L_ab = δ_ab - M_ab (1 / deg_a + 1 / deg_b) + Σ_i 1 / deg_i² over the common neighbours i, within 2 d.

    fine : the second digit instead, L = rint(2^30 D Dᵀ) less 2^10 times the first.
    out : int64 (K, K), in units of 2^-20, or 2^-30. Memory: 4 (4 d + 1)² bytes a patch of the image slice at work; on
    a CPU 4 K bytes a patch beside that, 32 MiB at most.
    Raises ConfigurationError for another type, and where a call could pass 2^63.
    """
    _check_shape(codes, kept.shape)
    if out.dtype.name != "int64":
        raise ConfigurationError(f"Second-order sums need int64, not {out.dtype}.")
    if codes.n_patches >= 2**38:  # the entries of L in the row of a patch sum to less than 2^24
        raise ConfigurationError("A batch of this many patches could overflow int64; use a smaller batch.")
    body = second_order if is_host(out) else generic
    body.add_second_order(out, codes, kept, min(reach, max(kept.shape[1:])), fine)


def _check_shape(codes: Codes, shape: tuple[int, ...]) -> None:
    images, rows, columns = shape
    if codes.n_patches != images * rows * columns:
        raise ConfigurationError(
            f"Codes of {codes.n_patches} patches do not fill {images} images of {rows} x {columns} positions."
        )
