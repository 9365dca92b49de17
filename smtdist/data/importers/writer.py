"""The two layouts of imported images in HDF5: pixels side by side, or encoded bytes and their offsets."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from smtdist import errors
from smtdist.data.importers.prepare import Prepared, Recipe
from smtdist.data.labels import write_names
from smtdist.errors import DataWarning

SCHEMA: Final = 1
CHUNK_BYTES: Final = 2**20
CHUNK_ROWS: Final = 1024
CHUNK_NUMBERS: Final = 8192
CACHE_BYTES: Final = 8 * 2**20
LISTED: Final = 5
"""Sentences about left-out images that are kept."""


@dataclass
class Progress:
    """How far an import is: what the journal remembers between two runs.

    `height` and `width` are those of the first image, `mixed` tells whether any other differs.
    """

    items: int = 0
    samples: int = 0
    nbytes: int = 0
    channels: int = 1
    max_pixels: int = 0
    height: int = 0
    width: int = 0
    mixed: bool = False
    skipped: int = 0
    first_skipped: list[str] = field(default_factory=list)


class GroupWriter:
    """Writes batches into one group of an open file, each dataset growing at its end.

    Plain: `images` (samples, H, W[, C]), without compression, in chunks of about 1 MiB. Encoded: `bytes`,
    flat, and `offsets` (samples + 1); sample i is bytes[offsets[i]:offsets[i + 1]]; `heights` and `widths`
    where sizes differ. Both: `labels`, int64, where there are any.
    """

    def __init__(self, file: Any, group: str, recipe: Recipe, labelled: bool, progress: Progress) -> None:
        """Make the datasets, or go on with those of an import that was stopped."""
        self._plain, self._labelled, self.progress = recipe.plain, labelled, progress
        self._group = file.require_group(group)
        self._sets: dict[str, Any] = dict(self._group.items())
        if self._sets:
            return
        if recipe.plain:
            grey = len(recipe.shape) == 3 and recipe.shape[2] == 1
            shape = recipe.shape[:2] if grey else recipe.shape
            self._make("images", recipe.dtype, _chunk_rows(shape, recipe.dtype), shape)
        else:
            self._make("bytes", np.uint8, CHUNK_BYTES)
            self._make("offsets", np.int64, CHUNK_NUMBERS)
            self._append("offsets", np.zeros(1, np.int64))
        if labelled:
            self._make("labels", np.int64, CHUNK_NUMBERS)

    def _make(self, name: str, dtype: Any, rows: int, shape: tuple[int, ...] = ()) -> None:
        self._sets[name] = self._group.create_dataset(
            name,
            (0, *shape),
            dtype,
            chunks=(rows, *shape),
            maxshape=(None, *shape),
            fillvalue=0,
            rdcc_nbytes=CACHE_BYTES,
        )

    def _append(self, name: str, values: Any) -> None:
        dataset = self._sets[name]
        start = dataset.shape[0]
        dataset.resize(start + len(values), axis=0)
        dataset[start:] = values

    def add(self, batch: Prepared) -> int:
        """Write one batch behind those before it and return its bytes."""
        progress, count = self.progress, batch.samples
        written = 0
        if count:
            written = self._add_pixels(batch) if self._plain else self._add_bytes(batch)
            if self._labelled:
                self._append("labels", batch.labels)
        progress.items += batch.items
        progress.samples += count
        progress.nbytes += written
        progress.skipped += len(batch.skipped)
        progress.first_skipped += batch.skipped[: LISTED - len(progress.first_skipped)]
        return written

    def _add_pixels(self, batch: Prepared) -> int:
        images = self._sets["images"]
        self._append("images", batch.data.reshape(batch.samples, *images.shape[1:]))
        return int(batch.data.nbytes)

    def _add_bytes(self, batch: Prepared) -> int:
        progress = self.progress
        ends = progress.nbytes + np.cumsum(np.array(batch.lengths, np.int64))
        self._append("bytes", np.frombuffer(batch.data, np.uint8))
        self._append("offsets", ends)
        heights = np.array([size.height for size in batch.sizes], np.int32)
        widths = np.array([size.width for size in batch.sizes], np.int32)
        if not progress.samples:
            progress.height, progress.width = int(heights[0]), int(widths[0])
        if not progress.mixed and bool(((heights != progress.height) | (widths != progress.width)).any()):
            progress.mixed = True
            for name, length in (("heights", progress.height), ("widths", progress.width)):
                self._make(name, np.int32, CHUNK_NUMBERS)
                for start in range(0, progress.samples, CHUNK_NUMBERS):
                    count = min(CHUNK_NUMBERS, progress.samples - start)
                    self._append(name, np.full(count, length, np.int32))
        if progress.mixed:
            self._append("heights", heights)
            self._append("widths", widths)
        largest = max(size.height * size.width for size in batch.sizes)
        progress.max_pixels = max(progress.max_pixels, largest)
        progress.channels = max(progress.channels, *(size.channels for size in batch.sizes))
        return len(batch.data)

    def finish(self, classes: list[str] | None) -> int:
        """Write the attributes and return the number of classes."""
        progress, group = self.progress, self._group
        group.file.attrs["smtdist_data_schema"] = SCHEMA
        if not self._plain:
            group.attrs["channels"] = progress.channels
            group.attrs["max_pixels"] = progress.max_pixels
        if progress.skipped:
            group.attrs["skipped"] = progress.skipped
            group.attrs["first_skipped"] = [text[:400] for text in progress.first_skipped]
        if classes is not None:
            write_names(group, classes)
            return len(classes)
        labels = self._distinct_labels() if self._labelled else set()
        if -1 in labels and labels != {-1, 1}:
            errors.warn(
                f"Images in {group.name.strip('/')} have the label -1, which is taken for a class; where it means that they have "
                f"no label, import them by themselves, without labels.",
                DataWarning,
            )
        return len(labels)

    def _distinct_labels(self) -> set[int]:
        labels, found = self._sets["labels"], set[int]()
        for start in range(0, labels.shape[0], 2**20):
            found.update(np.unique(labels[start : start + 2**20]).tolist())
        return found


def _chunk_rows(shape: tuple[int, ...], dtype: Any) -> int:
    """Return the largest power of two of images in about 1 MiB."""
    fitting = max(1, CHUNK_BYTES // (math.prod(shape) * np.dtype(dtype).itemsize))
    return int(min(CHUNK_ROWS, 2 ** (fitting.bit_length() - 1)))
