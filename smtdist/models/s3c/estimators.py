"""Patch coders as scikit-learn estimators."""

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
from smtdist.models.s3c.fit import fit_coder
from smtdist.models.s3c.settings import S3CSettings


class SpikeSlabCoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Pooled features of spike-and-slab sparse coding over the patches of images (Goodfellow et al. 2012).

    `model` "s3c", "omp" or "sc"; `units` N; `patch` its side; `pooling` grids; `settings` any other of
    `smtdist.models.s3c.settings.S3CSettings`, by name. `workers` and `cluster` as everywhere.

    Attributes
    ----------
    coder_ : PatchCoder. passes_ : records of the passes.

    >>> images = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    >>> SpikeSlabCoder(units=16, patch=3, pooling=(2,), settings={"rounds": 2}).fit_transform(images).shape
    (40, 64)
    """

    def __init__(
        self,
        *,
        model: str = "s3c",
        units: int = 1600,
        patch: int = 6,
        pooling: tuple[int, ...] = (3,),
        settings: dict[str, Any] | None = None,
        workers: int | None = None,
        cluster: Any = None,
    ) -> None:
        self.model = model
        self.units = units
        self.patch = patch
        self.pooling = pooling
        self.settings = settings
        self.workers = workers
        self.cluster = cluster

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit on images (n, height, width[, channels]) or a (path, dataset) pair; `y` is ignored."""
        settings = S3CSettings().replace(
            model=self.model,
            units=self.units,
            patch=self.patch,
            pooling=self.pooling,
            **(self.settings or {}),
        )
        with executor_for(self.cluster, self.workers) as executor:
            self.coder_, self.passes_ = fit_coder(as_source(X), settings, Engine(executor))
        self._n_features_out = int(np.prod(self.coder_.feature_shape))
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Return pooled features, (n, features) float32, in memory; `smtdist s3c transform` works out of core."""
        check_is_fitted(self)
        with executor_for(self.cluster, self.workers) as executor:
            return features_of(self.coder_, as_source(X), Engine(executor))
