"""Coders of patches as scikit-learn estimators."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from smtdist.codes.coder import Coder
from smtdist.codes.l1 import SparseCoder, SparseSettings
from smtdist.codes.s3c import PatchCoder, S3CSettings
from smtdist.data.array import as_source
from smtdist.kernels import convergence
from smtdist.models.coders.fit import fit_coder, require_pooling
from smtdist.models.coders.represent import representing
from smtdist.models.estimating import Estimator, Evaluates, require_label_each
from smtdist.models.transform import represented


class CoderEstimator(Evaluates, ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):  # type: ignore[misc]
    """An estimator whose fitted model turns images into features; subclasses say how it is fitted.

    Fitted: `n_iter_`, rounds of learning, `gap_`, the relative
    change of the objective over the last tenth of them, and `converged_`, whether that is no more than a hundredth, or the
    last half shows no trend; if not, a ConvergenceWarning says so.
    """

    CODER: ClassVar[type[Coder]]
    coder_: Coder

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit on images (n, height, width[, channels]) or a (path, dataset) pair; `y` is ignored."""
        settings, source = self.configuration, as_source(X)
        require_label_each(y, source.n_samples)
        require_pooling(source, settings, settings.pooling_grid)
        with self._engine() as engine:
            self.coder_, self.passes_ = fit_coder(self.CODER, source, settings, engine)
        ended = self.coder_.ending
        convergence.keep(self, ended)
        convergence.warn(convergence.advice(convergence.facts_of(ended)))
        self._n_features_out = int(np.prod(representing(self.coder_).representation_shape()))
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Return pooled features, (n, features) float32, in memory; the commands work out of core."""
        check_is_fitted(self)
        with self._engine() as engine:
            z = represented(representing(self.coder_), as_source(X), engine)
        return z.reshape(len(z), -1)


class SpikeSlabCoder(CoderEstimator, of=S3CSettings, run=("n_workers", "cluster")):
    """Pooled features of spike-and-slab sparse coding over the patches of images (Goodfellow et al. 2012).

    Attributes
    ----------
    coder_ : the fitted PatchCoder.
    passes_ : records of the passes.
    n_iter_, converged_, gap_ : rounds of learning, whether they converged, and the relative change of the objective over the
        last tenth of them.

    >>> import numpy as np
    >>> images = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    >>> SpikeSlabCoder(n_atoms=16, patch=3, pooling=(2,), rounds=20).fit_transform(images).shape
    (40, 64)
    """

    CODER = PatchCoder


class SparseCoding(CoderEstimator, of=SparseSettings, run=("n_workers", "cluster")):
    """Pooled L1 sparse codes of the patches of images, with a dictionary learned from them (Chen et al. 2018, Supplement A).

    Attributes
    ----------
    coder_ : the fitted SparseCoder.
    passes_ : records of the passes.
    n_iter_, converged_, gap_ : rounds of learning, whether they converged, and the relative change of the objective over the
        last tenth of them.

    >>> import numpy as np
    >>> images = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    >>> SparseCoding(n_atoms=16, patch=3, pooling=(2,), rounds=20).fit_transform(images).shape
    (40, 64)
    """

    CODER = SparseCoder
