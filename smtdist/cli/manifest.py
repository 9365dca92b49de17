"""`manifest`: what is in many files, written to one that opens in their place."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from smtdist.cli import options as opt
from smtdist.cli.errors import WrongUsage
from smtdist.cli.session import error_console, print_json, result_console
from smtdist.data import locations, locking
from smtdist.data.locations import Files, Parsed
from smtdist.data.manifest import Manifest, describe_files, write_manifest
from smtdist.data.writing import check_target
from smtdist.engine.events import EventStream
from smtdist.errors import counted
from smtdist.monitor import tables
from smtdist.monitor.progress import ProgressView

PASS = "manifest"


def manifest(
    data: opt.Data,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DATA.json", help="Manifest to write. Without --out, the manifest DATA is checked."
        ),
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            help="Dataset or group of images to include; may be repeated. Default: all that are found."
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the choice of samples whose content is hashed.")
    ] = 0,
    overwrite: opt.Overwrite = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Write a manifest of many files, so that they can be used as one; or check the files of a manifest."""
    started = time.perf_counter()
    if out is not None:
        if out.suffix != ".json":
            raise WrongUsage(f"--out {out} is not a name of a manifest; let it end in .json.")
        check_target(out, overwrite, data=data)
    found = locations.resolved(data)
    if out is None:
        if not isinstance(found, Parsed):
            raise WrongUsage(
                "Name the manifest to write with --out DATA.json, or give one alone to check its files."
            )
        if dataset:
            raise WrongUsage("A manifest is checked as a whole; leave out --dataset.")
        checked = Manifest.of(found)
        with _counted(len(checked.content["files"]), quiet) as report:
            right = checked.verify(report)
        _show(checked, {"hashes_checked": right, "seconds": time.perf_counter() - started}, json)
        return
    if isinstance(found, Parsed):
        raise WrongUsage(f"{found.path} is a manifest already; give its files to make it again.")
    paths = found.paths if isinstance(found, Files) else (found,)
    with locking.held(out), _counted(len(paths), quiet) as report:
        made = describe_files(paths, out, dataset or (), seed, report)
        write_manifest(made, overwrite=overwrite)
    _show(made, {"bytes": out.stat().st_size, "seconds": time.perf_counter() - started}, json)


@contextmanager
def _counted(total: int, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Yield what shows how many files are done."""
    events = EventStream()
    with ExitStack() as stack:
        if not quiet:
            events.subscribe(stack.enter_context(ProgressView(error_console())))
        events.started(PASS, total, 0, unit="files")
        yield lambda done: events.emit("progress", **{"pass": PASS, "n_samples": done, "n_positions": done})


def _show(made: Manifest, facts: dict[str, Any], json: bool) -> None:
    sets = made.sets()
    if json:
        print_json({"manifest": made.path, "n_files": len(made.content["files"]), "sets": sets, **facts})
        return
    console = result_console()
    files = counted(len(made.content["files"]), "file")
    checked = (
        f", {counted(facts['hashes_checked'], 'sample')} as they were" if "hashes_checked" in facts else ""
    )
    console.print(f"{made.path}: {files}{checked}", highlight=False, soft_wrap=True)
    for name, about in sets.items():
        what = counted(about["samples"], f"{about['kind']} image")
        line = f"  {name}: {what} in {counted(about['files'], 'file')}, {tables.size(about['bytes'])}"
        console.print(line, highlight=False, soft_wrap=True)
