"""One way in for everything that lies in files: which source a location and a name mean, and the labels beside it.

Samples that lie in many files, one after another, are one source; a reader has one of the files open at a time.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from smtdist import errors
from smtdist.data.decode import one_size
from smtdist.data.encoded import EncodedLook, EncodedSource
from smtdist.data.hdf5 import open_dataset
from smtdist.data.locations import Files, Location, Parsed, resolved
from smtdist.data.look import (
    file_named,
    labels_name,
    look_at,
    numbering_of,
    read_labels,
    require_same_classes,
)
from smtdist.data.manifest import Manifest
from smtdist.data.source import Reader, Source, shard_bounds
from smtdist.data.views import EncodedSettings, First, adapted
from smtdist.errors import ConfigurationError, DataError, DataWarning, MissingDatasetError, counted, masked


@dataclass(frozen=True, eq=False)
class ShardedSource(Source):
    """The samples of several sources in order, numbered through; `open_source` makes it.

    Leaves begin anew with each file (`smtdist.data.source.shard_bounds`). Sums that are exact have the bits
    that the same samples in one file have; floating-point ones, whose tree is over leaves, those of this
    division into files. Memory: a reader holds what the largest of the files' readers does.
    """

    shards: tuple[Source, ...]
    label: str
    dataset: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunk_samples: int

    @cached_property
    def firsts(self) -> tuple[int, ...]:
        """Number of the first sample of each file, and of all samples."""
        return (0, *accumulate(shard.n_samples for shard in self.shards))

    @property
    def name(self) -> str:  # type: ignore[override]  # a field of the base class, computed here
        """What messages call it: label:dataset."""
        return f"{masked(self.label)}:{self.dataset}"

    @property
    def file_bytes(self) -> int | None:  # type: ignore[override]
        """Bytes of all files together; None where a part is no file."""
        sizes = [shard.file_bytes for shard in self.shards if shard.file_bytes is not None]
        return sum(sizes) if len(sizes) == len(self.shards) else None

    @property
    def chunk_bytes(self) -> int:
        """Raw bytes in memory while the largest row of chunks is read."""
        return max(shard.chunk_bytes for shard in self.shards)

    @property
    def stored_bytes(self) -> int:
        """Bytes that reading every sample once takes from storage."""
        return sum(shard.stored_bytes for shard in self.shards)

    def picked_bytes(self, numbers: npt.NDArray[np.int64]) -> int:
        """Return the bytes that the samples of each file take."""
        ends = np.searchsorted(numbers, self.firsts).tolist()
        return sum(
            shard.picked_bytes(numbers[start:stop] - first)
            for shard, first, (start, stop) in zip(self.shards, self.firsts, pairwise(ends), strict=False)
            if start < stop
        )

    @property
    def reader_bytes(self) -> int:
        """Bytes of the reader of one file, that which needs most: no two are open at once."""
        return max(shard.reader_bytes for shard in self.shards)

    @property
    def thread_bytes(self) -> int:
        """Bytes that a thread of a reader needs for the largest image of any file."""
        return max(shard.thread_bytes for shard in self.shards)

    def leaf_bounds(self) -> list[int]:
        """Return where leaves begin: anew with each file."""
        files = [(shard.n_samples, shard.chunk_samples) for shard in self.shards]
        return shard_bounds(files, self.sample_bytes)

    def describe(self) -> dict[str, Any]:
        """Return kind, label, dataset, shape, dtype, alignment, files and a hash of what each file is, as plain JSON."""
        digest = hashlib.blake2b(digest_size=16)
        for shard in self.shards:
            digest.update(json.dumps([shard.describe(), shard.file_bytes], sort_keys=True).encode())
        return {
            **self.described("shards", self.label, self.dataset),
            "n_files": len(self.shards),
            "files": digest.hexdigest(),
        }

    @contextmanager
    def opened(self) -> Iterator[Reader]:
        """Yield a reader that opens the file it needs and closes the one before."""
        with ExitStack() as stack:
            yield _ShardedReader(self, stack)


class _ShardedReader(Reader):
    source: ShardedSource

    def __init__(self, source: ShardedSource, stack: ExitStack) -> None:
        super().__init__(source)
        self._stack, self._number = stack, -1
        self._reader: Reader | None = None

    def pick(self, numbers: npt.NDArray[np.int64], out: npt.NDArray[Any]) -> None:
        firsts = self.source.firsts
        ends = np.searchsorted(numbers, firsts).tolist()
        for number, (start, stop) in enumerate(pairwise(ends)):
            if start < stop:
                reader = self._opened(number)
                before = reader.read_bytes
                reader.pick(numbers[start:stop] - firsts[number], out[start:stop])
                self.read_bytes += reader.read_bytes - before

    def _fill(self, start: int, stop: int, out: npt.NDArray[Any]) -> int:
        firsts, at, taken = self.source.firsts, start, 0
        while at < stop:
            number = bisect_right(firsts, at) - 1
            first, end = firsts[number], min(stop, firsts[number + 1])
            reader = self._opened(number)
            before = reader.read_bytes
            reader.read(at - first, end - first, out[at - start : end - start])
            taken += reader.read_bytes - before
            at = end
        return taken

    def _opened(self, number: int) -> Reader:
        if self._reader is None or number != self._number:
            self._stack.close()
            self._reader = None  # should the next one fail to open
            self._reader = self._stack.enter_context(self.source.shards[number].opened())
            self._number = number
        return self._reader


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
    if not looks:
        raise DataError(f"{label} names no file; name at least one.")
    encoded = [look for look in looks if isinstance(look, EncodedLook)]
    order = partial(adapted, settings=settings, fitted=fitted, image_shape=image_shape)
    sources = [order(look) for look in looks if isinstance(look, Source)]
    if encoded and sources:
        raise DataError(
            f"{encoded[0].name} holds encoded images, but {sources[0].name} holds plain ones; import them all in one layout."
        )
    if encoded:
        depth = max(look.depth for look in encoded)
        sources = [EncodedSource.seen(look, settings, depth) for look in encoded]
    first = sources[0]
    for other in sources[1:]:
        if (other.shape[1:], other.dtype) != (first.shape[1:], first.dtype):
            sides = (*first.shape[1:3], *other.shape[1:3])
            remedy = one_size(min(sides)) if encoded else "bring them to one shape and type"
            raise DataError(
                f"{other.name} has {other.dtype} images of {other.shape[1:]} (height, width, channels), but {first.name} has "
                f"{first.dtype} of {first.shape[1:]}; {remedy}."
            )
    source = first
    if len(sources) > 1:
        shape = (sum(one.n_samples for one in sources), *first.shape[1:])
        chunk = max(one.chunk_samples for one in sources)
        source = ShardedSource(tuple(sources), label, name.strip("/"), shape, first.dtype, chunk)
    if not encoded and settings is not None and not fitted:
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


def copied_labels(
    location: Location, name: str | None, source: Source, beside: Callable[[str, str], str] = labels_name
) -> tuple[npt.NDArray[np.int64] | None, tuple[str, ...], str]:
    """Return the labels of samples where the data have some, the names of their classes, and why they cannot be copied.

    name : of the samples in a file of several; None for one that holds nothing else.
    """
    if name is None:
        return None, (), ""
    try:
        return *named_labels(location, name, source, beside), ""
    except MissingDatasetError:
        return None, (), ""
    except DataError as error:
        return None, (), str(error)


def table_labels_name(path: str, dataset: str) -> str:
    """Return the name of the labels beside the rows of a table: `labels`, or `y` as tables have it."""
    name = labels_name(path, dataset)
    beside = f"{name.rpartition('/')[0]}/y".lstrip("/")
    for candidate in (name, beside):
        with suppress(DataError), open_dataset(path, candidate):
            return candidate
    return name


def refuse_scaling(name: str, settings: EncodedSettings) -> None:
    """Raise a ConfigurationError if settings for encoded images are given for plain ones."""
    given = [key for key in ("resize", "center_crop", "channels") if getattr(settings, key) is not None]
    if given:
        raise ConfigurationError(
            f"{name} holds plain images, but {' and '.join(given)} {'is' if len(given) == 1 else 'are'} for encoded ones "
            f"(groups with bytes and offsets); leave {'it' if len(given) == 1 else 'them'} out."
        )
