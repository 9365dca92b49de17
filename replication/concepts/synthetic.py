"""Data with known concepts (section 3 of "Unsupervised learning of categories"), and how well they are found again."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from smtdist.concepts.objective import moments, reached

Concepts = NDArray[np.uint8]
Matrix = NDArray[np.float64]


def independent(rng: np.random.Generator, p: int) -> Concepts:
    """Draw sqrt(2p) random concepts, none constant."""
    while True:
        s = (rng.random((p, int(np.sqrt(2 * p)))) < 0.5).astype(np.uint8)
        if np.ptp(s, axis=0).all():
            return s


def hierarchical(rng: np.random.Generator, p: int) -> Concepts:
    """Split the points into 2 to 4 parts, a concept each, and go on within each part."""
    concepts: list[NDArray[np.uint8]] = []

    def split(members: NDArray[np.int64]) -> None:
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


def mixed(rng: np.random.Generator, p: int) -> Concepts:
    """Put both kinds side by side."""
    return np.concatenate([independent(rng, p), hierarchical(rng, p)], 1)


KINDS = {"independent": independent, "hierarchical": hierarchical, "mixed": mixed}


def embedded(rng: np.random.Generator, s: Concepts, n: int, snr: float) -> tuple[Matrix, Matrix]:
    """Return S Wᵀ with orthonormal W (n, b) with and without Gaussian noise of 10^(-snr/10) times its energy."""
    w = np.linalg.qr(rng.normal(size=(n, s.shape[1])))[0]
    clean = s @ w.T
    noise = rng.normal(size=clean.shape)
    noise *= np.sqrt((clean**2).sum() / (noise**2).sum()) * 10 ** (-snr / 20)
    return clean + noise, clean


def scored(
    found: Concepts, weights: Matrix, true: Concepts, noisy: Matrix, clean: Matrix
) -> dict[str, Any]:
    """Return the normalised Hamming distance to the true concepts after permutation and flips, and the CKA with both kernels.

    Each true concept is matched to a found one, or to none at the distance 1/2. "hamming_larger" is the mean over true
    concepts of more than one member, in the same matching. "cka" and "cka_clean" are of SΠSᵀ as fitted, with the data and with
    the data without noise; "cka_true" is of SSᵀ with the true concepts' kernel, no weights, as the paper's author measures it.
    """
    p = len(true)
    same = found.astype(np.int64).T @ true + (1 - found.astype(np.int64)).T @ (1 - true.astype(np.int64))
    distance = np.minimum(same, p - same)
    rows, columns = linear_sum_assignment(distance)
    apart = np.full(true.shape[1], p / 2)
    apart[columns] = distance[rows, columns]
    sizes = true.sum(0, dtype=np.int64)
    larger = np.minimum(sizes, p - sizes) > 1
    return {
        "hamming": float(apart.mean() / p),
        "hamming_larger": float(apart[larger].mean() / p),
        "cka": reached(moments(found, noisy), weights)[1],
        "cka_clean": reached(moments(found, clean), weights)[1],
        "cka_true": reached(moments(found, true), np.ones(found.shape[1]))[1],
    }
