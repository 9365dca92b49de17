"""`import`: images from other formats into an HDF5 file."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from smtdist.cli import options as opt
from smtdist.cli.errors import WrongUsage, in_shell, usage
from smtdist.cli.session import error_console, print_json, result_console, stopping_on_signals
from smtdist.data.importers import images
from smtdist.data.importers.items import Listing
from smtdist.data.importers.run import ImportOptions, ImportResult
from smtdist.data.video_import import VideoSettings, import_videos
from smtdist.engine.events import EventStream
from smtdist.engine.executor import StopRequest, available_cores
from smtdist.errors import InterruptedRun, counted
from smtdist.models.importing import ImportSettings
from smtdist.monitor import tables
from smtdist.monitor.progress import ProgressView

PASS = "import"
VIDEO = "video"
"""The kind of SOURCE that is clips, not images."""
VIDEOS = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v")
"""How names of video files end, of which the kind need not be said."""
MOST_SIDE = 16_384


SETTINGS = opt.SettingOptions(ImportSettings)


def import_(
    source: Annotated[
        list[Path],
        typer.Argument(
            metavar="SOURCE...",
            help="A folder of images, or files: .npz, .npy, IDX, CIFAR batches, tar shards, Parquet, video.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(metavar="DATA.h5", help="File to write. With --shard-samples: a manifest (.json)."),
    ],
    settings: Annotated[dict[str, Any], SETTINGS] = opt.NOTHING,
    levels: Annotated[
        int,
        typer.Option(min=0, help="Of video: number of times to halve the size, with a steerable pyramid."),
    ] = 0,
    limit: Annotated[
        int, typer.Option(min=0, help="Of video: number of frames to use of each clip; 0 means all.")
    ] = 0,
    workers: Annotated[
        int | None,
        typer.Option(min=0, help="Processes that decode; 0 means this one. Default: one for each core."),
    ] = None,
    overwrite: opt.Overwrite = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Import images from a folder, arrays or archives into an HDF5 file; repeat the command to continue a stopped import.

    Of video (--kind video) the luminance is imported, cropped and down-sampled, a group for each clip. If a file does
    not list its cuts, smtdist looks for them.
    """
    started = time.perf_counter()
    if settings.get("kind") == VIDEO or all(path.suffix.lower() in VIDEOS for path in source):
        crop, idle = settings.get("crop"), settings.keys() - {"kind", "crop"}
        if idle:
            raise WrongUsage(f"{', '.join(sorted(idle))} is not for video; leave it out.")
        _import_clips(source, out, crop, levels, limit, overwrite, json)
        return
    if levels or limit:
        raise WrongUsage("--levels and --limit are for video; leave them out.")
    with usage():
        found = images.looked_at(
            source,
            out,
            ImportSettings(**settings),
            n_workers=available_cores() if workers is None else workers,
            overwrite=overwrite,
        )
    results = found.run(partial(_imported, quiet=quiet, write=found.write))
    _show(results, found, time.perf_counter() - started, json)


def _import_clips(
    files: list[Path], out: Path, crop: int | None, levels: int, limit: int, overwrite: bool, json: bool
) -> None:
    with usage():
        VideoSettings(crop, levels, limit)
    note = partial(error_console().print, markup=False, highlight=False, soft_wrap=True)
    written = import_videos(
        files, out, crop=crop, levels=levels, limit=limit, overwrite=overwrite, note=note
    )
    if json:
        print_json({"out": str(out.absolute()), "clips": written})
        return
    rows = [
        (
            clip["clip"],
            " x ".join(map(str, clip["frames"])),
            "unknown" if clip["fps"] is None else f"{clip['fps']:.2f}",
            str(len(clip["cuts"])),
        )
        for clip in written
    ]
    result_console().print(tables.table(str(out), ("clip", "frames", "per second", "cuts"), rows))


def _imported(
    listing: Listing,
    out: Path,
    chosen: ImportOptions,
    *,
    quiet: bool,
    write: Callable[..., ImportResult],
) -> ImportResult:
    stop, events = StopRequest(), EventStream(words=in_shell)
    with ExitStack() as stack:
        stack.enter_context(stopping_on_signals(stop))
        if not quiet:
            events.subscribe(stack.enter_context(ProgressView(error_console())))
        total = listing.n_items or 0
        events.started(PASS, total, 0, unit="images")
        try:
            result = write(
                listing,
                out,
                chosen,
                stop=lambda: stop.exit_code if stop.is_set() else None,
                report=_reporter(events),
                note=lambda text: events.emit("note", text=text),
            )
        except KeyboardInterrupt:
            raise InterruptedRun("Stopped; repeat the command to continue.", 130) from None
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


def _show(results: Mapping[str, ImportResult], asked: images.Import, seconds: float, json: bool) -> None:
    """Show each group that this run wrote; those before it were shown by the run that was stopped."""
    every = [
        _facts(result, asked.listings[name], asked.out, name, seconds) for name, result in results.items()
    ]
    if asked.several:  # the size of the file is that of all sets
        size = asked.out.stat().st_size
        every = [{**found, "bytes": size} for found in every]
    if not json:
        for found in every:
            _print_line(found, alone=not asked.several)
        if asked.several:
            line = f"{every[0]['out']}: {tables.size(size)} in all"
            result_console().print(line, highlight=False, soft_wrap=True)
    elif asked.several:
        out = str(asked.out.absolute())
        print_json({"out": out, "groups": every, "bytes": size, "seconds": seconds})
    else:
        print_json(every[0])


def _facts(result: ImportResult, listing: Listing, out: Path, group: str, seconds: float) -> dict[str, Any]:
    """Return the figures of one group, once what was left out was told of."""
    _warn(result.skipped, "unreadable images", result.first_skipped)
    _warn(result.left_out, listing.left_out_is, result.first_left_out)
    return {
        "out": str(out.absolute()),
        "group": group,
        "layout": result.layout,
        "n_samples": result.samples,
        "n_classes": result.n_classes,
        "skipped": result.skipped,
        "left_out": result.left_out,
        "first_left_out": list(result.first_left_out),
        "bytes": result.nbytes,
        "seconds": seconds,
        "images_per_second": result.new_items / seconds if seconds else 0.0,
    }


def _print_line(found: dict[str, Any], *, alone: bool) -> None:
    size = f"{tables.size(found['bytes'])}, " if alone else ""
    classes = f" of {counted(found['n_classes'], 'class')}" if found["n_classes"] else ""
    line = (
        f"{found['out']}: {counted(found['n_samples'], 'image')}{classes} in {found['group']} ({found['layout']}), "
        f"{size}{tables.rate(found['images_per_second'], 1.0)} images/s"
    )
    result_console().print(line, highlight=False, soft_wrap=True)


def _warn(count: int, what: str, first: Sequence[str]) -> None:
    """Say on standard error what an import left out, and name the first few."""
    if not count:
        return
    console = error_console()
    more = ", the first of them" if count > len(first) else ""
    console.print(f"Left out {counted(count, what)}{more}:", highlight=False, soft_wrap=True)
    for sentence in first:
        console.print(f"  {sentence}", highlight=False, soft_wrap=True, markup=False)
