"""The kernel models as scikit-learn estimators."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from smtdist.data.source import Source
from smtdist.data.table import plain_rows
from smtdist.errors import ConfigurationError, DataError, equals
from smtdist.kernels import convergence
from smtdist.models.estimating import Estimator, Evaluates, require_label_each
from smtdist.models.kernel.encoder import KernelEncoder
from smtdist.models.kernel.model import KernelModel, samples_of
from smtdist.models.kernel.settings import KernelSettings
from smtdist.models.kernel.streamed import fit_exact, fit_model


class _KernelEstimator(Evaluates, ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):  # type: ignore[misc]
    """What the three estimators share: parameters to settings, rows to a model, `transform`."""

    _model: ClassVar[str]
    n_features_in_: int

    @property
    def configuration(self) -> KernelSettings:
        """The settings, checked. A kernel function of your own stands for the kernel's name."""
        given = {**self.given(), "model": self._model}
        if callable(self.kernel):
            given["kernel"] = "gaussian"
            if self.feature_map is not None:
                raise ConfigurationError(
                    "A kernel function of your own works only without a feature map; set feature_map to None."
                )
        return KernelSettings(**given)

    def _fit(self, X: Any, y: Any, *, triplets: Any = None, clean: Any = None) -> Self:
        settings = self.configuration
        function = self.kernel if callable(self.kernel) else None
        if isinstance(X, Source | tuple) or settings.feature_map is not None:
            if triplets is not None or clean is not None:
                raise ConfigurationError(
                    "Your own positives, negatives and clean rows need rows in memory and feature_map=None; with feature_map "
                    f"give samples of (anchor, positive, negative) and {equals('triplets', 'given')}."
                )
            rows = X if isinstance(X, Source | tuple) else self._checked(X, reset=True)
            source = samples_of(rows)
            require_label_each(y, source.n_samples)
            with self._engine() as engine:
                model, records = fit_model(source, settings, engine)
        else:
            rows, records = self._checked(X, reset=True), []
            require_label_each(y, len(rows))
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
        """Embed samples in memory: returns (samples, n_components); `smtdist transform` works out of core."""
        check_is_fitted(self)
        embedded = self.model_.embed(self._checked(X, reset=False))
        return np.asarray(embedded)


KERNEL: Final = ("n_components", "kernel", "bandwidth", "degree", "offset")
FEATURES: Final = ("feature_map", "n_features")
POSITIVES: Final = ("noise", "random_flip", "random_crop", "mask")
DRAWN: Final = ("copies", "triplets", "negative_pool_size")
DESCENT: Final = ("method", "tolerance", "max_iter")
BATCHES: Final = ("n_epochs", "batch", "learning_rate", "random_state")
PLACE: Final = ("n_workers", "cluster")


class _OfTriplets(_KernelEstimator):
    def fit(self, X: Any, y: Any = None, *, positives: Any = None, negatives: Any = None) -> Self:
        """Fit on rows (n, d), images (n, height, width[, channels]) or a (path, dataset) pair; `y` is ignored."""
        if (positives is None) != (negatives is None):
            raise ConfigurationError(
                "Your own positives and negatives must be used together; give both or neither."
            )
        return self._fit(X, y, triplets=None if positives is None else (positives, negatives))


class ContrastiveKernel(
    _OfTriplets,
    of=KernelSettings,
    names=(*KERNEL, *FEATURES, *POSITIVES, *DRAWN, "random_state"),
    run=PLACE,
    by_place=1,
):
    """Contrastive representation in a kernel's space, in closed form (Definition 1, Theorem 3).

    Minimises Σ f(x)ᵀ (f(x⁻) - f(x⁺)) over f(x) = Wᵀ φ(x) with W*W = I. Positives are augmented anchors
    (`noise`, `random_flip`, `random_crop`, `mask`), and negatives are other samples. You can also pass your own to `fit`.
    With `feature_map` ("auto", which is "nystroem", or "fourier" or "relu") the fit is one pass over data of any size,
    and sums D² numbers. Memory: the exact model takes 8 matrices of 2n x 2n; with features a sum takes 8 D² bytes.

    Attributes
    ----------
    model_ : the fitted KernelModel.
    eigenvalues_, rank_ : eigenvalues and rank of the contrastive form.
    passes_ : records of the passes, with `feature_map`.

    >>> rows = np.random.default_rng(0).standard_normal((30, 4))
    >>> ContrastiveKernel(n_components=2, noise=0.5).fit_transform(rows).shape
    (30, 2)
    """

    _model = "contrastive"


