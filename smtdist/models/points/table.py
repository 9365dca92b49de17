"""Tables embedded from settings: which features, whose neighbours; and new points under the same features."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.data.neighbours import NeighbourSource, NoisePairs
from smtdist.data.source import Source
from smtdist.data.table import as_table, read_rows
from smtdist.engine.manifest import Facts
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, ModelError, counted
from smtdist.kernels import features
from smtdist.kernels.row_codes import PositiveCodes, Pursuit, Threshold
from smtdist.models import transform as row_embedding
from smtdist.models.points.contexts import (
    Context,
    locally_linear_context,
    mean_context,
    nearest_neighbours,
    spread_points,
    symmetric_context,
    temporal_context,
)
from smtdist.models.points.fit import PointModel, in_context, noisy_pairs
from smtdist.models.points.sites import ROWS_OF_TABLES, SiteKind, require_sites, rows_of, site_kind
from smtdist.settings import TABLE, TEXT, Settings, number, one_of, seed, setting, several, shared, whole

FEATURES: Final = (
    *("landmarks", "threshold", "l1", "omp"),
    *("interpolation", "rbf", "fourier", "quadratic"),
)
CONTEXTS: Final = ("noise", "knn", "mean", "lle", "time")
_ORDERS: Final = {"noise": 1, "knn": 1, "mean": 2, "lle": 2}
METHODS: Final = ("auto", "exact", "faiss")
SOME_ROWS: Final = 20_000
"""Rows that landmarks are chosen among where samples have rows of their own."""


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
        one_of(*METHODS),
        'how neighbours are found: "exact", which "auto" is too, or "faiss", in float32.',
        default="auto",
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

    @property
    def difference(self) -> int:
        """Order of the differences that the context takes: that of time is `difference_order`, others have their own."""
        return self.difference_order if self.context == "time" else _ORDERS[self.context]


def fit_table(
    points: Any, settings: PointSettings, engine: Engine
) -> tuple[PointModel, list[dict[str, Any]]]:
    """Embed the rows of a table (SMT 2023, eq. 3): one pass over points and neighbours, then a solve.

    `points` are as in `smtdist.data.table.as_table`. Landmarks are rows that tile the others, each the
    farthest from those before it. Memory: the table in float64 on the driver, for landmarks and neighbours,
    twice for nearest neighbours; on workers as the pass states. Returns the records of its steps too.

    >>> from smtdist.engine.executor import SerialExecutor
    >>> rows = np.random.default_rng(0).uniform(size=(200, 2))
    >>> asked = PointSettings(size=20, neighbours=5, n_components=3)
    >>> model, _ = fit_table(rows, asked, Engine(SerialExecutor()))
    >>> model.transform(rows[:5]).shape
    (5, 3)
    """
    table = points if isinstance(points, Source) and settings.sites != ROWS_OF_TABLES else as_table(points)
    with engine.run(("statistics", "solve"), lambda: Facts.of(table, settings.to_dict())):
        return _fitted(table, settings, engine)


def _fitted(
    table: Source, settings: PointSettings, engine: Engine
) -> tuple[PointModel, list[dict[str, Any]]]:
    kind = site_kind(settings.sites, settings.of_sites)
    if kind is None:
        rows, sites = read_rows(table).astype(np.float64), 1
        source: Source = table_in_context(table, settings)
    else:
        rows, sites = some_rows(table, kind)
        source = table
    features = chosen_features(rows, settings)
    if settings.n_components > features.size:
        raise ConfigurationError(
            f"n_components is {settings.n_components}, but there are {counted(features.size, 'feature')}; ask for fewer."
        )
    model = PointModel(features, settings, n_inputs=rows.shape[1], n_sites=sites)
    statistics, record = model.summed(source, engine)
    embedding, solved = model.solved(statistics, engine)
    return model.finished(statistics, embedding, table.describe()), [record, solved]


def some_rows(source: Source, kind: SiteKind) -> tuple[NDArray[np.float64], int]:
    """Return rows of samples that lie evenly in a source, at most `SOME_ROWS` of them, and how many rows a sample has."""
    with source.opened() as reader:
        sites = rows_of(kind, reader.read(0, 1)).shape[1]
        wanted = min(source.n_samples, max(1, SOME_ROWS // sites))
        chosen = np.linspace(0, source.n_samples, wanted, endpoint=False).astype(np.int64)
        parts = [rows_of(kind, reader.read(at, at + 1))[0] for at in chosen.tolist()]
    return np.concatenate(parts), sites


def chosen_features(rows: NDArray[np.float64], settings: PointSettings) -> features.Features:
    """Return the features that settings name, with their landmarks among the rows."""
    if settings.feature_map == "quadratic":
        return features.Quadratic(rows.shape[1])
    if settings.feature_map == "fourier":
        return features.RandomFourier(
            rows.shape[1], settings.n_atoms, settings.width, settings.random_state
        )
    if settings.n_atoms > len(rows):
        raise ConfigurationError(
            f"n_atoms is {settings.n_atoms}, but there are only {counted(len(rows), 'point')} to choose landmarks from; ask for "
            f"fewer."
        )
    if settings.feature_map == "interpolation" and settings.n_neighbors > settings.n_atoms:
        raise ConfigurationError(
            f"neighbours is {settings.n_neighbors}, but there are {counted(settings.n_atoms, 'landmark')}; ask for fewer."
        )
    landmarks = spread_points(rows, settings.n_atoms)
    made: dict[str, Callable[[], features.Features]] = {
        "landmarks": lambda: features.Landmarks(landmarks),
        "threshold": lambda: Threshold(landmarks, settings.threshold),
        "l1": lambda: PositiveCodes(landmarks, settings.penalty),
        "omp": lambda: Pursuit(landmarks, settings.active),
        "interpolation": lambda: features.Interpolation(landmarks, settings.n_neighbors),
        "rbf": lambda: features.RadialBasis(landmarks, settings.width),
    }
    return made[settings.feature_map]()


def table_in_context(table: Source, settings: PointSettings) -> NeighbourSource | NoisePairs:
    """Return the points of a table with their neighbours, as settings name them.

    Memory: the table in float64 twice where neighbours are looked for, none of it for noise and time.
    """
    if settings.context == "noise":
        return noisy_pairs(table, settings.noise, settings.random_state)
    if settings.context == "time":
        return in_time(table, settings.difference_order, settings.lengths)
    return in_context(table, _context(read_rows(table).astype(np.float64), settings))


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


def _context(rows: NDArray[np.float64], settings: PointSettings) -> Context:
    numbers = nearest_neighbours(rows, settings.n_neighbors, settings.method)
    if settings.context == "lle":
        return locally_linear_context(rows, numbers)
    return symmetric_context(numbers) if settings.context == "knn" else mean_context(numbers)


def embedded(
    model: PointModel, source: Source, engine: Engine
) -> Iterator[tuple[int, NDArray[np.floating[Any]]]]:
    """Yield (first point, P f(x) of points, (m, L)) for all rows of a table, in whatever order they end; samples with rows of
    their own have (m, sites, L).

    Every f is defined at any point: a new one has the code of its nearest landmarks, its bumps, waves or
    products. Memory on a worker: the features of 1,024 points, and 16,384 embedded points.
    """
    if model.kind is None and source.shape[1] != model.n_inputs:
        raise ModelError(
            f"The model takes points of {model.n_inputs} numbers, {source.name} has {source.shape[1]}; give rows like those "
            f"it was fitted on."
        )
    return row_embedding.embedded(model.represent, source, engine)
