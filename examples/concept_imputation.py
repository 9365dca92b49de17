"""How many concepts, and how sparse: cross-validation by entries of X that the fit does not see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.concepts.fit import fit_concepts
from smtdist.concepts.keyed import uniforms
from smtdist.concepts.settings import ConceptSettings
from smtdist.data.table import as_table, read_rows
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Imputed:
    """One choice of settings and its error on hidden entries, over their variance; one number a fold."""

    n_concepts: int
    penalty: float
    errors: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over folds."""
        return float(np.mean(self.errors))

    @property
    def standard_error(self) -> float:
        """The standard error of the mean; 0 for one fold."""
        count = len(self.errors)
        return float(np.std(self.errors, ddof=1) / np.sqrt(count)) if count > 1 else 0.0


def impute(
    table: Any,
    settings: ConceptSettings,
    engine: Engine,
    hidden: NDArray[np.bool_],
    *,
    rounds: int = 3,
) -> Matrix:
    """Return X with hidden entries filled in: column means first, then reconstructions of fits to the filled table, in turn.

    Memory: a few p x n float64; the table is read whole.
    """
    x = read_rows(as_table(table)).astype(np.float64)
    seen = np.where(hidden, 0.0, x).sum(0) / np.maximum((~hidden).sum(0), 1)
    filled = np.where(hidden, seen, x)
    for _ in range(rounds):
        model = fit_concepts(filled, settings, engine)
        filled = np.where(hidden, model.reconstruct(), x)
    return filled


def cross_validate(
    table: Any,
    settings: ConceptSettings,
    engine: Engine,
    *,
    n_concepts: Sequence[int],
    penalties: Sequence[float],
    folds: int = 3,
    share: float = 0.1,
    rounds: int = 3,
) -> list[Imputed]:
    """Return the error of each pair of n_concepts and penalty on hidden entries, the best first.

    Each fold hides `share` of the entries, chosen by (seed, fold, row, column). 1 is the error of column
    means. The parsimonious choice is the smallest b within one standard error of the best: see
    `parsimonious`. Cost: folds x pairs x rounds fits.
    """
    if not 0 < share < 1 or folds < 1 or rounds < 1:
        raise ConfigurationError(
            f"share {share}, folds {folds}, rounds {rounds}: give a share between 0 and 1, and at least one of the others."
        )
    x = read_rows(as_table(table)).astype(np.float64)
    rows, columns = (np.arange(length) for length in x.shape)
    errors: dict[tuple[int, float], list[float]] = {pair: [] for pair in product(n_concepts, penalties)}
    for fold in range(folds):
        hidden = uniforms(settings.random_state, fold, rows, columns) < share
        seen = np.where(hidden, 0.0, x).sum(0) / np.maximum((~hidden).sum(0), 1)
        spread = float((((x - seen) * hidden) ** 2).sum()) or 1.0
        for (b, penalty), found in errors.items():
            chosen = settings.replace(n_concepts=b, penalty=penalty)
            filled = impute(x, chosen, engine, hidden, rounds=rounds)
            found.append(float(((filled - x)[hidden] ** 2).sum()) / spread)
    results = [Imputed(b, penalty, tuple(found)) for (b, penalty), found in errors.items()]
    return sorted(results, key=lambda one: (one.mean, one.n_concepts))


def parsimonious(results: Sequence[Imputed]) -> Imputed:
    """Return the fewest concepts, then the largest penalty, within one standard error of the best."""
    best = min(results, key=lambda one: one.mean)
    near = [one for one in results if one.mean <= best.mean + best.standard_error]
    return min(near, key=lambda one: (one.n_concepts, -one.penalty))
