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
        line = out[patch]
        line[:] = 0
        for entry in range(indptr[patch], indptr[patch + 1]):
            column = components_t[np.int64(indices[entry])]
            for component in range(length):
                line[component] += column[component]
        total = 0.0
        for component in range(length):
            value = np.float64(line[component])
            total += value * value
        if total > 0:
            norm = np.sqrt(total)
            for component in range(length):
                line[component] = np.float64(line[component]) / norm


def embed(codes: Codes, components_t: Array) -> Array:
    """Return float32 (N, L); see `smtdist.kernels.representation`."""
    out = np.empty((codes.n_patches, components_t.shape[1]), np.float32)
    run_ranges(
        lambda start, stop: embed_patches(codes.indptr, codes.indices, components_t, start, stop, out),
        even_ranges(codes.n_patches, 1024),
    )
    return out
