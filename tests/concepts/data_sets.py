"""Data with known concepts: random, hierarchical and both, embedded orthogonally with noise (section 3 of the paper)."""

import numpy as np


def independent(rng, p, b):
    """b random concepts of p points, none constant, no two alike."""
    while True:
        S = (rng.random((p, b)) < 0.5).astype(np.uint8)
        codes = {tuple(s ^ s[0]) for s in S.T}
        if len(codes) == b and (0,) * p not in codes:
            return S


def hierarchical(rng, p):
    """Concepts of a random tree: points are split into 2 to 4 parts, a concept each, and so on in each part."""
    concepts = []

    def split(members):
        if len(members) < 2:
            return
        parts = min(int(rng.integers(2, 5)), len(members))
        sizes = rng.multinomial(len(members) - parts, np.ones(parts) / parts) + 1
        for part in np.split(members, np.cumsum(sizes)[:-1]):
            s = np.zeros(p, np.uint8)
            s[part] = 1
            concepts.append(s)
            split(part)

    split(rng.permutation(p))
    return np.stack(concepts, 1)


def embedded(rng, S, n, snr):
    """S Wᵀ with orthonormal W (n x b) and Gaussian noise of 10^(-snr/10) times its energy."""
    W = np.linalg.qr(rng.normal(size=(n, S.shape[1])))[0]
    X = S @ W.T
    noise = rng.normal(size=X.shape)
    return X + noise * np.sqrt((X**2).sum() / (noise**2).sum()) * 10 ** (-snr / 20)
