"""Kernel models as open HDF5/NetCDF4 files: written whole or not at all, read without pickle."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from typing import Any, Final

from numpy.typing import NDArray

from smtdist.data.netcdf import Group, write_netcdf
from smtdist.errors import ModelError
from smtdist.kernels import convergence
from smtdist.kernels.feature_maps import FeatureMap, FourierFeatures, NystroemFeatures, ReluFeatures
from smtdist.kernels.gram import Kernel
from smtdist.models import groups as file_groups
from smtdist.models import layouts
from smtdist.models.kernel.autoencoder import KernelDecoder
from smtdist.models.kernel.contrastive import Spectrum
from smtdist.models.kernel.encoder import KernelEncoder
from smtdist.models.kernel.model import FeatureDecoder, FeatureEncoder, KernelModel
from smtdist.models.kernel.settings import KernelSettings

SCHEMA: Final = 1
KIND: Final = "kernel"

Arrays = dict[str, tuple[tuple[str, ...], NDArray[Any]]]


def save_kernel(model: KernelModel, path: str | os.PathLike[str], *, overwrite: bool = False) -> int:
    """Write a kernel model to one file and return its bytes; an existing file is refused unless `overwrite`.

    Groups: `/encoder` and, of an autoencoder, `/decoder` hold rows, landmarks or frequencies with
    coefficients; `/embedding` the eigenvalues. Settings, kernels and how the fit ended are JSON attributes.
    ModelError for a kernel given as a function.
    """
    return write_netcdf(
        path, Group(attributes=_attributes(model)), list(_groups(model)), overwrite=overwrite
    )


def load_kernel(path: str | os.PathLike[str]) -> KernelModel:
    """Read a kernel model; ModelError for a file that is none, or damaged."""
    with file_groups.reading(path, "kernel model", "a kernel model") as file:
        if str(file.attrs.get("kind", "")) != KIND:
            raise ModelError(f"{path} is not a kernel model; give one written by smtdist kernel fit.")
        file_groups.require_schema(file, path, "kernel_schema", SCHEMA, "kernel models")
        return _read(file)


def _attributes(model: KernelModel) -> dict[str, Any]:
    return {
        "kind": KIND,
        "kernel_schema": SCHEMA,
        "title": f"Kernel representation: {model.settings.model}",
        "configuration": model.settings.to_json(),
        "shape": json.dumps(model.shape),
        **convergence.written(model.convergence),
        "ridge": json.dumps(model.ridge),
        "provenance": json.dumps(model.provenance),
    }


def _groups(model: KernelModel) -> Iterator[tuple[str, Group]]:
    for name, part in (("encoder", model.encoder), ("decoder", model.decoder)):
        if part is not None:
            yield name, Group(*_described(part))
    if model.spectrum is not None:
        spectrum = {"n_positive": model.spectrum.n_positive, "n_negative": model.spectrum.n_negative}
        yield "embedding", Group({"eigenvalues": ("eigenvalue", model.spectrum.eigenvalues)}, spectrum)


def _described(part: Any) -> tuple[Arrays, dict[str, Any]]:
    """Return the arrays of an encoder or decoder, and its attributes."""
    if isinstance(part, KernelEncoder | KernelDecoder):
        rows = part.rows if isinstance(part, KernelEncoder) else part.bottleneck
        arrays: Arrays = {
            "rows": (("row", "input"), rows),
            "coefficients": (("row", "output"), part.coefficients),
        }
        return arrays, {"map": "kernel", "kernel": _kernel_json(part.kernel)}
    features = part.features
    arrays = {"weights": (("feature", "output"), part.weights)}
    unit = int(getattr(part, "unit", False))
    if isinstance(features, NystroemFeatures):
        arrays["landmarks"] = (("landmark", "input"), features.landmarks)
        arrays["inverse"] = (("landmark", "feature"), features.inverse)
        return arrays, {"map": "nystroem", "unit": unit, "kernel": _kernel_json(features.kernel)}
    kind = "fourier" if isinstance(features, FourierFeatures) else "relu"
    arrays["frequencies"] = (("input", "frequency"), features.frequencies)
    return arrays, {"map": kind, "unit": unit}


def _kernel_json(kernel: Kernel) -> str:
    if kernel.function is not None:
        raise ModelError(
            f"The kernel {kernel.label} is a function of your own, which cannot be stored in a file; use a kernel by name."
        )
    return json.dumps({name: getattr(kernel, name) for name in ("name", "bandwidth", "degree", "offset")})


def _read(file: Any) -> KernelModel:
    settings = KernelSettings.from_json(str(file.attrs["configuration"]))
    shape = tuple(json.loads(file.attrs["shape"]))
    parts = dict(_parts(file, math.prod(shape), settings.n_components))
    spectrum = None
    if "embedding" in file:
        group = file["embedding"]
        layouts.require(file, {"embedding": {"eigenvalues": ("eigenvalue",)}})
        values = file_groups.finite(group, "eigenvalues")
        signs = (file_groups.number(group, name) for name in ("n_positive", "n_negative"))
        spectrum = Spectrum(values, len(values), *signs)
    return KernelModel(
        settings,
        parts["encoder"],
        shape,
        parts.get("decoder"),
        spectrum,
        convergence.read(file.attrs),
        json.loads(file.attrs["ridge"]),
        json.loads(file.attrs["provenance"]),
    )


def _parts(file: Any, inputs: int, outputs: int) -> Iterator[tuple[str, Any]]:
    """Yield the encoder of samples of so many numbers and, where there is one, the decoder."""
    for name, width, height in (("encoder", inputs, outputs), ("decoder", outputs, inputs)):
        if name not in file and name == "decoder":
            continue
        group = file[name]
        layout = _LAYOUTS[str(group.attrs["map"])]
        layouts.require(group, {"": layout}, input=width, output=height)
        arrays = {key: file_groups.finite(group, key) for key in layout}
        encoding = name == "encoder"
        if group.attrs["map"] == "kernel":
            kernel = Kernel(**json.loads(group.attrs["kernel"]))
            make: Any = KernelEncoder if encoding else KernelDecoder
            yield name, make(kernel, arrays["rows"], arrays["coefficients"])
            continue
        features = _features(group, arrays)
        if features.n_features != len(arrays["weights"]):
            raise ValueError("features and weights differ in number")
        unit = bool(file_groups.number(group, "unit"))
        if encoding:
            yield name, FeatureEncoder(features, arrays["weights"], unit)
        else:
            yield name, FeatureDecoder(features, arrays["weights"])


_WEIGHTS: Final[layouts.Arrays] = {"weights": ("feature", "output")}
_LAYOUTS: Final[dict[str, layouts.Arrays]] = {
    "kernel": {"rows": ("row", "input"), "coefficients": ("row", "output")},
    "nystroem": {"landmarks": ("landmark", "input"), "inverse": ("landmark", "feature"), **_WEIGHTS},
    **{one: {"frequencies": ("input", "frequency"), **_WEIGHTS} for one in ("fourier", "relu")},
}
"""What an encoder or decoder is made of, by the map that it begins with."""


def _features(group: Any, arrays: dict[str, NDArray[Any]]) -> FeatureMap:
    if group.attrs["map"] == "nystroem":
        kernel = Kernel(**json.loads(group.attrs["kernel"]))
        return NystroemFeatures(kernel, arrays["landmarks"], arrays["inverse"])
    if group.attrs["map"] == "relu":
        return ReluFeatures(arrays["frequencies"])
    return FourierFeatures(arrays["frequencies"])
