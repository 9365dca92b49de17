"""`import`: images from other formats into an HDF5 file."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from smtdist.cli import options as opt
from smtdist.cli.errors import WrongUsage
from smtdist.cli.session import error_console, print_json, result_console, stopping_on_signals
from smtdist.data.importers import run, sets
from smtdist.data.importers.detect import Selection, open_listing
from smtdist.data.importers.items import Listing
from smtdist.data.importers.shards import import_shards
from smtdist.data.same_file import require_apart
from smtdist.engine.events import EventStream
from smtdist.engine.executor import StopRequest, available_cores
from smtdist.errors import InterruptedRun
from smtdist.monitor import tables
from smtdist.monitor.progress import ProgressView

PASS = "import"
MOST_SIDE = 16_384


Layout = enum.StrEnum("Layout", "auto plain encoded")
LabelsFrom = enum.StrEnum("LabelsFrom", "folders none")
OnError = enum.StrEnum("OnError", {"stop": "raise", "skip": "skip"})
Kind = enum.StrEnum("Kind", "folder npz idx cifar webdataset parquet")

FOR_KINDS = {
    "--labels": ("npz", "idx"),
    "--array": ("npz",),
    "--label-array": ("npz",),
    "--image-column": ("parquet",),
    "--label-column": ("parquet",),
}
"""Options that have a meaning for some kinds only."""


def import_(
    source: Annotated[
        list[Path],
        typer.Argument(
            metavar="SOURCE...",
            help="A folder of images, or files: .npz, .npy, IDX, CIFAR batches, tar shards, Parquet.",
        ),
    ],
    out: Annotated[
        Path, typer.Option(metavar="DATA.h5", help="File to write, or a manifest with --shard-samples.")
    ],
    group: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Group to write to, such as train or test. Default: train, or one for each of the folders train, test and "
            "the like that SOURCE holds.",
        ),
    ] = None,
    shard_samples: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Write files of N images each and a manifest of them: --out data.json makes data-00000.h5 and so on.",
        ),
    ] = None,
    append: Annotated[bool, typer.Option("--append", help="Add the group to a file that exists.")] = False,
    layout: Annotated[
        Layout,
        typer.Option(
            help="plain: pixels; encoded: JPEG, PNG, WebP bytes as they are. auto: encoded unless resized."
        ),
    ] = Layout.auto,
    resize: Annotated[
        int | None,
        typer.Option(
            min=1, max=MOST_SIDE, metavar="N", help="Scale the shorter side to N, then cut the middle."
        ),
    ] = None,
    crop: Annotated[
        int | None,
        typer.Option(
            min=1, max=MOST_SIDE, metavar="N", help="Side of the middle square. Default: as --resize."
        ),
    ] = None,
    kind: Annotated[Kind | None, typer.Option(help="Kind of source. Default: by its contents.")] = None,
    labels_from: Annotated[
        LabelsFrom, typer.Option(help="folders: the labels that the source has; none: no labels.")
    ] = LabelsFrom.folders,
    labels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with the labels, for .npy, .npz and IDX.")
    ] = None,
    array: Annotated[
        str | None, typer.Option(metavar="NAME", help="Images in an .npz. Default: by usual names.")
    ] = None,
    label_array: Annotated[str | None, typer.Option(metavar="NAME", help="Labels in an .npz.")] = None,
    image_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="Images in a Parquet file. Default: the only bytes.")
    ] = None,
    label_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="Labels in a Parquet file.")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Decode every image once, or read headers only.")
    ] = True,
    on_error: Annotated[
        OnError, typer.Option(help="raise: end at an unreadable image; skip: leave it out and list it.")
    ] = OnError.stop,
    workers: Annotated[
        int | None,
        typer.Option(min=0, help="Processes that decode, 0: this one. Default: the cores of this machine."),
    ] = None,
    overwrite: opt.Overwrite = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Bring images from a folder, arrays or archives into an HDF5 file; a stopped import goes on when repeated."""
    started = time.perf_counter()
    chosen = run.ImportOptions(
        group=_group("train" if group is None else group),
        layout=layout.value,
        resize=resize,
        crop=crop,
        verify=verify,
        skip=on_error is OnError.skip,
        workers=available_cores() if workers is None else workers,
        overwrite=overwrite,
        append=append,
    )
    if not append:  # a group that is added replaces nothing
        require_apart(out, (*source, labels))
    if shard_samples is None:
        run.check_target(out, chosen)
    else:
        _require_manifest(out, append)
    wanted = Selection(
        group=chosen.group,
        use_labels=labels_from is LabelsFrom.folders,
        labels=labels,
        array=array,
        label_array=label_array,
        image_column=image_column,
        label_column=label_column,
    )
    if group is None and kind in (None, Kind.folder) and len(source) == 1:
        found = sets.listed_sets(source[0], wanted.use_labels)
        if found:
            _require_one_file(source[0], found, append, shard_samples)
            for one in found.values():
                _require_meaning(one, wanted)
            write = partial(_imported, quiet=quiet, shard_samples=None)
            results = sets.import_sets(found, out, chosen, write)
            _show_sets(results, found, out, chosen, time.perf_counter() - started, json)
            return
    listing = open_listing(source, None if kind is None else kind.value, wanted)
    _require_meaning(listing, wanted)
    result = _imported(listing, out, chosen, quiet, shard_samples)
    _show(result, listing, out, chosen, time.perf_counter() - started, json)


