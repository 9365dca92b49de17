"""Oracles for binary concepts, written from the paper's equations with p x p matrices and no thought of cost."""

import itertools
import math

import numpy as np
from scipy.optimize import linear_sum_assignment


def centring(p):
    return np.eye(p) - np.ones((p, p)) / p


def kernel_loss(S, X, pi, penalty=0.0):
    """Equation (3) as it stands, with the linear term of section 2.1.1."""
    H = centring(len(S))
    Q = H @ S @ np.diag(pi) @ S.T @ H
    K = H @ X @ X.T @ H
    return float(np.sum((Q - K) ** 2)) + penalty * float(S.sum())


def cka(S, X, pi):
    """Equation (2)."""
    H = centring(len(S))
    K, Q = X @ X.T, S @ np.diag(pi) @ S.T
    numerator = np.trace(H @ K @ H @ Q)
    return float(numerator / math.sqrt(np.trace(K @ H @ K @ H) * np.trace(Q @ H @ Q @ H)))


def printed_row_problem(S, X, x):
    """J and h of equations (4), (9), (10) exactly as printed (no weights)."""
    n = len(S)
    t = n / (n + 1)
    mean = S.mean(0)
    tilde = 2 * mean - 1
    S_bar, X_bar, x_bar = S - mean, X - X.mean(0), x - X.mean(0)
    J = 2 * S_bar.T @ S_bar + t * np.outer(tilde, tilde)
    h = J @ mean + t * ((1 - mean) @ mean) * tilde - t * (x_bar @ x_bar) * tilde + 2 * S.T @ X_bar @ x_bar
    return J, h


def hopfield_input(J, h, s, i):
    """The input of unit i with every other unit held, from the definition of a quadratic's difference."""
    on, off = s.copy(), s.copy()
    on[i], off[i] = 1, 0
    return -0.5 * ((on @ J @ on - 2 * h @ on) - (off @ J @ off - 2 * h @ off))


def energy_fixed_points(U):
    """Every ±1 vector that sign(U Uᵀ s) leaves alone, by trying all of them."""
    p = len(U)
    found = []
    for bits in itertools.product((-1, 1), repeat=p):
        s = np.array(bits, float)
        if np.array_equal(np.where(U @ (U.T @ s) >= 0, 1, -1), s):
            found.append(s)
    return found


def hamming_after_matching(S, T):
    """Mean distance of the columns of T to their partners in S, over permutations and flips, divided by p."""
    p = len(S)
    d = np.array([[min(np.sum(s != t), p - np.sum(s != t)) for s in S.T] for t in T.T])
    rows, columns = linear_sum_assignment(d)
    missing = T.shape[1] - len(rows)
    return float((d[rows, columns].sum() + missing * p / 2) / (T.shape[1] * p))


def graph_distances(nodes, edges):
    """Shortest paths by Floyd and Warshall."""
    index = {node: i for i, node in enumerate(nodes)}
    d = np.full((len(nodes), len(nodes)), np.inf)
    np.fill_diagonal(d, 0)
    for a, b in edges:
        d[index[a], index[b]] = d[index[b], index[a]] = 1
    for k in range(len(nodes)):
        d = np.minimum(d, d[:, [k]] + d[[k], :])
    return d
