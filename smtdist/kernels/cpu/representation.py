"""Embedding and pooling, compiled; sums run in the order of `smtdist.kernels.generic.representation`."""

from __future__ import annotations

import numpy as np

from smtdist.kernels.cpu.jit import compiled
from smtdist.kernels.generic.representation import pool
from smtdist.kernels.threads import even_ranges, run_ranges
from smtdist.kernels.types import Array, Codes

__all__ = ["embed", "pool"]


@compiled
def embed_patches(
    indptr: Array, indices: Array, components_t: Array, start: int, stop: int, out: Array
) -> None:
    """Write the unit embeddings of patches start to stop."""
    length = components_t.shape[1]
    for patch in range(start, stop):
        for component in range(length):
            out[patch, component] = 0
        for entry in range(indptr[patch], indptr[patch + 1]):
            atom = np.int64(indices[entry])
            for component in range(length):
                out[patch, component] += components_t[atom, component]
        total = 0.0
        for component in range(length):
            value = np.float64(out[patch, component])
            total += value * value
        if total > 0:
            norm = np.sqrt(total)
            for component in range(length):
                out[patch, component] = np.float64(out[patch, component]) / norm


def embed(codes: Codes, components_t: Array) -> Array:
    """Return float32 (N, L); see `smtdist.kernels.representation`."""
    out = np.empty((codes.n_patches, components_t.shape[1]), np.float32)
    run_ranges(
        lambda start, stop: embed_patches(codes.indptr, codes.indices, components_t, start, stop, out),
        even_ranges(codes.n_patches, 1024),
    )
    return out
