"""How much of a kernel is not noise: the agreement of the kernels of two halves of the features.

Noise that is independent from feature to feature is in no two halves the same, and what the halves share is
not noise.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from smtdist.concepts.keyed import normals
from smtdist.concepts.scores import Scores
from smtdist.data.table import read_rows
from smtdist.kernels.threads import single_blas

Matrix = NDArray[np.float64]

POINTS: Final = 1024
"""Points that are looked at, at most, in PIECES of neighbours."""
PIECES: Final = 16
SPLITS: Final = 8


def reliability(scores: Scores) -> float:
    """Return the reliability of the kernel, 1 without noise and near 0 for noise alone, by split halves.

    The alignment ρ of the kernels of two halves of the features, debiased (Song et al., 2012: without their
    diagonals, where noise alone would align them), is averaged over eight splits; 2ρ / (1 + ρ) is that of
    the whole (Spearman and Brown). 0 with fewer than four points or two features. Memory: three matrices of
    up to 1,024 x 1,024.
    """
    p, n = scores.points, len(scores.mean)
    if p < 4 or n < 2:
        return 0.0
    size = max(1, POINTS // PIECES)
    starts = [0] if p <= POINTS else [(p - size) * i // (PIECES - 1) for i in range(PIECES)]
    stop = p if p <= POINTS else size
    rows = np.concatenate([read_rows(scores.source, start, start + stop) for start in starts])
    found = []
    with single_blas():
        x = (rows / scores.grid) @ scores.axes.T
        for number in range(SPLITS):
            order = np.argsort(normals(SPLITS, number, n))
            left, right = x[:, order[: n // 2]], x[:, order[n // 2 :]]
            found.append(_debiased(left @ left.T, right @ right.T))
    halves = min(1.0, max(0.0, float(np.mean(found))))
    return 2 * halves / (1 + halves)


def _debiased(left: Matrix, right: Matrix) -> float:
    """Return the debiased alignment of two kernels, whose diagonals are set to 0; 0 where either says nothing."""
    for kernel in (left, right):
        np.fill_diagonal(kernel, 0.0)
    norms = _unbiased(left, left) * _unbiased(right, right)
    return _unbiased(left, right) / float(np.sqrt(norms)) if norms > 0 else 0.0


def _unbiased(left: Matrix, right: Matrix) -> float:
    """Return the unbiased inner product of two centred kernels, but for a factor."""
    p = len(left)
    one, other = left.sum(0), right.sum(0)
    across = float(one.sum()) * float(other.sum()) / ((p - 1) * (p - 2)) - 2 * float(one @ other) / (p - 2)
    return float(np.vdot(left, right)) + across
