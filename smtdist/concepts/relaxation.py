"""Algorithm 3: the convex relaxation, one item at a time, in parallel branches (appendix A.5).

Given concepts and weights of n items, item n + 1 divides each weight: p̂ of π goes to the copy of a concept
that has the item, π - p̂ to the one that has not, and π₀ to a new concept of the item alone. Equation (12),
a bounded quadratic program, is solved exactly by daqp, tilted by a random vector that makes branches differ.
"""

from __future__ import annotations

from typing import Final

import daqp
import numpy as np
from numpy.typing import NDArray

from smtdist.concepts.keyed import normals
from smtdist.concepts.objective import best_weights, brute_force, loss, moments
from smtdist.concepts.scores import Scores
from smtdist.concepts.settings import ConceptSettings
from smtdist.data.source import Source
from smtdist.data.table import as_table, read_rows
from smtdist.engine.passes import Engine
from smtdist.errors import ModelError

Matrix = NDArray[np.float64]

KEPT: Final = 4
"""Concepts kept between items, in multiples of those wanted; the lightest go first."""
NEGLIGIBLE: Final = 1e-6


def item_problem(concepts: Matrix, weights: Matrix, data: Matrix, point: Matrix) -> tuple[Matrix, Matrix]:
    """Return (A, y) of equation (12): the loss of item n + 1 is ‖A (p̂, π₀) - y‖² + constant, divided by t.

    concepts (n, b), data (n, d), point (d,). With m the concepts' means, k and k₀ the kernel centred at the
    n items: rows √2 S̄ (n of them) against √2 (S̄Πm + k), and √t (1 - 2m, 1) against √t (k₀ - mᵀΠm), t = n
    / (n + 1).
    """
    n = len(concepts)
    mean, shift = concepts.mean(0), data.mean(0)
    s_bar, x_bar, new = concepts - mean, data - shift, point - shift
    t = n / (n + 1)
    top = np.hstack([s_bar, np.zeros((n, 1))]) * np.sqrt(2)
    last = np.append(1 - 2 * mean, 1.0) * np.sqrt(t)
    goal = np.append(
        np.sqrt(2) * (s_bar @ (weights * mean) + x_bar @ new),
        np.sqrt(t) * (new @ new - weights @ mean**2),
    )
    return np.vstack([top, last]), goal


def divide(design: Matrix, goal: Matrix, weights: Matrix, tilt: Matrix) -> Matrix:
    """Return argmin ‖Az - y‖² + tiltᵀz over 0 <= z <= (π, ∞): (b + 1,); raises ModelError where the solver gives up."""
    scale = float((design**2).sum() / design.shape[1]) or 1.0
    hessian = 2 * design.T @ design + 1e-9 * scale * np.eye(design.shape[1])
    linear = -2 * design.T @ goal + tilt
    count = design.shape[1]
    upper = np.append(weights, 1e30)
    solution, _, flag, _ = daqp.solve(
        hessian,
        linear,
        np.zeros((0, count)),
        np.ascontiguousarray(upper),
        np.zeros(count),
        np.zeros(count, np.int32),
    )
    if flag < 1:
        raise ModelError(
            f"The quadratic program of an item was not solved (daqp says {flag}); divide the points by their largest number, "
            f"or try another seed."
        )
    return np.clip(np.asarray(solution, np.float64), 0, upper)


def _branch(
    shared: tuple[Matrix, ConceptSettings], source: Source, number: int, stop: int
) -> tuple[Matrix, float]:
    """Return one branch's concepts (p, b) and their loss: brute force for the first items, then item by item."""
    data, settings = shared
    items = min(settings.items, len(data))
    found, weights = brute_force(data[:items])
    concepts = found.astype(np.float64)
    spread = float(np.mean(np.sum((data - data.mean(0)) ** 2, 1)))
    for i in range(items, len(data)):
        design, goal = item_problem(concepts, weights, data[:i], data[i])
        noise = normals(settings.random_state, number * len(data) + i, len(weights) + 1)
        # the sparsity penalty costs members: those that join and the new concept's one
        tilt = settings.perturbation * spread * noise + settings.penalty * spread
        division = divide(design, goal, weights, tilt)
        concepts, weights = _joined(concepts, weights, division, KEPT * settings.n_concepts)
    order = np.argsort(-weights, kind="stable")[: settings.n_concepts]
    concepts = concepts[:, order]
    sums = moments(concepts, data)
    return concepts, loss(sums, best_weights(sums))


def _joined(concepts: Matrix, weights: Matrix, division: Matrix, most: int) -> tuple[Matrix, Matrix]:
    """Return S <- (S with the item, S without it, the item alone) and the weights, without empty ones."""
    n, b = concepts.shape
    joined, alone = division[:b], division[b]
    new = np.vstack(
        [np.hstack([concepts, concepts, np.zeros((n, 1))]), np.repeat([1.0, 0.0, 1.0], [b, b, 1])]
    )
    share = np.concatenate([joined, weights - joined, [alone]])
    keep = np.flatnonzero(share > NEGLIGIBLE * share.max(initial=0.0))
    if len(keep) > most:
        keep = np.sort(keep[np.argsort(-share[keep], kind="stable")[:most]])
    return new[:, keep], share[keep]


def relax(scores: Scores, settings: ConceptSettings, engine: Engine) -> NDArray[np.uint8]:
    """Return the concepts (p, b) of the branch of least loss (Algorithm 3); branches run on the workers.

    Memory: p r and p x 4 n_concepts float64 a branch; time grows as p² n_concepts.
    """
    data = read_rows(scores.source).astype(np.float64) / scores.grid
    stand_in = as_table(np.zeros((settings.branches, 1)))
    ranges = [(i, i + 1) for i in range(settings.branches)]
    ends = dict(engine.map(_branch, (data, settings), stand_in, ranges))
    best = min(ranges, key=lambda one: (ends[one][1], one))
    return np.asarray(ends[best][0], np.uint8)
