"""Sparse coding as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any

from smtdist.codes.coder import Coder, Record
from smtdist.codes.l1 import SparseSettings
from smtdist.data.source import Source
from smtdist.engine.passes import Engine
from smtdist.models.coders.estimator import CoderEstimator
from smtdist.models.coders.start import require_pooling
from smtdist.models.sparse.fit import fit_sparse


class SparseCoding(CoderEstimator):
    """Pooled L1 sparse codes of the patches of images, with a dictionary learned from them (Chen et al. 2018, Supplement A).

    `units` K; `patch` its side; `penalty` λ; `positive`; `pooling` grids; `settings` any other of
    `smtdist.codes.l1.SparseSettings`, by name. `workers` and `cluster` as everywhere.

    Attributes
    ----------
    coder_ : SparseCoder. passes_ : records of the passes.

    >>> import numpy as np
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

    def _fitted(self, source: Source, engine: Engine) -> tuple[Coder, list[Record]]:
        settings = SparseSettings().replace(
            units=self.units,
            patch=self.patch,
            penalty=self.penalty,
            positive=self.positive,
            pooling=self.pooling,
            **(self.settings or {}),
        )
        require_pooling(source, settings, settings.pooling)
        return fit_sparse(source, settings, engine)
