"""Points embedded by the sparse manifold transform: one pass over points and their neighbours, then a solve."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from smtdist.data.fingerprint import array_hash
from smtdist.data.netcdf import Group
from smtdist.data.source import Source
from smtdist.data.table import NeighbourSource, NoisePairs, as_table, read_rows
from smtdist.engine.manifest import Facts
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, ModelError, counted, equals
from smtdist.kernels import features as feature_kinds
from smtdist.kernels.features import Features, PositiveCodes, Pursuit, Threshold
from smtdist.kernels.products import Ordered
from smtdist.models import plugins, store, valued
from smtdist.models.jobs import Job, Request
from smtdist.models.points.contexts import spread_points
from smtdist.models.points.sites import (
    ROWS_OF_TABLES,
    RowsOfSamples,
    SiteKind,
    rows_of,
    site_kind,
)
from smtdist.models.points.table import PointSettings, in_time, table_in_context
from smtdist.models.rows import RowModel, table_of
from smtdist.models.store import Array
from smtdist.models.valued import ValuedTransform
from smtdist.solve.solution import Float64, Solution
from smtdist.statistics.operators import Listed
from smtdist.statistics.sites import Neighbourhoods
from smtdist.statistics.values import SecondOrder, ValueStatistics, ValueSums

SOME_ROWS: Final = 20_000
"""Rows that landmarks are chosen among where samples have rows of their own."""
FINE = 2**20
"""Steps of a feature between 0 and 1: features of points are known exactly."""
CONSTANT: Final = 1e-6
"""Share of the second moment that varies between points, below which a component is constant but for rounding."""
ROUNDING: Final = 16 / FINE**2
"""Eigenvalues up to about this are those of the rounding of features: a tenth of it to half were seen where they are zero."""
OF_THE_WHOLE: Final = ("knn", "mean", "lle")
"""Contexts that are graphs over all points: a point that comes or goes changes the neighbours of others."""

_POINTS: Final = {"points": Array(("feature", "input"), "landmarks")}
_SQUARE: Final = ("feature", "feature_")
# what a file of the first schema has in place of sums
_MEANS: Final = {
    "n_positions": Array(),
    "mean": Array(("feature",)),
    "moment": Array(_SQUARE, "A Aᵀ / n"),
    "scatter": Array(_SQUARE, "A D Dᵀ Aᵀ / n"),
}
_FEATURES: Final[Mapping[str, Any]] = {
    made.__name__: made
    for made in (
        *(feature_kinds.Landmarks, Threshold, PositiveCodes, Pursuit, feature_kinds.Interpolation),
        *(feature_kinds.RadialBasis, feature_kinds.RandomFourier, feature_kinds.Quadratic),
    )
}


@dataclass(frozen=True, eq=False)
class PointModel(RowModel, ValuedTransform):
    """Features f, and P with P V Pᵀ = I that minimises ‖PAD‖² (SMT 2023, eq. 3).

    `settings`, `n_inputs` (numbers of a point), `n_sites` (rows of a sample) and `provenance` are known
    where it was fitted from settings. `given` : V, A D Dᵀ Aᵀ and the mean of a file that keeps these in
    place of sums.
    """

    features: Features
    settings: PointSettings | None = None
    embedding: Solution | None = None
    statistics: ValueStatistics | None = None
    n_inputs: int = 0
    n_sites: int = 1
    provenance: dict[str, Any] = field(default_factory=dict)
    given: SecondOrder | None = None

    free: ClassVar[tuple[str, ...]] = ("n_components", "second_moment")
    """Settings that no sum depends on: they may change after the fit."""
    holds: ClassVar[str] = "features"
    STORED_AS: ClassVar[str] = "points"

    @classmethod
    def fit(cls, points: Any, settings: PointSettings, engine: Engine) -> tuple[Self, list[dict[str, Any]]]:
        """Embed the rows of a table (SMT 2023, eq. 3): one pass over points and neighbours, then a solve.

        `points` are as in `smtdist.data.table.as_table`, or samples of a kind that the settings name. Landmarks are rows
        that tile the others, each the farthest from those before it. Memory: the table in float64 on the driver, for
        landmarks and neighbours, twice for nearest neighbours; on workers as the pass states. Returns the records of its
        steps too.

        >>> from smtdist.engine.executor import SerialExecutor
        >>> rows = np.random.default_rng(0).uniform(size=(200, 2))
        >>> asked = PointSettings(size=20, neighbours=5, n_components=3)
        >>> model, _ = PointModel.fit(rows, asked, Engine(SerialExecutor()))
        >>> model.transform(rows[:5]).shape
        (5, 3)
        """
        kind = site_kind(settings.sites, settings.of_sites)
        table = points if kind is not None and isinstance(points, Source) else as_table(points)
        with engine.run(("statistics", "solve"), lambda: Facts.of(table, settings)):
            if kind is None:
                rows, sites = read_rows(table).astype(np.float64), 1
                source: Source = table_in_context(table, settings)
            else:
                rows, sites = some_rows(table, kind)
                source = table
            features = chosen_features(rows, settings)
            if settings.n_components > features.size:
                raise ConfigurationError(
                    f"n_components is {settings.n_components}, but there are {counted(features.size, 'feature')}; ask for "
                    f"fewer."
                )
            model = cls(features, settings, n_inputs=rows.shape[1], n_sites=sites)
            statistics, record = model.summed(source, engine)
            embedding, solved = model.solved(statistics, engine)
            return model.finished(statistics, embedding, table.describe()), [record, solved]

    @property
    def sums(self) -> ValueSums:
        """The statistic that sums the features of a table's points."""
        asked, kind = self._asked, self.kind
        if kind is not None:
            rows = RowsOfSamples(kind, self.n_sites, self.n_inputs)
            return ValueSums(rows, self.features, kind.operator(self.n_sites, asked.difference_order), FINE)
        context = Listed(asked.difference, pairs=asked.context == "noise")
        return ValueSums(Neighbourhoods(self.n_inputs), self.features, context, FINE)

    @cached_property
    def kind(self) -> SiteKind | None:
        """What samples are, where another package brings it; None for the rows of tables."""
        return None if self.settings is None else site_kind(self.settings.sites, self.settings.of_sites)

    @property
    def basis(self) -> str:
        """Hash of the features and of what makes differences."""
        asked, (arrays, numbers) = self._asked, self.features.parts()
        held = {name: [list(one.shape), array_hash(one)] for name, one in arrays.items()}
        noise = [asked.noise, asked.random_state] if asked.context == "noise" else []
        kind = type(self.features).__name__
        if self.kind is not None:
            return valued.hashed(
                kind, held, numbers, asked.sites, dict(asked.of_sites), asked.difference_order, FINE
            )
        return valued.hashed(kind, held, numbers, asked.context, asked.difference, noise, FINE)

    def read_as(self, source: Source) -> Source:
        """Return the points of a table with their neighbours; a source of such points stays as it is.

        Rows in time are one sequence; `smtdist.models.points.table.in_time` makes several.
        """
        if self.kind is not None or isinstance(source, NeighbourSource | NoisePairs):
            return source
        found: Source = table_in_context(source, self._asked.replace(lengths=()))
        return found

    def in_sequences(self, table: Source, lengths: tuple[int, ...]) -> Source:
        """Return the rows of a table as sequences of given lengths; ConfigurationError where rows are not in time."""
        if self.kind is not None or self._asked.context != "time":
            raise ConfigurationError(
                "lengths are for sequences in time, and this model has none; leave them out."
            )
        return in_time(table, self._asked.difference_order, lengths)

    def require_rows(self, source: Source) -> None:
        """Refuse rows of another length; of samples of a kind the pass looks at the rows itself."""
        if self.kind is None:
            table = source.source if isinstance(source, NeighbourSource | NoisePairs) else source
            super().require_rows(table)

    def require_like(self, source: Source) -> None:
        """Refuse rows of another length, and any where neighbours are among all rows."""
        self._require_local()
        self.require_rows(source)

    def require_addable(self, other: PointModel, name: str) -> None:
        """Refuse a model, called `name`, of other rows, and any where neighbours are among all rows."""
        self._require_local()
        super().require_addable(other, name)

    def _require_local(self) -> None:
        if self.kind is None and self._asked.context in OF_THE_WHOLE:
            raise ModelError(
                f"With {equals('context', self._asked.context)} each point's neighbours are among all points, so a new or "
                f"withdrawn point would change the sums of others: nothing can be added or withdrawn. Fit all points again, or "
                f"use {equals('context', 'noise')} or {equals('context', 'time')}."
            )

    @property
    def _asked(self) -> PointSettings:
        if self.settings is None:
            raise ModelError("The model was fitted without settings; make it with PointModel.fit.")
        return self.settings

    def transform(self, points: Any) -> Float64:
        """Return P f(x) of every point, (N, L); new points are as good as those of the fit."""
        result: Float64 = Ordered(self.solution.components.T)(self.features(np.asarray(points, np.float64)))
        return result

    def embed(self, samples: NDArray[np.generic]) -> Float64:
        """Return P f(x) of rows of a table, (m, L), or of all rows of samples that have their own, (m, sites, L)."""
        if self.kind is None:
            return self.transform(samples.reshape(len(samples), -1))
        rows = rows_of(self.kind, samples)
        embedded = self.transform(rows.reshape(-1, rows.shape[2]))
        return embedded.reshape(*rows.shape[:2], -1)

    @property
    def feature_shape(self) -> tuple[int, ...]:
        """Shape of what `embed` makes of a sample."""
        count = len(self.solution.eigenvalues)
        return (count,) if self.kind is None else (self.n_sites, count)

    def summary(self) -> dict[str, Any]:
        """Return the figures that a person asks for first, as plain JSON."""
        return {
            "n_positions": self.means.n_positions,
            "n_inputs": self.n_inputs,
            "features": type(self.features).__name__,
            "n_features": self.features.size,
            "n_components": len(self.solution.eigenvalues),
            "rank": self.solution.rank,
            "eigenvalues": self.solution.eigenvalues.tolist(),
            "fingerprint": self.fingerprint,
        }

    def advice(self) -> list[str]:
        """Return what to do about components that say nothing: the constant, and those in which no neighbours differ.

        Constants lie in the null space of A D Dᵀ Aᵀ, and so does what is constant on every connected part.
        """
        P, values = self.solution.components, self.solution.eigenvalues
        varied = ((P @ self.means.covariance) * P).sum(axis=1)
        constant = varied < CONSTANT
        found = [
            f"Component {number + 1} is the same for all points; set second_moment to centred to leave it out."
            for number in np.flatnonzero(constant)
        ]
        free = np.count_nonzero((values < ROUNDING) & ~constant)
        if free > 1:  # a single one is determined
            found.append(
                f"In {free} components neighbours do not differ, so any mixture of these is as good; give points more or wider "
                f"neighbours, or fewer atoms."
            )
        return found

    def stored(self) -> Iterator[tuple[str, Group]]:
        """Yield what its file holds: `/features`, `/statistics` or `/means`, `/audit`, `/embedding`; settings are JSON."""
        root = store.root_of(self, "Points embedded by the sparse manifold transform")
        yield "", Group(attributes={**root, "n_inputs": self.n_inputs, "n_sites": self.n_sites})
        arrays, numbers = self.features.parts()
        about = {"kind": type(self.features).__name__, "numbers": json.dumps(numbers)}
        yield "features", store.packed(_POINTS if arrays else {}, arrays, about)
        if self.statistics is None and self.given is not None:
            yield "means", store.packed(_MEANS, vars(self.given))
        yield from store.solved_groups(self, self.solution, valued.statistics_group, "feature")

    @classmethod
    def restored(cls, file: Any, statistics: bool) -> Self:
        """Read what `stored` yielded, also in an earlier version; ModelError for a kind of samples that no package brings."""
        told = str(file.attrs["configuration"])
        sites = json.loads(told or "{}").get("sites", ROWS_OF_TABLES)
        if sites != ROWS_OF_TABLES and not plugins.is_brought(plugins.SITES, sites):
            raise ModelError(
                f"{file.filename} is a model of samples of the kind {sites}, which no installed package brings; install the "
                f"one that does."
            )
        n_inputs = store.number(file, "n_inputs")
        group, kind = file["features"], str(file["features"].attrs["kind"])
        if kind not in _FEATURES:
            raise ValueError(f"features are of the unknown kind {kind}")
        arrays = {}
        if issubclass(_FEATURES[kind], feature_kinds.OverPoints):
            store.require(group, {"": _POINTS}, input=n_inputs)
            arrays = store.arrays_in(group, _POINTS)
        features: Features = _FEATURES[kind](**arrays, **json.loads(group.attrs["numbers"]))
        # files of the first schema have means in place of sums, and of them where sums are now
        means = "means" if "means" in file else None
        if means is None and _MEANS.keys() - {"n_positions"} & file["statistics"].keys():
            means = "statistics"
        declared = {} if means is None else {means: _MEANS}
        sums = valued.statistics_arrays("feature")
        store.require_all(file, declared, "feature", sums, feature=features.size)
        model = cls(
            features,
            PointSettings.from_json(told) if told else None,
            store.read_solution(file["embedding"]),
            n_inputs=n_inputs,
            n_sites=store.number(file, "n_sites") if "n_sites" in file.attrs else 1,
            provenance=store.with_audit(file, json.loads(file.attrs["provenance"])),
        )
        if means is None:
            basis = "" if model.settings is None else model.basis
            audit = model.provenance.get("audit", ())
            return replace(model, statistics=valued.read_statistics(file["statistics"], basis, audit))
        count, mean, moment, scatter = store.arrays_in(file[means], _MEANS).values()
        return replace(model, given=SecondOrder(int(count), moment, scatter, mean))

    def opened(self, data: list[str], dataset: str | None, skip: bool) -> Source:
        """Return the samples that files and a dataset name, as the model takes them."""
        return super().opened(data, dataset, skip) if self.kind is None else self.kind.opened(data, dataset)


