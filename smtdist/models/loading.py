"""Files of transforms of images, and of coders of patches, whatever the kind."""

from __future__ import annotations

import os
from typing import Any, cast

from smtdist.codes.coder import Coder
from smtdist.errors import ModelError
from smtdist.models import files, kinds
from smtdist.models.coded import files_of, load_coded
from smtdist.models.coders.manifold import Manifold
from smtdist.models.coders.represent import Pooled, representing
from smtdist.models.joined import Joined
from smtdist.models.model import Model

Transform = Model | Manifold


def load(path: str | os.PathLike[str], *, statistics: bool = True) -> Transform | Joined | Coder:
    """Read a model of images: a transform, several side by side, or a coder of patches alone.

    Without `statistics` the K x K sums stay on disk.

    ModelError for another file, or one that is damaged.
    """
    kind = kinds.kind_at(path)
    if kind in kinds.CODERS:
        return load_coded(path, statistics=statistics)
    if kind == "joined":
        return files.load_joined(path, statistics=statistics)
    return files.load(path, statistics=statistics)


def save(
    model: Transform | Joined | Coder, path: str | os.PathLike[str], *, overwrite: bool = False
) -> int:
    """Write a model of images to one file and return its bytes; an existing file is refused unless `overwrite`."""
    if isinstance(model, Model | Joined):
        return files.save(model, path, overwrite=overwrite)
    return files_of(model).save(model, path, overwrite=overwrite)


def load_encoder(path: str | os.PathLike[str], *, statistics: bool = False) -> Transform | Joined | Pooled:
    """Read what turns images into representations: a transform, several side by side, or a coder of patches alone.

    Without `statistics` the K x K sums stay on disk. ModelError for a file that is neither, or has no
    embedding yet.
    """
    kind = kinds.kind_at(path)
    if kind in kinds.CODERS:
        return representing(load_coded(path, statistics=statistics))
    if kind == "joined":
        return files.load_joined(path, statistics=statistics)
    model = files.load(path, statistics=statistics)
    if model.embedding is None:
        raise ModelError(f"{path} holds whitening and dictionary only; fit it first.")
    return model


def load_transforms(path: str | os.PathLike[str], *, statistics: bool = True) -> Transform | Joined:
    """Read a transform with an embedding, or several side by side; ModelError for another file."""
    found = load_encoder(path, statistics=statistics)
    if isinstance(found, Pooled):
        raise ModelError(
            f"{path} holds a coder without an embedding; fit one on its codes with smtdist fit --from-model {path}."
        )
    return found


def load_transform(path: str | os.PathLike[str], *, statistics: bool = True) -> Transform:
    """Read a transform with an embedding; ModelError for another file, also for one of several transforms."""
    found = load_transforms(path, statistics=statistics)
    require_one(found, path)
    return cast(Transform, found)


def require_one(found: Any, path: str | os.PathLike[str]) -> None:
    """Refuse several models side by side."""
    if isinstance(found, Joined):
        raise ModelError(
            f"{path} holds {len(found.parts)} models side by side ({', '.join(found.names)}), and one is needed; "
            f"smtdist.load(path).parts has them in Python, and smtdist.save writes one to a file."
        )
