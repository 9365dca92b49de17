"""Models of images, and models that data can be added to, as functions take them: in memory, in an estimator, in a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from smtdist.errors import ConfigurationError, ModelError, command
from smtdist.models import coded, kinds, store
from smtdist.models.coders.manifold import Manifold
from smtdist.models.coders.represent import Pooled, representing
from smtdist.models.joined import Joined
from smtdist.models.model import Model

Transform = Model | Manifold


def load_images(path: str | os.PathLike[str], *, statistics: bool = True) -> Any:
    """Read a model of images: a transform, several side by side, or a coder of patches alone.

    Without `statistics` the K x K sums stay on disk. ModelError for another file, or one that is damaged.
    """
    kind = store.kind_at(path)  # whoever reads what cannot be opened says what is wrong
    return store.load(path, kind=kind if kind in kinds.OF_IMAGES else "smt", statistics=statistics)


def load_encoder(path: str | os.PathLike[str], *, statistics: bool = False) -> Transform | Joined | Pooled:
    """Read what turns images into representations: a transform, several side by side, or a coder of patches alone.

    ModelError for a file that is none of them, or has no embedding yet.
    """
    model = load_images(path, statistics=statistics)
    if isinstance(model, Model) and model.embedding is None:
        raise ModelError(f"{path} holds whitening and dictionary only; fit it first.")
    return representing(model)


def changed(fitted: Any, changes: Mapping[str, Any]) -> Any:
    """Return what represents images with other settings of what may change after the fit; ConfigurationError for others."""
    if not changes:
        return fitted
    model = fitted.coder if isinstance(fitted, Pooled) else fitted
    names, allowed = model.settings.named(changes), coded.changeable(model)
    if fixed := sorted(names.keys() - set(allowed)):
        raise ConfigurationError(
            f"{', '.join(fixed)} cannot change after the fit; {', '.join(allowed)} can."
        )
    return representing(replace(model, settings=model.settings.replace(**names)))


def load_transforms(path: str | os.PathLike[str], *, statistics: bool = True) -> Transform | Joined:
    """Read a transform with an embedding, or several side by side; ModelError for another file."""
    found = load_encoder(path, statistics=statistics)
    if isinstance(found, Pooled):
        raise ModelError(
            f"{path} holds a coder without an embedding; fit one on its codes with {command('fit', 'from-model', path)}."
        )
    return found


def load_transform(path: str | os.PathLike[str], *, statistics: bool = True) -> Transform:
    """Read a transform with an embedding; ModelError for another file, also for one of several transforms."""
    found = load_transforms(path, statistics=statistics)
    require_one(found, path)
    return cast(Transform, found)


def load_growing(path: str | os.PathLike[str]) -> Any:
    """Read a model of any kind, of images one with an embedding; ModelError for another file."""
    name = store.kind_at(path)
    kind = kinds.KINDS.get(name)
    if kind is not None and kind.home and name not in kinds.OF_IMAGES:
        return store.load(path)
    return load_transforms(path)


def encoder_of(given: Any) -> Any:
    """Return what represents images by a model, an estimator or a file; what does not represent images as it is."""
    if isinstance(given, str | os.PathLike):
        return load_encoder(given)
    return representing(store.model_of(given))


def require_one(found: Any, path: str | os.PathLike[str]) -> None:
    """Refuse several models side by side."""
    if isinstance(found, Joined):
        raise ModelError(
            f"{path} holds {len(found.parts)} models side by side ({', '.join(found.names)}), and one is needed; "
            f"smtdist.load(path).parts has them in Python, and smtdist.save writes one to a file."
        )
