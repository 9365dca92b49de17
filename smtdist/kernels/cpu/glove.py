"""One sweep of GloVe's stochastic descent with AdaGrad, compiled."""

from __future__ import annotations

import numpy as np

from smtdist.kernels.cpu.jit import compiled
from smtdist.kernels.types import Array


@compiled
def sweep(
    row: Array,
    column: Array,
    target: Array,
    weight: Array,
    order: Array,
    rate: float,
    vectors: Array,
    squares: Array,
    biases: Array,
    bias_squares: Array,
) -> float:
    """Take every entry once, in the given order: 2 n entries, the second n with words and contexts exchanged.

    `vectors` (2, K, L) holds words and contexts, `biases` (2, K) theirs, `squares` and `bias_squares`
    AdaGrad's sums. Returns Σ weight x error² as met on the way.
    """
    n, size = len(row), vectors.shape[2]
    loss = 0.0
    for entry in order:
        at = entry if entry < n else entry - n
        i, j = row[at], column[at]
        if entry >= n:
            i, j = j, i
        word, near = vectors[0, i], vectors[1, j]
        word_squares, near_squares = squares[0, i], squares[1, j]
        error = biases[0, i] + biases[1, j] - target[at]
        for component in range(size):
            error += word[component] * near[component]
        pull = weight[at] * error
        loss += pull * error
        for component in range(size):
            a, b = pull * near[component], pull * word[component]
            word[component] -= rate * a / np.sqrt(word_squares[component])
            near[component] -= rate * b / np.sqrt(near_squares[component])
            word_squares[component] += a * a
            near_squares[component] += b * b
        biases[0, i] -= rate * pull / np.sqrt(bias_squares[0, i])
        biases[1, j] -= rate * pull / np.sqrt(bias_squares[1, j])
        bias_squares[0, i] += pull * pull
        bias_squares[1, j] += pull * pull
    return loss
