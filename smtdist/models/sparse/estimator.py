"""Sparse coding as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from smtdist.data.array import as_source
from smtdist.engine.passes import Engine
from smtdist.engine.session import executor_for
from smtdist.models.s3c.features import features_of
from smtdist.models.sparse.fit import fit_sparse
from smtdist.models.sparse.settings import SparseSettings


class SparseCoding(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Pooled L1 sparse codes of the patches of images, with a dictionary learned from them (Chen et al. 2018, Supplement A).

    `units` K; `patch` its side; `penalty` λ; `positive`; `pooling` grids; `settings` any other of
    `smtdist.models.sparse.settings.SparseSettings`, by name. `workers` and `cluster` as everywhere.

    Attributes
    ----------
    coder_ : SparseCoder. passes_ : records of the passes.

    >>> images = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    >>> SparseCoding(units=16, patch=3, pooling=(2,), settings={"rounds": 2}).fit_transform(images).shape
    (40, 64)
    """

    def __init__(
        self,
        *,
        units: int = 1024,
        patch: int = 8,
        penalty: float = 1.0,
        positive: bool = True,
        pooling: tuple[int, ...] = (2,),
        settings: dict[str, Any] | None = None,
        workers: int | None = None,
        cluster: Any = None,
    ) -> None:
        self.units = units
        self.patch = patch
        self.penalty = penalty
        self.positive = positive
        self.pooling = pooling
        self.settings = settings
        self.workers = workers
        self.cluster = cluster

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit on images (n, height, width[, channels]) or a (path, dataset) pair; `y` is ignored."""
        settings = SparseSettings().replace(
            units=self.units,
            patch=self.patch,
            penalty=self.penalty,
            positive=self.positive,
            pooling=self.pooling,
            **(self.settings or {}),
        )
        with executor_for(self.cluster, self.workers) as executor:
            self.coder_, self.passes_ = fit_sparse(as_source(X), settings, Engine(executor))
        self._n_features_out = int(np.prod(self.coder_.feature_shape))
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Return pooled features, (n, features) float32, in memory; `smtdist sparse transform` works out of core."""
        check_is_fitted(self)
        with executor_for(self.cluster, self.workers) as executor:
            return features_of(self.coder_, as_source(X), Engine(executor))
