"""A fitted transform for other tools, in the format that is asked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from smtdist.errors import ConfigurationError
from smtdist.models import given, loading, readout
from smtdist.models.export import arrays, onnx, torch
from smtdist.models.model import Model

WRITERS: Final[dict[str, Callable[..., int]]] = {
    "onnx": onnx.write,
    "torch": torch.write,
    "zarr": arrays.write_zarr,
    "npz": arrays.write_npz,
}
_ENDINGS: Final = {".onnx": "onnx", ".pt2": "torch", ".zarr": "zarr", ".npz": "npz"}
_OF_ARRAYS: Final = ("zarr", "npz")


class Exported(NamedTuple):
    """What was written: bytes of the file, and the shape of an image's representation."""

    bytes: int
    feature_shape: tuple[int, ...]


def export(
    model: Any,
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    features: str | None = None,
    pool: int | None = None,
    n_components: int | None = None,
    drop: int | None = None,
    overwrite: bool = False,
) -> Exported:
    """Write a fitted transform of images for ONNX Runtime or PyTorch, or its arrays for Zarr or NumPy.

    model : an estimator, a model, or a model's file.
    format : "onnx" or "torch" (.pt2), which take images to representations; "zarr" or "npz", which hold arrays.
        None: by the end of the name.
    features, pool, n_components, drop : as in `SMT.transform`; the first two for onnx and torch.

    Raises ConfigurationError if the format cannot hold the model, OutputExistsError if the file exists.
    """
    target = Path(path)
    chosen = format or _ENDINGS.get(target.suffix.lower())
    if chosen not in WRITERS:
        raise ConfigurationError(
            f"{chosen or target.name} is not a format; choose {', '.join(WRITERS)}, or a name that ends in "
            f"{', '.join(_ENDINGS)}."
        )
    from_file = isinstance(model, str | os.PathLike)
    fitted = loading.load_transform(model, statistics=False) if from_file else given.model_of(model)
    if not isinstance(fitted, Model) and chosen not in _OF_ARRAYS:
        raise ConfigurationError(
            f"The model has a learned code; {chosen} takes models with the codes gq and vq alone. Export its arrays as zarr or "
            f"npz, or let smtdist transform write representations."
        )
    if (features or pool) and chosen in _OF_ARRAYS:
        raise ConfigurationError(
            f"--features and --pool are for onnx and torch; {chosen} holds arrays of the model."
        )
    seen = readout.with_readout(fitted, features, pool)
    shape = seen.representation_shape(n_components, drop)
    size = WRITERS[chosen](seen, target, n_components=n_components, drop=drop, overwrite=overwrite)
    return Exported(size, shape)
