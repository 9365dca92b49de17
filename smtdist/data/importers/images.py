"""Images from other formats into an HDF5 file: what is asked, checked, for the command and for Python."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import h5py

from smtdist.data.importers import run
from smtdist.data.importers.detect import open_listing
from smtdist.data.importers.folder import listed_sets, lone_set, name_beside
from smtdist.data.importers.items import ImportOptions, Listing
from smtdist.data.importers.shards import import_shards
from smtdist.data.writing import real_target, require_apart, take_place
from smtdist.errors import ConfigurationError, InterruptedRun, option

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
    chosen = ImportOptions(
        group=_group("train" if group is None else group),
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


def _group(name: str) -> str:
    group = name.strip("/")
    if not group or any(part in ("", ".", "..") for part in group.split("/")):
        raise ConfigurationError(
            f"{option('group')} {name!r} is no name of a group; use one such as train."
        )
    return group


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