def _group(name: str) -> str:
    group = name.strip("/")
    if not group or any(part in ("", ".", "..") for part in group.split("/")):
        raise WrongUsage(f"--group {name!r} is no name of a group; use one such as train.")
    return group


def _require_meaning(listing: Listing, wanted: Selection) -> None:
    for option, kinds in FOR_KINDS.items():
        value = getattr(wanted, option.removeprefix("--").replace("-", "_"))
        if value is not None and listing.kind not in kinds:
            raise WrongUsage(
                f"{option} has no meaning for a source of the kind {listing.kind}; leave it out."
            )


def _require_manifest(out: Path, append: bool) -> None:
    if out.suffix != ".json":
        raise WrongUsage(f"--out {out} is no name of a manifest; with --shard-samples let it end in .json.")
    if append:
        raise WrongUsage(
            "--append adds a group to one file, --shard-samples writes many; leave out one of them."
        )


def _require_one_file(
    source: Path, found: Mapping[str, Listing], append: bool, shard_samples: int | None
) -> None:
    if append or shard_samples is not None:
        option = "--append" if append else "--shard-samples"
        first = next(iter(found))
        raise WrongUsage(
            f"{source} holds the sets {', '.join(found)}, which {option} cannot write together; import them one by one, first "
            f"{source / first} with --group {first}."
        )


def _imported(
    listing: Listing, out: Path, chosen: run.ImportOptions, quiet: bool, shard_samples: int | None
) -> run.ImportResult:
    stop, events = StopRequest(), EventStream()
    with ExitStack() as stack:
        stack.enter_context(stopping_on_signals(stop))
        if not quiet:
            events.subscribe(stack.enter_context(ProgressView(error_console())))
        total = listing.n_items or 0
        events.emit(
            "pass_started", **{"pass": PASS, "n_samples": total, "n_leaves": 0, "resumed_leaves": 0}
        )
        try:
            write = run.import_images
            if shard_samples is not None:
                write = partial(import_shards, shard_items=shard_samples)
            result = write(
                listing,
                out,
                chosen,
                stop=lambda: stop.exit_code if stop.is_set() else None,
                report=_reporter(events),
                note=lambda text: events.emit("note", text=text),
            )
        except KeyboardInterrupt:
            raise InterruptedRun("Stopped; the same command goes on where it was.", 130) from None
        events.emit(
            "pass_finished",
            **{"pass": PASS, "seconds": result.seconds, "n_samples": result.samples, "n_positions": 0},
        )
    return result


def _reporter(events: EventStream) -> Callable[[int], None]:
    """Return what turns a count of images into an event; the rate is that of this run."""
    first: list[int] = []

    def report(done: int) -> None:
        first.append(done) if not first else None
        events.emit("progress", **{"pass": PASS, "n_samples": done, "n_positions": done - first[0]})

    return report


def _show(
    result: run.ImportResult,
    listing: Listing,
    out: Path,
    chosen: run.ImportOptions,
    seconds: float,
    json: bool,
) -> None:
    found = _facts(result, listing, out, chosen.group, seconds)
    if json:
        print_json(found)
    else:
        _print_line(found)


def _show_sets(
    results: Mapping[str, run.ImportResult],
    listings: Mapping[str, Listing],
    out: Path,
    chosen: run.ImportOptions,
    seconds: float,
    json: bool,
) -> None:
    """Show each set that this run wrote; those before it were shown by the run that was stopped."""
    # the size of the file is that of all sets
    size = out.stat().st_size
    every = [
        {**_facts(result, listings[name], out, name, seconds), "bytes": size}
        for name, result in results.items()
    ]
    if json:
        print_json({"out": str(out.absolute()), "groups": every, "bytes": size, "seconds": seconds})
        return
    for found in every:
        _print_line(found)


def _facts(
    result: run.ImportResult, listing: Listing, out: Path, group: str, seconds: float
) -> dict[str, Any]:
    """Return the figures of one group, once what was left out was told of."""
    _warn(result.skipped, "unreadable images", result.first_skipped)
    _warn(listing.left_out, "entries of the folder that are no files", listing.first_left_out)
    return {
        "out": str(out.absolute()),
        "group": group,
        "layout": result.layout,
        "n_samples": result.samples,
        "n_classes": result.n_classes,
        "skipped": result.skipped,
        "left_out": listing.left_out,
        "first_left_out": list(listing.first_left_out),
        "bytes": result.nbytes,
        "seconds": seconds,
        "images_per_second": result.new_items / seconds if seconds else 0.0,
    }


def _print_line(found: dict[str, Any]) -> None:
    classes = f" of {found['n_classes']:,} classes" if found["n_classes"] else ""
    line = (
        f"{found['out']}: {found['n_samples']:,} images{classes} in {found['group']} ({found['layout']}), "
        f"{tables.size(found['bytes'])}, {tables.rate(found['images_per_second'], 1.0)} images/s"
    )
    result_console().print(line, highlight=False, soft_wrap=True)


def _warn(count: int, what: str, first: Sequence[str]) -> None:
    """Say on standard error what an import left out, and name the first few."""
    if not count:
        return
    console = error_console()
    more = ", the first of them" if count > len(first) else ""
    console.print(f"Left out {count:,} {what}{more}:", highlight=False, soft_wrap=True)
    for sentence in first:
        console.print(f"  {sentence}", highlight=False, soft_wrap=True, markup=False)
