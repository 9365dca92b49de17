"""The objective of binary concepts: centred kernels, their distance, and the weights.

"Unsupervised learning of categories": equation (3) with the weights Π kept, and the linear sparsity penalty
of section 2.1.1. Everything here is exact arithmetic on small matrices; nothing is p x p.
"""

from __future__ import annotations

from itertools import product
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky, solve_triangular
from scipy.linalg.lapack import dposv
from scipy.optimize import nnls

from smtdist.errors import ConfigurationError

Matrix = NDArray[np.float64]
PIVOTS: Final = 12
"""Blocks that are exchanged, at most, before weights are found one by one."""


class Moments(NamedTuple):
    """What the loss needs of S (p x b) and X (p x n): sums over points, so they add up over blocks of rows."""

    points: int
    members: Matrix  # (b,) Sᵀ1
    together: Matrix  # (b, b) SᵀS
    crossed: Matrix  # (b, n) SᵀX
    total: Matrix  # (n,) Xᵀ1
    gram: Matrix  # (n, n) XᵀX


def moments(concepts: NDArray[np.generic], data: NDArray[np.generic]) -> Moments:
    """Return the sums of S and X over all points.

    >>> moments(np.eye(2), np.eye(2)).together
    array([[1., 0.],
           [0., 1.]])
    """
    s, x = np.asarray(concepts, float), np.asarray(data, float)
    return Moments(len(s), s.sum(0), s.T @ s, s.T @ x, x.sum(0), x.T @ x)


def centred(sums: Moments) -> tuple[Matrix, Matrix, Matrix]:
    """Return S̄ᵀS̄ (b, b), S̄ᵀX̄ (b, n) and X̄ᵀX̄ (n, n): H = I - 11ᵀ/p applied to both sides."""
    p = sums.points
    return (
        sums.together - np.outer(sums.members, sums.members) / p,
        sums.crossed - np.outer(sums.members, sums.total) / p,
        sums.gram - np.outer(sums.total, sums.total) / p,
    )


class Terms(NamedTuple):
    """What is left of the sums in equation (3), whatever the weights: ‖S̄ΠS̄ᵀ - X̄X̄ᵀ‖² = πᵀAπ - 2 pullᵀπ + norm."""

    overlap: Matrix  # A (b, b), (S̄ᵀS̄)² entry by entry
    pull: Matrix  # (b,) ‖X̄ᵀs̄_a‖²
    norm: float  # ‖X̄ᵀX̄‖²
    members: Matrix  # (b,) Sᵀ1


def terms(sums: Moments | Terms) -> Terms:
    """Return the terms of the loss from sums; terms are returned as they are."""
    if isinstance(sums, Terms):
        return sums
    inner, crossed, gram = centred(sums)
    return Terms(inner * inner, (crossed**2).sum(1), float((gram**2).sum()), sums.members)


def loss(sums: Moments | Terms, weights: Matrix, penalty: float = 0.0) -> float:
    """Return ‖S̄ΠS̄ᵀ - X̄X̄ᵀ‖² + penalty 1ᵀS1 (equation 3 and section 2.1.1) from sums, never p x p.

    With C = S̄ᵀS̄ it is Σ π_a π_b C_ab² - 2 Σ π_a ‖X̄ᵀs̄_a‖² + ‖X̄ᵀX̄‖².
    """
    found = terms(sums)
    value = float(weights @ found.overlap @ weights) - 2 * float(weights @ found.pull) + found.norm
    return value + penalty * float(found.members.sum())


def reached(sums: Moments | Terms, weights: Matrix) -> tuple[float, float]:
    """Return loss, without a penalty, and the centred kernel alignment of SΠSᵀ and XXᵀ (equation 2).

    That is in [0, 1], 0 where either is constant.
    """
    found = terms(sums)
    norm, pull = float(weights @ found.overlap @ weights), float(weights @ found.pull)
    both = norm * found.norm
    return norm - 2 * pull + found.norm, min(1.0, pull / float(np.sqrt(both))) if both > 0 else 0.0


def best_scale(sums: Moments | Terms, weights: Matrix, penalty: float = 0.0) -> float:
    """Return the σ >= 0 that minimises ‖σ S̄ΠS̄ᵀ - X̄X̄ᵀ‖² (appendix A.4.2) plus penalty σ 1ᵀSπ; 0 where S is constant."""
    found = terms(sums)
    norm = float(weights @ found.overlap @ weights)
    pull = float(weights @ found.pull) - penalty / 2 * float(weights @ found.members)
    return max(0.0, pull) / norm if norm > 0 else 0.0


def best_weights(sums: Moments | Terms, penalty: float = 0.0) -> Matrix:
    """Return π >= 0 that minimises equation (3) plus penalty Σ π_a Σ_i s_ia at fixed S, by non-negative least squares.

    Here the penalty is on the weighted sizes: with S fixed the linear term of section 2.1.1 would be
    constant. Memory: a few b x b matrices.
    """
    found = terms(sums)
    return _quadratic_nonnegative(found.overlap, found.pull - penalty / 2 * found.members)


