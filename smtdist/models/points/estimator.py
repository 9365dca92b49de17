"""Tables of points embedded by who is near whom, as a scikit-learn estimator."""

from __future__ import annotations

import os
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from smtdist.data.source import Source
from smtdist.data.table import as_table, plain_rows
from smtdist.models.estimating import TransformEstimator
from smtdist.models.judged import Evaluates
from smtdist.models.points.fit import PointModel, embedded, fit_table
from smtdist.models.points.sites import ROWS_OF_TABLES
from smtdist.models.points.table import PointSettings


class PointSMT(Evaluates, TransformerMixin, TransformEstimator, of=PointSettings):  # type: ignore[misc]
    """Sparse manifold transform of the rows of a table (SMT 2023, eq. 3).

    X is an array (points, numbers), the (path, dataset) of an HDF5 file, or a .npy path. `transform` embeds
    new points with the same features.

    Fitted attributes: `model_`, `components_` (n_components, features), `eigenvalues_`, `passes_`,
    `n_features_in_`.

    >>> rows = np.random.default_rng(0).uniform(size=(200, 2))
    >>> PointSMT(size=20, neighbours=5, n_components=3).fit_transform(rows).shape
    (200, 3)
    """

    MODEL = PointModel

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit on points; `y` is ignored."""
        settings, table = self.configuration, self._table(X, reset=True)
        with self._engine(self.checkpoint) as engine:
            model, records = fit_table(table, settings, engine)
        return self._fitted(model, records)

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Return P f(x) of every point, (n, n_components), in memory; `smtdist transform` works out of core."""
        check_is_fitted(self)
        source = self._table(X, reset=False)
        found = np.empty((source.n_samples, *self.model_.feature_shape))
        with self._engine() as engine:
            for first, values in embedded(self.model_, source, engine):
                found[first : first + len(values)] = values
        return found

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
