"""Sums over sparse codes on a device: atomic additions by kernels of our own, or exact products, whichever is cheaper."""

from __future__ import annotations

from smtdist.kernels.device import array_module
from smtdist.kernels.generic import scatter as generic
from smtdist.kernels.gpu import choice, tensor
from smtdist.kernels.gpu.source import launch
from smtdist.kernels.types import Array, Codes

from_atom = generic.from_atom


def add_activity(out: Array, codes: Codes) -> None:
    """Add Σ a_i to int64 `out`."""
    n, step = codes.n_patches, max(1, codes.n_patches)
    size = 8 * out.dtype.itemsize
    launch(f"add_counts_{size}", n, out, len(out), codes.indptr, codes.indices, n, step)


def add_weighted_activity(out: Array, codes: Codes, weights: Array) -> None:
    """Add Σ w_i a_i to int64 `out`."""
    n, step = codes.n_patches, max(1, codes.n_patches)
    launch(
        "add_weighted_counts_64", n, out, len(out), codes.indptr, codes.indices, _whole(weights), n, step
    )


def image_counts(codes: Codes, images: int) -> Array:
    """Return s = A 1 of every image, int32 (B, K)."""
    xp, n = array_module(codes.indptr), codes.n_patches
    counts = xp.zeros((images, codes.n_atoms), dtype=xp.int32)
    launch("add_counts_32", n, counts, codes.n_atoms, codes.indptr, codes.indices, n, max(1, n // images))
    return counts


def counted_work(out: Array, codes: Codes, weights: Array | None = None) -> choice.Work:
    """Return what is to be counted; patches of weight 0 have no pairs. Waits for the device."""
    xp = array_module(codes.indptr)
    active = xp.diff(codes.indptr)
    pairs = active * (active + 1) // 2
    if weights is not None:
        pairs = pairs[weights != 0]
    return choice.Work(codes.n_patches, codes.n_atoms, len(out), int(pairs.sum()), out.dtype.itemsize)


def add_second_moment(out: Array, codes: Codes) -> None:
    """Add Σ a_i a_iᵀ in the way that is cheaper for these codes."""
    work, product = counted_work(out, codes), tensor.product_of(array_module(out))
    block = product.block_patches(work.patches, work.atoms)
    if choice.sparse_is_cheaper(work, product.operations, block, tensor.PANEL):
        add_pairs(out, codes)
    else:
        tensor.add_products(out, codes, product)


def add_weighted_moment(out: Array, codes: Codes, weights: Array) -> None:
    """Add Σ w_i a_i a_iᵀ: by atomic additions where few patches have a weight, else by products in float64."""
    work = counted_work(out, codes, weights)
    block = max(1, generic.BLOCK_BYTES // (8 * work.atoms))
    panel = max(1, generic.PANEL_BYTES // (8 * work.rows))
    if choice.sparse_is_cheaper(work, choice.FLOAT64_OPERATIONS, block, panel):
        add_pairs(out, codes, weights)
    else:
        generic.add_weighted_moment(out, codes, weights)


def add_pairs(out: Array, codes: Codes, weights: Array | None = None) -> None:
    """Add Σ a_i a_iᵀ, or Σ w_i a_i a_iᵀ, one atomic addition a pair; `out` is int32 or int64, of the first rows."""
    rows, columns = out.shape
    size = 8 * out.dtype.itemsize
    sums, n = (out, rows, columns, codes.indptr, codes.indices), codes.n_patches
    if weights is None:
        launch(f"add_pairs_{size}", n, *sums, n)
    else:
        launch(f"add_weighted_pairs_{size}", n, *sums, _whole(weights), n)


def _whole(weights: Array) -> Array:
    xp = array_module(weights)
    return xp.ascontiguousarray(weights, dtype=xp.int64)
