"""From pixels to whitened unit patches in small whole numbers, compiled: W (g - m) = W g - W m, and both sides are exact.

A pixel g has few bits. So W is cut into digits of few bits, too, and their products with pixels are sums of int16 products
in int32: several times as fast as in float64, and no centred patch is ever stored. The mean m of a patch is one number,
one of each channel, or the same patch for all patches of an image: W m costs next to nothing. All numbers are those that
`patches` and `whitening` come to one step at a time, bit for bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from smtdist.kernels.cpu import integer_products as integer
from smtdist.kernels.cpu.dictionary import PACKED, body
from smtdist.kernels.cpu.jit import compiled
from smtdist.kernels.cpu.patches import context_levels, mean_patches
from smtdist.kernels.device import to_host
from smtdist.kernels.threads import even_ranges
from smtdist.kernels.types import Array, Geometry, Whitener

CHUNK = 256
"""Patches whose products stay in the second-level cache until they are unit vectors; whole panels."""
MOST_DIGITS = 4
"""Digits of a whitening of `MOST_PIXELS` pixels, at most."""
MOST_PIXELS = 512
"""Of a patch: with more, digits would have few bits, and take long to make."""
LEAST_PATCHES = 64
"""Of images with fewer, panels would be mostly empty."""
SURE = 0.5 - 2.0**-38
"""A number nearer than this to a whole one rounds to it even if it is off by 2^-38."""
HALF = 1 << 15
"""Middle of the pixel grid."""


class Digits(NamedTuple):
    """A whitening W = Σ_s 2^(bits s) D_s ready for pixels g = unit q + zero.

    kind : how patches are packed. rows : the digits D_s, one below the other, packed as what meets patches. groups : the sums
    of W over the pixels of each group with a mean of its own, float64 (G, p).
    """

    kind: type[Any]
    rows: Array
    n_digits: int
    bits: int
    unit: int
    zero: int
    whiten: Array
    groups: Array


def digits_of(whitener: Whitener) -> Digits | None:
    """Return the whitening in digits, or None where the ordinary steps are to be taken.

    That is: where patches are not whitened, where this processor has no products of int16, where patches have very many
    pixels or images very few patches, and for contextual means of a part of the image, which differ from pixel to pixel and
    from patch to patch. Memory: 48 p² bytes at most while digits are made, `MOST_DIGITS` x 2 p² then.
    """
    kind, geometry, whiten = PACKED.get(body()), whitener.geometry, whitener.whiten
    p = geometry.pixels
    if kind is None or whiten is None or p > MOST_PIXELS or geometry.positions < LEAST_PATCHES:
        return None
    if (
        whitener.mean == "context"
        and geometry.reach(whitener.mean_context) < max(geometry.rows, geometry.columns) - 1
    ):
        return None
    eight_bits = not whitener.scale.is_float and not whitener.grey
    unit, zero, largest = (256, 0, 255) if eight_bits else (1, HALF, HALF)
    limit = min(HALF - 1, (2**31 - 1) // (p * largest))
    bits = int(limit).bit_length()
    matrix, half = to_host(whiten), 1 << (bits - 1)
    rest = matrix.astype(np.int64)
    parts: list[Array] = []
    while not parts or np.abs(rest).max() > limit:  # two digits at least
        parts.append((((rest + half) & (2 * half - 1)) - half).astype(np.int16))
        rest -= parts[-1]
        rest >>= bits
    parts.append(rest.astype(np.int16))
    rows = integer.pack_atoms(np.concatenate(parts), integer.BLOCK_PATCHES)
    groups = geometry.channels if whitener.mean == "channel" else 1
    sums = np.array([matrix[:, group::groups].sum(axis=1) for group in range(groups)])
    return Digits(kind, rows, len(parts), bits, unit, zero, matrix, sums)


@compiled
def shift_pixels(grid: Array, zero: int, bits: int, shifted: Array) -> None:
    """Write (g - zero) / 2^bits of images (B, H, W, C) to int32 (T, B, C, H, columns), from column 0, 1, ... T - 1 on.

    One pixel of all patches of an image is a row without gaps there: see `pixel_of`.
    """
    for across in range(shifted.shape[0]):
        for image in range(grid.shape[0]):
            for channel in range(grid.shape[3]):
                for row in range(grid.shape[1]):
                    out = shifted[across, image, channel, row]
                    for column in range(len(out)):
                        out[column] = (grid[image, row, across + column, channel] - zero) >> bits


@compiled
def pair_pixels(shifted: Array, panels: Array) -> None:
    """Write two pixels each of all patches to int32 `panels` (B, panels, ceil(p / 2), patches of a panel), the even one low."""
    size, images, channels, _, columns = shifted.shape
    p, n = size * size * channels, (shifted.shape[3] - size + 1) * columns
    _, count, steps, width = panels.shape
    for image in range(images):
        for step in range(steps):
            even, odd = 2 * step, min(2 * step + 1, p - 1)
            present = np.int32(2 * step + 1 < p)
            low, high = pixel_of(shifted, image, even, n), pixel_of(shifted, image, odd, n)
            for panel in range(count):
                out, first = panels[image, panel, step], panel * width
                left, right = low[first : first + width], high[first : first + width]
                for patch in range(len(left)):
                    out[patch] = (left[patch] & 0xFFFF) | ((right[patch] * present) << 16)


@compiled
def pixel_of(shifted: Array, image: int, number: int, n: int) -> Array:
    """Return one pixel of all n patches of an image, a view."""
    size, _, channels, _, columns = shifted.shape
    across, down = number // channels % size, number // channels // size
    return shifted[across, image, number % channels].reshape(-1)[down * columns : down * columns + n]


@compiled
def own_means(shifted: Array, unit: float, zero: float, means: Array) -> None:
    """Write the mean pixel of every patch and group, in whole units, halves up, to float64 `means` (B, G, n), zeros."""
    size, images, channels = shifted.shape[:3]
    p, (groups, n) = size * size * channels, means.shape[1:]
    count = p // groups
    for image in range(images):
        for number in range(p):
            total, own = means[image, number % groups], pixel_of(shifted, image, number, n)
            for patch in range(n):
                total[patch] += own[patch]
        for group in range(groups):
            total = means[image, group]
            for patch in range(n):
                whole = unit * total[patch] + zero * count
                total[patch] = np.floor((2 * whole + count) / (2 * count))


@compiled
def squares_about(
    shifted: Array, unit: float, zero: float, fixed: Array, levels: Array, squares: Array
) -> None:
    """Write Σ (g - m)² of every patch to float64 `squares` (B, n); m : `fixed` (B or 1, p) plus `levels` (B, G, n)."""
    size, images, channels = shifted.shape[:3]
    groups, n = levels.shape[1:]
    for image in range(images):
        total = squares[image]
        total[:] = 0
        for number in range(size * size * channels):
            shift = zero - fixed[image % fixed.shape[0], number]
            own, level = pixel_of(shifted, image, number, n), levels[image, number % groups]
            for patch in range(n):
                value = unit * own[patch] + shift - level[patch]
                total[patch] += value * value


@compiled
def write_units(
    products: Array,
    form: tuple[int, float, float],
    base: Array,
    levels: Array,
    weights: Array,
    raw: Array,
    limits: tuple[float, float],
    places: tuple[int, int],
    room: tuple[Array, Array, Array],
    grid: Array,
    constant: Array,
) -> None:
    """Write rint(scale y / ‖y‖) of some patches of an image to float32 `grid` (p, N), y = W (unit q + zero - m).

    products : int32 (digits p, patches or more). form : digits, 2^bits and unit. base : W (zero - m) of the image (p,).
    levels : other means (G, n), and the sums of W that go with them (G, p). raw : Σ (g - m)² (n,). limits : the sum below
    which a patch is constant, and the scale. places : of the first patch, in its image and in `grid`. Squares are added in
    the order of pixels. room : float64 (p, patches), (patches,) and (patches,).
    """
    count, radix, unit = form
    floor_sum, scale = limits
    first, place = places
    y, squares, mixed = room
    p, n = y.shape
    groups = len(levels)
    squares[:] = 0
    for pixel in range(p):
        line, level, weight = y[pixel], levels[0, first : first + n], weights[0, pixel]
        if groups > 1:
            mixed[:] = 0
            for group in range(groups):
                factor, other = weights[group, pixel], levels[group, first : first + n]
                for patch in range(n):
                    mixed[patch] += factor * other[patch]
            level, weight = mixed, 1.0
        high, low, shift = products[(count - 1) * p + pixel], products[pixel], base[pixel]
        for patch in range(n):
            line[patch] = high[patch]
        for digit in range(count - 2, 0, -1):
            middle = products[digit * p + pixel]
            for patch in range(n):
                line[patch] = radix * line[patch] + middle[patch]
        for patch in range(n):
            value = unit * (radix * line[patch] + low[patch]) + shift - weight * level[patch]
            line[patch] = value
            squares[patch] += value * value
    inverse = mixed
    for patch in range(n):
        flat = raw[first + patch] < floor_sum or squares[patch] == 0
        constant[place + patch] = flat
        # a quotient by infinity is the zero that a constant patch gets
        squares[patch] = np.inf if flat else np.sqrt(squares[patch])
        inverse[patch] = scale / squares[patch]
    for pixel in range(p):
        line, result = y[pixel], grid[pixel, place : place + n]
        unsure = np.int64(0)
        for patch in range(n):
            # one multiplication in place of a division and a multiplication: off by less than 2^-38
            value = line[patch] * inverse[patch]
            whole = np.rint(value)
            unsure |= np.int64(abs(value - whole) > SURE)
            result[patch] = whole + 0.0  # no negative zeros
        if unsure != 0:
            for patch in range(n):
                result[patch] = np.rint(scale * (line[patch] / squares[patch])) + 0.0


def fits(grid: Array, digits: Digits) -> bool:
    """Tell whether all pixels can be written as unit q + zero with q in int16.

    White floats cannot, nor what is rounded to less than black.
    """
    return (
        digits.zero == 0 or -HALF <= int(grid.min()) - digits.zero <= int(grid.max()) - digits.zero < HALF
    )


def unit_patches(
    grid: Array, whitener: Whitener, digits: Digits, floor_sum: float, scale: int
) -> tuple[Array, Array]:
    """Return whitened unit patches, float32 (p, B n), and which are constant, bool (B n,).

    grid : (B, H, W, C) of `pixel_grid`, which fits the digits. Memory: 12 p + 64 bytes a patch, and 24 p for each of a chunk.
    """
    geometry: Geometry = whitener.geometry
    images, n, p = len(grid), geometry.positions, geometry.pixels
    unit, zero = float(digits.unit), float(digits.zero)
    # mirrored images are a view, for which loops would be compiled once more
    grid = np.ascontiguousarray(grid)
    shape = geometry.patch, images, geometry.channels, geometry.height, geometry.columns
    shifted = np.empty(shape, np.int32)
    shift_pixels(grid, digits.zero, digits.unit.bit_length() - 1, shifted)
    groups = len(digits.groups)
    levels, fixed = np.zeros((images, groups, n)), np.zeros((1, p))
    if whitener.mean == "context":
        fixed = np.empty((images, p))
        mean_patches(grid, geometry.patch, fixed)
    elif whitener.mean == "global" and whitener.global_mean is not None:
        fixed[0] = whitener.global_mean
    elif whitener.mean == "level":
        context_levels(
            grid, geometry.patch, geometry.reach(whitener.mean_context), levels.reshape(images, n)
        )
    elif whitener.mean in ("patch", "channel"):
        own_means(shifted, unit, zero, levels)
    raw = np.empty((images, n))
    squares_about(shifted, unit, zero, fixed, levels, raw)
    width, steps = integer.FORMS[digits.kind].panel, digits.rows.shape[1]
    panels = np.zeros((images, -(-n // width), steps, width), np.int32)
    pair_pixels(shifted, panels)
    base = np.ascontiguousarray((digits.whiten @ (zero - fixed).T).T)
    result, constant = np.empty((p, images * n), np.float32), np.empty(images * n, np.bool_)
    chunks = even_ranges(n, CHUNK)
    most = min(n, CHUNK)
    products = np.empty((digits.n_digits * p, -(-most // width) * width), np.int32)
    y, squares, mixed = np.empty((p, most)), np.empty(most), np.empty(most)
    for image in range(images):
        for first, last in chunks:
            here, some = panels[image, first // width : -(-last // width)], last - first
            room = products.reshape(-1)[: len(products) * len(here) * width].reshape(len(products), -1)
            integer.add_products(digits.kind(here), digits.rows, 0, len(digits.rows), len(room), room)
            write_units(
                room,
                (digits.n_digits, 2.0**digits.bits, unit),
                base[image % len(base)],
                levels[image],
                digits.groups,
                raw[image],
                (floor_sum, float(scale)),
                (first, image * n + first),
                (y.reshape(-1)[: p * some].reshape(p, some), squares[:some], mixed[:some]),
                result,
                constant,
            )
    return result, constant
