"""Data with known concepts: random, hierarchical and both, embedded orthogonally with noise (section 3 of the paper)."""

import numpy as np

from benchmarks.concepts import synthetic
from benchmarks.concepts.synthetic import hierarchical

__all__ = ["embedded", "hierarchical", "independent"]


def independent(rng, p, b):
    """b random concepts of p points, none constant, no two alike."""
    while True:
        S = (rng.random((p, b)) < 0.5).astype(np.uint8)
        codes = {tuple(s ^ s[0]) for s in S.T}
        if len(codes) == b and (0,) * p not in codes:
            return S


def embedded(rng, S, n, snr):
    """S Wᵀ with orthonormal W (n x b) and Gaussian noise of 10^(-snr/10) times its energy."""
    return synthetic.embedded(rng, S, n, snr)[0]
