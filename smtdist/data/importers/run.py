"""An import from its beginning, or from where it was stopped, to a whole file.

There are two layouts of imported images in HDF5: pixels side by side, or encoded bytes and their offsets.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import shutil
import time
from collections.abc import Callable
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np

from smtdist import errors
from smtdist.data.hdf5 import IMPORTED
from smtdist.data.importers.items import BATCH_BYTES, BATCH_ITEMS, ImportOptions, Listing
from smtdist.data.importers.journal import JournalledFile, journal_of
from smtdist.data.importers.prepare import ColourFound, Prepared, Recipe, image_of, in_order
from smtdist.data.look import write_names
from smtdist.data.writing import real_target, take_place, why_unwritable
from smtdist.errors import DataError, DataWarning, InterruptedRun, counted, option

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
            # the largest power of two of images in about 1 MiB
            fitting = max(1, CHUNK_BYTES // (math.prod(shape) * np.dtype(recipe.dtype).itemsize))
            rows = min(CHUNK_ROWS, 2 ** (fitting.bit_length() - 1))
            self._make("images", recipe.dtype, rows, shape)
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
            if self._plain:
                images = self._sets["images"]
                self._append("images", batch.data.reshape(count, *images.shape[1:]))
                written = int(batch.data.nbytes)
            else:
                written = self._add_bytes(batch)
            if self._labelled:
                self._append("labels", batch.labels)
        progress.items += batch.items
        progress.samples += count
        progress.nbytes += written
        progress.skipped += len(batch.skipped)
        progress.first_skipped += batch.skipped[: LISTED - len(progress.first_skipped)]
        return written

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
        group.file.attrs[IMPORTED] = SCHEMA
        if not self._plain:
            group.attrs["channels"] = progress.channels
            group.attrs["max_pixels"] = progress.max_pixels
        if progress.skipped:
            group.attrs["skipped"] = progress.skipped
            group.attrs["first_skipped"] = [text[:400] for text in progress.first_skipped]
        if classes is not None:
            write_names(group, classes)
            return len(classes)
        labels, stored = set[int](), self._sets["labels"] if self._labelled else np.zeros(0)
        for start in range(0, stored.shape[0], 2**20):
            labels.update(np.unique(stored[start : start + 2**20]).tolist())
        if -1 in labels and labels != {-1, 1}:
            errors.warn(
                f"Images in {group.name.strip('/')} have the label -1, which is taken for a class; where it means that they have "
                f"no label, import them by themselves, without labels.",
                DataWarning,
            )
        return len(labels)


COMMIT_BYTES: Final = 64 * 2**20
"""What a killed import loses at most."""
SAID_FROM: Final = 2**30
"""What an import says first that it will write."""

Report = Callable[[int], None]
Note = Callable[[str], None]
Stop = Callable[[], int | None]


@dataclass(frozen=True)
class ImportResult:
    """What was written: `samples` and `nbytes` in all, `new_items` looked at by this run in `seconds`.

    `shape` is that of plain images, (H, W, C). `left_out` : what of the source is no image or label that is imported.
    """

    layout: str
    samples: int
    n_classes: int
    nbytes: int
    skipped: int
    first_skipped: tuple[str, ...]
    new_items: int
    seconds: float
    shape: tuple[int, ...] = ()
    left_out: int = 0
    first_left_out: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return what the group holds, and what was not imported, as plain JSON types."""
        return {
            "layout": self.layout,
            "n_samples": self.samples,
            "n_classes": self.n_classes,
            "skipped": self.skipped,
            "left_out": self.left_out,
            "first_left_out": list(self.first_left_out),
            "bytes": self.nbytes,
        }


