"""A fitted kernel model, and the samples that it takes."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from smtdist.data import opening, remote
from smtdist.data.netcdf import Group
from smtdist.data.showing import Shown
from smtdist.data.source import Source
from smtdist.data.table import NotRows, as_table
from smtdist.errors import DataError, ModelError
from smtdist.kernels import convergence as endings
from smtdist.kernels import feature_maps
from smtdist.kernels.convergence import Convergence, advice, facts_of
from smtdist.kernels.feature_maps import FeatureMap
from smtdist.kernels.gram import Kernel
from smtdist.models import store
from smtdist.models.kernel.encoder import KernelEncoder, require_rows
from smtdist.models.kernel.settings import KernelSettings
from smtdist.models.rows import RowModel, table_of
from smtdist.models.store import Array
from smtdist.solve.solution import Float64
from smtdist.statistics.contrast import on_sphere
from smtdist.statistics.rows import as_rows

_FEATURES: Final = {
    "nystroem": feature_maps.NystroemFeatures,
    "fourier": feature_maps.FourierFeatures,
    "relu": feature_maps.ReluFeatures,
}
_WEIGHTS: Final = {"weights": Array(("feature", "output"))}
_FREQUENCIES: Final = {**_WEIGHTS, "frequencies": Array(("input", "frequency"))}
# what an encoder or decoder is made of, by the map that it begins with
_MAPS: Final[Mapping[str, store.Arrays]] = {
    "kernel": {"rows": Array(("row", "input")), "coefficients": Array(("row", "output"))},
    "nystroem": {
        **_WEIGHTS,
        "landmarks": Array(("landmark", "input")),
        "inverse": Array(("landmark", "feature")),
    },
    "fourier": _FREQUENCIES,
    "relu": _FREQUENCIES,
}
_SPECTRUM: Final = {"eigenvalues": Array(("eigenvalue",))}
_SIGNS: Final = ("n_positive", "n_negative")


@dataclass(frozen=True, eq=False)
class FeatureEncoder:
    """z = Wᵀ φ(x) with explicit features and W (D, h); divided by its length where `unit`, in an autoencoder.

    Its decoder is one, too: of embedded rows, with W₂ (D₂, d).
    """

    features: FeatureMap
    weights: Float64
    unit: bool = False

    def __call__(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Embed rows (n, d): returns (n, h) in float32."""
        require_rows(rows, self.features.n_inputs)
        embedded = feature_maps.map_rows(self.features, np.asarray(rows, np.float32)) @ self.weights.astype(
            np.float32
        )
        return on_sphere(embedded)[1] if self.unit else embedded


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues of the negated, symmetrised form on the span of the data, and what they say.

    Attributes
    ----------
    eigenvalues : (r,) in descending order; the loss at the optimum is minus the sum of the first h.
    rank : r, dimension of the span that was searched: of K₁, or the number of features.
    n_positive, n_negative : eigenvalues beyond rounding, by sign.
    """

    eigenvalues: Float64
    rank: int
    n_positive: int
    n_negative: int

    def loss(self, components: int) -> float:
        """Return the value of Definition 1 at the optimum."""
        return -float(self.eigenvalues[:components].sum())


@dataclass(frozen=True, eq=False)
class KernelModel(RowModel, Shown):
    """A fitted model: an encoder, of an autoencoder a decoder too, and how it was found.

    Attributes
    ----------
    settings : what was asked for. encoder, decoder : maps from rows to embedded rows and back.
    spectrum : eigenvalues, of the contrastive model. convergence : how the descent ended, of the others.
    ridge : λ that was used. shape : (height, width, channels) of a sample; (1, 1, d) for rows.
    """

    STORED_AS: ClassVar[str] = "kernel"
    dtype: ClassVar[str] = "float32"

    settings: KernelSettings
    encoder: KernelEncoder | FeatureEncoder
    shape: tuple[int, int, int]
    decoder: KernelEncoder | FeatureEncoder | None = None
    spectrum: Spectrum | None = None
    convergence: Convergence | None = None
    ridge: float | None = None
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def n_inputs(self) -> int:
        """Numbers of a sample."""
        return math.prod(self.shape)

    @property
    def feature_shape(self) -> tuple[int, ...]:
        """Shape of an embedded sample, (h,)."""
        return (self.settings.n_components,)

    @property
    def row_bytes(self) -> int:
        """Bytes that a sample's kernel values, while they are made, or its features take."""
        if isinstance(self.encoder, KernelEncoder):
            return 8 * 4 * len(self.encoder.rows)
        return self.encoder.features.workspace() + 8 * self.encoder.features.n_features

    def opened(self, data: list[str], dataset: str | None, skip: bool) -> Source:
        """Return the samples, images too, of a dataset."""
        return samples_in(data, dataset)

    def embed(self, samples: NDArray[Any]) -> NDArray[Any]:
        """Embed samples (m, ...), uint8 divided by 255: returns (m, h)."""
        return self.encoder(prepared(samples, self.settings))

    def reconstruct(self, embedded: NDArray[Any]) -> NDArray[Any]:
        """Return rows (m, d) from embedded ones; ModelError for a model that has no decoder."""
        if self.decoder is None:
            raise ModelError(
                f"The model kernel-{self.settings.model} has no decoder; fit kernel-autoencoder to reconstruct."
            )
        embedded = np.asarray(embedded)
        require_rows(embedded, self.settings.n_components, "The embedded rows")
        return self.decoder(embedded)

    def summary(self) -> dict[str, Any]:
        """Return what is asked of a fitted model first, as plain JSON."""
        found: dict[str, Any] = {
            "model": f"kernel-{self.settings.model}",
            "shape": list(self.shape),
            "has_decoder": self.decoder is not None,
            "ridge": self.ridge,
        }
        if self.spectrum is not None:
            spectrum = self.spectrum
            found |= {
                "rank": spectrum.rank,
                "n_positive": spectrum.n_positive,
                "n_negative": spectrum.n_negative,
                "loss": spectrum.loss(self.settings.n_components),
            }
        if self.convergence is not None:
            found |= vars(self.convergence)
        return found

    def unconverged(self) -> str:
        """Return the sentence for a fit that did not reach its tolerance; empty for one that did."""
        found, settings = self.convergence, self.settings
        if found is None or found.converged:
            return ""
        if settings.feature_map is None:
            more = "raise max_iter or tolerance"
            if found.n_iter < settings.max_iter:
                more = "no lower point was found along the slope: raise alpha or tolerance"
            return (
                f"The fit stopped after {found.n_iter} steps with a relative gradient of {found.gradient_norm:.2g}, "
                f"above the tolerance of {settings.tolerance:.2g}; {more}."
            )
        return advice(facts_of(found), "n_epochs")

    def stored(self) -> Iterator[tuple[str, Group]]:
        """Yield what its file holds; ModelError for a kernel given as a function.

        `/encoder` and, of an autoencoder, `/decoder` have rows, landmarks or frequencies with coefficients; `/embedding` the
        eigenvalues. Settings, kernels and how the fit ended are JSON attributes.
        """
        attributes = {
            "kind": self.STORED_AS,
            **store.version(self.STORED_AS),
            "title": f"Kernel representation: {self.settings.model}",
            "configuration": self.settings.to_json(),
            "shape": json.dumps(self.shape),
            **endings.written(self.convergence),
            "ridge": json.dumps(self.ridge),
            "provenance": json.dumps(self.provenance),
        }
        parts = {"encoder": self.encoder, "decoder": self.decoder}
        groups = [(name, _packed(part)) for name, part in parts.items() if part is not None]
        yield "", Group(attributes=attributes)
        yield from groups
        if self.spectrum is not None:
            signs = {name: getattr(self.spectrum, name) for name in _SIGNS}
            yield "embedding", store.packed(_SPECTRUM, vars(self.spectrum), signs)

    @classmethod
    def restored(cls, file: Any, statistics: bool) -> Self:
        """Read what `stored` yielded."""
        settings = KernelSettings.from_json(str(file.attrs["configuration"]))
        shape = tuple(json.loads(file.attrs["shape"]))
        inputs, outputs = math.prod(shape), settings.n_components
        encoder = _unpacked(file["encoder"], inputs, outputs)
        decoder = spectrum = None
        if "decoder" in file:
            decoder = _unpacked(file["decoder"], outputs, inputs)
        if "embedding" in file:
            group = file["embedding"]
            store.require(group, {"": _SPECTRUM})
            values = store.finite(group, "eigenvalues")
            spectrum = Spectrum(values, len(values), *(store.number(group, name) for name in _SIGNS))
        ridge, about = (json.loads(file.attrs[name]) for name in ("ridge", "provenance"))
        return cls(settings, encoder, shape, decoder, spectrum, endings.read(file.attrs), ridge, about)