def job(request: Request) -> Job:
    """Open the table of a fit, or the samples of a kind that a package brings, whose settings are those that tables lack."""
    fields = PointSettings.declared()
    declared = {*fields, *(name for one in fields.values() for name in one.metadata["setting"].aliases)}
    own = {
        name.removeprefix("sites."): value
        for name, value in request.settings.items()
        if name not in declared
    }
    given = {name: value for name, value in request.settings.items() if name in declared}
    settings = PointSettings(**given, of_sites=own)
    kind = site_kind(settings.sites, own)
    usual = PointSettings()
    if kind is not None and (settings.context != usual.context or settings.lengths):
        raise ConfigurationError(
            f"Samples of the kind {settings.sites} define their own neighbours; leave context and lengths out."
        )
    data = list(request.data)
    source = table_of(data, request.dataset) if kind is None else kind.opened(data, request.dataset)
    return Job(
        source,
        lambda engine: PointModel.fit(source, settings, engine),
        lambda: Facts.of(source, settings),
        settings.n_components,
        advice=PointModel.advice,
    )


def some_rows(source: Source, kind: SiteKind) -> tuple[NDArray[np.float64], int]:
    """Return rows of samples that lie evenly in a source, at most `SOME_ROWS` of them, and how many rows a sample has."""
    with source.opened() as reader:
        sites = rows_of(kind, reader.read(0, 1)).shape[1]
        wanted = min(source.n_samples, max(1, SOME_ROWS // sites))
        chosen = np.linspace(0, source.n_samples, wanted, endpoint=False).astype(np.int64)
        parts = [rows_of(kind, reader.read(at, at + 1))[0] for at in chosen.tolist()]
    return np.concatenate(parts), sites


def chosen_features(rows: NDArray[np.float64], settings: PointSettings) -> feature_kinds.Features:
    """Return the features that settings name, with their landmarks among the rows."""
    if settings.feature_map == "quadratic":
        return feature_kinds.Quadratic(rows.shape[1])
    if settings.feature_map == "fourier":
        return feature_kinds.RandomFourier(
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
    made: dict[str, Callable[[], feature_kinds.Features]] = {
        "landmarks": lambda: feature_kinds.Landmarks(landmarks),
        "threshold": lambda: Threshold(landmarks, settings.threshold),
        "l1": lambda: PositiveCodes(landmarks, settings.penalty),
        "omp": lambda: Pursuit(landmarks, settings.active),
        "interpolation": lambda: feature_kinds.Interpolation(landmarks, settings.n_neighbors),
        "rbf": lambda: feature_kinds.RadialBasis(landmarks, settings.width),
    }
    return made[settings.feature_map]()