def import_images(
    listing: Listing,
    out: Path,
    options: ImportOptions,
    *,
    stop: Stop = lambda: None,
    report: Report = lambda done: None,
    note: Note = lambda text: None,
    shape: tuple[int, ...] = (),
    colour: bool = False,
    following: int = 0,
) -> ImportResult:
    """Write the images of a listing to one group of an HDF5 file.

    `shape`, where not empty, is that which plain images must have, and a colour image that it has no room
    for raises ColourFound; `colour`: plain images have three channels. `following`: so many images are to
    come in all, also in other files, for which the disk must have room.

    New files are written beside their final name and renamed when whole. Added groups are written behind
    the end of the file, which stays what it was until the group is whole. Where `stop` returns an exit
    code, the import ends with InterruptedRun after the batch at hand, and a later call with the same
    listing and options goes on there; so it does after a kill, at the last commit. On errors nothing stays
    behind. The datasets hold the same bits whatever the workers and interruptions.
    Memory: workers + 2 batches of 4 MiB or one image, the caches of HDF5, and some 50 MiB a worker.
    Raises DataError in one sentence.
    """
    started = time.perf_counter()
    out = real_target(out)
    recipe = recipe_of(listing, options)
    key = import_key(listing, options)
    with _opened(out, options) as file:
        if file.state is not None and file.state["key"] != key:
            if not options.overwrite:
                raise DataError(
                    f"{out} has an unfinished import of other images or with other options "
                    f"({counted(file.state['progress']['items'], 'image')}); repeat that command, or pass "
                    f"{option('overwrite', True)} to give it up."
                )
            note("Giving up an unfinished import of other images or with other options")
            file.restart()
        try:
            first = replace(recipe, shape=shape)
            attempt = _Run(listing, out, options, first, key, file, stop, report, note, colour, following)
            try:
                result = attempt.run()
            except ColourFound:
                if shape:
                    raise
                note("A colour image after grey ones: starting again with three channels")
                file.restart()
                result = replace(attempt, recipe=replace(recipe, shape=()), colour=True).run()
        except InterruptedRun:
            raise
        except Exception as error:
            failure = file.failure
            file.forget()
            if isinstance(failure, OSError):
                raise DataError(f"{out} could not be written: {why_unwritable(failure)}.") from error
            raise
        try:
            file.finish()
            if not options.append:
                take_place(_partial(out), out, options.overwrite)
        except OSError as error:
            if file.failure is not None or not options.append:
                file.forget()
                raise DataError(f"{out} could not be written: {why_unwritable(error)}.") from error
            raise DataError(
                f"The last step of an import into {out} failed, so repeat the command: {why_unwritable(error)}."
            ) from error
        try:
            file.drop_journal()
        except OSError as error:
            raise DataError(
                f"The images are in {out}, but its journal could not be deleted: {why_unwritable(error)}; repeat the command."
            ) from error
    return replace(result, nbytes=out.stat().st_size, seconds=time.perf_counter() - started)


