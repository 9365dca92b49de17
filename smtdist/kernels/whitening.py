"""Second moments of patches, their whitening, and unit vectors on the integer grid: every step exact."""

from __future__ import annotations

import functools
import threading
from fractions import Fraction
from math import ceil, floor, sqrt

import numpy as np

from smtdist.errors import DataError
from smtdist.kernels.cpu import whitening as cpu
from smtdist.kernels.device import array_module, beside, is_host, like, to_host
from smtdist.kernels.gpu import whitening as gpu
from smtdist.kernels.products import Ordered
from smtdist.kernels.threads import even_ranges, run_ranges, single_blas
from smtdist.kernels.types import Array, PixelScale

MOMENT_SLICE = 1 << 15
"""Patches summed in one product: small enough to share among threads, and 2^15 x (2^16)^2 is far below 2^53."""


def patch_moment(centred: Array) -> Array:
    """Return Σ m mᵀ over patches: the sum behind the covariance of SMT 2023's whitening (λI + Σ)^(-1/2).

    centred : (p, N) whole numbers, |m| <= 2^16. Returns int64 (p, p), exact for up to 2^31 patches.
    Memory: 16 p² bytes.

    >>> patch_moment(np.array([[1.0, 2.0], [0.0, 3.0]])).tolist()
    [[5, 6], [6, 9]]
    """
    if not is_host(centred):
        found: Array = gpu.moments(centred, 1)[0]
        return found
    total = np.zeros((centred.shape[0], centred.shape[0]), np.int64)
    lock = threading.Lock()

    def add(start: int, stop: int) -> None:
        part = centred[:, start:stop]
        product = (part @ part.T).astype(np.int64)
        with lock:
            np.add(total, product, out=total)

    with single_blas():
        run_ranges(add, even_ranges(centred.shape[1], MOMENT_SLICE))
    return total


def patch_sum(centred: Array) -> Array:
    """Return Σ m over patches, int64 (p,), exact.

    >>> patch_sum(np.array([[1.0, 2.0], [0.0, 3.0]])).tolist()
    [3, 3]
    """
    return centred.sum(axis=1).astype(array_module(centred).int64)


def whitening_matrices(covariance: Array, ridge: float) -> tuple[Array, Array]:
    """Return (λI + Σ)^(-1/2) and (λI + Σ)^(1/2) (SMT 2023, appendix C), both symmetric float64 (p, p).

    covariance : (p, p), for pixels in [0, 1]; ridge : λ > 0, same units. Runs on the CPU; the result goes
    back to where the input is. Raises DataError where the covariance is not finite.

    >>> whiten, unwhiten = whitening_matrices(np.diag([3.0, 8.0]), 1.0)
    >>> np.round(unwhiten, 6).tolist()
    [[2.0, 0.0], [0.0, 3.0]]
    """
    host = np.asarray(to_host(covariance), dtype=np.float64)
    if not np.isfinite(host).all():
        raise DataError("The covariance of the patches has entries that are not finite; check the pixels.")
    values, vectors = np.linalg.eigh((host + host.T) / 2)
    values = np.maximum(values, 0.0) + ridge  # rounding may leave a null direction slightly negative
    whiten = (vectors * values**-0.5) @ vectors.T
    unwhiten = (vectors * values**0.5) @ vectors.T
    return like(covariance, (whiten + whiten.T) / 2), like(covariance, (unwhiten + unwhiten.T) / 2)


def integer_whitening(whiten: Array) -> Array:
    """Return the whitening times a power of two, rounded to whole numbers: only directions matter after it.

    With b = min(28, 37 - ⌈log2 p⌉) bits every product and sum with pixels |m| <= 2^16 stays below 2^53,
    hence exact in float64 whatever the order. Returns float64 (p, p), |entry| <= 2^b.

    >>> float(integer_whitening(np.eye(2))[0, 0]) == 2**27
    True
    """
    xp = array_module(whiten)
    largest = float(abs(whiten).max())
    if not (np.isfinite(largest) and largest > 0):
        raise DataError("The whitening matrix is zero or not finite; check the pixels and the ridge.")
    exponent = int(np.frexp(largest)[1])
    return xp.rint(whiten * 2.0 ** (whitening_bits(len(whiten)) - exponent))


