"""Data with known concepts: random, hierarchical and both, embedded orthogonally with noise (section 3 of the paper)."""

import numpy as np

from replication.concepts import synthetic
from replication.concepts.synthetic import hierarchical
from smtdist.concepts.settings import ConceptSettings

__all__ = ["descent", "embedded", "hierarchical", "independent", "searching"]


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


def descent(n_concepts, **settings):
    """Settings of a descent alone, warm and without a penalty."""
    alone = {"method": "hopfield", "penalty": 0.0, "temperature": 0.3, "cooling": 0.95}
    return ConceptSettings(**alone | {"n_concepts": n_concepts} | settings)


def searching(n_concepts, **settings):
    """Settings of rejection in many rounds."""
    return ConceptSettings(**{"n_concepts": n_concepts, "tolerance": 0.1, "rounds": 16} | settings)
