"""What scikit-learn estimators of coders share."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from smtdist.codes.coder import Coder, Record
from smtdist.data.array import as_source
from smtdist.data.source import Source
from smtdist.engine import session
from smtdist.engine.passes import Engine
from smtdist.models.coders.represent import representing
from smtdist.models.transform import Represents, represented


class CoderEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """An estimator whose fitted model turns images into features; subclasses say how it is fitted.

    `workers` and `cluster` are parameters of every subclass.
    """

    workers: int | None
    cluster: Any
    coder_: Coder | Represents
    passes_: list[Record]

    def _fitted(self, source: Source, engine: Engine) -> tuple[Coder | Represents, list[Record]]:
        raise NotImplementedError

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit on images (n, height, width[, channels]) or a (path, dataset) pair; `y` is ignored."""
        with session.executor_for(self.cluster, self.workers) as executor:
            self.coder_, self.passes_ = self._fitted(as_source(X), Engine(executor))
        self._n_features_out = int(np.prod(representing(self.coder_).representation_shape()))
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Return pooled features, (n, features) float32, in memory; the commands work out of core."""
        check_is_fitted(self)
        with session.executor_for(self.cluster, self.workers) as executor:
            z = represented(representing(self.coder_), as_source(X), Engine(executor))
        return z.reshape(len(z), -1)