def whitening_bits(p: int) -> int:
    """Return b of `integer_whitening` for patches of p pixels."""
    return min(28, 37 - (p - 1).bit_length())


def image_whitenings(centred: Array, images: int, ridge: float, order: Array | None) -> Array:
    """Return (λI + Σ)^(-1/2) of each image by the Σ of its own patches, as whole numbers (B, p, p) of `integer_whitening`.

    SMT 2023, appendix C, takes the mean off the patches of a context and leaves open whether Σ is the context's, too. Σ is
    exact, and the root has the same bits on any processor and device.

    centred : (p, B n) whole numbers, all patches of each image; ridge : λ in their squared unit. order : of mirror images,
    the order in which a mirrored patch has the pixels of the patch: their matrices are those of the images, mirrored.
    Memory: 64 p² bytes an image.

    >>> (root,) = image_whitenings(np.array([[3.0, -3.0], [0.0, 0.0]]), 1, 7.0, None)
    >>> (root / root.max()).round(5).tolist()
    [[0.66144, 0.0], [0.0, 1.0]]
    """
    pixels, count = len(centred), centred.shape[1] // images
    own = unchanged_order(pixels) if order is None else order
    if not is_host(centred):
        found: Array = gpu.roots(
            gpu.moments(centred, images), count, ridge, NEARLY_ONE, own, whitening_bits(pixels)
        )
        return found
    patches = centred.reshape(pixels, images, count).transpose(1, 0, 2)
    parts = (patches[:, :, start:stop] for start, stop in even_ranges(count, MOMENT_SLICE))
    moments = sum((part @ part.transpose(0, 2, 1)).astype(np.int64) for part in parts)
    roots = np.empty((images, pixels, pixels))

    def work(first: int, last: int) -> None:
        for image in range(first, last):
            moment = moments[image]
            covariance = (
                moment[np.ix_(own, own)] / count
            )  # the same numbers in the same order for both views
            covariance[np.diag_indices(pixels)] += ridge
            scale = int(np.trace(moment)) / count + pixels * ridge
            root = integer_whitening(inverse_root(covariance, ridge, scale))
            roots[image] = root[np.ix_(own, own)]

    run_ranges(work, even_ranges(images, 1))
    return roots


@functools.cache
def unchanged_order(pixels: int) -> Array:
    """Return the order of pixels that leaves all where they are."""
    return np.arange(pixels)


NEARLY_ONE = 1 - 2.0**-40
"""A least singular value from which one more step of `inverse_root` leaves nothing but rounding."""


def inverse_root(matrix: Array, least: float, scale: float) -> Array:
    """Return A^(-1/2) of a symmetric matrix (p, p) of eigenvalues from `least` > 0 to `scale`: the same bits on any processor.

    LAPACK's eigenvectors depend on the processor in their last bits; these are products in one order (`Ordered`). Newton and
    Schulz's coupled iteration (Higham 2008, "Functions of Matrices", eq. 6.35) with Y = A / scale and Z = I at first:
    T = 1.5 μ I - 0.5 μ³ Z Y, Y ← Y T, Z ← T Z, until Z = (A / scale)^(-1/2). μ maps the interval [l, 1] of singular values
    of (ZY)^(1/2) to the shortest one up to 1 (Chen and Chow 2014, "A Stable Scaling of Newton-Schulz"), so that a condition of
    10^4 takes ten rounds.

    >>> inverse_root(np.diag([4.0, 0.25]), 0.25, 4.25).round(12).tolist()
    [[0.5, 0.0], [0.0, 2.0]]
    """
    y, z, low = matrix / scale, np.eye(len(matrix)), sqrt(least / scale)
    last = False
    while not last:
        last = low > NEARLY_ONE
        mu = sqrt(3 / (1 + low + low * low))
        cube = mu * mu * mu
        step = Ordered(y)(z)
        step *= -0.5 * cube
        step[np.diag_indices(len(step))] += 1.5 * mu
        y, z = Ordered(step)(y), Ordered(z)(step)
        low = low * (1.5 * mu - 0.5 * cube * low * low)
    return (z + z.T) / (2 * sqrt(scale))