def _quadratic_nonnegative(quadratic: Matrix, linear: Matrix) -> Matrix:
    """Return argmin zᵀAz - 2bᵀz over z >= 0, with a ridge of rounding size.

    By block principal pivoting (Kim and Park, 2011): all that are below 0 leave the support at once, all
    whose gradient is come in; from all of them, that takes some few solutions where most stay. Where that
    does not end, by an active set.
    """
    b = len(quadratic)
    largest = float(np.diag(quadratic).max(initial=0.0))
    if largest <= 0:
        return np.zeros(b)
    ridged = quadratic.copy()
    ridged.flat[:: b + 1] += 1e-10 * largest
    support = np.ones(b, bool)
    for _ in range(PIVOTS):
        solution = np.zeros(b)
        if support.all():
            solution = _solved(ridged, linear)
        elif support.any():
            solution[support] = _solved(ridged[support][:, support], linear[support])
        rising = ~support & (linear - ridged @ solution > 1e-12 * np.abs(linear).max())
        falling = solution < 0
        if not (rising.any() or falling.any()):
            return solution
        support = (support & ~falling) | rising
    whole = cholesky(ridged, lower=False)
    target = solve_triangular(whole, linear, trans="T")
    solution, _ = nnls(whole, target, maxiter=30 * b)
    return np.asarray(solution, np.float64)


def _solved(quadratic: Matrix, linear: Matrix) -> Matrix:
    """Return A⁻¹ b for a positive definite A: LAPACK alone, for small systems by the dozen."""
    _, solution, failed = dposv(quadratic, linear)
    if failed:
        raise LinAlgError(f"The leading minor of order {failed} is not positive definite.")
    return np.asarray(solution, np.float64)


def all_concepts(points: int) -> NDArray[np.uint8]:
    """Return every concept of p points up to complements: (p, 2^(p-1) - 1), the sparser side, by size.

    Where both sides have the same size the first point is outside. Memory: p 2^(p-1) bytes.

    >>> all_concepts(3).T.tolist()
    [[0, 0, 1], [0, 1, 0], [1, 0, 0]]
    """
    if not 2 <= points <= 20:
        raise ConfigurationError(
            f"All concepts of {points} points are too many or none; give 2 to 20 points."
        )
    sides = np.array([(0, *rest) for rest in product((0, 1), repeat=points - 1)][1:], np.uint8)
    sizes = sides.sum(1)
    sides[2 * sizes > points] ^= 1
    order = np.lexsort((*sides.T[::-1], sides.sum(1)))
    return np.ascontiguousarray(sides[order].T)


def brute_force(data: NDArray[np.generic], penalty: float = 1e-3) -> tuple[NDArray[np.uint8], Matrix]:
    """Return the sparsest optimum of equation (3) for p <= 10: S fixed to all concepts, π by least squares (Figure 2).

    `penalty`, relative to the mean squared norm of a centred point, breaks ties towards small concepts.
    Returns the concepts of non-zero weight (p, b) and their weights. Memory and time grow as 4^p.
    """
    x = np.asarray(data, float)
    if len(x) > 10:
        raise ConfigurationError(
            f"Brute force is for at most 10 points, not {len(x)}; use a method instead."
        )
    candidates = all_concepts(len(x))
    sums = moments(candidates, x)
    # a kernel of p points has p (p - 1) / 2 distances: fewer equations than concepts, and the penalty alone decides
    spread = float(np.mean(np.sum((x - x.mean(0)) ** 2, axis=1)))
    rows, columns = np.triu_indices(len(x))
    doubled = np.where(rows == columns, 1.0, np.sqrt(2.0))
    s_bar, x_bar = candidates - candidates.mean(0), x - x.mean(0)
    kernels = s_bar[rows] * s_bar[columns] * doubled[:, None]
    target = np.einsum("ij,ij->i", x_bar[rows], x_bar[columns]) * doubled
    weights = _penalised(kernels, target, penalty * spread * sums.members)
    keep = weights > 1e-6 * weights.max(initial=0.0)
    return candidates[:, keep], weights[keep]


def _penalised(design: Matrix, target: Matrix, cost: Matrix) -> Matrix:
    """Return argmin ‖Az - y‖² + costᵀz over z >= 0, by coordinate descent to rounding.

    Adding a row √δ costᵀ with target -1/(2√δ) adds δ (costᵀz)² + costᵀz + constant; δ is made negligible.
    """
    delta = 1e-6
    extra = np.sqrt(delta) * cost
    stacked = np.vstack([design, extra])
    goal = np.append(target, -1 / (2 * np.sqrt(delta)))
    solution, _ = nnls(stacked, goal, maxiter=100 * design.shape[1])
    return np.asarray(solution, np.float64)
