"""(A + μ I) X = B for a large positive semidefinite A that is known by its products: preconditioned conjugate gradients.

The preconditioner is a random Nyström approximation of A (Frangella, Tropp and Udell 2023, SIAM J. Matrix Anal. Appl. 44(2)). It
takes the large eigenvalues out of the way once, for every shift μ; what is left converges in some ten steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from smtdist.kernels.device import array_module, is_host, like, to_host
from smtdist.solve.factor import triangular_solved, upper_factor

Float64 = NDArray[np.float64]

ROWS: Final = 4096
"""Of a product in float64 of what is kept in float32."""
Product = Callable[[NDArray[np.floating]], NDArray[np.floating]]


@dataclass(frozen=True, eq=False)
class Nystrom:
    """A ≈ U Λ Uᵀ of rank r, U with orthonormal columns.

    Attributes
    ----------
    vectors : (n, r) U, float32, on the host or a device. values : (r,) Λ, descending. Memory: 4 n r bytes.
    """

    vectors: NDArray[np.float32]
    values: Float64

    def shifted_inverse(self, rows: Float64, shifts: Float64) -> Float64:
        """Return P⁻¹ X for X (n, c) and μ of each column: U (λᵣ + μ)(Λ + μ)⁻¹ Uᵀ X + (I - U Uᵀ) X (equation 5.3)."""
        parts = (self.vectors.T @ rows.astype(np.float32)).astype(np.float64)
        values, shifts = like(rows, self.values), like(rows, shifts)
        parts *= (values[-1] + shifts) / (values[:, None] + shifts) - 1
        moved: Float64 = rows + (self.vectors @ parts.astype(np.float32)).astype(np.float64)
        return moved


def nystrom(product: Product, size: int, rank: int, seed: int, near: NDArray[Any] | None = None) -> Nystrom:
    """Return a random Nyström approximation of A (n, n) from one product with n x r numbers (their algorithm 2.1).

    `product` returns A X for X (n, r), float32. If `near` is on a device, all is there. Time: that product and 6 n r²
    operations. Memory: 32 n r bytes.

    >>> values = np.array([4.0, 1.0, 0.0, 0.0])
    >>> nystrom(lambda x: values[:, None] * x, 4, 2, 0).values.round(4).tolist()
    [4.0, 1.0]
    """
    rank = min(rank, size)
    draw = np.random.default_rng(seed)
    xp: Any = np if near is None else array_module(near)
    # no name for the draw, so that it does not stay
    test = _orthonormal(xp.asarray(draw.standard_normal((size, rank)))).astype(np.float32)
    image = xp.asarray(product(test), np.float64)
    # a little more than A, so that rounding in A's products does not make the small matrix indefinite
    more = float(np.finfo(np.float32).eps * xp.linalg.norm(image))
    image += more * test
    core: Any = sum(
        test[start : start + ROWS].T.astype(np.float64) @ image[start : start + ROWS]
        for start in range(0, size, ROWS)
    )
    del test
    factor = upper_factor((core + core.T) / 2)
    image = triangular_solved(factor, image.T, trans="T", overwrite_b=True).T
    inner = image.T @ image
    solve: Any = scipy.linalg.eigh if is_host(inner) else xp.linalg.eigh
    squares, right = solve(inner)
    squares, right = to_host(squares)[::-1], right[:, ::-1]
    kept = squares > squares[0] * 1e-14
    vectors = (image @ (right[:, like(right, kept)] / like(right, np.sqrt(squares[kept])))).astype(
        np.float32
    )
    return Nystrom(vectors, np.maximum(squares[kept] - more, 0.0))


def _orthonormal(block: Float64) -> Any:
    if is_host(block):
        return scipy.linalg.qr(block, mode="economic", overwrite_a=True)[0]
    return array_module(block).linalg.qr(block)[0]


@dataclass(frozen=True, eq=False)
class Solved:
    """X (n, c) where B is, the steps that were taken, and the residual ‖B - (A + μ) X‖ / ‖B‖ of each column."""

    rows: Float64
    steps: int
    residuals: Float64


def solve(
    product: Product,
    targets: Float64,
    shifts: float | Float64,
    preconditioner: Nystrom,
    *,
    start: Float64 | None = None,
    tolerance: float = 1e-3,
    most: int = 200,
) -> Solved:
    """Solve (A + μ I) X = B for all columns of B (n, c) together, from `start` on; each column may have a μ of its own.

    Each column has steps of its own; the products with A are shared, and a column drops out where its residual is at
    most `tolerance` times ‖B‖. All end after `most` steps. Where B is on a device, so is all but
    a number a column. Memory: 96 n c bytes.

    >>> values = np.array([4.0, 1.0, 0.0])
    >>> make = lambda x: values[:, None] * x
    >>> solve(make, np.ones((3, 1)), 1.0, nystrom(make, 3, 1, 0), tolerance=1e-10).rows.round(6).ravel().tolist()
    [0.2, 0.5, 1.0]
    """
    xp: Any = array_module(targets)
    lengths = to_host(xp.linalg.norm(targets, axis=0))
    lengths[lengths == 0] = 1.0
    shift = np.broadcast_to(np.asarray(shifts, np.float64), lengths.shape)
    found = xp.zeros_like(targets) if start is None else start.astype(np.float64)

    def shifted(rows: Float64, shift: Float64) -> Float64:
        moved: Float64 = xp.asarray(product(rows.astype(np.float32)), np.float64) + like(rows, shift) * rows
        return moved

    rest = targets - shifted(found, shift) if start is not None else targets.copy()
    sizes = to_host(xp.linalg.norm(rest, axis=0)) / lengths
    left, steps = np.flatnonzero(sizes > tolerance), 0
    rest, before = rest[:, like(rest, left)], np.ones(len(left))
    direction = xp.zeros(rest.shape)
    while steps < most and len(left):
        better = preconditioner.shifted_inverse(rest, shift[left])
        along = to_host(xp.einsum("nc,nc->c", rest, better))
        direction *= like(rest, along / before) if steps else 0.0
        direction += better
        image = shifted(direction, shift[left])
        curved = to_host(xp.einsum("nc,nc->c", direction, image))
        # a column that is exact already has no direction left
        length = like(rest, np.divide(along, curved, out=np.zeros_like(along), where=curved > 0))
        found[:, like(rest, left)] += direction * length
        rest -= image * length
        steps += 1
        sizes[left] = to_host(xp.linalg.norm(rest, axis=0)) / lengths[left]
        more = sizes[left] > tolerance
        before = np.where(along > 0, along, 1.0)[more]
        if not more.all():
            here = like(rest, more)
            left, rest, direction = left[more], rest[:, here], direction[:, here]
    return Solved(found, steps, sizes)
