"""Images from other formats into an HDF5 file: what is asked, checked, for the command and for Python."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from smtdist.data.importers import run, sets
from smtdist.data.importers.detect import KINDS, Selection, open_listing
from smtdist.data.importers.items import Listing
from smtdist.data.importers.shards import import_shards
from smtdist.data.same_file import require_apart
from smtdist.errors import ConfigurationError, counted

FOR_KINDS: Final = {
    "--labels": ("npz", "idx"),
    "--array": ("npz",),
    "--label-array": ("npz",),
    "--image-column": ("parquet",),
    "--label-column": ("parquet",),
}
"""Options that have a meaning for some kinds only."""
_CHOICES: Final = {
    "layout": ("auto", "plain", "encoded"),
    "labels_from": ("folders", "none"),
    "on_error": ("raise", "skip"),
}

Path_ = str | os.PathLike[str]


@dataclass(frozen=True)
class Import:
    """An import that was looked at and can be run: what its source holds for each group, where it goes, and how.

    several : whether the groups are sets that one folder holds, all of which go into a new file.
    """

    listings: dict[str, Listing]
    out: Path
    options: run.ImportOptions
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
            results = sets.import_sets(self.listings, self.out, self.options, write)
        else:
            results = {name: write(one, self.out, self.options) for name, one in self.listings.items()}
        for name, result in results.items():
            odd = self.listings[name].left_out
            results[name] = replace(result, left_out=odd.count, first_left_out=tuple(odd.first))
        return results


def looked_at(
    source: Path_ | Iterable[Path_],
    out: Path_,
    *,
    group: str | None,
    shard_samples: int | None,
    append: bool,
    layout: str,
    resize: int | None,
    crop: int | None,
    kind: str | None,
    labels_from: str,
    labels: Path_ | None,
    array: str | None,
    label_array: str | None,
    image_column: str | None,
    label_column: str | None,
    verify: bool,
    on_error: str,
    n_workers: int,
    overwrite: bool,
) -> Import:
    """Look at a source and return its import, of which nothing is written yet; parameters as of `import_images`."""
    for name, value in (("layout", layout), ("labels_from", labels_from), ("on_error", on_error)):
        if value not in _CHOICES[name]:
            raise ConfigurationError(f"{name} is {value!r}; choose {', '.join(_CHOICES[name])}.")
    if kind is not None and kind not in KINDS:
        raise ConfigurationError(f"kind is {kind!r}; choose {', '.join(KINDS)}.")
    paths = [Path(source)] if isinstance(source, str | os.PathLike) else [Path(one) for one in source]
    target, beside = Path(out), None if labels is None else Path(labels)
    lone = ""
    if kind in (None, "folder") and len(paths) == 1 and (lone := sets.lone_set(paths[0])):
        paths, group = [paths[0] / lone], group or lone
    chosen = run.ImportOptions(
        group=_group("train" if group is None else group),
        layout=layout,
        resize=resize,
        crop=crop,
        verify=verify,
        skip=on_error == "skip",
        workers=n_workers,
        overwrite=overwrite,
        append=append,
    )
    if not append:  # a group that is added replaces nothing
        require_apart(target, (*paths, beside))
    if shard_samples is None:
        run.check_target(target, chosen)
    else:
        _require_manifest(target, append)
    wanted = Selection(
        group=chosen.group,
        use_labels=labels_from == "folders",
        labels=beside,
        array=array,
        label_array=label_array,
        image_column=image_column,
        label_column=label_column,
    )
    found: Mapping[str, Listing] = {}
    # images of several sets without labels may be put together
    if (group is None or wanted.use_labels) and kind in (None, "folder") and len(paths) == 1:
        found = sets.listed_sets(paths[0], wanted.use_labels)
        if found:
            _require_one_file(paths[0], found, group, append, shard_samples)
    several = bool(found)
    found = found or {chosen.group: open_listing(paths, kind, wanted)}
    if lone:
        sets.name_beside(paths[0].parent, [lone], found[chosen.group].left_out)
    for listing in found.values():
        _require_meaning(listing, wanted)
    return Import(dict(found), target, chosen, shard_samples, several)


def _require_meaning(listing: Listing, wanted: Selection) -> None:
    for option, kinds in FOR_KINDS.items():
        value = getattr(wanted, option.removeprefix("--").replace("-", "_"))
        if value is not None and listing.kind not in kinds:
            raise ConfigurationError(
                f"{option} has no meaning for a source of the kind {listing.kind}; leave it out."
            )


def _require_one_file(
    source: Path, found: Mapping[str, Listing], group: str | None, append: bool, shard_samples: int | None
) -> None:
    first = next(iter(found))
    if group is not None:
        raise ConfigurationError(
            f"{source} holds the sets {', '.join(found)}, which --group {group} would take for classes; import them one by one, "
            f"first {source / first} with --group {first}, or all, each in its group, without --group."
        )
    if append or shard_samples is not None:
        option = "--append" if append else "--shard-samples"
        raise ConfigurationError(
            f"{source} holds the sets {', '.join(found)}, which {option} cannot write together; import them one by one, first "
            f"{source / first} with --group {first}."
        )


def _group(name: str) -> str:
    group = name.strip("/")
    if not group or any(part in ("", ".", "..") for part in group.split("/")):
        raise ConfigurationError(f"--group {name!r} is not a name of a group; use one such as train.")
    return group


def _require_manifest(out: Path, append: bool) -> None:
    if out.suffix != ".json":
        raise ConfigurationError(
            f"--out {out} is not a name of a manifest; with --shard-samples let it end in .json."
        )
    if append:
        raise ConfigurationError(
            "--append adds a group to one file, --shard-samples writes many; leave out one of them."
        )


def import_images(
    source: Path_ | Iterable[Path_],
    out: Path_,
    *,
    group: str | None = None,
    shard_samples: int | None = None,
    append: bool = False,
    layout: str = "auto",
    resize: int | None = None,
    crop: int | None = None,
    kind: str | None = None,
    labels_from: str = "folders",
    labels: Path_ | None = None,
    array: str | None = None,
    label_array: str | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
    verify: bool = True,
    on_error: str = "raise",
    n_workers: int = 0,
    overwrite: bool = False,
) -> dict[str, run.ImportResult]:
    """Import images from a folder, arrays or archives into an HDF5 file; repeat the call to continue a stopped import.

    source : a folder of images, or files: .npz, .npy, IDX, CIFAR batches, tar shards, Parquet.
    out : file to write. shard_samples : write files of this many images; `out` is then a manifest (.json).
    group : group to write, such as train or test; None: train, or a group for each of the folders train,
        test and similar in the source (one of them alone also with a group of another name).
    append : add the group to a file that exists.
    layout : "plain" (pixels), "encoded" (bytes as they are) or "auto": encoded unless resized.
    resize : scale the shorter side to this many pixels, then cut out the middle square. crop : side of the square.
    kind : of the source, one of folder, npz, idx, cifar, webdataset, parquet; None: by its contents.
    labels_from : "folders": those that the source has; "none".
    labels : a file with the labels, for .npy, .npz and IDX. array, label_array : names in an .npz.
    image_column, label_column : columns of a Parquet file.
    verify : decode every image once to check it. on_error : "raise", or "skip" unreadable images.
    n_workers : processes that decode; 0: this one.

    Returns what was written, by group; warns of what a source holds that is not imported. Memory: n_workers + 2 batches of
    4 MiB or one image. Raises DataError for what cannot be imported.
    """
    found = looked_at(**locals())
    results = found.run()
    for name, result in results.items():
        if result.left_out:
            what, first = found.listings[name].left_out_is, "; ".join(result.first_left_out)
            warnings.warn(f"Left out {counted(result.left_out, what)}, the first: {first}.", stacklevel=2)
    return results
