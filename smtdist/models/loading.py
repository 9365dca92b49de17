"""Models of images, and models that data can be added to, as functions take them: in memory, in an estimator, in a file."""

from __future__ import annotations

import os
from typing import Any

from smtdist.errors import ModelError
from smtdist.models import kinds, store
from smtdist.models.coders.represent import representing
from smtdist.models.readout import ImageTransform


def load_images(path: str | os.PathLike[str], *, statistics: bool = True) -> Any:
    """Read a model of images: a transform, several side by side, or a coder of patches alone.

    Without `statistics` the K x K sums stay on disk. ModelError for another file, or one that is damaged.
    """
    kind = store.kind_at(path)  # whoever reads what cannot be opened says what is wrong
    return store.load(path, kind=kind if kind in kinds.OF_IMAGES else "smt", statistics=statistics)


def load_encoder(
    path: str | os.PathLike[str], *, statistics: bool = False, embedded: bool = False
) -> ImageTransform:
    """Read what turns images into representations: a transform, several side by side, or a coder of patches alone.

    ModelError for a file that is none of them, has no embedding yet, or is a coder where it has to be `embedded`.
    """
    found: ImageTransform = representing(load_images(path, statistics=statistics))
    found.require_ready(path, embedded=embedded)
    return found


def load_transform(path: str | os.PathLike[str], *, statistics: bool = True) -> Any:
    """Read a transform with an embedding; ModelError for another file, also for one of several transforms."""
    found = load_encoder(path, statistics=statistics, embedded=True)
    require_one(found, path)
    return found


def load_growing(path: str | os.PathLike[str]) -> Any:
    """Read a model of any kind, of images one with an embedding; ModelError for another file."""
    name = store.kind_at(path)
    kind = kinds.KINDS.get(name)
    if kind is not None and kind.home and name not in kinds.OF_IMAGES:
        return store.load(path)
    return load_encoder(path, statistics=True, embedded=True)


def encoder_of(given: Any) -> Any:
    """Return what represents images by a model, an estimator or a file; what does not represent images as it is."""
    if isinstance(given, str | os.PathLike):
        return load_encoder(given)
    return representing(store.model_of(given))


def require_one(found: Any, path: str | os.PathLike[str]) -> None:
    """Refuse several models side by side."""
    if names := getattr(found, "names", ()):  # which a coder has not
        raise ModelError(
            f"{path} holds {len(names)} models side by side ({', '.join(names)}), and one is needed; "
            f"smtdist.load(path).parts has them in Python, and smtdist.save writes one to a file."
        )
