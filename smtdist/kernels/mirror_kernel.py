"""exp((cosine - 1) / T) between images, where an image and its mirror image are one: two products in place of four."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels.products import Ordered, in_pieces

Float32 = NDArray[np.float32]
Right = Float32 | Ordered

PIECE: Final = 128
"""Rows of a product that one thread makes, whatever the number of threads."""


def halves(rows: Float32, mirrored: Float32) -> tuple[Float32, Float32]:
    """Return u = (z + z') / 2 and v = (z - z') / 2 of rows z of images and z' of their mirror images, each (n, F).

    Then ux·uy + vx·vy is the mean of zx·zy and z'x·z'y, and ux·uy - vx·vy that of zx·z'y and z'x·zy.

    >>> u, v = halves(np.array([[1, 0]], np.float32), np.array([[0, 1]], np.float32))
    >>> u.tolist(), v.tolist()
    ([[0.5, 0.5]], [[0.5, -0.5]])
    """
    return (rows + mirrored) * np.float32(0.5), (rows - mirrored) * np.float32(0.5)


def add_mirror_kernel(
    total: Float32,
    left: tuple[Float32, Float32],
    right: tuple[Right, Right],
    temperature: float,
) -> None:
    """Add f(p + q) + f(p - q) to `total` (n, m), where f(s) = exp((s - 1) / T) and p, q are products of the halves.

    It is the kernel exp((⟨x, y⟩ - 1) / T) of the pairs (z, z') / √2, summed over the exchange of z and z'. A sum
    over a group of symmetries is positive definite; the two terms with z of one image alone are not. The rows z
    have unit length, so an image that is its own mirror image has 2 with itself. `right` may be
    what multiplies by its transpose (`products.Ordered`). All may be on a device. Time: 4 n m F operations. Memory: 8 bytes times
    `PIECE` m for each thread, on a device times n m.

    >>> total = np.zeros((1, 1), np.float32)
    >>> own = np.array([[1.0, 0.0]], np.float32), np.zeros((1, 2), np.float32)
    >>> add_mirror_kernel(total, own, own, 0.5)
    >>> total.tolist()
    [[2.0]]
    """
    scale = np.float32(1 / temperature)

    def work(start: int, stop: int) -> None:
        even = _inner(left[0][start:stop], right[0])
        odd = _inner(left[1][start:stop], right[1])
        for sign in (1, -1):
            cosines = even + sign * odd
            cosines -= np.float32(1)
            cosines *= scale
            total[start:stop] += np.exp(cosines, out=cosines)

    in_pieces(work, len(total), PIECE, total)


def add_cosine_kernel(total: Float32, left: Float32, right: Right, temperature: float) -> None:
    """Add exp((x·y - 1) / T) of unit rows x (n, F) and y (m, F) to `total` (n, m). Memory as above.

    >>> total = np.zeros((1, 1), np.float32)
    >>> add_cosine_kernel(total, np.ones((1, 1), np.float32), np.ones((1, 1), np.float32), 0.5)
    >>> total.tolist()
    [[1.0]]
    """
    scale = np.float32(1 / temperature)

    def work(start: int, stop: int) -> None:
        cosines = _inner(left[start:stop], right)
        cosines -= np.float32(1)
        cosines *= scale
        total[start:stop] += np.exp(cosines, out=cosines)

    in_pieces(work, len(total), PIECE, total)


def _inner(left: Float32, right: Right) -> Any:
    return right(left) if isinstance(right, Ordered) else left @ right.T
