"""Patch coders as scikit-learn estimators."""

from __future__ import annotations

from typing import Any

from smtdist.codes.coder import Coder, Record
from smtdist.codes.s3c import S3CSettings
from smtdist.data.source import Source
from smtdist.engine.passes import Engine
from smtdist.models.coders.estimator import CoderEstimator
from smtdist.models.coders.start import require_pooling
from smtdist.models.s3c.fit import fit_coder


class SpikeSlabCoder(CoderEstimator):
    """Pooled features of spike-and-slab sparse coding over the patches of images (Goodfellow et al. 2012).

    `model` "s3c", "omp" or "sc"; `units` N; `patch` its side; `pooling` grids; `settings` any other of
    `smtdist.codes.s3c.S3CSettings`, by name. `workers` and `cluster` as everywhere.

    Attributes
    ----------
    coder_ : PatchCoder. passes_ : records of the passes.

    >>> import numpy as np
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

    def _fitted(self, source: Source, engine: Engine) -> tuple[Coder, list[Record]]:
        settings = S3CSettings().replace(
            model=self.model,
            units=self.units,
            patch=self.patch,
            pooling=self.pooling,
            **(self.settings or {}),
        )
        require_pooling(source, settings, settings.pooling)
        return fit_coder(source, settings, engine)
