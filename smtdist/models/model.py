"""A fitted sparse manifold transform: plain, immutable, complete without the code that made it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.configuration import Configuration
from smtdist.errors import ConfigurationError, DataError, ModelError
from smtdist.kernels.representation import pooled_shape
from smtdist.kernels.types import Encoder, Geometry, PixelScale, Sampling, Whitener
from smtdist.kernels.whitening import integer_whitening, threshold_cut
from smtdist.models.dictionary import Dictionary
from smtdist.solve.solution import Solution
from smtdist.statistics.cooccurrence import CodeSums
from smtdist.statistics.origin import basis
from smtdist.statistics.sums import Statistics


@dataclass(frozen=True)
class Whitening:
    """Σ of the mean-removed patches in units of the pixel range, (λI + Σ)^(-1/2) and its inverse, all (p, p)."""

    covariance: NDArray[np.float64]
    whiten: NDArray[np.float64]
    unwhiten: NDArray[np.float64]
    mean: NDArray[np.int64] | None  # global mean patch in pixel units


@dataclass(frozen=True)
class Model:
    """Everything a fit found, and what it was asked."""

    settings: Configuration
    geometry: Geometry
    scale: PixelScale
    whitening: Whitening
    dictionary: Dictionary
    statistics: Statistics | None
    embedding: Solution | None
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def whitener(self) -> Whitener:
        """The parameters that turn images into unit patches on the grid."""
        first = unwhitened(self.settings, self.geometry, self.scale)
        return whitened(first, self.whitening)

    @property
    def encoder(self) -> Encoder:
        """The parameters that turn images into codes."""
        return make_encoder(self.settings, self.whitener, self.dictionary.grid)

    @property
    def basis(self) -> str:
        """Hash of all that the sums depend on but the data: those of two models add up only where it is equal."""
        settings = self.settings
        return basis(code_sums(self, 1), settings.resize, settings.crop)

    def components(self, n_components: int | None = None, drop: int | None = None) -> NDArray[np.float32]:
        """Return P without its first `drop` rows, transposed: (K, n_components) float32.

        Any choice within the components stored is free after the fit; the default is the configuration's.
        """
        if self.embedding is None:
            raise ModelError("The model has no embedding yet; it holds whitening and dictionary only.")
        first = self.settings.drop if drop is None else drop
        count = self.settings.n_components if n_components is None else n_components
        stored = len(self.embedding.components)
        if count < 1 or first < 0 or first + count > stored:
            raise ModelError(
                f"The model stores {stored} components, so {count} after dropping {first} cannot be taken; "
                f"ask for fewer, or fit with a larger n_components."
            )
        return np.ascontiguousarray(self.embedding.components[first : first + count].T, np.float32)

    def feature_shape(self, n_components: int) -> tuple[int, int, int]:
        """Return the shape of one image's representation: pooled rows, pooled columns, components."""
        rows, columns = pooled_shape(
            self.geometry.rows, self.geometry.columns, self.settings.pool_size, self.settings.pool_stride
        )
        return rows, columns, n_components


def unwhitened(settings: Configuration, geometry: Geometry, scale: PixelScale) -> Whitener:
    """Return the part of the whitener that is known before any data is read."""
    return Whitener(
        geometry,
        scale,
        settings.grey,
        settings.mean,
        settings.resolved_mean_context,
        None,
        settings.min_contrast,
        None,
        # the seed only where something is drawn: else sums that do not depend on it would look as if they did
        Sampling(settings.stride, settings.positions, 0 if settings.positions is None else settings.seed),
    )


def whitened(whitener: Whitener, whitening: Whitening) -> Whitener:
    """Return the whitener with what the first pass found."""
    return replace(whitener, whiten=integer_whitening(whitening.whiten), global_mean=whitening.mean)


def make_encoder(settings: Configuration, whitener: Whitener, grid: NDArray[np.float32]) -> Encoder:
    """Return the encoder of these settings over atoms on the grid."""
    return Encoder(
        whitener=whitener,
        atoms=np.ascontiguousarray(grid, np.float32),
        feature=settings.feature,
        cut=threshold_cut(settings.threshold, whitener.geometry.pixels),
        euclidean=settings.dictionary_method == "kmeans",
        constant_patch=settings.constant_patch,
        zero_code=settings.zero_code,
    )


def code_sums(model: Model, n_samples: int) -> CodeSums:
    """Return the statistic that sums a model's codes over so many samples."""
    settings = model.settings
    return CodeSums(model.encoder, settings.context, settings.order, settings.flip, n_samples)


def image_geometry(settings: Configuration, shape: tuple[int, int, int, int], name: str) -> Geometry:
    """Return the patches of images of this shape, or say why there are none, none with a neighbour, or too few to pool."""
    _, height, width, channels = shape
    if settings.context != "whole" and int(settings.context) < settings.stride:
        raise ConfigurationError(
            f"The context of {settings.context} pixels reaches no other patch on a stride of {settings.stride}; "
            f"raise context or lower stride."
        )
    if settings.grey and channels != 3:
        raise DataError(f"{name} has {channels} channels; grey turns three into one, so set grey=false.")
    if min(height, width) < settings.patch:
        raise DataError(
            f"{name} has images of {height} x {width}, smaller than the patch of {settings.patch}; lower patch."
        )
    geometry = Geometry(height, width, 1 if settings.grey else channels, settings.patch)
    if settings.mean == "context" and geometry.positions == 1:
        raise DataError(
            f"{name} has one {settings.patch} x {settings.patch} patch an image, "
            f"which a contextual mean leaves nothing of; set mean=patch."
        )
    pooled_shape(geometry.rows, geometry.columns, settings.pool_size, settings.pool_stride)
    return geometry
