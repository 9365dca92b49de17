"""Settings of points: which features, whose neighbours; and tables read with their neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

import numpy as np

from smtdist.data.source import Source
from smtdist.data.table import NeighbourSource, NoisePairs, read_rows
from smtdist.errors import ConfigurationError, counted
from smtdist.models.points.contexts import (
    Context,
    locally_linear_context,
    mean_context,
    nearest_neighbours,
    symmetric_context,
    temporal_context,
)
from smtdist.models.points.sites import ROWS_OF_TABLES, require_sites
from smtdist.settings import TABLE, TEXT, Settings, number, one_of, seed, setting, several, shared, whole

FEATURES: Final = (
    *("landmarks", "threshold", "l1", "omp"),
    *("interpolation", "rbf", "fourier", "quadratic"),
)
CONTEXTS: Final = ("noise", "knn", "mean", "lle", "time")


class PointSettings(Settings):
    """Settings of a fit of points."""

    OF: ClassVar[str] = "points"

    feature_map: str = setting(
        one_of(*FEATURES),
        'the code f of a point: "landmarks" (one-hot, the nearest), "threshold" (landmarks within an angle), '
        '"l1" (positive L1 codes over the directions of landmarks), "omp" (orthogonal matching pursuit over '
        'these), "interpolation" (weights that rebuild a point from its nearest landmarks), "rbf" (Gaussian '
        'bumps around landmarks), "fourier" (random features) or "quadratic" (all products of two numbers).',
        default="landmarks",
        stored="features",
    )
    n_atoms: int = setting(
        whole(1),
        'number of landmarks or random features; "quadratic" ignores it.',
        default=300,
        stored="size",
    )
    width: float = setting(number(above=0), 'width of the Gaussian of "rbf" and "fourier".', default=1.0)
    threshold: float = setting(
        number(-1, 1), 'cosine from which a landmark is active ("threshold").', default=0.9
    )
    penalty: float = setting(number(above=0), 'λ of "l1".', default=0.1)
    active: int = setting(whole(1), 'number of active landmarks ("omp").', default=3)
    context: str = setting(
        one_of(*CONTEXTS),
        'which points are neighbours: "noise", two noisy copies of each point; "knn", the k nearest, '
        'symmetrised; "mean", a point and the mean of these; "lle", a point and what rebuilds it from '
        'its k nearest; "time", rows that follow one another.',
        default="knn",
    )
    n_neighbors: int = setting(
        whole(1),
        'k; for "interpolation", the number of landmarks that rebuild a point.',
        default=10,
        stored="neighbours",
    )
    noise: float = setting(number(0), "standard deviation of the noisy copies.", default=0.03)
    difference_order: int = shared("difference_order", 1, "order of the differences in time, 1 or 2.")
    lengths: tuple[int, ...] = setting(
        several(whole(0), "numbers of rows, as in 100,250,80"),
        "rows of each sequence, if the table holds several one after the other.",
        default=(),
    )
    second_moment: str = shared(
        "second_moment",
        "second",
        'V; "second", or "centred" about the mean code, as in slow feature analysis.',
    )
    n_components: int = shared(
        "n_components", 4, "dimensions of the embedding; the constant is one of them unless V is centred."
    )
    method: str = setting(
        one_of("auto", "exact", "faiss"),
        "changes nothing: neighbours are exact. Files of earlier versions name one of these.",
        default="auto",
        advanced=True,
    )
    sites: str = setting(
        TEXT,
        'what a sample is: one row of a table ("rows"), or a kind that an installed package brings. Such a '
        "kind defines the rows of a sample and which of them are compared, so `context` has no meaning.",
        default=ROWS_OF_TABLES,
    )
    of_sites: Mapping[str, Any] = setting(TABLE, "the settings of that kind.", default={})
    random_state: int = seed("seed of noise and random features.")

    def check_together(self) -> None:
        """Refuse more components than features, and kinds of samples that no package brings."""
        if self.feature_map != "quadratic" and self.n_components > self.n_atoms:
            raise ConfigurationError(
                f"n_components is {self.n_components}, but there are {self.n_atoms} features; ask for fewer, or raise size."
            )
        require_sites(self.sites)
        if self.sites == ROWS_OF_TABLES:
            self.named(self.of_sites)  # a misspelt name passes for a setting of a kind

    @property
    def difference(self) -> int:
        """Order of the differences that the context takes: that of time is `difference_order`, others have their own."""
        if self.context == "time":
            return self.difference_order
        return 2 if self.context in ("mean", "lle") else 1


def in_context(points: Any, context: Context) -> NeighbourSource:
    """Return points with their neighbours; `points` are as in `smtdist.data.table.as_table`.

    >>> from smtdist.models.points.contexts import temporal_context
    >>> in_context(np.zeros((10, 3)), temporal_context([10])).shape
    (10, 2, 4)
    """
    return NeighbourSource.of(points, context.numbers, context.weights)


def table_in_context(table: Source, settings: PointSettings) -> NeighbourSource | NoisePairs:
    """Return the points of a table with their neighbours, as settings name them.

    Memory: the table in float64 twice where neighbours are looked for, none of it for noise and time.
    """
    if settings.context == "noise":
        return NoisePairs(table, settings.noise, settings.random_state)
    if settings.context == "time":
        return in_time(table, settings.difference_order, settings.lengths)
    rows = read_rows(table).astype(np.float64)
    numbers = nearest_neighbours(rows, settings.n_neighbors)
    if settings.context == "lle":
        return in_context(table, locally_linear_context(rows, numbers))
    of_numbers = symmetric_context if settings.context == "knn" else mean_context
    return in_context(table, of_numbers(numbers))


def in_time(table: Source, order: int, lengths: Sequence[int] = ()) -> NeighbourSource:
    """Return the rows of a table with those that follow and precede them; `lengths` of the sequences, none: one sequence."""
    lengths = tuple(lengths) or (table.n_samples,)
    if sum(lengths) != table.n_samples:
        raise ConfigurationError(
            f"lengths add up to {sum(lengths)}, but there are {counted(table.n_samples, 'row')}; give the rows of every sequence."
        )
    starts = np.zeros(table.n_samples, np.bool_)
    starts[np.cumsum([0, *lengths[:-1]])] = True
    return replace(in_context(table, temporal_context(lengths, order)), starts=starts)
