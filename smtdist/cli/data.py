"""`import` and `manifest`: images from other formats into an HDF5 file, and many files as one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from smtdist.cli import options as opt
from smtdist.cli.errors import WrongUsage, in_shell, usage
from smtdist.cli.session import say_result, stopping_on_signals
from smtdist.data import locations, locking
from smtdist.data.importers import images
from smtdist.data.importers.items import ImportOptions, Listing
from smtdist.data.importers.run import ImportResult
from smtdist.data.locations import Files, Parsed
from smtdist.data.manifest import Manifest, describe_files, write_manifest
from smtdist.data.video import VideoSettings, are_videos, import_videos
from smtdist.data.writing import check_target
from smtdist.engine.events import EventStream
from smtdist.engine.executor import StopRequest
from smtdist.errors import InterruptedRun, counted
from smtdist.kernels.threads import available_cores
from smtdist.models.importing import ImportSettings
from smtdist.monitor import tables
from smtdist.monitor.progress import ProgressView
from smtdist.monitor.tables import VisibleConsole

VIDEO = "video"
"""The kind of SOURCE that is clips, not images."""


@contextmanager
def _in_sight(
    name: str, total: int, unit: str, quiet: bool
) -> Iterator[tuple[EventStream, Callable[[int], None]]]:
    """Yield events that are shown, and what makes one of a count of what is done; the rate is that of this run."""
    events, counts = EventStream(words=in_shell), list[int]()

    def report(done: int) -> None:
        counts.append(done)
        events.progress(name, done, done - counts[0])

    with nullcontext() if quiet else ProgressView(VisibleConsole(stderr=True)) as view:
        if view is not None:
            events.subscribe(view)
        events.started(name, total, 0, unit=unit, counts=unit.removesuffix("s"))
        yield events, report


def import_(
    source: list[Path],
    out: Path,
    settings: Annotated[dict[str, Any], ImportSettings] = opt.NOTHING,
    levels: int = 0,
    limit: int = 0,
    workers: int | None = None,
    overwrite: bool = False,
    quiet: bool = False,
    json: bool = False,
) -> None:
    """Import images from a folder, arrays or archives into an HDF5 file; repeat the command to continue a stopped import.

    Of video (--kind video) the luminance is imported, cropped and down-sampled, a group for each clip. If a file does
    not list its cuts, smtdist looks for them.

    Example: smtdist import images/train --out data.h5 --group train
    """
    started = time.perf_counter()
    if settings.get("kind") == VIDEO or are_videos(source):
        if idle := settings.keys() - {"kind", "crop"}:
            raise WrongUsage(f"{', '.join(sorted(idle))} is not for video; leave it out.")
        sizes: dict[str, Any] = {"crop": settings.get("crop"), "levels": levels, "limit": limit}
        with usage():
            VideoSettings(**sizes)
        clips = import_videos(source, out, **sizes, overwrite=overwrite, note=_tell)
        say_result({"out": str(out.absolute()), "clips": clips}, json, tables.clips_table(str(out), clips))
        return
    if levels or limit:
        raise WrongUsage("--levels and --limit are for video; leave them out.")
    n_workers = available_cores() if workers is None else workers
    with usage():
        found = images.looked_at(
            source, out, ImportSettings(**settings), n_workers=n_workers, overwrite=overwrite
        )
    results = found.run(partial(_imported, quiet=quiet, write=found.write))
    seconds = time.perf_counter() - started
    # groups that this run wrote; those before them were shown by the run that was stopped
    every = [
        _facts(result, found.listings[name], found.out, name, seconds) for name, result in results.items()
    ]
    if not found.several:
        say_result(every[0], json, _line(every[0], f"{tables.size(every[0]['bytes'])}, "))
        return
    size, whole = found.out.stat().st_size, str(found.out.absolute())  # of all sets together
    every = [{**one, "bytes": size} for one in every]
    lines = [*map(_line, every), f"{whole}: {tables.size(size)} in all"]
    say_result({"out": whole, "groups": every, "bytes": size, "seconds": seconds}, json, *lines)


def _tell(text: str) -> None:
    VisibleConsole(stderr=True).print(text, markup=False, highlight=False, soft_wrap=True)


def _imported(
    listing: Listing,
    out: Path,
    chosen: ImportOptions,
    *,
    quiet: bool,
    write: Callable[..., ImportResult],
) -> ImportResult:
    stop = StopRequest()
    with (
        stopping_on_signals(stop),
        _in_sight("import", listing.n_items or 0, "images", quiet) as (events, report),
    ):
        how: dict[str, Any] = {"report": report, "note": lambda text: events.emit("note", text=text)}
        try:
            result = write(
                listing, out, chosen, stop=lambda: stop.exit_code if stop.is_set() else None, **how
            )
        except KeyboardInterrupt:
            raise InterruptedRun("Stopped; repeat the command to continue.", 130) from None
        counts = {"n_samples": result.samples, "n_positions": 0}
        events.emit("pass_finished", **{"pass": "import", "seconds": result.seconds, **counts})
    return result


def _facts(result: ImportResult, listing: Listing, out: Path, group: str, seconds: float) -> dict[str, Any]:
    """Return the figures of one group, once what was left out was told of."""
    for count, what, first in (
        (result.skipped, "unreadable image", result.first_skipped),
        (result.left_out, listing.left_out_is, result.first_left_out),
    ):
        if count:
            more = ", the first of them" if count > len(first) else ""
            _tell("\n  ".join((f"Left out {counted(count, what)}{more}:", *first)))
    return {
        "out": str(out.absolute()),
        "group": group,
        **result.to_dict(),
        "seconds": seconds,
        "images_per_second": result.new_items / seconds if seconds else 0.0,
    }


def _line(found: dict[str, Any], size: str = "") -> str:
    classes = f" of {counted(found['n_classes'], 'class')}" if found["n_classes"] else ""
    return (
        f"{found['out']}: {counted(found['n_samples'], 'image')}{classes} in {found['group']} ({found['layout']}), "
        f"{size}{tables.rate(found['images_per_second'], 1.0)} images/s"
    )


def manifest(
    data: list[str],
    out: Path | None = None,
    dataset: list[str] | None = None,
    seed: int = 0,
    overwrite: bool = False,
    quiet: bool = False,
    json: bool = False,
) -> None:
    """Write a manifest of many files, so that they can be used as one; or check the files of a manifest.

    Example: smtdist manifest train-*.h5 --out train.json
    """
    started = time.perf_counter()
    if out is not None:
        if out.suffix != ".json":
            raise WrongUsage(f"--out {out} is not a name of a manifest; let it end in .json.")
        check_target(out, overwrite, data=data)
    found, facts = locations.resolved(data), dict[str, Any]()
    if out is None:
        if not isinstance(found, Parsed):
            raise WrongUsage(
                "Name the manifest to write with --out DATA.json, or give one alone to check its files."
            )
        if dataset:
            raise WrongUsage("A manifest is checked as a whole; leave out --dataset.")
        made = Manifest.of(found)
        with _in_sight("manifest", len(made.content["files"]), "files", quiet) as (_, report):
            facts["hashes_checked"] = made.verify(report)
    elif isinstance(found, Parsed):
        raise WrongUsage(f"{found.path} is a manifest already; give its files to make it again.")
    else:
        paths = found.paths if isinstance(found, Files) else (found,)
        with locking.held(out), _in_sight("manifest", len(paths), "files", quiet) as (_, report):
            made = describe_files(paths, out, dataset or (), seed, report)
            write_manifest(made, overwrite=overwrite)
        facts["bytes"] = out.stat().st_size
    facts["seconds"] = time.perf_counter() - started
    sets, n_files = made.sets(), len(made.content["files"])
    right = facts.get("hashes_checked")
    checked = "" if right is None else f", {counted(right, 'sample')} as they were"
    lines = [f"{made.path}: {counted(n_files, 'file')}{checked}"]
    for name, about in sets.items():
        what = counted(about["samples"], f"{about['kind']} image")
        lines.append(
            f"  {name}: {what} in {counted(about['files'], 'file')}, {tables.size(about['bytes'])}"
        )
    say_result({"manifest": made.path, "n_files": n_files, "sets": sets, **facts}, json, *lines)
