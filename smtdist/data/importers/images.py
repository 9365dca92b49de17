"""Images from other formats into an HDF5 file: what is asked, checked, for the command and for Python.

Which kind of source some files are follows from what they contain and how they are called.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import h5py

from smtdist.data.decode import endings
from smtdist.data.hdf5 import TEXTS, table_elsewhere
from smtdist.data.importers import run
from smtdist.data.importers.cifar import PIXELS, batches_in, cifar_listing
from smtdist.data.importers.folder import FolderListing, listed_sets, lone_set, name_beside
from smtdist.data.importers.idx import GZIP, idx_listing, open_stream
from smtdist.data.importers.items import USUAL, ImportOptions, Listing, first_bytes
from smtdist.data.importers.numpy_files import numpy_listing
from smtdist.data.importers.parquet import ParquetListing
from smtdist.data.importers.shards import import_shards
from smtdist.data.importers.webdataset import TarListing
from smtdist.data.writing import real_target, require_apart, take_place
from smtdist.errors import ConfigurationError, DataError, InterruptedRun, option

KINDS: Final = ("folder", "npz", "idx", "cifar", "webdataset", "parquet")
_TAR_MAGIC: Final = slice(257, 262)
_STARTS: Final = {b"PK\x03\x04": "npz", b"PK\x05\x06": "npz", b"\x93NUM": "npz", b"PAR1": "parquet"}
_STARTS_IDX: Final = tuple(b"\0\0\x08" + bytes([rank]) for rank in (1, 3, 4))
_PACKED: Final = (b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"7z\xbc\xaf\x27\x1c")
"""How files begin that bzip2, xz, Zstandard, LZ4 and 7-Zip make."""
_ENDINGS: Final = {".npz": "npz", ".npy": "npz", ".parquet": "parquet"}


def open_listing(paths: Sequence[Path], kind: str | None = None, wanted: ImportOptions = USUAL) -> Listing:
    """Look at a source and return what it holds; raise DataError where it is none, or holds nothing."""
    files = list(paths)
    if not files:
        raise DataError("No source is named; name a folder or files.")
    for path in files:
        if not path.exists():
            raise DataError(f"There is no file {path}; check the name.")
    kinds = {kind or kind_of(path) for path in files}
    if len(kinds) > 1:
        raise DataError(f"The sources are of the kinds {', '.join(sorted(kinds))}; import them one by one.")
    (found,) = kinds
    if found not in ("folder", "cifar") and any(path.is_dir() for path in files):
        raise DataError(f"{next(path for path in files if path.is_dir())} is a folder; name its files.")
    if found == "folder":
        if len(files) > 1 or not files[0].is_dir():
            raise DataError(f"{files[-1]}: only one folder is imported at a time; name that alone.")
        return FolderListing(files[0], wanted.use_labels)
    if found == "npz":
        return numpy_listing(files, wanted.labels, wanted.array, wanted.label_array, wanted.use_labels)
    if found == "idx":
        return idx_listing(files, wanted.labels, wanted.use_labels)
    if found == "cifar":
        return cifar_listing(files, wanted.group, wanted.use_labels)
    if found == "webdataset":
        return TarListing(files, wanted.use_labels)
    return ParquetListing(files, wanted.image_column, wanted.label_column, wanted.use_labels)


def kind_of(path: Path) -> str:
    """Return the kind of one file or folder; raise DataError where none is recognised."""
    if path.is_dir():
        return "cifar" if batches_in(path) or batches_in(path, "test") else "folder"
    start = first_bytes(path, 512)
    if start[:2] == GZIP:
        with open_stream(path) as stream:
            start = stream.read(512)
    if start[:4] in _STARTS:
        return _STARTS[start[:4]]
    if start[:4] in _STARTS_IDX:
        return "idx"
    if start[_TAR_MAGIC] == b"ustar" or path.name.lower().endswith((".tar", ".tar.gz", ".tgz")):
        return "webdataset"
    if start[:1] == b"\x80" and len(start) > 1 and 2 <= start[1] <= 5:
        return "cifar"
    size = os.stat(path).st_size
    if path.suffix == ".bin" and size and any(size % (PIXELS + extra) == 0 for extra in (1, 2)):
        return "cifar"
    if path.suffix.lower() in _ENDINGS:  # cut short or empty: its reader says so
        return _ENDINGS[path.suffix.lower()]
    if start[:4] == b"\x89HDF":
        raise DataError(
            f"{path} is an HDF5 file, which is used as it is; give it to smtdist fit, with {option('(path, dataset)')}."
        )
    if path.name.lower().endswith(endings()):
        raise DataError(f"{path} is a single image; name the folder that it is in.")
    if start.startswith(_PACKED):
        raise DataError(
            f"{path} is compressed in a way that is not read; decompress it, or compress it with gzip."
        )
    raise DataError(
        table_elsewhere(str(path), *TEXTS)
        or f"{path} is none of what is imported, which is a folder of images, .npy and .npz, IDX, CIFAR batches, tar and "
        f"Parquet; convert it, or give its kind with {option('kind')} {'|'.join(KINDS)} if it is one of these."
    )


FOR_KINDS: Final = {
    "labels": ("npz", "idx"),
    "array": ("npz",),
    "label_array": ("npz",),
    "image_column": ("parquet",),
    "label_column": ("parquet",),
}
"""Settings that have a meaning for some kinds only."""
Path_ = str | os.PathLike[str]
Places = Path_ | Iterable[Path_]


@dataclass(frozen=True)
class Import:
    """An import that was looked at and can be run: what its source holds for each group, where it goes, and how.

    several : whether the groups are sets that one folder holds, all of which go into a new file.
    """

    listings: dict[str, Listing]
    out: Path
    options: ImportOptions
    shard_samples: int | None = None
    several: bool = False

    @property
    def write(self) -> Callable[..., run.ImportResult]:
        """What writes one group, `smtdist.data.importers.run.import_images` or as it."""
        if self.shard_samples is None:
            return run.import_images
        return partial(import_shards, shard_items=self.shard_samples)

    def run(self, write: Callable[..., run.ImportResult] | None = None) -> dict[str, run.ImportResult]:
        """Write the file and return what was written of each group; `write` as above, with reports of its own."""
        write = write or self.write
        if self.several:
            results = import_sets(self.listings, self.out, self.options, write)
        else:
            results = {name: write(one, self.out, self.options) for name, one in self.listings.items()}
        for name, result in results.items():
            odd = self.listings[name].left_out
            results[name] = replace(result, left_out=odd.count, first_left_out=tuple(odd.first))
        return results


def looked_at(
    source: Places,
    out: Path_,
    settings: Any,
    *,
    n_workers: int,
    overwrite: bool,
) -> Import:
    """Look at a source and return its import, of which nothing is written yet.

    settings : a `smtdist.models.importing.ImportSettings`.
    """
    group, kind, append = settings.group, settings.kind, settings.append
    paths = [Path(source)] if isinstance(source, str | os.PathLike) else [Path(one) for one in source]
    target, beside = Path(out), None if settings.labels is None else Path(settings.labels)
    lone = ""
    if kind in (None, "folder") and len(paths) == 1 and (lone := lone_set(paths[0])):
        paths, group = [paths[0] / lone], group or lone
    name = "train" if group is None else group.strip("/")
    if not name or any(part in ("", ".", "..") for part in name.split("/")):
        raise ConfigurationError(
            f"{option('group')} {group!r} is no name of a group; use one such as train."
        )
    chosen = ImportOptions(
        group=name,
        layout=settings.layout,
        resize=settings.resize,
        crop=settings.crop,
        verify=settings.verify,
        skip=settings.on_error == "skip",
        workers=n_workers,
        overwrite=overwrite,
        append=append,
        use_labels=settings.labels_from == "folders",
        labels=beside,
        array=settings.array,
        label_array=settings.label_array,
        image_column=settings.image_column,
        label_column=settings.label_column,
    )
    if not append:  # a group that is added replaces nothing
        require_apart(target, (*paths, beside))
    shard_samples = settings.shard_samples
    if shard_samples is None:
        run.check_target(target, chosen)
    else:
        if target.suffix != ".json":
            raise ConfigurationError(
                f"{option('out')} {target} is not a name of a manifest; with {option('shard_samples')} let it end in .json."
            )
        if append:
            raise ConfigurationError(
                f"{option('append', True)} adds a group to one file, {option('shard_samples')} writes many; leave out one of "
                f"them."
            )
    found: Mapping[str, Listing] = {}
    # images of several sets without labels may be put together
    if (group is None or chosen.use_labels) and kind in (None, "folder") and len(paths) == 1:
        found = listed_sets(paths[0], chosen.use_labels)
        if found:
            _require_one_file(paths[0], found, group, append, shard_samples)
    several = bool(found)
    found = found or {chosen.group: open_listing(paths, kind, chosen)}
    if lone:
        name_beside(paths[0].parent, [lone], found[chosen.group].left_out)
    for listing in found.values():
        for name, kinds in FOR_KINDS.items():
            if getattr(chosen, name) is not None and listing.kind not in kinds:
                raise ConfigurationError(
                    f"{option(name)} has no meaning for a source of the kind {listing.kind}; leave it out."
                )
    return Import(dict(found), target, chosen, shard_samples, several)


def _require_one_file(
    source: Path, found: Mapping[str, Listing], group: str | None, append: bool, shard_samples: int | None
) -> None:
    first = next(iter(found))
    several = f"{source} holds the sets {', '.join(found)}, which"
    alone = f"import them one by one, first {source / first} with {option('group')} {first}"
    if group is not None:
        raise ConfigurationError(
            f"{several} {option('group')} {group} would take for classes; {alone}, or all, each in its group, without "
            f"{option('group')}."
        )
    if append or shard_samples is not None:
        asked = option("append", True) if append else option("shard_samples")
        raise ConfigurationError(f"{several} {asked} cannot write together; {alone}.")


def import_sets(
    listings: Mapping[str, Listing],
    out: Path,
    options: ImportOptions,
    write: Callable[[Listing, Path, ImportOptions], run.ImportResult],
) -> dict[str, run.ImportResult]:
    """Write each set to a group of a new file with `write`, which is `import_images` with its reports.

    The file gets its name when all are whole. Where a set is stopped, a later call goes on there; what is
    whole by then is not written again, and not among the results. On errors nothing stays behind.
    """
    run.check_target(out, options)
    out = real_target(out)
    every = {name: replace(options, group=name, append=False) for name in listings}
    key = hashlib.sha256("".join(run.import_key(listings[name], every[name]) for name in listings).encode())
    beside = out.with_name(f".{out.name}.{key.hexdigest()[:12]}.sets")
    whole: set[str] = set()
    if beside.exists():
        with h5py.File(beside, "r") as file:
            whole = set(file)
    results = {}
    try:
        for name, listing in listings.items():
            if name not in whole:
                chosen = replace(every[name], append=beside.exists(), overwrite=False)
                results[name] = write(listing, beside, chosen)
    except InterruptedRun:
        raise
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()
        raise
    take_place(beside, out, options.overwrite)
    return results
