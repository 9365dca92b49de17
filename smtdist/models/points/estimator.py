"""Tables of points embedded by who is near whom, as a scikit-learn estimator."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from smtdist.data.source import Source
from smtdist.data.table import as_table, plain_rows
from smtdist.engine.events import Event
from smtdist.models.estimating import TransformEstimator
from smtdist.models.judged import Evaluates
from smtdist.models.parameters import settings_in
from smtdist.models.points.fit import PointModel
from smtdist.models.points.sites import ROWS_OF_TABLES
from smtdist.models.points.table import PointSettings, embedded, fit_table


class PointSMT(Evaluates, TransformerMixin, TransformEstimator):  # type: ignore[misc]
    """Sparse manifold transform of the rows of a table (SMT 2023, eq. 3).

    The parameters are the settings of `smtdist.models.points.table.PointSettings`; the seed is called
    `random_state`. X is an array (points, numbers), the (path, dataset) of an HDF5 file, or a .npy path.
    `transform` embeds new points with the same features. `cluster`, `workers`, `checkpoint` and `on_event`
    are as in `SMT`.

    Fitted attributes: `model_`, `components_` (n_components, features), `eigenvalues_`, `passes_`,
    `n_features_in_`.

    >>> rows = np.random.default_rng(0).uniform(size=(200, 2))
    >>> PointSMT(size=20, neighbours=5, n_components=3).fit_transform(rows).shape
    (200, 3)
    """

    _asked: ClassVar[Any] = PointSettings
    _kind: ClassVar[str] = "points"

    def __init__(
        self,
        *,
        features: str = "landmarks",
        size: int = 300,
        width: float = 1.0,
        threshold: float = 0.9,
        penalty: float = 0.1,
        active: int = 3,
        context: str = "knn",
        neighbours: int = 10,
        noise: float = 0.03,
        order: int = 1,
        lengths: tuple[int, ...] = (),
        moment: str = "second",
        n_components: int = 4,
        method: str = "auto",
        sites: str = ROWS_OF_TABLES,
        of_sites: Mapping[str, Any] | None = None,
        random_state: int = 0,
        cluster: Any = None,
        workers: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        self.features = features
        self.size = size
        self.width = width
        self.threshold = threshold
        self.penalty = penalty
        self.active = active
        self.context = context
        self.neighbours = neighbours
        self.noise = noise
        self.order = order
        self.lengths = lengths
        self.moment = moment
        self.n_components = n_components
        self.method = method
        self.sites = sites
        self.of_sites = of_sites
        self.random_state = random_state
        self.cluster = cluster
        self.workers = workers
        self.checkpoint = checkpoint
        self.on_event = on_event

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit on points; `y` is ignored."""
        settings, table = self.configuration, self._table(X, reset=True)
        with self._engine(checkpointed=True) as engine:
            model, records = fit_table(table, settings, engine)
        return self._fitted(model, records)

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Return P f(x) of every point, (n, n_components), in memory; `smtdist points transform` works out of core."""
        check_is_fitted(self)
        source = self._table(X, reset=False)
        found = np.empty((source.n_samples, *self.model_.feature_shape))
        with self._engine() as engine:
            for first, values in embedded(self.model_, source, engine):
                found[first : first + len(values)] = values
        return found

    @property
    def configuration(self) -> PointSettings:
        """The settings, checked."""
        given = settings_in(self, (one.name for one in fields(PointSettings)))
        given |= {"of_sites": dict(self.of_sites or {}), "lengths": tuple(self.lengths)}
        return PointSettings(**given)

    def _table(self, X: Any, *, reset: bool) -> Source:
        if isinstance(X, Source):
            return X
        if not isinstance(X, tuple | str | os.PathLike):
            X = plain_rows(X)
            kinds = [np.float64, np.float32, np.uint8]
            X = validate_data(self, X, dtype=kinds, reset=reset, ensure_min_samples=2 if reset else 1)
        return as_table(X)

    def _fitted(self, model: PointModel, records: list[dict[str, Any]]) -> Self:
        super()._fitted(model, records)
        if model.settings is None or model.settings.sites == ROWS_OF_TABLES:
            self.n_features_in_ = model.n_inputs  # else that of a sample, which has several rows
        return self
