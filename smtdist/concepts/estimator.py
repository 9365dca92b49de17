"""Binary concepts as a scikit-learn estimator."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from smtdist.concepts.fit import fit_concepts
from smtdist.concepts.model import ConceptModel
from smtdist.concepts.settings import ConceptSettings
from smtdist.concepts.state import blocks_of
from smtdist.data.table import as_table
from smtdist.errors import DataError, counted
from smtdist.models import store
from smtdist.models.estimating import USUAL, Estimator, require_columns, require_label_each


class BinaryConcepts(
    TransformerMixin,  # type: ignore[misc]
    Estimator,
    of=ConceptSettings,
    run=("cluster", "n_workers", "folder", *USUAL[2:]),
):
    """Binary concepts S of a table X: X̄X̄ᵀ ≈ S̄ΠS̄ᵀ ("Unsupervised learning of categories", equation 3).

    X is an array (p, n), the (path, dataset) of an HDF5 file, or a .npy path.

    Fitted attributes: `model_`, `concepts_` (p, b) uint8, `weights_` π, `components_` (b, n) rows of Wᵀ,
    `cka_`, `n_iter_` (sweeps of the start that was kept), `converged_` (no flip of a member lowers the
    objective while the weights stay), `gap_` (its relative fall in the last sweep), `n_features_in_`, `n_features_out_`. A search
    that has not converged is a ConvergenceWarning, a low alignment by rejection a UserWarning. `transform`
    finds the concepts of new points; those of the fitted points are `concepts_`.

    >>> square = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> found = BinaryConcepts(n_concepts=2, penalty=0.0).fit(square)
    >>> sorted(found.concepts_.sum(0).tolist()), round(found.cka_, 6)
    ([2, 2], 1.0)
    """

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], **where: Any) -> Self:
        """Return a fitted estimator from a file of concepts."""
        model = store.load(path, kind=ConceptModel)
        return cls(**cls.parameters_of(model.settings), **where)._fitted(model)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find concepts of the rows of X."""
        require_columns(self, X, reset=True)
        source, settings = as_table(X), self.configuration
        require_label_each(y, source.n_samples)
        folder = None if self.folder is None else Path(self.folder)
        with self._engine(self.checkpoint) as engine:
            model = fit_concepts(source, settings, engine, folder=folder)
        if model.advice:
            kind = UserWarning if model.ending is None or model.ending.converged else ConvergenceWarning
            warnings.warn(model.advice, kind, stacklevel=2)
        return self._fitted(model)

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> NDArray[np.uint8]:
        """Return the concepts found for the rows of X themselves."""
        return self.fit(X, y).concepts_

    def transform(self, X: Any) -> NDArray[np.uint8]:
        """Return the concepts of new points (m, b), in this process, 4,096 rows at a time."""
        check_is_fitted(self)
        require_columns(self, X, reset=False)
        source = as_table(X)
        if source.shape[1] != self.n_features_in_:
            raise DataError(
                f"{source.name} has {counted(source.shape[1], 'column')}, but the concepts were fitted on {self.n_features_in_}; "
                f"give rows of the same kind."
            )
        blocks = blocks_of(source, 0, source.n_samples)
        return np.concatenate([self.model_.transform(rows) for _, rows in blocks])

    def inverse_transform(self, S: Any) -> NDArray[np.float64]:
        """Return the reconstruction of rows of concepts (m, b): (m, n)."""
        check_is_fitted(self)
        return np.asarray(self.model_.reconstruct(np.asarray(S)))

    def score(self, X: Any = None, y: Any = None) -> float:
        """Return the centred kernel alignment of the fitted points; X is ignored."""
        check_is_fitted(self)
        return self.cka_

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return names concept0, concept1, ..."""
        check_is_fitted(self)
        return np.array([f"concept{a}" for a in range(self.n_features_out_)], dtype=object)

    def _fitted(self, model: ConceptModel) -> Self:
        self.model_ = model
        self.concepts_ = model.concepts
        self.weights_ = model.weights
        self.components_ = model.features.T
        self.cka_ = model.cka
        if model.ending is not None:  # files of earlier versions do not say
            self.n_iter_ = model.ending.n_iter
            self.converged_ = model.ending.converged
            self.gap_ = model.ending.gap
        self.n_features_in_ = len(model.coordinates.mean)
        self.n_features_out_ = model.n_concepts
        return self
