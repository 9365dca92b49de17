"""Largest eigenpairs of a large dense symmetric matrix: block Lanczos in float32, refined and judged in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.linalg

from smtdist.kernels.device import array_module, is_host, like, to_host

Float32: TypeAlias = npt.NDArray[np.float32]
Float64: TypeAlias = npt.NDArray[np.float64]
Block: TypeAlias = npt.NDArray[Any]
Product: TypeAlias = Callable[[Block], Block]
"""x -> A x for columns (K, m), in the precision of x, float32 or float64."""

SEED: Final = 2023
BLOCK: Final = 128
CYCLES: Final = 20
ROUGH: Final = 3e-6
"""Residual, as a share of the largest eigenvalue, at which float32 has done its part."""
SPREAD: Final = 1e12
"""How much more a polynomial may magnify the largest eigenvalue than the last: float64 must keep some digits of that."""
DEGREES: Final = (3, 24)
REFINEMENTS: Final = 8
SMALL_ROWS: Final = 512
"""Rows up to which the host finds all eigenvectors though there is a device, in less than a second: an estimate."""
TOLERANCE: Final = 1e-8


class NotConverged(Exception):
    """The residuals do not fall below the tolerance; a direct solver is to be asked."""


def block_size(count: int) -> int:
    """Return the columns that are multiplied at a time."""
    return int(min(BLOCK, max(8, count // 3 // 8 * 8)))


def kept_vectors(count: int) -> int:
    """Return the vectors that outlive a restart: those that are wanted, and some that shield them from the rest."""
    return count + max(8, count // 8)


def basis_size(count: int) -> int:
    """Return the vectors of the Krylov basis at most."""
    return 2 * kept_vectors(count) + 4 * block_size(count)


def working_bytes(size: int, count: int) -> int:
    """Return the bytes that `largest_pairs` needs beside the matrix.

    >>> working_bytes(16384, 400) < 1e9
    True
    """
    kept, basis, block = kept_vectors(count), basis_size(count), block_size(count)
    single = 4 * size * (basis + kept + 4 * block) + 4 * 8 * basis**2
    double = 8 * size * 5 * kept
    return single + double


def largest_pairs(
    product: Product, size: int, count: int, *, tolerance: float = TOLERANCE, near: Block | None = None
) -> tuple[Float64, Float64, Float64]:
    """Return the `count` largest eigenvalues (descending), their vectors (K, count) and residuals, of a symmetric A.

    Thick-restart block Lanczos with full orthogonalisation (Wu and Simon 2000, in blocks) runs in float32,
    from a fixed start, until residuals are a few millionths of ‖A‖. Its vectors then pass through Chebyshev
    polynomials (Zhou et al. 2006) and Rayleigh-Ritz steps in float64. Residuals are ‖A u - θ u‖ / ‖A‖,
    formed in float64 for every pair; where one stays above `tolerance`, NotConverged is raised. Memory:
    `working_bytes`. Where `near` is on a device, so are the columns, and the eigenvectors of all but the smallest matrices.

    Same bits for the same matrix on the same machine and number of BLAS threads; between machines vectors
    differ as their residuals allow.

    >>> values, vectors, residuals = largest_pairs(lambda x: 0.98 ** np.arange(400, dtype=x.dtype)[:, None] * x, 400, 2)
    >>> values.round(6).tolist(), bool(residuals.max() < 1e-8)
    ([1.0, 0.98], True)
    """
    lowest, vectors = _rough(product, size, count, np.empty(0) if near is None else near)
    return _refined(product, vectors, count, lowest, tolerance)


def _rough(product: Product, size: int, count: int, near: Block) -> tuple[float, Float32]:
    """Return the smallest Ritz value that was seen and the Ritz vectors kept, to the precision of float32."""
    block, kept, most = block_size(count), kept_vectors(count), basis_size(count)
    start_block = np.random.default_rng(SEED).standard_normal((size, block), dtype=np.float32)
    basis = array_module(near).empty((size, most), np.float32, order="F")
    small = np.zeros((most, most))
    new = orthonormal(like(near, start_block))
    basis[:, :block] = new
    start, used, lowest, before = 0, block, 0.0, np.inf
    for _ in range(CYCLES):
        while True:
            new, coupling = _step(product, basis, small, start, used)
            if used + block > most:
                break
            basis[:, used : used + block] = new
            start, used = used, used + block
        values, mixture = _descending(small[:used, :used], near)
        lowest = min(lowest, float(values[-1]))
        moved = like(mixture, coupling) @ mixture[start:used, :count]
        left = float(array_module(moved).linalg.norm(moved, axis=0).max()) / values[0]
        vectors = basis[:, :used] @ like(near, mixture[:, :kept].astype(np.float32))
        del mixture, moved
        # where float32 has given what it has, residuals fall no more
        if left <= ROUGH or (left <= 1e-4 and left > before / 2):
            return lowest, vectors
        before = left
        basis[:, :kept] = vectors
        basis[:, kept : kept + block] = new
        small[:] = 0
        small[np.arange(kept), np.arange(kept)] = values[:kept]
        start, used = kept, kept + block
    raise NotConverged(f"residual {left:.2g} after {CYCLES} restarts")


def _descending(matrix: Float64, near: Block) -> tuple[Float64, Float64]:
    """Return eigenvalues of a small matrix of the host, descending, and eigenvectors: on a device where `near` is, if it pays."""
    if is_host(near) or len(matrix) <= SMALL_ROWS:
        values, vectors = scipy.linalg.eigh(matrix, check_finite=False)
    else:
        values, vectors = array_module(near).linalg.eigh(like(near, matrix))
    return to_host(values)[::-1], vectors[:, ::-1]


def _step(
    product: Product, basis: Float32, small: Float64, start: int, used: int
) -> tuple[Float32, Float64]:
    """Multiply the newest block, take the basis out, and return what is left, orthonormal, and how it hangs together."""
    moved = product(array_module(basis).ascontiguousarray(basis[:, start:used]))
    known = basis[:, :used]
    coefficients = known.T @ moved
    moved -= known @ coefficients
    again = known.T @ moved
    moved -= known @ again
    small[:used, start:used] = to_host(coefficients)
    small[:used, start:used] += to_host(again)
    inner = small[start:used, start:used]
    inner += inner.T.copy()
    inner /= 2
    small[start:used, :start] = small[:start, start:used].T
    new = orthonormal(moved)
    for _ in range(2):
        new -= known @ (known.T @ new)
        new = orthonormal(new)
    return new, to_host(new.T @ moved).astype(np.float64)


def orthonormal(block: Block) -> Block:
    """Return an orthonormal basis of the columns, in their type: eigenvectors of their Gram matrix, taken twice.

    Columns without an independent part come out as noise, which the caller makes orthogonal to what it knows.
    """
    result = block
    for _ in range(2):
        size = array_module(result).linalg.norm(result, axis=0)
        size[size == 0] = 1
        result = result / size
        gram = to_host(result.T @ result).astype(np.float64)
        values, vectors = scipy.linalg.eigh(gram, check_finite=False)
        floor = max(float(values[-1]), 1e-30) * float(np.finfo(block.dtype).eps)
        result = result @ like(block, (vectors / np.sqrt(np.maximum(values, floor))).astype(block.dtype))
    return result


def _refined(
    product: Product, vectors: Float32, count: int, lowest: float, tolerance: float
) -> tuple[Float64, Float64, Float64]:
    exact = vectors.astype(np.float64)
    for _ in range(REFINEMENTS):
        values, exact, residuals = _rayleigh_ritz(product, exact, count)
        if residuals.max() <= tolerance:
            return values[:count], to_host(exact[:, :count]), residuals
        high = float(values[-1])
        # Ritz values lie inside the spectrum, so that its end is a little further out
        low = min(lowest, high - 1e-3 * abs(values[0]))
        low -= 0.05 * (high - low)
        # the degree at which a Chebyshev polynomial has grown to `SPREAD` at the end of the spectrum
        end = max((2 * values[0] - high - low) / (high - low), 1 + 1e-6)
        degree = int(np.clip(np.log(SPREAD) / np.arccosh(end), *DEGREES))
        exact = filtered(product, exact, (low, high), degree)
    values, exact, residuals = _rayleigh_ritz(product, exact, count)
    if residuals.max() > tolerance:
        raise NotConverged(f"residual {residuals.max():.2g} after {REFINEMENTS} refinements")
    return values[:count], to_host(exact[:, :count]), residuals


def _rayleigh_ritz(product: Product, vectors: Float64, count: int) -> tuple[Float64, Float64, Float64]:
    vectors = orthonormal(vectors)
    moved = product(vectors)
    inner = to_host(vectors.T @ moved)
    values, mixture = _descending((inner + inner.T) / 2, vectors)
    values, mixture = values.copy(), like(vectors, mixture.copy())
    vectors, moved = vectors @ mixture, moved @ mixture
    moved -= vectors * like(vectors, values)
    left = to_host(array_module(moved).linalg.norm(moved[:, :count], axis=0))
    residuals = left / np.abs(values).max()
    return values, vectors, residuals


def filtered(product: Product, vectors: Float64, interval: tuple[float, float], degree: int) -> Float64:
    """Return T(A) X with the Chebyshev polynomial that is at most one on the interval and grows fastest beyond it."""
    low, high = interval
    centre, radius = (low + high) / 2, (high - low) / 2
    before, now = vectors, (product(vectors) - centre * vectors) / radius
    for _ in range(degree - 1):
        after = product(now)
        after -= centre * now
        after *= 2 / radius
        after -= before
        before, now = now, after
    return now
