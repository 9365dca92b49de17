"""Sums over sparse codes on any array module: dense blocks and exact products."""

from __future__ import annotations

from collections.abc import Iterator

from smtdist.kernels.device import array_module
from smtdist.kernels.types import Array, Codes

PANEL_BYTES = 16 << 20


def dense(codes: Codes, start: int, stop: int, dtype: str) -> Array:
    """Return the codes of patches start to stop as a dense (patches, K) array of zeros and ones."""
    xp = array_module(codes.indices)
    ends = codes.indptr[start : stop + 1]
    rows = xp.repeat(
        xp.arange(stop - start), xp.diff(ends).tolist() if xp.__name__ == "cupy" else xp.diff(ends)
    )
    block = xp.zeros((stop - start, codes.n_atoms), dtype=dtype)
    block[rows, codes.indices[int(ends[0]) : int(ends[-1])].astype(xp.int64)] = 1
    return block


def add_upper(out: Array, left: Array, right: Array) -> None:
    """Add the upper triangle of leftᵀ right, whole numbers held as floats, to `out`, in row panels."""
    xp = array_module(out)
    size = len(out)
    step = max(1, PANEL_BYTES // (left.dtype.itemsize * size))
    for start in range(0, size, step):
        stop = min(start + step, size)
        panel = (left[:, start:stop].T @ right[:, start:]).astype(out.dtype)
        target = out[start:stop, start:]
        target += xp.triu(panel)


def from_atom(codes: Codes, low: int) -> Codes:
    """Return the codes of the atoms from `low` on, numbered from zero."""
    xp = array_module(codes.indices)
    keep = codes.indices >= low
    ends = xp.concatenate([xp.zeros(1, dtype=xp.int64), xp.cumsum(keep, dtype=xp.int64)])
    return Codes(
        ends[codes.indptr], codes.indices[keep] - codes.indices.dtype.type(low), codes.n_atoms - low
    )


def add_outer_of(out: Array, counts: Array, weights: Array | None) -> None:
    """Add Σ_b w_b s_b s_bᵀ of counts (B, K), in groups of images whose sums are provably exact."""
    for left, right in exact_factors(counts, weights):
        add_upper(out, left, right)


def exact_factors(counts: Array, weights: Array | None) -> Iterator[tuple[Array, Array]]:
    """Yield L and R, floats, with Σ_b w_b s_b s_bᵀ = Σ Lᵀ R, each product exact."""
    xp = array_module(counts)
    squares = counts.astype(xp.int64) ** 2
    if weights is not None:
        squares *= abs(weights.astype(xp.int64))[:, None]
    for start, stop, dtype in exact_groups(squares):
        right = counts[start:stop].astype(dtype)
        yield right if weights is None else right * weights[start:stop, None].astype(dtype), right


def exact_groups(squares: Array) -> Iterator[tuple[int, int, str]]:
    """Yield (start, stop, dtype) such that Σ |w| s² of every atom stays below 2^24 (float32) or 2^53 (float64)."""
    xp = array_module(squares)
    largest = xp.cumsum(squares, axis=0).max(axis=1).tolist()
    dtype = "float32" if largest and largest[-1] < 2**24 else "float64"
    limit = 2**24 if dtype == "float32" else 2**53
    single = squares.max(axis=1).tolist()
    start, total = 0, 0
    for image, value in enumerate(single):
        if total + value >= limit and image > start:
            yield start, image, dtype
            start, total = image, 0
        total += value
    if single:
        yield start, len(single), dtype
