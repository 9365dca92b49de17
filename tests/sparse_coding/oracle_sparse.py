"""Sparse coding from its equations, as plainly as possible: float64, one row at a time."""

from __future__ import annotations

import numpy as np


def objective(dictionary, x, code, penalty):
    """Equation (9): ½ ‖x - Φ α‖² + Σ λ_j |α_j|, of one row."""
    rest = x - dictionary @ code
    return 0.5 * rest @ rest + np.sum(np.broadcast_to(penalty, code.shape) * np.abs(code))


def relative_gap(dictionary, x, code, penalty, positive):
    """The objective minus that of the dual point s r, r = x - Φ α, over the objective.

    The dual of (9): max over θ of ½ ‖x‖² - ½ ‖x - θ‖² where |φ_j θ| <= λ_j; of (10): where φ_j θ <= λ_j.
    """
    rest = x - dictionary @ code
    pulls = dictionary.T @ rest
    heights = (pulls if positive else np.abs(pulls))[np.linalg.norm(dictionary, axis=0) > 0]
    cuts = np.broadcast_to(penalty, code.shape)[np.linalg.norm(dictionary, axis=0) > 0]
    largest = np.max(heights / cuts, initial=0)
    scale = 1 / largest if largest > 0 else np.inf
    scale = max(min(scale, (x @ rest) / (rest @ rest)), 0) if rest @ rest > 0 else 0
    dual = 0.5 * x @ x - 0.5 * np.sum((x - scale * rest) ** 2)
    primal = objective(dictionary, x, code, penalty)
    return (primal - dual) / primal if primal > 0 else 0.0
