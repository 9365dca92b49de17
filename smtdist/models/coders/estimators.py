"""Coders of patches, and transforms on them, as scikit-learn estimators."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from smtdist.codes.coder import Coder, Record
from smtdist.codes.l1 import SparseCoder, SparseSettings
from smtdist.codes.s3c import PatchCoder, S3CSettings
from smtdist.data.array import as_source
from smtdist.data.source import Source
from smtdist.engine import session
from smtdist.engine.passes import Engine
from smtdist.kernels import convergence
from smtdist.models.coded import coded_settings, fit_coded
from smtdist.models.coders.fit import fit_coder, require_pooling
from smtdist.models.coders.represent import representing
from smtdist.models.judged import Evaluates
from smtdist.models.parameters import seed_of
from smtdist.models.transform import Represents, represented


class CoderEstimator(Evaluates, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """An estimator whose fitted model turns images into features; subclasses say how it is fitted.

    `workers` and `cluster` are parameters of every subclass. Fitted: `n_iter_`, rounds of learning, `gap_`, the relative
    change of the objective over the last tenth of them, and `converged_`, whether that is no more than a hundredth, or the
    last half shows no trend; if not, a ConvergenceWarning says so.
    """

    workers: int | None
    cluster: Any
    coder_: Coder | Represents
    passes_: list[Record]

    def _fitted(self, source: Source, engine: Engine) -> tuple[Coder | Represents, list[Record]]:
        raise NotImplementedError

    def given_settings(self) -> dict[str, Any]:
        """Return all settings that were given, by name: parameters, and those in `settings`."""
        given = self.get_params(deep=False)
        settings = given.pop("settings") or {}
        others = ("workers", "cluster")
        del given["random_state"]
        return {"seed": seed_of(self)} | {
            name: value for name, value in (given | settings).items() if name not in others
        }

    def _alone(
        self, cls: type[Coder], defaults: Any, source: Source, engine: Engine
    ) -> tuple[Coder, list[Record]]:
        """Fit a coder of a class, with defaults of its settings."""
        settings = defaults.replace(**self.given_settings())
        require_pooling(source, settings, settings.pooling)
        return fit_coder(cls, source, settings, engine)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit on images (n, height, width[, channels]) or a (path, dataset) pair; `y` is ignored."""
        with session.executor_for(self.cluster, self.workers) as executor:
            self.coder_, self.passes_ = self._fitted(as_source(X), Engine(executor))
        ended = convergence.of_rounds(getattr(getattr(self.coder_, "coder", self.coder_), "trace", ()))
        convergence.keep(self, ended)
        convergence.warn(convergence.advice(convergence.facts_of(ended)))
        self._n_features_out = int(np.prod(representing(self.coder_).representation_shape()))
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Return pooled features, (n, features) float32, in memory; the commands work out of core."""
        check_is_fitted(self)
        with session.executor_for(self.cluster, self.workers) as executor:
            z = represented(representing(self.coder_), as_source(X), Engine(executor))
        return z.reshape(len(z), -1)


class SpikeSlabCoder(CoderEstimator):
    """Pooled features of spike-and-slab sparse coding over the patches of images (Goodfellow et al. 2012).

    Parameters
    ----------
    model : "s3c", "omp" or "sc".
    units : number of atoms.
    patch : side of a patch in pixels.
    pooling : grids over which codes are pooled, such as (3,) for 3 x 3.
    settings : other settings of `smtdist.codes.s3c.S3CSettings`, by name.
    random_state : seed of every random choice.
    workers, cluster : where the work is done, as in `SMT`.

    Attributes
    ----------
    coder_ : the fitted PatchCoder.
    passes_ : records of the passes.
    n_iter_, converged_, gap_ : rounds of learning, whether they converged, and the relative change of the objective over the
        last tenth of them.

    >>> import numpy as np
    >>> images = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    >>> SpikeSlabCoder(units=16, patch=3, pooling=(2,), settings={"rounds": 20}).fit_transform(images).shape
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
        random_state: int = 0,
        workers: int | None = None,
        cluster: Any = None,
    ) -> None:
        self.model = model
        self.units = units
        self.patch = patch
        self.pooling = pooling
        self.settings = settings
        self.random_state = random_state
        self.workers = workers
        self.cluster = cluster

    def _fitted(self, source: Source, engine: Engine) -> tuple[Coder, list[Record]]:
        return self._alone(PatchCoder, S3CSettings(), source, engine)


class SparseCoding(CoderEstimator):
    """Pooled L1 sparse codes of the patches of images, with a dictionary learned from them (Chen et al. 2018, Supplement A).

    Parameters
    ----------
    units : number of atoms.
    patch : side of a patch in pixels.
    penalty : λ of the L1 norm.
    positive : true for codes that are not negative.
    pooling : grids over which codes are pooled, such as (2,) for 2 x 2.
    settings : other settings of `smtdist.codes.l1.SparseSettings`, by name.
    random_state : seed of every random choice.
    workers, cluster : where the work is done, as in `SMT`.

    Attributes
    ----------
    coder_ : the fitted SparseCoder.
    passes_ : records of the passes.
    n_iter_, converged_, gap_ : rounds of learning, whether they converged, and the relative change of the objective over the
        last tenth of them.

    >>> import numpy as np
    >>> images = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    >>> SparseCoding(units=16, patch=3, pooling=(2,), settings={"rounds": 20}).fit_transform(images).shape
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
        random_state: int = 0,
        workers: int | None = None,
        cluster: Any = None,
    ) -> None:
        self.units = units
        self.patch = patch
        self.penalty = penalty
        self.positive = positive
        self.pooling = pooling
        self.settings = settings
        self.random_state = random_state
        self.workers = workers
        self.cluster = cluster

    def _fitted(self, source: Source, engine: Engine) -> tuple[Coder, list[Record]]:
        return self._alone(SparseCoder, SparseSettings(), source, engine)


class CodedSMT(CoderEstimator):
    """Sparse manifold transform of images on a learned code of patches.

    Parameters
    ----------
    feature : the code: "l1", "s3c" (spike-and-slab), "omp" or "sc".
    patch : side of a patch in pixels.
    dictionary : number of atoms.
    n_components : dimensions of the embedding.
    settings : other settings by name; `smtdist settings --feature l1` lists them.
    random_state : seed of every random choice.
    workers, cluster : where the work is done, as in `SMT`.

    Attributes
    ----------
    coder_ : the fitted Manifold.
    passes_ : records of the passes.
    n_iter_, converged_, gap_ : rounds of learning, whether they converged, and the relative change of the objective over the
        last tenth of them.

    >>> import numpy as np
    >>> images = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    >>> smt = CodedSMT(feature="s3c", patch=3, dictionary=12, n_components=4, settings={"rounds": 20})
    >>> smt.fit_transform(images).shape
    (40, 64)
    """

    def __init__(
        self,
        *,
        feature: str = "l1",
        patch: int = 6,
        dictionary: int = 1024,
        n_components: int = 64,
        settings: dict[str, Any] | None = None,
        random_state: int = 0,
        workers: int | None = None,
        cluster: Any = None,
    ) -> None:
        self.feature = feature
        self.patch = patch
        self.dictionary = dictionary
        self.n_components = n_components
        self.settings = settings
        self.random_state = random_state
        self.workers = workers
        self.cluster = cluster

    def _fitted(self, source: Source, engine: Engine) -> tuple[Represents, list[Record]]:
        settings = coded_settings(**self.given_settings())
        return fit_coded(source, settings, engine)
