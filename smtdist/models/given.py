"""Models as functions of Python take them: in memory, in a fitted estimator, or in a file of any kind."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, Final

from smtdist.errors import ModelError
from smtdist.models import loading
from smtdist.models.coders.represent import representing
from smtdist.models.kinds import kind_at

_FILES: Final = {
    "words": ("smtdist.models.words.files", "load_words", "save_words"),
    "points": ("smtdist.models.points.files", "load_points", "save_points"),
    "video": ("smtdist.models.functional.files", "load_video", "save_video"),
    "kernel": ("smtdist.models.kernel.files", "load_kernel", "save_kernel"),
    "concepts": ("smtdist.concepts.files", "load", "save"),
    "head": ("smtdist.evaluate.heads", "load", ""),
}
"""Where files of kinds that are not of images are read and written; named, not imported: some lie in layers above."""
_KINDS: Final = {
    "WordModel": "words",
    "PointModel": "points",
    "VideoModel": "video",
    "KernelModel": "kernel",
    "ConceptModel": "concepts",
}


def load(path: str | os.PathLike[str], *, statistics: bool = True) -> Any:
    """Read a model of any kind: of images, words, points, video or kernels, a coder of patches, concepts, or a head.

    Without `statistics` the K x K sums of a model of images stay on disk. ModelError for another file, or one
    that is damaged.
    """
    kind = kind_at(path)  # whoever reads what cannot be opened says what is wrong
    if kind not in _FILES:
        return loading.load(path, statistics=statistics)
    module, read, _ = _FILES[kind]
    return getattr(import_module(module), read)(path)


def save(model: Any, path: str | os.PathLike[str], *, overwrite: bool = False) -> int:
    """Write a model, or the model of a fitted estimator, to a file, and return its size in bytes.

    An existing file is refused unless `overwrite`.
    """
    found = model_of(model)
    kind = named_kind(found)
    if kind is not None:
        module, _, write = _FILES[kind]
        return int(getattr(import_module(module), write)(found, path, overwrite=overwrite))
    if hasattr(found, "save"):  # a head
        return int(found.save(path, overwrite=overwrite))
    return loading.save(found, path, overwrite=overwrite)


def named_kind(model: Any) -> str | None:
    """Return the kind of a model that is not of images, as `smtdist.models.kinds.KINDS` names it; None for others."""
    return _KINDS.get(type(model).__name__)


def model_of(given: Any) -> Any:
    """Return a model: as it is, that of a fitted estimator, or that in a file."""
    if isinstance(given, str | os.PathLike):
        return load(given)
    if not hasattr(given, "get_params"):
        return given
    for name in ("model_", "coder_"):
        if hasattr(given, name):
            return getattr(given, name)
    if hasattr(given, "transform"):
        raise ModelError(f"This {type(given).__name__} is not fitted yet; call fit first.")
    return given  # a head is a model itself


def encoder_of(given: Any) -> Any:
    """Return what represents images by a model, an estimator or a file; what does not represent images as it is."""
    if isinstance(given, str | os.PathLike):
        return loading.load_encoder(given)
    return representing(model_of(given))
