"""Tables of points embedded by who is near whom, as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, Self

from smtdist.errors import warn
from smtdist.models.points.fit import PointModel
from smtdist.models.points.sites import ROWS_OF_TABLES
from smtdist.models.points.table import PointSettings
from smtdist.models.row_estimator import RowEstimator


class PointSMT(RowEstimator, of=PointSettings):
    """Sparse manifold transform of the rows of a table (SMT 2023, eq. 3).

    X is an array (points, numbers), the (path, dataset) of an HDF5 file, or a .npy path. `transform` embeds
    new points with the same features. Features of landmarks add up to 1, so the first component is the same for all
    points; second_moment="centred" leaves it out.

    Fitted attributes: `model_`, `components_` (n_components, features), `eigenvalues_`, `passes_`,
    `n_features_in_`.

    >>> import numpy as np
    >>> rows = np.random.default_rng(0).uniform(size=(200, 2))
    >>> PointSMT(size=20, neighbours=5, n_components=3).fit_transform(rows).shape
    (200, 3)
    """

    MODEL = PointModel

    def _fitted(self, model: PointModel, records: list[dict[str, Any]]) -> Self:
        super()._fitted(model, records)
        for sentence in model.advice():
            warn(sentence, UserWarning)
        if model.settings is None or model.settings.sites == ROWS_OF_TABLES:
            self.n_features_in_ = model.n_inputs  # else that of a sample, which has several rows
        return self