@dataclass
class _Run:
    """One attempt; `ColourFound` asks for another."""

    listing: Listing
    out: Path
    options: ImportOptions
    recipe: Recipe
    key: str
    file: JournalledFile
    stop: Stop
    report: Report
    note: Note
    colour: bool
    following: int
    uncommitted: int = field(default=0, init=False)

    def run(self) -> ImportResult:
        state = self.file.state
        progress = Progress() if state is None else Progress(**state["progress"])
        already = progress.items
        if already:
            self.note(f"Going on after {counted(already, 'image')}")
        n_classes = 0 if state is None else state["n_classes"]
        if state is None or not state["whole"]:
            n_classes = self._write(progress, state)
        return ImportResult(
            layout="plain" if self.recipe.plain else "encoded",
            samples=progress.samples,
            n_classes=n_classes,
            nbytes=0,
            skipped=progress.skipped,
            first_skipped=tuple(progress.first_skipped),
            new_items=progress.items - already,
            seconds=0.0,
            shape=self.recipe.shape or (() if state is None else tuple(state["shape"])),
        )

    def _write(self, progress: Progress, state: dict[str, Any] | None) -> int:
        shape, items = None if state is None else tuple(state["shape"]), BATCH_ITEMS
        if self.recipe.plain:
            self.recipe = replace(self.recipe, shape=shape or self.recipe.shape or self._shape())
            left = (self.following or self.listing.n_items or 0) - progress.items
            image_bytes = math.prod(self.recipe.shape) * np.dtype(self.recipe.dtype).itemsize
            require_room(self.out, left * image_bytes, counted(left, "image"), self.note)
            items = max(1, min(items, BATCH_BYTES // image_bytes))
        elif not progress.items:
            require_room_encoded(self.listing, self.out, self.note)
        mode = "r+" if self.file.base or state is not None else "w"
        h5 = h5py.File(self.file, mode)
        try:
            if state is None and self.options.group in h5:
                raise DataError(
                    f"{self.out} has a group {self.options.group} already; choose another with {option('group')}."
                )
            writer = GroupWriter(h5, self.options.group, self.recipe, self.listing.labelled, progress)
            batches = self.listing.batches(progress.items, items, BATCH_BYTES)
            # closing it ends its helpers
            with closing(in_order(batches, self.recipe, self.options.workers)) as prepared:
                for batch in prepared:
                    self.uncommitted += writer.add(batch)
                    self.file.check()
                    self.report(progress.items)
                    code = self.stop()
                    if code is not None or self.uncommitted >= COMMIT_BYTES:
                        h5.flush()
                        self._commit(progress)
                    if code is not None:
                        raise InterruptedRun(
                            f"Stopped as asked after {counted(progress.items, 'image')}; repeat the command to continue.",
                            code,
                        )
            if not progress.samples:
                raise DataError(
                    f"None of the {counted(progress.items, 'image')} could be read; the first: {progress.first_skipped[0]}"
                )
            n_classes = writer.finish(self.listing.classes)
        except BaseException:
            self.file.abandon()  # what HDF5 writes when it closes
            raise
        finally:
            h5.close()
        self._commit(progress, n_classes, whole=True)
        return n_classes

    def _commit(self, progress: Progress, n_classes: int = 0, whole: bool = False) -> None:
        self.uncommitted = 0
        self.file.commit(
            {
                "key": self.key,
                "progress": asdict(progress),
                "shape": self.recipe.shape,
                "n_classes": n_classes,
                "whole": whole,
            }
        )

    def _shape(self) -> tuple[int, ...]:
        """Return the shape of the images of the plain layout: the first one's that can be read."""
        listing, recipe = self.listing, self.recipe
        for number in itertools.count():
            batch = next(iter(listing.batches(number, 1)), None)
            if batch is None:
                return (1, 1, 1)  # none can be read: writing says so
            if isinstance(batch.data, np.ndarray) and not recipe.options.scales:
                return tuple(batch.data.shape[1:])
            try:
                return image_of(batch.read(0), recipe, 3 if self.colour else None).shape
            except DataError:
                continue  # named, or left out, when its turn comes
        raise AssertionError


def require_room(out: Path, nbytes: int, what: str, note: Note) -> None:
    """Say how much will be written where that is much, and refuse it where the disk has no room: archives unfold."""
    free = shutil.disk_usage(out.parent).free
    if nbytes > free:
        raise DataError(
            f"{what} take {nbytes:,} bytes in {out}, but its disk has {free:,} left; free space, choose another disk, or "
            f"make the images smaller with {option('resize')}."
        )
    if nbytes >= SAID_FROM:
        note(f"{what} take {nbytes / 2**30:,.1f} GiB in {out}")


def require_room_encoded(listing: Listing, out: Path, note: Note) -> None:
    """Do the same for the images of an archive that stay encoded."""
    nbytes = listing.encoded_bytes()
    if nbytes is not None:
        require_room(out, nbytes, "The encoded images", note)


def recipe_of(listing: Listing, options: ImportOptions) -> Recipe:
    """Decide the layout, and refuse what a layout cannot hold."""
    scales = options.scales
    plain = options.layout == "plain" or (options.layout == "auto" and (scales or not listing.encoded))
    dtype = np.dtype(listing.dtype)
    if dtype != np.uint8 and (scales or not plain):
        what = "scaled" if scales else "encoded"
        raise DataError(f"Only uint8 images can be {what}, but these are {dtype}; import them as they are.")
    if (
        listing.shape
        and (scales or not plain)
        and len(listing.shape) == 3
        and listing.shape[2] not in (1, 3)
    ):
        raise DataError(
            f"Only images of 1 or 3 channels can be scaled or encoded, but these have {listing.shape[2]}."
        )
    return Recipe(plain, dtype=dtype.name, options=options)


def import_key(listing: Listing, options: ImportOptions) -> str:
    """Return a hash of all that the result follows from."""
    names = ("group", "layout", "resize", "crop", "verify", "skip", "append")
    chosen = {name: getattr(options, name) for name in names} | {"workers": 0, "overwrite": False}
    text = json.dumps([SCHEMA, listing.kind, listing.key(), listing.labelled, chosen], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _partial(out: Path) -> Path:
    return out.with_name(f".{out.name}.partial")


@contextmanager
def _opened(out: Path, options: ImportOptions) -> Any:
    """Yield the file to write to: a new one beside the output, or the output itself where a group is added."""
    check_target(out, options)
    path = out if options.append else _partial(out)
    try:
        file = JournalledFile(path, journal_of(path), keep=options.append)
    except OSError as error:
        raise DataError(f"{out} cannot be written: {why_unwritable(error)}.") from error
    try:
        yield file
    finally:
        file.close()


def check_target(out: Path, options: ImportOptions) -> None:
    """Refuse an output that cannot be, before anything is read."""
    out = real_target(out)
    if not out.parent.is_dir():
        raise DataError(f"The folder {out.parent} for {out.name} does not exist; make it first.")
    if options.append:
        if not out.is_file():
            raise DataError(f"There is no {out} to add a group to; leave out {option('append', True)}.")
        if not h5py.is_hdf5(out):
            raise DataError(f"{out} is not an HDF5 file; no group can be added to it.")
    elif out.is_dir():
        raise DataError(f"{out} is a folder; name a file.")
    elif out.exists() and not options.overwrite:
        raise DataError(
            f"{out} exists already; choose another name, or pass {option('overwrite', True)} or {option('append', True)}."
        )
