"""What estimators of models of rows share: tables in, embedded rows out, in memory."""

from __future__ import annotations

import math
import os
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from smtdist.data.source import Source
from smtdist.data.table import as_table, plain_rows
from smtdist.models.estimating import Evaluates, TransformEstimator, require_label_each
from smtdist.models.rows import in_memory


class RowEstimator(Evaluates, TransformerMixin, TransformEstimator):  # type: ignore[misc]
    """An estimator of a model of rows: `MODEL` is its class, with `fit(source, settings, engine)`."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit on rows; `y` is ignored."""
        settings, table = self.configuration, self._table(X, reset=True)
        require_label_each(y, table.n_samples)
        with self._engine(self.checkpoint) as engine:
            model, records = self.MODEL.fit(table, settings, engine)
        return self._fitted(model, records)

    def transform(self, X: Any) -> NDArray[np.floating[Any]]:
        """Return embedded rows, (n, n_components), in memory; `smtdist transform` works out of core."""
        check_is_fitted(self)
        source = self._table(X, reset=False)
        with self._engine() as engine:
            return in_memory(self.model_, source, engine, self.model_.dtype)

    def _table(self, X: Any, *, reset: bool) -> Source:
        if isinstance(X, Source):
            return X
        if not isinstance(X, tuple | str | os.PathLike):
            X = plain_rows(X)
            kinds = [np.float64, np.float32, np.uint8]
            X = validate_data(self, X, dtype=kinds, reset=reset, ensure_min_samples=2 if reset else 1)
        return as_table(X)


class SumEstimator(RowEstimator):
    """An estimator of a `smtdist.models.summed.SumModel`: what it solves for are attributes whose names end in an underscore."""

    def _fitted(self, model: Any, records: list[dict[str, Any]]) -> Self:
        self.model_, self.passes_, self.n_features_in_ = model, records, model.n_inputs
        for name in model.ARRAYS.keys() - {"n_inputs"}:
            setattr(self, f"{name}_", getattr(model, name))
        self._n_features_out = math.prod(model.feature_shape)
        return self
