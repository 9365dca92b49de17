"""From counts of pairs of words to an embedding."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from smtdist.errors import ConfigurationError
from smtdist.solve import iterative
from smtdist.solve.solution import Solution
from smtdist.statistics.word_pairs import WordSums

if TYPE_CHECKING:
    from smtdist.models.words.model import WordSettings

ALLOWANCE: Final = 64 * 2**20
"""What libraries load and allocate on their own while the solve runs."""


def solve_words(statistics: WordSums, settings: WordSettings) -> Solution:
    """Solve for the embedding; words that are near no other, or in a group of their own, take no part."""
    active = statistics.connected()
    wanted = settings.n_components + settings.drop_components
    if wanted >= active.sum():
        raise ConfigurationError(
            f"n_components + drop_components is {wanted}, but only {int(active.sum()):,} words are near one another; ask for "
            f"fewer components or give more text."
        )
    moment = statistics.activity if settings.second_moment == "second" else statistics.degree()
    # both divided by the number of positions n, C and V have the same eigenvalues and P is sqrt(n) times as large
    found = iterative.smallest_components_sparse(
        statistics.context_scatter(), moment, wanted, active=active
    )
    return replace(found, components=found.components * np.sqrt(max(1, statistics.n_positions)))


def solve_bytes(pairs: int, words: int, settings: WordSettings) -> int:
    """Return what a solve takes: the sums as CSR in whole numbers, their scaled values, the vectors that iterations keep."""
    wanted = settings.n_components + settings.drop_components
    return ALLOWANCE + 56 * pairs + 8 * words * (3 * wanted + 20)
