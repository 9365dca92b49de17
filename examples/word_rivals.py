"""Two other embeddings of the same counts, for comparison: GloVe, and the SVD of positive pointwise mutual information."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse

from smtdist.errors import ConfigurationError, ModelError
from smtdist.kernels import convergence
from smtdist.kernels.cpu.jit import compiled
from smtdist.kernels.types import Array
from smtdist.solve import iterative
from smtdist.solve.solution import Float64
from smtdist.statistics.word_pairs import WordSums


@dataclass(frozen=True, kw_only=True)
class GloveSettings:
    """GloVe's settings, with the values its authors give (Pennington, Socher and Manning 2014, section 4.2).

    The counts are not weighted by distance here: the comparison is on the counts that the transform has.
    """

    n_components: int = 100
    sweeps: int = 25
    rate: float = 0.05
    most: float = 100.0
    power: float = 0.75
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.n_components, self.sweeps) < 1 or min(self.rate, self.most) <= 0:
            raise ConfigurationError(
                "n_components and sweeps of GloVe must be at least 1, rate and most above 0."
            )


@dataclass(frozen=True)
class Glove:
    """Vectors of words and contexts, (K, L) each, their biases, (K,), and the loss of every sweep."""

    words: Float64
    contexts: Float64
    word_biases: Float64
    context_biases: Float64
    losses: tuple[float, ...]

    @property
    def ending(self) -> convergence.Convergence | None:
        """How the sweeps ended: converged where the last tenth of them changed the loss by no more than a hundredth, or the
        last half shows no trend."""
        return convergence.of_rounds(self.losses)

    def vectors(self) -> Float64:
        """Return the sum of word and context vectors, as its authors use them."""
        return self.words + self.contexts


def glove(near: scipy.sparse.csr_array, settings: GloveSettings) -> Glove:
    """Minimise Σ f(X_ij) (u_i·v_j + b_i + c_j - log X_ij)² over the X_ij > 0 (GloVe, eq. 8) by AdaGrad.

    f(x) = min(1, (x / most)^power). `near` X is (K, K), symmetric, counts of both orders. The entries are
    taken in an order drawn from the seed, one at a time, so that a result depends on counts and settings
    alone. Memory: 32 K L bytes and 36 bytes an entry. Raises ModelError where no two words are near one
    another.

    >>> near = scipy.sparse.csr_array(np.array([[0, 9, 1], [9, 0, 1], [1, 1, 0]]))
    >>> found = glove(near, GloveSettings(n_components=2, sweeps=50))
    >>> found.vectors().shape, found.losses[-1] < found.losses[0] / 2, found.ending.n_iter
    ((3, 2), True, 50)
    """
    upper = scipy.sparse.triu(near).tocoo()
    positive = upper.data > 0
    if not positive.any():
        raise ModelError("No two words are near one another; there is nothing to fit.")
    row, column, count = (part[positive] for part in (upper.row, upper.col, upper.data.astype(np.float64)))
    n_words, size = near.shape[0], settings.n_components
    draw = np.random.default_rng(settings.seed)
    vectors = draw.uniform(-0.5, 0.5, (2, n_words, size)) / size
    biases = draw.uniform(-0.5, 0.5, (2, n_words)) / size
    squares, bias_squares = np.ones_like(vectors), np.ones_like(biases)
    weight = np.minimum(1.0, (count / settings.most) ** settings.power)
    losses = []
    entries = row, column, np.log(count), weight
    for _ in range(settings.sweeps):
        order = draw.permutation(2 * len(row))
        losses.append(float(sweep(*entries, order, settings.rate, vectors, squares, biases, bias_squares)))
    found = Glove(vectors[0], vectors[1], biases[0], biases[1], tuple(losses))
    convergence.warn(convergence.advice(convergence.facts_of(found.ending), "sweeps"))
    return found


def positive_information(near: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """Return max(0, log(X_ij N / (X_i X_j))), sparse, with X_i the sum of row i and N that of all.

    >>> positive_information(scipy.sparse.csr_array(np.array([[0, 3], [3, 2]]))).toarray().round(3)
    array([[0.  , 0.47],
           [0.47, 0.  ]])
    """
    entries = near.tocoo()
    total = np.asarray(near.sum(axis=1), np.float64).reshape(-1)
    value = np.log(entries.data * total.sum() / (total[entries.row] * total[entries.col]))
    above = value > 0
    places = (entries.row[above], entries.col[above])
    return scipy.sparse.csr_array((value[above], places), shape=near.shape)


def ppmi_svd(sums: WordSums, n_components: int, power: float = 0.5) -> Float64:
    """Return U_L S_L^power of the singular value decomposition of the positive pointwise mutual information, (K, L).

    Levy, Goldberg and Dagan (2015) found powers of 0 and 0.5 better than 1. The matrix is symmetric, so the
    decomposition is found from its eigenvalues of largest magnitude. Memory: 12 bytes an entry, and what
    the solve takes.
    """
    information = positive_information(sums.cooccurrence())
    values, vectors = iterative.largest_eigenvectors(information, n_components, which="LM")
    return vectors * np.abs(values) ** power


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