def grid_scale(p: int) -> int:
    """Return s = ⌊4096 - √p / 2⌋: a unit vector times s, rounded, has a squared norm of at most 2^24.

    So float32 holds every partial sum of a dot product of two such vectors exactly.

    >>> [grid_scale(p) for p in (36, 108, 3072)]
    [4093, 4090, 4068]
    """
    return floor(4096 - sqrt(p) / 2)


def contrast_floor(min_contrast: float, p: int, scale: PixelScale) -> float:
    """Return the sum of squares below which a patch is constant: p (min_contrast x units per grey level)².

    >>> contrast_floor(1.0, 36, PixelScale(0.0, 255.0, False))
    2359296.0
    """
    return p * (min_contrast * scale.grey_level) ** 2


def unit_grid(centred: Array, whiten: Array | None, floor_sum: float) -> tuple[Array, Array]:
    """Return whitened unit patches on the grid, g = rint(s y / ‖y‖) with y = W m, and which patches are constant.

    A patch is constant where Σ m² < `floor_sum` or y is zero; its g is zero. ‖y‖² is summed in pixel order
    and no operation is contracted, so that every machine returns the same bits.

    centred : (p, N) whole numbers, |m| <= 2^16; whiten : (p, p) from `integer_whitening`, (B, p, p) of `image_whitenings` for
    the patches of each of B images, or None for y = m.
    Returns float32 (p, N) of whole numbers and bool (N,). Memory: 20 p bytes a patch beyond the input.

    >>> unit_grid(np.array([[3.0, 0.0], [4.0, 0.0]]), None, 1.0)[0].tolist()
    [[2457.0, 0.0], [3276.0, 0.0]]
    """
    matrix = None if whiten is None else beside(centred, whiten)
    body = cpu if is_host(centred) else gpu
    grid, constant = body.unit_grid(centred, matrix, floor_sum, grid_scale(centred.shape[0]))
    return grid, constant


def atoms_to_grid(vectors: Array) -> Array:
    """Return dictionary atoms on the grid, rint(s x / ‖x‖).

    vectors : (K, p), any length but zero. Returns float32 (K, p) of whole numbers.
    Raises DataError for a zero vector or one that is not finite.

    >>> atoms_to_grid(np.array([[3.0, 4.0]])).tolist()
    [[2457.0, 3276.0]]
    """
    xp = array_module(vectors)
    values = vectors.astype(xp.float64).T
    largest = abs(values).max(axis=0)
    bad = np.flatnonzero(~to_host(xp.isfinite(largest) & (largest > 0)))
    if len(bad):
        raise DataError(f"Atom {bad[0]} of the dictionary is zero or not finite; leave it out.")
    squares = square_sum(values)
    rounded = xp.rint(grid_scale(vectors.shape[1]) * (values / xp.sqrt(squares))) + 0.0  # no negative zeros
    return xp.ascontiguousarray(rounded.T, dtype=xp.float32)


def square_sum(values: Array) -> Array:
    """Return Σ_j values[j]², added in the order of j: the same bits on every machine."""
    total = values[0] * values[0]
    for row in values[1:]:
        total += row * row
    return total


def threshold_cut(t: float, p: int) -> int:
    """Return ⌈t s²⌉, the smallest dot product on the grid of an active atom, with t the decimal fraction as written.

    >>> threshold_cut(0.3, 108)
    5018430
    """
    return ceil(Fraction(str(float(t))) * grid_scale(p) ** 2)
