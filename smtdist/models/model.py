"""A fitted sparse manifold transform: plain, immutable, complete without the code that made it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from smtdist import configuration
from smtdist.configuration import Configuration
from smtdist.data.fingerprint import Digests, array_hash
from smtdist.data.source import Source, sample_lengths
from smtdist.data.views import Scaling
from smtdist.engine.manifest import WEIGHTS, Facts
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError, ModelError, equals
from smtdist.kernels import convergence
from smtdist.kernels import pixels as pixel_values
from smtdist.kernels import whitening as whitening_kernels
from smtdist.kernels.context import COARSE_BITS
from smtdist.kernels.mirrored import mirrored_pixels
from smtdist.kernels.types import Encoder, Geometry, PixelScale, Sampling, Whitener
from smtdist.models.components import PatchTransform, require_windows
from smtdist.models.dictionary import Dictionary
from smtdist.models.provenance import Record, origin_of
from smtdist.models.readout import CodePlaces
from smtdist.models.represent import Represent, representer
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
class Model(PatchTransform):
    """A fitted transform of images: its settings, and all that the fit found."""

    settings: Configuration
    geometry: Geometry
    scale: PixelScale
    whitening: Whitening
    dictionary: Dictionary
    statistics: Statistics | None
    embedding: Solution | None
    provenance: dict[str, Any] = field(default_factory=dict)
    coarse: bool = False  # second-order weights are those of files of schemas 1 and 2

    free: ClassVar[tuple[str, ...]] = (
        "second_moment",
        "n_components",
        "drop_components",
        "pool_size",
        "pool_stride",
        "dtype",
        "null_tolerance",
        "keep_statistics",
        *configuration.VOTING,
    )
    """Settings that no sum depends on: they may change after the fit."""
    holds: ClassVar[str] = "whitening and dictionary"
    STORED_AS: ClassVar[str] = "smt"

    @property
    def whitener(self) -> Whitener:
        """The parameters that turn images into unit patches on the grid."""
        return whitened(unwhitened(self.settings, self.geometry, self.scale), self.whitening)

    @property
    def encoder(self) -> Encoder:
        """The parameters that turn images into codes."""
        return make_encoder(self.settings, self.whitener, self.dictionary.grid)

    @property
    def basis(self) -> str:
        """Hash of all that the sums depend on besides the data. Two models can be merged only if it is equal."""
        settings = self.settings
        return basis(code_sums(self, 1), settings.resize, settings.center_crop)

    def facts(self, source: Source) -> Facts:
        """Return what a checkpoint of the sums of a source depends on: data, settings and hashes."""
        bits = code_sums(self, 1).weight_bits if self.settings.difference_order == 2 else COARSE_BITS
        weights = [] if bits == COARSE_BITS else [np.array(bits)]
        given = {"the model": array_hash(self.whitening.whiten, self.dictionary.grid, *weights)}
        return Facts.of(source, summed_settings(self.settings), given, self.settings.names_today())

    def summed(
        self, source: Source, engine: Engine, samples: Digests | None = None
    ) -> tuple[Statistics, Record]:
        """Sum the codes of a source with this whitening and dictionary; `samples` are their hashes where they are known."""
        from smtdist.models.summing import summed  # a model that is only used needs no SciPy

        sums = code_sums(self, source.n_samples)
        statistics, samples, record = summed(source, sums, self.settings, engine, samples)
        origin = origin_of(self.basis, samples, source.name, self.dictionary.samples)
        return replace(statistics, origin=origin), record

    def solved(self, statistics: Statistics, engine: Engine) -> tuple[Solution, Record]:
        """Solve for an embedding, as a step of the run."""
        from smtdist.models.solving import timed_solve  # nor this

        return timed_solve(statistics, self.settings, engine)

    @property
    def ending(self) -> convergence.Convergence | None:
        """How the rounds of the dictionary ended; None where it was not learned."""
        return self.dictionary.ending

    @property
    def asked(self) -> str:
        """The settings, as JSON."""
        return self.settings.to_json()

    @property
    def dtype(self) -> str:
        """Number type of a representation."""
        return self.settings.dtype

    @property
    def scaling(self) -> Scaling:
        """How encoded images are scaled and cropped before patches are taken."""
        made = self.settings
        return Scaling(self.geometry[:3], made.resize, made.center_crop, made.channels, made.pixel_range)

    @property
    def votes(self) -> Configuration:
        """How neighbours vote by default."""
        return self.settings

    @property
    def positions(self) -> int:
        """Of an image."""
        return self.geometry.positions

    def require_images(self, source: Source) -> None:
        """Refuse images of another shape, or another range of pixels, than the model was fitted on."""
        found = whitener_for(source, self.settings)
        if found.geometry != self.geometry:
            raise ModelError(
                f"The model takes images of (height, width, channels) = {self.geometry[:3]}, {source.name} has "
                f"{found.geometry[:3]}; give images like those it was fitted on."
            )
        if found.scale != self.scale:
            wanted = "bring them to that range" if self.scale.is_float else "convert them to uint8"
            raise DataError(
                f"{source.name} has {source.dtype} pixels, which are taken to run {found.scale}, but the model was fitted on "
                f"pixels {self.scale}; {wanted}, or fit again."
            )

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the positions of an image."""
        return self.geometry.rows, self.geometry.columns

    @property
    def code_places(self) -> CodePlaces:
        """What can be read out of its codes."""
        return CodePlaces(*self.grid, len(self.dictionary.grid), self.pooling)

    def identifying_arrays(self) -> list[NDArray[Any]]:
        """Return components and atoms."""
        return [self.components(), self.dictionary.grid]

    def pictures(self, atoms: NDArray[Any] | None = None) -> NDArray[np.float64]:
        """Return atoms as patches (n, patch, patch, channels), unwhitened, without the mean patch; all by default."""
        grid = self.dictionary.grid
        chosen = grid if atoms is None else grid[np.asarray(atoms, np.int64)]
        side = self.geometry.patch
        channels = 1 if self.settings.to_grayscale else self.geometry.channels
        patches = np.asarray(chosen, np.float64) @ self.whitening.unwhiten
        return patches.reshape(-1, side, side, channels)

    def representer(self, source: Source, engine: Engine) -> Represent:
        """Return what represents a batch of images within a worker's budget."""
        return representer(self, source, engine)


