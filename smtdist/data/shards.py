"""Samples that lie in many files, one after another, as one source; a reader has one of the files open at a time."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from smtdist.data.decode import one_size
from smtdist.data.encoded import EncodedSource
from smtdist.data.encoded_look import EncodedLook
from smtdist.data.leaves import shard_bounds
from smtdist.data.look import Look
from smtdist.data.source import Reader, Source
from smtdist.errors import DataError, masked


@dataclass(frozen=True, eq=False)
class ShardedSource(Source):
    """The samples of several sources in order, numbered through; make it with `joined`.

    Leaves begin anew with each file (`smtdist.data.leaves.shard_bounds`). Sums that are exact have the bits
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
            "kind": "shards",
            "path": masked(self.label),
            "dataset": self.dataset,
            "shape": list(self.shape),
            "dtype": self.dtype.name,
            "chunk_samples": self.chunk_samples,
            "chunks": None,
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


def joined(
    looks: Sequence[Look],
    label: str,
    dataset: str,
    resize: int | None = None,
    crop: int | None = None,
    channels: int | None = None,
) -> Source:
    """Return the source of what was found in several files, in order; one alone is itself.

    The settings are those of encoded images. Their channels, where not asked for, are 3 if any file has 3.
    Raises DataError where files hold plain and encoded images, or images of different shapes or types.
    """
    if not looks:
        raise DataError(f"{label} names no file; name at least one.")
    sources = _sources(looks, resize, crop, channels)
    first = sources[0]
    if len(sources) == 1:
        return first
    for other in sources[1:]:
        if (other.shape[1:], other.dtype) != (first.shape[1:], first.dtype):
            sides = (*first.shape[1:3], *other.shape[1:3])
            encoded = isinstance(first, EncodedSource)
            remedy = one_size(min(sides)) if encoded else "bring them to one shape and type"
            raise DataError(
                f"{other.name} has {other.dtype} images of {other.shape[1:]} (height, width, channels), but {first.name} has "
                f"{first.dtype} of {first.shape[1:]}; {remedy}."
            )
    shape = (sum(source.n_samples for source in sources), *first.shape[1:])
    chunk = max(source.chunk_samples for source in sources)
    return ShardedSource(tuple(sources), label, dataset, shape, first.dtype, chunk)


def _sources(
    looks: Sequence[Look], resize: int | None, crop: int | None, channels: int | None
) -> list[Source]:
    encoded = [look for look in looks if isinstance(look, EncodedLook)]
    plain = [look for look in looks if isinstance(look, Source)]
    if encoded and plain:
        raise DataError(
            f"{encoded[0].name} holds encoded images, but {plain[0].name} holds plain ones; import them all in one layout."
        )
    if plain:
        return plain
    depth = max(look.depth for look in encoded)
    return [EncodedSource.seen(look, resize, crop, channels, depth) for look in encoded]
