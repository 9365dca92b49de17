"""One way in for everything that lies in files: which source a location and a name mean, and the labels beside it."""

from __future__ import annotations

from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt

from smtdist import errors
from smtdist.data.adapted import RangeSettings, adapted
from smtdist.data.first import First
from smtdist.data.labels import names_of, read_labels
from smtdist.data.locations import Files, Location, Parsed, resolved
from smtdist.data.look import class_names, file_named, labels_name, look_at, require_same_classes
from smtdist.data.manifest import Manifest
from smtdist.data.shards import ShardedSource, joined
from smtdist.data.source import Source
from smtdist.errors import ConfigurationError, DataWarning

__all__ = ["EncodedSettings", "labels_name", "open_labels", "open_source", "refuse_scaling"]


class EncodedSettings(RangeSettings, Protocol):
    """The settings that say what becomes of stored images; a `Configuration` has them."""

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
    location: Location,
    name: str,
    settings: EncodedSettings | None = None,
    *,
    fitted: bool = False,
    skip_damaged: bool = False,
    image_shape: tuple[int, ...] | None = None,
) -> Source:
    """Return the images that `name` means in an HDF5 file, a Zarr store, what an address names, or in many files.

    Many files are a list of paths, a pattern, a folder, a text that lists them, or a manifest
    (`smtdist.data.locations.resolved`, `smtdist.data.manifest.Manifest`); their samples are numbered
    through in that order. A dataset or array is itself; a group with `bytes` and `offsets` holds encoded
    images, decoded as `settings` say; any other group means its `images`. `resize`, `crop` or `channels`
    set for plain images raise a ConfigurationError; with `fitted` they are those of a model, which also
    takes plain images of the size it saw. `image_shape` tells the axes of plain images apart where their
    shape leaves it open. Without a manifest every file is opened once. Raises DataError
    for what cannot be read; with `skip_damaged`, damaged images do not count where a few are looked at.
    """
    found = resolved(location)
    if isinstance(found, Parsed):
        label, looks = found.path, Manifest.of(found).looks(name)
    elif isinstance(found, Files):
        label, looks = found.label, []
        for path in found.paths:
            with file_named(path):
                looks.append(look_at(path, name, skip_damaged))
    else:
        label, looks = found, [look_at(found, name, skip_damaged)]
    for look in looks:
        if gaps := getattr(look, "gaps", ""):
            errors.warn(gaps, DataWarning)
    order = partial(adapted, settings=settings, fitted=fitted, image_shape=image_shape)
    looks = [order(look) if isinstance(look, Source) else look for look in looks]
    scaling = (settings.resize, settings.crop, settings.channels) if settings else ()
    source = joined(looks, label, name.strip("/"), *scaling)
    if settings is not None and not fitted and isinstance(looks[0], Source):
        refuse_scaling(source.name, settings)
    return source


def open_labels(location: Location, name: str, source: Source) -> npt.NDArray[np.int64]:
    """Return the labels of a source that `open_source` made of the same location and name, as int64 (N,).

    Labels of several files follow one another. Memory: 8 bytes a sample, twice for several files. Raises
    DataError for labels that are missing or of another number, and where two files name their classes
    differently.
    """
    if isinstance(source, First):
        return open_labels(location, name, source.source)[: source.count]
    if not isinstance(source, ShardedSource):
        found = resolved(location)
        path = found if isinstance(found, str) else source.path  # type: ignore[attr-defined]
        return read_labels(path, labels_name(path, name), source.n_samples)
    parts, first = [], None
    names = label_names(location, name, source)
    for shard in source.shards:
        path = shard.path  # type: ignore[attr-defined]  # all that lies in files has one
        with file_named(path):
            parts.append(read_labels(path, labels_name(path, name), shard.n_samples, names))
            classes = (path, class_names(path, name))
        first = first or classes
        require_same_classes(first, classes)
    return np.concatenate(parts)


def label_names(location: Location, name: str, source: Source) -> tuple[str, ...]:
    """Return the names that texts as labels are numbered by (`open_labels`), () for labels that are numbers."""
    if isinstance(source, First):
        return label_names(location, name, source.source)
    if not isinstance(source, ShardedSource):
        found = resolved(location)
        path = found if isinstance(found, str) else source.path  # type: ignore[attr-defined]
        return names_of(path, labels_name(path, name))
    every = []
    for shard in source.shards:
        path = shard.path  # type: ignore[attr-defined]
        with file_named(path):
            every.append(names_of(path, labels_name(path, name)))
    # files that name their classes name the same
    return every[0] if len(set(every)) == 1 else tuple(sorted(set[str]().union(*every)))


def are_named(location: Location, name: str, source: Source) -> bool:
    """Say whether the file, or the first of several, names the classes of the labels."""
    first = source.shards[0] if isinstance(source, ShardedSource) else source
    found = resolved(location)
    return class_names(found if isinstance(found, str) else first.path, name) is not None  # type: ignore[attr-defined]


def refuse_scaling(name: str, settings: EncodedSettings) -> None:
    """Raise a ConfigurationError if settings for encoded images are given for plain ones."""
    given = [key for key in ("resize", "crop", "channels") if getattr(settings, key) is not None]
    if given:
        raise ConfigurationError(
            f"{name} holds plain images, but {' and '.join(given)} {'is' if len(given) == 1 else 'are'} for encoded ones "
            f"(groups with bytes and offsets); leave {'it' if len(given) == 1 else 'them'} out."
        )