def summed_settings(settings: Configuration) -> dict[str, Any]:
    """Return the settings that a checkpoint of a fit depends on, as checkpoints of earlier versions name them."""
    left_out = {*Configuration.stored_names(configuration.VOTING)}
    told, later = settings.to_dict(), configuration.LATER
    return {k: v for k, v in told.items() if k not in left_out and (k not in later or v != later[k])}


def weights_given(*settings: Configuration) -> dict[str, str]:
    """Return what the manifest of a fit says of second-order weights."""
    return {WEIGHTS: "exact"} if any(one.difference_order == 2 for one in settings) else {}


def whitener_for(source: Source, settings: Configuration) -> Whitener:
    """Return the part of the whitener of images that is known before any are read, or say why they cannot be fitted."""
    geometry = image_geometry(settings, source.shape, source.name)
    scale = pixel_values.pixel_scale(source.dtype, settings.pixel_range, source.name)
    return unwhitened(settings, geometry, scale)


def unwhitened(settings: Configuration, geometry: Geometry, scale: PixelScale) -> Whitener:
    """Return the part of the whitener that is known before any data is read."""
    # the seed only where something is drawn: else sums that do not depend on it would look as if they did
    drawn = settings.positions is not None
    seed, mirrored = (settings.random_state, settings.dictionary_mirrored) if drawn else (0, False)
    sampling = Sampling(settings.patch_stride, settings.positions, seed, mirrored)
    context, contrast = settings.resolved_mean_context, settings.min_contrast
    ridge = settings.whitening_reg / scale.unit**2 if settings.whitening_covariance == "image" else None
    return Whitener(
        geometry,
        scale,
        settings.to_grayscale,
        settings.subtract_mean,
        context,
        None,
        contrast,
        None,
        sampling,
        ridge,
    )


def whitened(whitener: Whitener, whitening: Whitening) -> Whitener:
    """Return the whitener with what the first pass found."""
    return replace(
        whitener, whiten=whitening_kernels.integer_whitening(whitening.whiten), global_mean=whitening.mean
    )


