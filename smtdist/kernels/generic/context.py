"""Sums over neighbouring patches on any array module: box sums of dense codes."""

from __future__ import annotations

from smtdist.kernels.device import array_module
from smtdist.kernels.generic.patches import integral
from smtdist.kernels.generic.scatter import add_upper, dense
from smtdist.kernels.types import Array, Codes

SCALE_BITS = 20
"""Second-order weights of windows are whole multiples of 2^-20."""
FINE_BITS = 10
"""So many bits more have those of wide windows on large lattices, as a second digit."""
FRACTION_BITS = 58
"""Inner fixed-point precision of those weights; box sums wrap modulo 2^64 and come out right."""


def box_sum(values: Array, reach: int) -> Array:
    """Return the sum over positions within `reach` rows and columns, clipped; int64 like (B, R, C, ...)."""
    xp = array_module(values)
    summed = values.astype(xp.int64)
    for axis in (1, 2):
        length = summed.shape[axis]
        at = xp.arange(length)
        total = xp.zeros((*summed.shape[:axis], length + 1, *summed.shape[axis + 1 :]), dtype=xp.int64)
        total[(slice(None),) * axis + (slice(1, None),)] = summed.cumsum(axis=axis)
        summed = total.take(xp.minimum(at + reach + 1, length), axis=axis)
        summed -= total.take(xp.maximum(at - reach, 0), axis=axis)
    return summed


def add_window_cooccurrence(out: Array, codes: Codes, kept: Array, d: int) -> None:
    """Add Σ a_i a_jᵀ over ordered pairs of kept neighbours, image by image."""
    images, rows, columns = kept.shape
    step = rows * columns
    for image in range(images):
        block = dense(codes, image * step, (image + 1) * step, "float64")
        block *= kept[image].reshape(-1, 1)
        box = box_sum(block.reshape(1, rows, columns, -1), d).reshape(step, -1) - block
        add_upper(out, block, box)


def reciprocals(most: int) -> tuple[list[int], list[int]]:
    """Return 2^58 / n and 2^58 / n² for n up to `most`, rounded halves up; zero for n = 0."""
    one = 1 << FRACTION_BITS
    first = [0] + [(2 * one + n) // (2 * n) for n in range(1, most + 1)]
    second = [0] + [(2 * one + n * n) // (2 * n * n) for n in range(1, most + 1)]
    return first, second


def inverse_degrees(kept: Array, d: int) -> tuple[Array, Array, Array]:
    """Return 2^58 / deg, 2^58 / deg² (0 for patches without a neighbour), both int64 (B, R, C), and the latter's box totals.

    kept : bool (B, R, C). The totals (B, R + 1, C + 1) are sums over all positions above and to the left.
    """
    xp = array_module(kept)
    degree = xp.where(kept, box_sum(kept, d) - 1, 0)
    first, second = (xp.asarray(table, dtype=xp.int64) for table in reciprocals((2 * d + 1) ** 2))
    inverse, square = first[degree], second[degree]
    return inverse, square, integral(square)


def window_weights(kept: Array, d: int, fine: bool = False) -> Array:
    """Return rint(2^20 L) between every position and those up to 2 d rows and columns away.

    fine : the second digit instead, rint(2^30 L) less 2^10 times the first, which is at most 2^9.
    kept : bool (B, R, C). Returns int32 (B, R, C, 4 d + 1, 4 d + 1); pairs outside the image and patches
    without a neighbour have weight 0. Integer arithmetic throughout, so that devices agree.
    """
    xp = array_module(kept)
    images, rows, columns = kept.shape
    inverse, square, total = inverse_degrees(kept, d)
    some = inverse > 0
    weights = xp.zeros((images, rows, columns, 4 * d + 1, 4 * d + 1), dtype=xp.int32)
    for down in range(-2 * d, 2 * d + 1):
        for across in range(-2 * d, 2 * d + 1):
            here, there = _overlap(rows, down), _overlap(columns, across)
            if here.start >= here.stop or there.start >= there.stop:
                continue
            beside = (
                slice(here.start + down, here.stop + down),
                slice(there.start + across, there.stop + across),
            )
            common = _common(xp, total, here, there, down, across, d)
            common = common - _inside(square[:, here, there], down, across, d)
            near = max(abs(down), abs(across)) <= d
            if down == 0 and across == 0:
                value = common + (1 << FRACTION_BITS)
            else:
                # the pair's own terms are no common neighbour: a and b lie in each other's windows when near
                value = common - square[:, beside[0], beside[1]] if near else common
                if near:
                    value = value - inverse[:, here, there] - inverse[:, beside[0], beside[1]]
            shift = FRACTION_BITS - SCALE_BITS
            first = (value + (1 << (shift - 1))) >> shift
            if fine:
                shift -= FINE_BITS
                value = ((value + (1 << (shift - 1))) >> shift) - (first << FINE_BITS)
            else:
                value = first
            value *= some[:, here, there] & some[:, beside[0], beside[1]]
            weights[:, here, there, down + 2 * d, across + 2 * d] = value
    return weights


def _overlap(length: int, shift: int) -> slice:
    return slice(max(0, -shift), min(length, length - shift))


def _inside(square: Array, down: int, across: int, d: int) -> Array:
    """The point's own 1 / deg² where it lies in the common window, to be taken out of the box sum."""
    return square if max(abs(down), abs(across)) <= d else square * 0


def _common(xp: Array, total: Array, here: slice, there: slice, down: int, across: int, d: int) -> Array:
    """Σ 1 / deg² over the rectangle that lies within d of both ends of the shift."""
    rows, columns = total.shape[1] - 1, total.shape[2] - 1
    at = xp.arange(here.start, here.stop)
    top = xp.clip(at + max(0, down) - d, 0, rows)
    bottom = xp.clip(at + min(0, down) + d + 1, 0, rows)
    at = xp.arange(there.start, there.stop)
    left = xp.clip(at + max(0, across) - d, 0, columns)
    right = xp.clip(at + min(0, across) + d + 1, 0, columns)
    lower, upper = total[:, bottom], total[:, top]
    return lower[:, :, right] - upper[:, :, right] - lower[:, :, left] + upper[:, :, left]


def add_second_order(out: Array, codes: Codes, kept: Array, d: int, fine: bool = False) -> None:
    """Add Σ A L Aᵀ, L = rint(2^20 D Dᵀ), or its second digit."""
    xp = array_module(out)
    images, rows, columns = kept.shape
    step = rows * columns
    for image in range(images):
        weights = window_weights(kept[image : image + 1], d, fine)
        matrix = xp.zeros((rows, columns, rows, columns), dtype=xp.float64)
        for row in range(rows):
            for down in range(max(-2 * d, -row), min(2 * d, rows - 1 - row) + 1):
                for across in range(-2 * d, 2 * d + 1):
                    at = xp.arange(max(0, -across), min(columns, columns - across))
                    matrix[row, at, row + down, at + across] = weights[
                        0, row, at, down + 2 * d, across + 2 * d
                    ]
        block = dense(codes, image * step, (image + 1) * step, "float64")
        add_upper(out, block, matrix.reshape(step, step) @ block)
