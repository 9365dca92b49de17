"""An import into many files, one after another, each of a stated number of images, and a manifest that names them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from smtdist.data import locking
from smtdist.data.importers.items import BATCH_BYTES, BATCH_ITEMS, Batch, ImportOptions, Listing
from smtdist.data.importers.prepare import ColourFound
from smtdist.data.importers.run import (
    LISTED,
    ImportResult,
    Note,
    Report,
    Stop,
    import_images,
    import_key,
    recipe_of,
    require_room_encoded,
)
from smtdist.data.look import read_labels
from smtdist.data.manifest import describe_files, write_manifest
from smtdist.data.writing import check_target, real_target, whole_file
from smtdist.errors import DataError, counted, option


def shard_path(out: Path, number: int) -> Path:
    """Return the name of a shard beside its manifest.

    >>> shard_path(Path("data/train.json"), 7).name
    'train-00007.h5'
    """
    return out.with_name(f"{out.stem}-{number:05}.h5")


def import_shards(
    listing: Listing,
    out: Path,
    options: ImportOptions,
    shard_items: int,
    *,
    stop: Stop = lambda: None,
    report: Report = lambda done: None,
    note: Note = lambda text: None,
) -> ImportResult:
    """Write the images of a listing to files of `shard_items` each, beside the manifest `out` that is written at the end.

    Images that are left out are counted too, so that a shard may hold fewer. A file is whole or not there, as
    `import_images` makes it; a stopped, killed or failed import goes on after the last whole file, and
    within the next. Plain images have the shape of the first in all files; a colour image after grey ones
    begins anew. The files hold the same bits whatever the workers and interruptions. `overwrite` also
    removes files of a former import of that name that are not written again. Memory: as `import_images`.
    """
    started = time.perf_counter()
    with locking.held(out):
        out = real_target(out)
        state = _State.begun(out, f"{import_key(listing, options)} {shard_items}", options.overwrite, note)
        stream = _Stream(listing)
        new_items, colour = 0, False
        plain = recipe_of(listing, options).plain
        announced = not plain
        if not state.items and not plain:
            try:
                require_room_encoded(listing, out, note)
            except DataError:
                state.drop()
                raise
        while not stream.ended(state.items):
            number = len(state.samples)
            window = Window(stream, state.items, shard_items)
            try:
                result = import_images(
                    window,
                    shard_path(out, number),
                    replace(options, overwrite=True),
                    stop=stop,
                    report=lambda done, before=state.items: report(before + done),  # type: ignore[misc]
                    note=note,
                    shape=tuple(state.shape),
                    colour=colour,
                    following=0 if announced else (listing.n_items or 0) - state.items,
                )
            except ColourFound:
                note("A colour image after grey ones: starting again with three channels")
                state.restart()
                stream, colour, new_items, announced = _Stream(listing), True, 0, False
                continue
            except DataError:
                if not state.items:  # nothing to go on from
                    state.drop()
                raise
            announced = True
            new_items += result.new_items
            state.add(result)
        paths = [shard_path(out, number) for number in range(len(state.samples))]
        found: set[int] = set()
        if listing.classes is None and listing.labelled:
            for path, count in zip(paths, state.samples, strict=True):
                found.update(np.unique(read_labels(path, f"{options.group}/labels", count)).tolist())
        made = describe_files([str(path) for path in paths], out, [options.group])
        write_manifest(made, overwrite=options.overwrite)
        _remove_others(out, len(paths))
        state.drop()
        return ImportResult(
            layout=state.layout,
            samples=sum(state.samples),
            n_classes=len(found if listing.classes is None else listing.classes),
            nbytes=sum(path.stat().st_size for path in paths),
            skipped=state.skipped,
            first_skipped=tuple(state.first_skipped),
            new_items=new_items,
            seconds=time.perf_counter() - started,
        )


def _others(out: Path, first: int, unfinished: bool = False) -> list[Path]:
    """Return files that are named as shards are, from number `first` on, and what imports that were stopped have left."""
    pattern = re.compile(re.escape(out.stem) + r"-(\d{5})\.h5")
    if unfinished:
        pattern = re.compile(rf"\.?{pattern.pattern}(\.partial(\.journal)?)?")
    found = ((path, pattern.fullmatch(path.name)) for path in sorted(out.parent.iterdir()))
    return [path for path, match in found if match and int(match[1]) >= first]


def _remove_others(out: Path, first: int) -> None:
    for path in _others(out, first, unfinished=True):
        path.unlink(missing_ok=True)


@dataclass
class _State:
    """What an import into shards has done: kept beside the manifest, written anew after each shard."""

    out: Path
    key: str
    items: int = 0
    samples: list[int] = field(default_factory=list)
    shape: list[int] = field(default_factory=list)
    layout: str = ""
    skipped: int = 0
    first_skipped: list[str] = field(default_factory=list)

    @property
    def path(self) -> Path:
        return self.out.with_name(f".{self.out.name}.partial")

    @classmethod
    def begun(cls, out: Path, key: str, overwrite: bool, note: Note) -> _State:
        """Return the state of an import that was stopped, or a new one where nothing stands in its way."""
        check_target(out, overwrite)
        state = cls(out, key)
        if state.path.exists():
            try:
                kept = json.loads(state.path.read_text())
                if not isinstance(kept, dict) or not isinstance(kept["samples"], list):
                    raise ValueError
            except (OSError, ValueError, KeyError):
                kept = {}  # of another version, or damaged: another import
            if kept.get("key") == key:
                note(
                    f"Going on after {counted(kept['items'], 'image')} in {counted(len(kept['samples']), 'file')}"
                )
                return cls(out, **kept)
            if not overwrite:
                raise DataError(
                    f"{out} has an unfinished import of other images or with other options; repeat that command, or pass "
                    f"{option('overwrite', True)} to give it up."
                )
            note("Giving up an unfinished import of other images or with other options")
        elif (others := _others(out, 0)) and not overwrite:
            raise DataError(
                f"{others[0]} exists already; choose another name or pass {option('overwrite', True)}."
            )
        state.restart()
        return state

    def restart(self) -> None:
        """Begin anew: what was written is of no use."""
        _remove_others(self.out, 0)
        self.items, self.samples, self.shape = 0, [], []
        self.skipped, self.first_skipped = 0, []
        self._write()

    def add(self, result: ImportResult) -> None:
        """Remember a shard that is whole."""
        self.items += result.samples + result.skipped
        self.samples.append(result.samples)
        self.shape, self.layout = list(result.shape), result.layout
        self.skipped += result.skipped
        self.first_skipped += result.first_skipped[: LISTED - len(self.first_skipped)]
        self._write()

    def drop(self) -> None:
        """Forget the import: it is done."""
        self.path.unlink(missing_ok=True)

    def _write(self) -> None:
        kept = {name: value for name, value in vars(self).items() if name != "out"}
        with whole_file(self.path, overwrite=True) as temporary:
            Path(temporary).write_text(json.dumps(kept))


class _Stream:
    """The batches of a listing, read once from beginning to end as long as they are asked for in order."""

    def __init__(self, listing: Listing) -> None:
        self.listing = listing
        self._at = -1
        self._batches: Iterator[Batch] = iter(())
        self._left: Batch | None = None

    def ended(self, at: int) -> bool:
        """Say whether there is no item from number `at` on."""
        if self.listing.n_items is not None:
            return at >= self.listing.n_items
        for batch in self.read(at, BATCH_ITEMS, BATCH_BYTES):
            self._left, self._at = batch, at  # handed out when it is asked for
            return False
        return True

    def read(self, at: int, items: int, nbytes: int, most: int | None = None) -> Iterator[Batch]:
        """Yield batches from number `at` on, `most` items at most in all."""
        if at != self._at:
            self._batches, self._left, self._at = self.listing.batches(at, items, nbytes), None, at
        done = 0
        while most is None or done < most:
            batch = self._left if self._left is not None else next(self._batches, None)
            self._left = None
            if batch is None:
                return
            room = min(items, len(batch) if most is None else most - done)
            if len(batch) > room:
                batch, self._left = _part(batch, slice(None, room)), _part(batch, slice(room, None))
            done += len(batch)
            self._at = at + done
            yield batch


def _part(batch: Batch, which: slice) -> Batch:
    return Batch(
        batch.origin,
        batch.first + (which.start or 0),
        None if batch.data is None else batch.data[which],
        None if batch.labels is None else batch.labels[which],
        None if batch.names is None else batch.names[which],
    )


class Window(Listing):
    """Some items of a listing, as a listing."""

    def __init__(self, stream: _Stream, first: int, most: int) -> None:
        """Take `most` items from number `first` on, or as many as there are."""
        inner = stream.listing
        self.kind, self.encoded, self.labelled = inner.kind, inner.encoded, inner.labelled
        self.shape, self.dtype, self.classes = inner.shape, inner.dtype, inner.classes
        self.n_items = None if inner.n_items is None else min(most, inner.n_items - first)
        self._stream, self._first, self._most = stream, first, most

    def key(self) -> list[str]:
        """Return that of the listing, and which items these are."""
        return [*self._stream.listing.key(), f"{self._first} {self._most}"]

    def batches(self, first: int, items: int = BATCH_ITEMS, nbytes: int = BATCH_BYTES) -> Iterator[Batch]:
        """Yield the items from number `first` of these on."""
        yield from self._stream.read(self._first + first, items, nbytes, self._most - first)