def make_encoder(settings: Configuration, whitener: Whitener, grid: NDArray[np.float32]) -> Encoder:
    """Return the encoder of these settings over atoms on the grid."""
    return Encoder(
        whitener=whitener,
        atoms=np.ascontiguousarray(grid, np.float32),
        feature=settings.code,
        cut=whitening_kernels.threshold_cut(settings.threshold, whitener.geometry.pixels),
        euclidean=settings.dictionary_method == "kmeans",
        constant_patch=settings.constant_patch,
        zero_code=settings.zero_code,
    )


def code_sums(model: Model, n_samples: int) -> CodeSums:
    """Return the statistic that sums a model's codes over so many samples."""
    settings = model.settings
    if settings.dictionary_mirrored:
        first, second = np.split(model.dictionary.grid, 2)
        if not np.array_equal(second, first[:, mirrored_pixels(model.geometry)]):
            raise ModelError(
                "With dictionary_mirrored the second half of the atoms are the mirror images of the first, "
                "and those of this dictionary are not; leave dictionary_mirrored out."
            )
    return sums_of(model.encoder, settings, n_samples, model.coarse)


def sums_of(encoder: Encoder, settings: Configuration, n_samples: int, coarse: bool = False) -> CodeSums:
    """Return the statistic that sums codes over so many samples, as settings say."""
    how = settings.context_size, settings.difference_order, settings.augment_flip, n_samples
    return CodeSums(encoder, *how, mirrored=settings.dictionary_mirrored, coarse=coarse)


def finished_bytes(source: Source, settings: Configuration, given_atoms: int | None = None) -> int:
    """Return the bytes of the K x K sums that the driver holds when it solves."""
    whitener, n_atoms = whitener_for(source, settings), given_atoms or settings.n_atoms
    atoms = np.zeros((n_atoms, whitener.geometry.pixels), np.float32)
    return sums_of(make_encoder(settings, whitener, atoms), settings, source.n_samples).finished_bytes()


def image_geometry(settings: Configuration, shape: tuple[int, ...], name: str) -> Geometry:
    """Return the patches of images of this shape, or say why there are none, none with a neighbour, or too few to pool."""
    height, width, channels = sample_lengths(shape, name)
    if settings.context_size != "whole" and int(settings.context_size) < settings.patch_stride:
        raise ConfigurationError(
            f"The context of {settings.context_size} pixels reaches no other patch on a stride of {settings.patch_stride}; "
            f"raise context_size or lower patch_stride."
        )
    if settings.dictionary_mirrored and (width - settings.patch_size) % settings.patch_stride:
        raise ConfigurationError(
            f"On a stride of {settings.patch_stride} the patches of {name} lie elsewhere in its mirror images, which "
            f"dictionary_mirrored does not allow; set patch_stride=1."
        )
    if settings.to_grayscale and channels != 3:
        raise DataError(f"{name} has {channels} channel(s), and grey needs three; leave to_grayscale out.")
    if min(height, width) < settings.patch_size:
        raise DataError(
            f"{name} has images of {height} x {width}, smaller than the patch of {settings.patch_size}; "
            f"{_small_advice(height, width, channels)}."
        )
    geometry = Geometry(height, width, 1 if settings.to_grayscale else channels, settings.patch_size)
    if settings.subtract_mean == "context" and geometry.positions == 1:
        raise DataError(
            f"{name} has one {settings.patch_size} x {settings.patch_size} patch in each image, of which a contextual mean would "
            f"leave nothing; set {equals('subtract_mean', 'patch')}."
        )
    require_windows(settings, geometry.rows, geometry.columns)
    return geometry


def _small_advice(height: int, width: int, channels: int) -> str:
    """Say what to do about images that hold no patch: an axis may be another than it was taken for.

    >>> _small_advice(5, 64, 64), _small_advice(32, 3, 1)
    ('if the first of their axes is that of channels, move it to the end', 'if this is one image, give X[None]')
    """
    if channels > max(4, height):
        return "if the first of their axes is that of channels, move it to the end"
    if channels == 1 and width <= 4 < height:
        return "if this is one image, give X[None]"
    return "lower patch_size"
