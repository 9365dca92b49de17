"""One way in for everything that lies in files: which kind of source a path and a name mean."""

from __future__ import annotations

import os
from typing import Any, Protocol

import h5py

from smtdist.data.encoded import EncodedSource, is_encoded
from smtdist.data.hdf5 import Hdf5Source, damage_named, open_file
from smtdist.data.remote import full_path
from smtdist.data.source import Source
from smtdist.data.zarr_source import ZarrSource, is_zarr, open_node
from smtdist.errors import ConfigurationError

IMAGES = "images"
LABELS = "labels"


class EncodedSettings(Protocol):
    """The settings that say what becomes of encoded images; a `Configuration` has them."""

    @property
    def resize(self) -> int | None:
        """Pixels of the shorter side."""

    @property
    def crop(self) -> int | None:
        """Pixels of the side of the middle square."""

    @property
    def channels(self) -> int | None:
        """1 or 3."""


def open_source(
    path: str | os.PathLike[str],
    name: str,
    settings: EncodedSettings | None = None,
    *,
    fitted: bool = False,
    skip_damaged: bool = False,
) -> Source:
    """Return the images that `name` means in an HDF5 file, a Zarr store or what an address (`scheme://`) names.

    A dataset or array is itself; a group with `bytes` and `offsets` holds encoded images, decoded as `settings` say;
    any other group means its `images`. `resize`, `crop` or `channels` set for plain images raise a
    ConfigurationError; with `fitted` they are those of a model, which also takes plain images of the size it saw.
    Raises DataError for what cannot be read; with `skip_damaged`, damaged images do not count where a few are looked at.
    """
    with damage_named(path):
        return _opened(path, name, settings, fitted, skip_damaged)


def _opened(
    path: str | os.PathLike[str],
    name: str,
    settings: EncodedSettings | None,
    fitted: bool,
    skip_damaged: bool,
) -> Source:
    if is_zarr(path):
        plain: Source = ZarrSource.open(path, _named(name, not _is_array(open_node(full_path(path), name))))
    else:
        with open_file(full_path(path)) as file:
            group = _group(file, name)
            encoded = group is not None and is_encoded(group)
            inside = _named(name, group is not None and IMAGES in group)
        if encoded:
            chosen = (settings.resize, settings.crop, settings.channels) if settings else ()
            return EncodedSource.open(path, name, *chosen, skip_damaged=skip_damaged)
        plain = Hdf5Source.open(path, inside)
    if settings is not None and not fitted:
        refuse_scaling(plain.name, settings)
    return plain


def refuse_scaling(name: str, settings: EncodedSettings) -> None:
    """Raise a ConfigurationError if settings for encoded images are given for plain ones."""
    given = [key for key in ("resize", "crop", "channels") if getattr(settings, key) is not None]
    if given:
        raise ConfigurationError(
            f"{name} holds plain images, but {' and '.join(given)} {'is' if len(given) == 1 else 'are'} for encoded ones "
            f"(groups with bytes and offsets); leave {'it' if len(given) == 1 else 'them'} out."
        )


def labels_name(path: str | os.PathLike[str], name: str) -> str:
    """Return the name of the labels that go with images: `labels` in the group, or beside the dataset."""
    if is_zarr(path):
        is_group = not _is_array(open_node(full_path(path), name))
    else:
        with damage_named(path), open_file(full_path(path)) as file:
            # what is not there is taken for a group, so that the message names its labels
            found = file.get(name.strip("/") or "/")
            is_group = not isinstance(found, h5py.Dataset)
    folder = name.strip("/") if is_group else name.strip("/").rpartition("/")[0]
    return f"{folder}/{LABELS}".lstrip("/")


def _group(file: Any, name: str) -> Any:
    try:
        found = file[name.strip("/") or "/"]
    except (KeyError, OSError, ValueError):
        return None  # the source that is tried next says what is missing
    return found if isinstance(found, h5py.Group) else None


def _is_array(node: Any) -> bool:
    return hasattr(node, "chunks")


def _named(name: str, is_group: bool) -> str:
    return f"{name.strip('/')}/{IMAGES}".lstrip("/") if is_group else name
