"""Matrix products that are added in place, wherever the matrices are."""

from __future__ import annotations

from smtdist.kernels.cpu import accumulate as cpu
from smtdist.kernels.device import is_host
from smtdist.kernels.types import Array


def add_product(out: Array, left: Array, right: Array, alpha: float = 1.0) -> None:
    """Add alpha x left @ right to `out`, in place.

    All are float32, or all float64. The rows of `out` lie in one piece each; it may be part of a matrix of which `left` and
    `right` are other parts. Memory: on the CPU none; elsewhere the product.

    >>> import numpy as np
    >>> out = np.ones((1, 2))
    >>> add_product(out, np.array([[2.0]]), np.array([[3.0, 4.0]]), -1)
    >>> out.tolist()
    [[-5.0, -7.0]]
    """
    if is_host(out):
        cpu.add_product(out, left, right, alpha)
        return
    product = left @ right
    if alpha != 1:
        product *= alpha
    out += product