class SpectralContrastiveKernel(
    _OfTriplets,
    of=KernelSettings,
    names=(*KERNEL, "alpha", "negatives", *FEATURES, *POSITIVES, *DRAWN, *DESCENT, *BATCHES),
    run=PLACE,
    by_place=1,
):
    """Representation by the spectral contrastive loss in a kernel's space (Definition 2, Theorem 4).

    Minimises Σ -2 f(x)ᵀ f(x⁺) + (f(x)ᵀ f(x⁻))² + λ ‖W‖². `alpha` is λ.

    `negatives="all"`, the default, takes the mean over independent draws of the negative. `negatives="one"`
    takes a single negative for each anchor, as in the paper. That loss has no minimum for a universal kernel
    (gaussian, laplacian, ntk) and a small λ, because it falls without end along functions that keep each
    anchor orthogonal to its one negative. The fit then ends with a DataError.

    With `feature_map` it is fitted by mini-batches (`n_epochs`, `batch`, `learning_rate`).

    Attributes
    ----------
    model_ : the fitted KernelModel.
    convergence_, n_iter_, converged_, gap_ : how the minimisation ended, its number of steps, whether it reached
        `tolerance`, and the gradient that was left; a ConvergenceWarning says if not.
    passes_ : records of the passes, with `feature_map`.

    >>> rows = np.random.default_rng(0).standard_normal((30, 4))
    >>> SpectralContrastiveKernel().fit(rows).convergence_.converged
    True
    """

    _model = "spectral"


class KernelAutoencoder(
    _KernelEstimator,
    of=KernelSettings,
    names=(
        *KERNEL,
        *("decoder_kernel", "decoder_bandwidth", "alpha", "nugget"),
        *POSITIVES,
        *FEATURES,
        *("decoder_features", "n_decoder_features", "negative_pool_size"),
        *DESCENT,
        "n_init",
        *BATCHES,
    ),
    defaults={"noise": 0.0, "alpha": 0.1},
    run=PLACE,
    by_place=1,
):
    """Autoencoder whose encoder and decoder are functions of a kernel's space (Definition 3, Theorem 5).

    Minimises ‖X - W₂ᵀ φ₂(W₁ᵀ φ₁(X))‖² + λ (‖W₁‖² + ‖W₂‖²) with a bottleneck of unit norm. With `noise` (or
    `random_flip`, `random_crop`, `mask`), or `clean` rows of your own, it de-noises (Remark 2). `nugget` is added to the
    encoder's matrix, as a share of its mean diagonal. The objective has many minima: `n_init` random starts are
    tried, and the best is kept. It need not be the lowest of all: on 80 digits the default ended up to 2.5 % above
    the best of 40 other starts, and up to 2.1 % below. A lower objective is not always
    the better representation. With `feature_map` it is fitted by mini-batches, and the bottleneck of new data has
    unit norm too.

    Attributes
    ----------
    model_ : the fitted KernelModel.
    convergence_, n_iter_, converged_, gap_ : how the minimisation ended, its number of steps, whether it reached
        `tolerance`, and the gradient that was left; a ConvergenceWarning says if not.
    passes_ : records of the passes, with `feature_map`.

    >>> rows = np.random.default_rng(0).standard_normal((30, 4))
    >>> fitted = KernelAutoencoder(2).fit(rows)
    >>> fitted.inverse_transform(fitted.transform(rows)).shape
    (30, 4)
    """

    _model = "autoencoder"

    def fit(self, X: Any, y: Any = None, *, clean: Any = None) -> Self:
        """Fit on rows (n, d), images or a (path, dataset) pair; `clean` are the clean rows that the output
        should match, for rows in memory."""
        return self._fit(X, y, clean=clean)

    def inverse_transform(self, X: Any) -> NDArray[np.floating[Any]]:
        """Return rows (n, d) from embedded ones (n, n_components)."""
        check_is_fitted(self)
        return np.asarray(self.model_.reconstruct(check_array(X, dtype=[np.float64, np.float32])))
