"""One way in for everything that lies in files: which source a location and a name mean, and the labels beside it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt

from smtdist import errors
from smtdist.data.adapted import RangeSettings, adapted
from smtdist.data.labels import numbering_of, read_labels
from smtdist.data.locations import Files, Location, Parsed, resolved
from smtdist.data.look import file_named, labels_name, look_at, require_same_classes
from smtdist.data.manifest import Manifest
from smtdist.data.shards import ShardedSource, joined
from smtdist.data.source import Source
from smtdist.data.views import First
from smtdist.errors import ConfigurationError, DataError, DataWarning, counted

__all__ = ["EncodedSettings", "labels_name", "named_labels", "open_labels", "open_source", "refuse_scaling"]


class EncodedSettings(RangeSettings, Protocol):
    """The settings that say what becomes of stored images; a `Configuration` has them."""

    @property
    def resize(self) -> int | None:
        """Pixels of the shorter side."""

    @property
    def center_crop(self) -> int | None:
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
    scaling = (settings.resize, settings.center_crop, settings.channels) if settings else ()
    source = joined(looks, label, name.strip("/"), *scaling)
    if settings is not None and not fitted and isinstance(looks[0], Source):
        refuse_scaling(source.name, settings)
    return source


def open_labels(location: Location, name: str, source: Source) -> npt.NDArray[np.int64]:
    """Return the labels of a source that `open_source` made of the same location and name, as int64 (N,): see `named_labels`."""
    return named_labels(location, name, source)[0]


def named_labels(
    location: Location, name: str, source: Source, beside: Callable[[str, str], str] = labels_name
) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """Return the labels of a source as int64 (N,), and the names of the classes by these numbers; () where they have none.

    Labels of several files follow one another. beside : what names the labels that go with samples. Memory: 8 bytes a
    sample, twice for several files. Raises DataError for labels that are missing or of another number, and where two
    files name their classes differently.
    """
    if isinstance(source, First):
        labels, names = named_labels(location, name, source.source, beside)
        return labels[: source.count], names
    if isinstance(source, ShardedSource):
        # all that lies in files has a path
        parts = [(shard.path, shard.n_samples) for shard in source.shards]  # type: ignore[attr-defined]
    else:
        found = resolved(location)
        parts = [(found if isinstance(found, str) else source.path, source.n_samples)]  # type: ignore[attr-defined]
    first, every = None, set[str]()
    for path, _ in parts:
        with file_named(path):
            own = numbering_of(path, beside(path, name))
        first = first or (path, own)
        if first[1].texts != own.texts:
            raise DataError(
                f"The labels in {path if own.texts else first[0]} are texts, and those in {first[0] if own.texts else path} "
                f"are numbers; store them alike in all files."
            )
        if not own.texts:
            require_same_classes((first[0], first[1].names or None), (path, own.names or None))
        every.update(own.names)
    assert first is not None  # a source has samples
    # texts of files that list other names are numbered together
    names = first[1].names if every == set(first[1].names) else tuple(sorted(every))
    every_label = []
    for path, n_samples in parts:
        with file_named(path):
            every_label.append(read_labels(path, beside(path, name), n_samples, names))
    labels = np.concatenate(every_label) if len(every_label) > 1 else every_label[0]
    if names and labels.max() >= len(names):
        errors.warn(
            f"{source.name} has the label {labels.max()}, but names for {counted(len(names), 'class')}; name the others, or "
            f"correct the labels.",
            DataWarning,
        )
    return labels, names


def refuse_scaling(name: str, settings: EncodedSettings) -> None:
    """Raise a ConfigurationError if settings for encoded images are given for plain ones."""
    given = [key for key in ("resize", "center_crop", "channels") if getattr(settings, key) is not None]
    if given:
        raise ConfigurationError(
            f"{name} holds plain images, but {' and '.join(given)} {'is' if len(given) == 1 else 'are'} for encoded ones "
            f"(groups with bytes and offsets); leave {'it' if len(given) == 1 else 'them'} out."
        )
