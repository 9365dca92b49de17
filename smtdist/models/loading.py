"""Files of transforms of images, and of coders of patches, whatever the kind."""

from __future__ import annotations

import os

from smtdist.codes.coder import Coder
from smtdist.errors import ModelError
from smtdist.models import files
from smtdist.models.coded import files_of, load_coded
from smtdist.models.coders.files import kind_in
from smtdist.models.coders.manifold import Manifold
from smtdist.models.coders.represent import Pooled, representing
from smtdist.models.model import Model

Transform = Model | Manifold


def load(path: str | os.PathLike[str], *, statistics: bool = True) -> Transform | Coder:
    """Read a model of images: a transform, or a coder of patches alone; without `statistics` the K x K sums stay on disk.

    ModelError for another file, or one that is damaged.
    """
    if kind_in(path):
        return load_coded(path, statistics=statistics)
    return files.load(path, statistics=statistics)


def save(model: Transform | Coder, path: str | os.PathLike[str], *, overwrite: bool = False) -> int:
    """Write a model of images to one file and return its bytes; an existing file is refused unless `overwrite`."""
    if isinstance(model, Model):
        return files.save(model, path, overwrite=overwrite)
    return files_of(model).save(model, path, overwrite=overwrite)


def load_encoder(path: str | os.PathLike[str], *, statistics: bool = False) -> Transform | Pooled:
    """Read what turns images into representations: a transform, or a coder of patches alone.

    Without `statistics` the K x K sums stay on disk. ModelError for a file that is neither, or has no
    embedding yet.
    """
    if kind_in(path):
        return representing(load_coded(path, statistics=statistics))
    model = files.load(path, statistics=statistics)
    if model.embedding is None:
        raise ModelError(f"{path} holds whitening and dictionary only; fit it first.")
    return model


def load_transform(path: str | os.PathLike[str], *, statistics: bool = True) -> Transform:
    """Read a transform with an embedding; ModelError for another file."""
    found = load_encoder(path, statistics=statistics)
    if isinstance(found, Pooled):
        raise ModelError(
            f"{path} holds a coder without an embedding; fit one on its codes with smtdist fit --from-model {path}."
        )
    return found
