"""The manifest of a data set in many files: open JSON that says what is where, so that opening it opens no other file."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np

from smtdist.data import checksums
from smtdist.data.decode import Header
from smtdist.data.encoded import EncodedLook, bytes_of, offsets_of, parts_of
from smtdist.data.fingerprint import DIGEST_BYTES, sample_digests
from smtdist.data.guarded import require_allowed
from smtdist.data.hdf5 import Hdf5Source, damage_named, open_file
from smtdist.data.locations import Parsed, beside, require_once
from smtdist.data.look import (
    Look,
    class_names,
    file_named,
    has_labels,
    image_sets,
    look_at,
    require_same_classes,
)
from smtdist.data.remote import file_size, is_url
from smtdist.data.source import Source, aligned_samples
from smtdist.data.writing import whole_file
from smtdist.errors import DataError, command
from smtdist.kernels import hashing

SCHEMA: Final = 1
KEY: Final = "smtdist_manifest"
HASHED: Final = 3
"""Samples of each file whose content is hashed."""

Entry = dict[str, Any]


@dataclass(frozen=True)
class Manifest:
    """Which files hold which sets of images, and what each looked like when the manifest was made.

    A *set* is a name in files: a dataset of plain images, or a group of encoded ones. A set need not be in
    every file, so that one manifest names the training and the test images. The content, JSON:

    - `smtdist_manifest`: the schema, 1. `seed`: of the choice of hashed samples.
    - `classes`: names of classes by set, where files have them; they are the same in all files.
    - `crc32`: of all else, where the file has it.
    - `files`, in the order of their samples: `path` (relative to the manifest, or an address), `size` and `mtime` (ns) of
      the file, and `sets`: by name, `kind` ("plain" or "encoded"), `samples`, `bytes` (raw, or encoded),
      `labels` (whether it has any), `hashes` of the content of some samples by their numbers, and all that
      opening needs: `shape`, `dtype`, `chunks`, `filtered`, `virtual_bytes`, `dimensions`, `attributes`, or `largest`, `cached`,
      `headers`, `channels`, `max_pixels`.

    Files are looked for in the manifest's own folder and below, and where `smtdist.data.guarded` allows it.
    Opening checks size and time of every file that is used; where the time alone differs, as in a copy, the
    hashed samples are read. Files behind addresses are checked when they are read.
    """

    path: str
    content: Entry = field(repr=False)

    @classmethod
    def of(cls, parsed: Parsed) -> Self:
        """Return the manifest that a JSON object is; raise DataError for another object or a newer schema."""
        schema = parsed.content.get(KEY)
        if not isinstance(schema, int) or not isinstance(parsed.content.get("files"), list):
            raise DataError(
                f"{parsed.path} is not a manifest; make one with {command('manifest FILES', 'out', parsed.path)}."
            )
        if schema > SCHEMA:
            raise DataError(f"{parsed.path} was written by a newer smtdist; read it with that version.")
        if checksums.is_altered(parsed.content):
            raise DataError(
                f"{parsed.path} fails its checksum, so it is not what smtdist manifest wrote; make the manifest anew, or, if you "
                f"have changed it on purpose, remove {checksums.KEY} from its first line."
            )
        return cls(parsed.path, parsed.content)

    def sets(self) -> dict[str, Entry]:
        """Return the sets by name with their kind, samples, bytes and number of files."""
        totals: dict[str, Entry] = {}
        for file in self.content["files"]:
            for name, found in file["sets"].items():
                about = totals.setdefault(
                    name, {"kind": found["kind"], "files": 0, "samples": 0, "bytes": 0}
                )
                about["files"] += 1
                about["samples"] += found["samples"]
                about["bytes"] += found["bytes"]
        return totals

    def looks(self, name: str) -> list[Look]:
        """Return what the files of a set hold, in order, once each file is known to be what it was.

        `name` is that of a set, or of the group whose `images` the set is. No file is opened, but for one
        whose time of change alone differs. Raises DataError for a set that is not there, and for a file
        that is missing, cut short or changed.
        """
        with damage_named(self.path, "make the manifest again"):
            names, asked = self.sets(), name.strip("/")
            wanted = next((one for one in (asked, f"{asked}/images".lstrip("/")) if one in names), None)
            if wanted is None:
                hint = f"use one of {', '.join(sorted(names))}" if names else "it has none"
                raise DataError(f"{self.path} has no images {name!r}; {hint}.")
            files = [file for file in self.content["files"] if wanted in file["sets"]]
            looks = []
            for number, (file, path) in enumerate(zip(files, self._places(files), strict=True)):
                found = file["sets"][wanted]
                looks.append(_look_of(path, wanted, file["size"], found))
                # the reader of an address compares the size; asking for each of a thousand would take minutes
                if not is_url(path) and self._require_size(path, file["size"]).st_mtime_ns != file["mtime"]:
                    self._require_content(path, looks[number], found)
            return looks

    def verify(self, report: Callable[[int], None] = lambda done: None) -> int:
        """Read the hashed samples of every file; return how many were right, or raise DataError for the first that is not."""
        right = 0
        with damage_named(self.path, "make the manifest again"):
            files = self.content["files"]
            for number, (file, path) in enumerate(zip(files, self._places(files), strict=True)):
                for name, found in file["sets"].items():
                    look = _look_of(path, name, file["size"], found)
                    self._require_size(path, file["size"])
                    self._require_content(path, look, found)
                    right += len(found["hashes"])
                report(number + 1)
        return right

    def _places(self, files: list[Entry]) -> list[str]:
        """Return where files are; refuse one that may not be followed, and one that is named twice."""
        paths = [beside(self.path, file["path"]) for file in files]
        require_allowed(self.path, *paths)
        require_once(self.path, paths)
        return paths

    def _require_size(self, path: str, size: int) -> os.stat_result:
        try:
            about = os.stat(path)
        except OSError:
            raise DataError(
                f"{path}, which {self.path} names, does not exist; restore it, or make the manifest again."
            ) from None
        if about.st_size != size:
            how = "is cut short" if about.st_size < size else "was changed"
            raise DataError(
                f"{path} {how}: it has {about.st_size:,} bytes, but had {size:,} when {self.path} was made; restore it, or "
                f"make the manifest again."
            )
        return about

    def _require_content(self, path: str, look: Look, found: Entry) -> None:
        for sample, expected in found["hashes"].items():
            try:
                same = content_hash(look, int(sample)) == expected
            except DataError as error:
                raise DataError(
                    f"{path} was changed since {self.path} was made ({error.sentence}); make the manifest again."
                ) from error
            if not same:
                raise DataError(
                    f"{path} was changed since {self.path} was made: sample {sample} is another one; restore the file, or "
                    f"make the manifest again."
                )


def describe_files(
    paths: Iterable[str],
    out: str | os.PathLike[str],
    names: Iterable[str] = (),
    seed: int = 0,
    report: Callable[[int], None] = lambda done: None,
) -> Manifest:
    """Look at every file once and return their manifest, which is to be written to `out`.

    `names` are the sets to list, each of which every file must have; none: all images that are found, in
    whichever file. Costs about ten milliseconds a file. Raises DataError for files without images, for a
    set that is plain in one file and encoded in another or of another shape or type, and for labels that
    number different classes.
    """
    where = os.path.abspath(out)
    names = list(names)
    files: list[Entry] = []
    firsts: dict[str, tuple[Look, tuple[str, tuple[str, ...] | None]]] = {}
    for number, path in enumerate(paths):
        with file_named(path):
            found = names or image_sets(path)
            if not found:
                raise DataError(f"{path} holds no images; leave it out.")
            sets: dict[str, Entry] = {}
            for name in found:
                look = look_at(path, name)
                labelled = has_labels(path, name)
                classes = (path, class_names(path, name) if labelled else None)
                stored = (
                    look.group if isinstance(look, EncodedLook) else getattr(look, "dataset", look.name)
                )
                first = firsts.setdefault(stored, (look, classes))
                _require_alike(first[0], look)
                require_same_classes(first[1], classes)
                sets[stored] = _entry(look, labelled, seed, number)
            if is_url(path):
                place, size, time = path, file_size(path), None
            else:
                about = os.stat(path)
                place = os.path.relpath(path, os.path.dirname(where))
                size, time = about.st_size, about.st_mtime_ns
            files.append({"path": place, "size": size, "mtime": time, "sets": sets})
        report(number + 1)
    classes_of = {name: list(classes[1]) for name, (_, classes) in firsts.items() if classes[1] is not None}
    return Manifest(where, {KEY: SCHEMA, "seed": seed, "classes": classes_of, "files": files})


def write_manifest(manifest: Manifest, *, overwrite: bool = False) -> None:
    """Write a manifest to its path, whole or not at all, one line a file; raises ModelError where that cannot be."""
    content = {**manifest.content, checksums.KEY: checksums.plain_crc(manifest.content)}
    files = ",\n".join(json.dumps(file) for file in content.pop("files"))
    head = json.dumps(content)[:-1]
    with whole_file(manifest.path, overwrite) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(f'{head}, "files": [\n{files}\n]}}\n')


def content_hash(look: Look, sample: int) -> str:
    """Return the hash of one stored sample, 16 hexadecimal digits: of its pixels, or of its encoded bytes.

    That of a plain sample is the hash that models remember (`smtdist.data.fingerprint`).
    """
    if isinstance(look, EncodedLook):
        with open_file(look.path) as file, damage_named(look.path):
            data, offsets = parts_of(file, look.path, look.group)
            start, stop = offsets_of(offsets, sample, sample + 1, look.name)
            return hashlib.blake2b(
                bytes_of(data, start, stop, look.name), digest_size=DIGEST_BYTES
            ).hexdigest()
    with look.opened() as reader:
        return f"{int(sample_digests(reader.read(sample, sample + 1))[0]):016x}"


def _entry(look: Look, labelled: bool, seed: int, number: int) -> Entry:
    samples = look.samples if isinstance(look, EncodedLook) else look.n_samples
    drawn = hashing.position_hashes(seed, number, 1, HASHED, 0)[0] % np.uint64(samples)
    hashes = {str(sample): content_hash(look, sample) for sample in sorted({int(value) for value in drawn})}
    common = {"samples": samples, "labels": labelled, "hashes": hashes}
    if isinstance(look, EncodedLook):
        return {
            "kind": "encoded",
            **common,
            "bytes": look.stored,
            "largest": look.largest,
            "cached": look.cached,
            "headers": [[number, *header] for number, header in look.telling().items()],
            "channels": look.channels,
            "max_pixels": look.max_pixels,
        }
    if not isinstance(look, Hdf5Source):
        raise DataError(
            f"{look.name} is not in an HDF5 file, and a manifest can only name such files; use a list (.txt) of the stores."
        )
    return {
        "kind": "plain",
        **common,
        "bytes": look.stored_bytes,
        "shape": list(look.shape if look.has_channels else look.shape[:3]),
        "dtype": look.dtype.name,
        "chunks": look.chunks and list(look.chunks),
        "filtered": look.filtered,
        "virtual_bytes": look.virtual_bytes,
        "dimensions": list(look.dimensions),
        "attributes": list(look.attributes),
    }


def _look_of(path: str, name: str, size: int, found: Entry) -> Look:
    if found["kind"] == "encoded":
        return EncodedLook(
            path=path,
            group=name,
            samples=found["samples"],
            stored=found["bytes"],
            largest=found["largest"],
            cached=found["cached"],
            headers={number: Header(*header) for number, *header in found["headers"]},
            channels=found["channels"],
            max_pixels=found["max_pixels"],
            file_bytes=size,
        )
    shape, dtype = tuple(found["shape"]), np.dtype(found["dtype"])
    has_channels = len(shape) == 4
    full = shape if has_channels else (*shape, 1)
    chunks = found["chunks"] and tuple(found["chunks"])
    if min(*full, *(chunks or ())) < 1:
        raise ValueError(f"the shape of {name} is {shape}, in chunks of {chunks}")
    sample_bytes = full[1] * full[2] * full[3] * dtype.itemsize
    return Hdf5Source(
        path=path,
        dataset=name,
        shape=full,
        dtype=dtype,
        chunk_samples=chunks[0] if chunks else aligned_samples(sample_bytes),
        chunks=chunks,
        filtered=found["filtered"],
        has_channels=has_channels,
        file_bytes=size,
        virtual_bytes=found.get("virtual_bytes"),
        dimensions=tuple(found.get("dimensions", ())),
        attributes=tuple(map(tuple, found.get("attributes", ()))),
    )


def _require_alike(first: Look, look: Look) -> None:
    if isinstance(first, EncodedLook) != isinstance(look, EncodedLook):
        encoded, plain = (first, look) if isinstance(first, EncodedLook) else (look, first)
        raise DataError(
            f"{encoded.name} holds encoded images, but {plain.name} holds plain ones; import them all in one layout."
        )
    if isinstance(first, Source) and isinstance(look, Source):
        one, other = (first.dtype, first.shape[1:]), (look.dtype, look.shape[1:])
        if one != other:
            raise DataError(
                f"{look.name} has {other[0]} images of {other[1]} (height, width, channels), but {first.name} has {one[0]} of "
                f"{one[1]}; convert them to one shape and type."
            )
