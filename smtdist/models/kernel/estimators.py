"""The kernel models as scikit-learn estimators."""

from __future__ import annotations

import os
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from smtdist.data import opening
from smtdist.data.source import Source
from smtdist.data.table import NotRows, as_table, plain_rows
from smtdist.engine import session
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError
from smtdist.kernels import convergence
from smtdist.models.judged import Evaluates
from smtdist.models.kernel.encoder import KernelEncoder
from smtdist.models.kernel.model import KernelModel, fit_exact, fit_model
from smtdist.models.kernel.settings import KernelSettings
from smtdist.models.parameters import seed_of


class _KernelEstimator(Evaluates, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """What the three estimators share: parameters to settings, rows to a model, `transform`."""

    _model: ClassVar[str]
    n_features_in_: int

    def _settings(self) -> KernelSettings:
        given = self.get_params(deep=False)
        function = given["kernel"] if callable(given["kernel"]) else None
        changes = {name: value for name, value in given.items() if name not in ("workers", "cluster")}
        del changes["random_state"]
        changes["seed"] = seed_of(self)
        if function is not None:
            changes["kernel"] = "gaussian"
            if changes.get("features") is not None:
                raise ConfigurationError(
                    "A kernel function of your own works only without features; set features to None."
                )
        for name, value in changes.items():
            if isinstance(value, np.generic):  # as grids of parameters hold them
                changes[name] = value.item()
        return KernelSettings().replace(model=self._model, **changes)

    def _fit(self, X: Any, *, triplets: Any = None, clean: Any = None) -> Self:
        settings = self._settings()
        function = self.kernel if callable(self.kernel) else None
        if isinstance(X, Source | tuple) or settings.features is not None:
            if triplets is not None or clean is not None:
                raise ConfigurationError(
                    "Your own positives, negatives and clean rows need rows in memory and features=None; with features give "
                    "samples of (anchor, positive, negative) and triplets=given."
                )
            rows = X if isinstance(X, Source | tuple) else self._checked(X, reset=True)
            with session.executor_for(self.cluster, self.workers) as executor:
                model, records = fit_model(samples_of(rows), settings, Engine(executor))
        else:
            rows, records = self._checked(X, reset=True), []
            model = fit_exact(rows, settings, triplets=triplets, clean=clean, function=function)
        return self._fitted(model, records)

    def _checked(self, X: Any, *, reset: bool) -> NDArray[Any]:
        """Return rows in memory, or images as they are."""
        X = plain_rows(X)
        if isinstance(X, np.ndarray) and X.ndim in (3, 4):
            images = np.asarray(check_array(X, allow_nd=True))
            numbers = int(np.prod(images.shape[1:]))
            if reset:
                self.n_features_in_ = numbers
            elif numbers != self.n_features_in_:
                raise DataError(
                    f"Samples have the shape {images.shape[1:]}, {self.n_features_in_} numbers were fitted; give samples of "
                    f"that size."
                )
            return images
        kinds = [np.float64, np.float32, np.uint8]
        return np.asarray(
            validate_data(self, X, dtype=kinds, reset=reset, ensure_min_samples=2 if reset else 1)
        )

    def _fitted(self, model: KernelModel, records: list[dict[str, Any]]) -> Self:
        self.model_ = model
        self.passes_ = records
        self.n_features_in_ = int(np.prod(model.shape))
        self._n_features_out = model.settings.n_components
        if model.spectrum is not None:
            self.eigenvalues_ = model.spectrum.eigenvalues
            self.rank_ = model.spectrum.rank
        if model.convergence is not None:
            self.convergence_ = model.convergence
            convergence.keep(self, model.convergence)
            convergence.warn(model.unconverged())
        if isinstance(model.encoder, KernelEncoder):
            self.bandwidth_ = model.encoder.kernel.bandwidth
        return self

    def transform(self, X: Any) -> NDArray[np.floating[Any]]:
        """Embed samples in memory: returns (samples, n_components); `smtdist kernel transform` works out of core."""
        check_is_fitted(self)
        embedded = self.model_.embed(self._checked(X, reset=False))
        return np.asarray(embedded)


def samples_of(samples: Any) -> Source:
    """Return the source of rows, of images, or of a (path, dataset) pair that holds either."""
    if isinstance(samples, Source):
        return samples
    if isinstance(samples, tuple) and len(samples) == 2 and isinstance(samples[0], str | os.PathLike):
        try:
            return as_table(samples)
        except NotRows:  # nor images, which have more axes and are read as rows
            raise
        except DataError:
            return opening.open_source(samples[0], str(samples[1]))
    return as_table(samples)


class ContrastiveKernel(_KernelEstimator):
    """Contrastive representation in a kernel's space, in closed form (Definition 1, Theorem 3).

    Minimises Σ f(x)ᵀ (f(x⁻) - f(x⁺)) over f(x) = Wᵀ φ(x) with W*W = I. Positives are augmented anchors
    (`noise`, `flip`, `crop`, `mask`), and negatives are other samples. You can also pass your own to `fit`.
    With `features` ("auto", which is "nystroem", or "fourier" or "relu") the fit is one pass over data of any size,
    and sums D² numbers. Memory: the exact model takes 8 matrices of 2n x 2n; with features a sum takes 8 D² bytes.

    The other parameters are settings; see `smtdist.models.kernel.settings.KernelSettings`.

    Attributes
    ----------
    model_ : the fitted KernelModel.
    eigenvalues_, rank_ : eigenvalues and rank of the contrastive form.
    passes_ : records of the passes, with `features`.

    >>> rows = np.random.default_rng(0).standard_normal((30, 4))
    >>> ContrastiveKernel(n_components=2, noise=0.5).fit_transform(rows).shape
    (30, 2)
    """

    _model = "contrastive"

    def __init__(
        self,
        n_components: int = 2,
        *,
        kernel: Any = "gaussian",
        bandwidth: float | str = "median",
        degree: int = 3,
        offset: float = 1.0,
        features: str | None = None,
        n_features: int | None = None,
        noise: float = 0.1,
        flip: bool = False,
        crop: int = 0,
        mask: float = 0.0,
        copies: int = 1,
        triplets: str = "drawn",
        pool: int = 1024,
        random_state: int = 0,
        workers: int | None = None,
        cluster: Any = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.degree = degree
        self.offset = offset
        self.features = features
        self.n_features = n_features
        self.noise = noise
        self.flip = flip
        self.crop = crop
        self.mask = mask
        self.copies = copies
        self.triplets = triplets
        self.pool = pool
        self.random_state = random_state
        self.workers = workers
        self.cluster = cluster

    def fit(self, X: Any, y: Any = None, *, positives: Any = None, negatives: Any = None) -> Self:
        """Fit on rows (n, d), images (n, height, width[, channels]) or a (path, dataset) pair; `y` is ignored."""
        return self._fit(X, triplets=_pair(positives, negatives))


class SpectralContrastiveKernel(_KernelEstimator):
    """Representation by the spectral contrastive loss in a kernel's space (Definition 2, Theorem 4).

    Minimises Σ -2 f(x)ᵀ f(x⁺) + (f(x)ᵀ f(x⁻))² + λ ‖W‖². `ridge` is λ.

    `negatives="all"`, the default, takes the mean over independent draws of the negative. `negatives="one"`
    takes a single negative for each anchor, as in the paper. That loss has no minimum for a universal kernel
    (gaussian, laplacian, ntk) and a small λ, because it falls without end along functions that keep each
    anchor orthogonal to its one negative. The fit then ends with a DataError.

    With `features` it is fitted by mini-batches (`rounds`, `batch`, `learning_rate`).

    The other parameters are settings; see `smtdist.models.kernel.settings.KernelSettings`.

    Attributes
    ----------
    model_ : the fitted KernelModel.
    convergence_, n_iter_, converged_, gap_ : how the minimisation ended, its number of steps, whether it reached
        `tolerance`, and the gradient that was left; a ConvergenceWarning says if not.
    passes_ : records of the passes, with `features`.

    >>> rows = np.random.default_rng(0).standard_normal((30, 4))
    >>> SpectralContrastiveKernel().fit(rows).convergence_.converged
    True
    """

    _model = "spectral"

    def __init__(
        self,
        n_components: int = 2,
        *,
        kernel: Any = "gaussian",
        bandwidth: float | str = "median",
        degree: int = 3,
        offset: float = 1.0,
        ridge: float | str = "auto",
        negatives: str = "all",
        features: str | None = None,
        n_features: int | None = None,
        noise: float = 0.1,
        flip: bool = False,
        crop: int = 0,
        mask: float = 0.0,
        copies: int = 1,
        triplets: str = "drawn",
        pool: int = 1024,
        method: str = "lbfgs",
        tolerance: float = 1e-5,
        max_iterations: int = 1000,
        rounds: int = 200,
        batch: int = 1024,
        learning_rate: float = 0.01,
        random_state: int = 0,
        workers: int | None = None,
        cluster: Any = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.degree = degree
        self.offset = offset
        self.ridge = ridge
        self.negatives = negatives
        self.features = features
        self.n_features = n_features
        self.noise = noise
        self.flip = flip
        self.crop = crop
        self.mask = mask
        self.copies = copies
        self.triplets = triplets
        self.pool = pool
        self.method = method
        self.tolerance = tolerance
        self.max_iterations = max_iterations
        self.rounds = rounds
        self.batch = batch
        self.learning_rate = learning_rate
        self.random_state = random_state
        self.workers = workers
        self.cluster = cluster

    def fit(self, X: Any, y: Any = None, *, positives: Any = None, negatives: Any = None) -> Self:
        """Fit on rows (n, d), images (n, height, width[, channels]) or a (path, dataset) pair; `y` is ignored."""
        return self._fit(X, triplets=_pair(positives, negatives))


class KernelAutoencoder(_KernelEstimator):
    """Autoencoder whose encoder and decoder are functions of a kernel's space (Definition 3, Theorem 5).

    Minimises ‖X - W₂ᵀ φ₂(W₁ᵀ φ₁(X))‖² + λ (‖W₁‖² + ‖W₂‖²) with a bottleneck of unit norm. With `noise` (or
    `flip`, `crop`, `mask`), or `clean` rows of your own, it de-noises (Remark 2). `nugget` is added to the
    encoder's matrix, as a share of its mean diagonal. The objective has many minima: `n_init` random starts are
    tried, and the best is kept. It need not be the lowest of all: on 80 digits the default ended up to 2.5 % above
    the best of 40 other starts, and up to 2.1 % below (docs/kernel_models.md). A lower objective is not always
    the better representation. With `features` it is fitted by mini-batches, and the bottleneck of new data has
    unit norm too.

    The other parameters are settings; see `smtdist.models.kernel.settings.KernelSettings`.

    Attributes
    ----------
    model_ : the fitted KernelModel.
    convergence_, n_iter_, converged_, gap_ : how the minimisation ended, its number of steps, whether it reached
        `tolerance`, and the gradient that was left; a ConvergenceWarning says if not.
    passes_ : records of the passes, with `features`.

    >>> rows = np.random.default_rng(0).standard_normal((30, 4))
    >>> fitted = KernelAutoencoder(2).fit(rows)
    >>> fitted.inverse_transform(fitted.transform(rows)).shape
    (30, 4)
    """

    _model = "autoencoder"

    def __init__(
        self,
        n_components: int = 2,
        *,
        kernel: Any = "gaussian",
        bandwidth: float | str = "median",
        degree: int = 3,
        offset: float = 1.0,
        decoder_kernel: str = "gaussian",
        decoder_bandwidth: float = 1.0,
        ridge: float = 0.1,
        nugget: float = 1e-6,
        noise: float = 0.0,
        flip: bool = False,
        crop: int = 0,
        mask: float = 0.0,
        features: str | None = None,
        n_features: int | None = None,
        decoder_features: str = "fourier",
        n_decoder_features: int = 512,
        pool: int = 1024,
        method: str = "lbfgs",
        tolerance: float = 1e-5,
        max_iterations: int = 1000,
        n_init: int = 32,
        rounds: int = 200,
        batch: int = 1024,
        learning_rate: float = 0.01,
        random_state: int = 0,
        workers: int | None = None,
        cluster: Any = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.degree = degree
        self.offset = offset
        self.decoder_kernel = decoder_kernel
        self.decoder_bandwidth = decoder_bandwidth
        self.ridge = ridge
        self.nugget = nugget
        self.noise = noise
        self.flip = flip
        self.crop = crop
        self.mask = mask
        self.features = features
        self.n_features = n_features
        self.decoder_features = decoder_features
        self.n_decoder_features = n_decoder_features
        self.pool = pool
        self.method = method
        self.tolerance = tolerance
        self.max_iterations = max_iterations
        self.n_init = n_init
        self.rounds = rounds
        self.batch = batch
        self.learning_rate = learning_rate
        self.random_state = random_state
        self.workers = workers
        self.cluster = cluster

    def fit(self, X: Any, y: Any = None, *, clean: Any = None) -> Self:
        """Fit on rows (n, d), images or a (path, dataset) pair; `clean` are the clean rows that the output
        should match, for rows in memory."""
        return self._fit(X, clean=clean)

    def inverse_transform(self, X: Any) -> NDArray[np.floating[Any]]:
        """Return rows (n, d) from embedded ones (n, n_components)."""
        check_is_fitted(self)
        return self.model_.reconstruct(check_array(X, dtype=[np.float64, np.float32]))


def _pair(positives: Any, negatives: Any) -> tuple[Any, Any] | None:
    if (positives is None) != (negatives is None):
        raise ConfigurationError(
            "Your own positives and negatives must be used together; give both or neither."
        )
    return None if positives is None else (positives, negatives)