def _packed(part: KernelEncoder | FeatureEncoder) -> Group:
    """Return an encoder or decoder as a group of a file."""
    if isinstance(part, KernelEncoder):
        kernel = _kernel_json(part.kernel)
        return store.packed(_MAPS["kernel"], vars(part), {"map": "kernel", "kernel": kernel})
    name = next(name for name, made in _FEATURES.items() if type(part.features) is made)
    about: dict[str, Any] = {"map": name, "unit": int(part.unit)}
    if isinstance(part.features, feature_maps.NystroemFeatures):
        about["kernel"] = _kernel_json(part.features.kernel)
    return store.packed(_MAPS[name], {**vars(part.features), "weights": part.weights}, about)


def _unpacked(group: Any, inputs: int, outputs: int) -> KernelEncoder | FeatureEncoder:
    """Return the encoder or decoder of rows of so many numbers that a group holds."""
    name = str(group.attrs["map"])
    store.require(group, {"": _MAPS[name]}, input=inputs, output=outputs)
    arrays: dict[str, Any] = store.arrays_in(group, _MAPS[name])
    kernel = [Kernel(**json.loads(group.attrs["kernel"]))] if name in ("kernel", "nystroem") else []
    if name == "kernel":
        return KernelEncoder(kernel[0], **arrays)
    weights = arrays.pop("weights")
    features = _FEATURES[name](*kernel, **arrays)
    if features.n_features != len(weights):
        raise ValueError("features and weights differ in number")
    return FeatureEncoder(features, weights, bool(store.number(group, "unit")))


def _kernel_json(kernel: Kernel) -> str:
    if kernel.function is not None:
        raise ModelError(
            f"The kernel {kernel.label} is a function of your own, which cannot be stored in a file; use a kernel by name."
        )
    return json.dumps({name: getattr(kernel, name) for name in ("name", "bandwidth", "degree", "offset")})


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


def samples_in(data: list[str], dataset: str | None) -> Source:
    """Return the samples of one file: rows of a .npy file, or rows or images of a dataset."""
    if dataset is None or len(data) > 1 or data[0].endswith(".npy"):
        return table_of(data, dataset)
    return samples_of((remote.full_path(data[0]), dataset))


def prepared(samples: NDArray[Any], settings: KernelSettings) -> NDArray[Any]:
    """Return samples as rows: float64 for exact models, float32 for features; uint8 is divided by 255."""
    if settings.feature_map is not None:
        return as_rows(samples) if samples.dtype.kind in "biuf" else samples
    rows = samples.reshape(len(samples), -1) if samples.ndim > 2 else samples
    return rows / 255 if rows.dtype == np.uint8 else rows
