"""`tune`: settings chosen by trying them on held-out images."""

from __future__ import annotations

import enum
import json as json_text
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from smtdist import configuration
from smtdist.cli import options as opt
from smtdist.cli.errors import WrongUsage, in_shell, usage
from smtdist.cli.session import engine_for, print_json, result_console
from smtdist.configuration import Configuration
from smtdist.data.locations import Location
from smtdist.data.writing import check_target, whole_file
from smtdist.errors import counted, rendered, set_to
from smtdist.evaluate import judging, tuning
from smtdist.evaluate.run import Labelled
from smtdist.models.image_jobs import for_images, learned_code, read_atoms
from smtdist.models.tuning import grid as grids
from smtdist.models.tuning.tune import Trial
from smtdist.monitor import tables
from smtdist.monitor.console import Sheet

SHARE = "0.2"
Metric = enum.StrEnum("Metric", "knn linear")


def tune(
    data: opt.Data,
    train: Annotated[str, typer.Option(metavar="GROUP", help="Group with training images and labels.")],
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="KEY=VALUE,VALUE",
            help="Values of one setting to try, such as ridge=0.01,0.1; may be repeated.",
        ),
    ] = None,
    validation: Annotated[
        str,
        typer.Option(
            metavar="GROUP|SHARE",
            help="Held-out images: another group, or a share of the training group, such as 0.2.",
        ),
    ] = SHARE,
    limit: Annotated[
        int | None,
        typer.Option(min=2, help="Use only this many images of the training group, drawn at random."),
    ] = None,
    preset: opt.Preset = None,
    set_: opt.Set = None,
    atoms: opt.Atoms = None,
    metric: Annotated[Metric, typer.Option(help="Classifier that compares the settings.")] = Metric.knn,
    neighbours: opt.NeighboursThatVote = None,
    out: Annotated[
        Path | None, typer.Option(metavar="TUNE.json", help="Also write all results to this file.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="TUNE.png", help="Draw the effect of every setting.")
    ] = None,
    where: opt.Where = opt.HERE,
    overwrite: opt.Overwrite = False,
    json: opt.Json = False,
) -> None:
    """Try every combination of a grid of settings on held-out images, in far less time than separate fits."""
    started = time.perf_counter()
    with usage():
        judging.refuse_idle(metric, n_neighbors=neighbours)
    for target in (out, plot):
        if target is not None:
            check_target(target, overwrite, inputs=(atoms,), data=data)
    if plot is not None:
        opt.picture_kind(plot)
    given = None if atoms is None else read_atoms(atoms)
    is_learnt = _is_learnt(set_, grid)
    if is_learnt and (preset or given is not None):
        raise WrongUsage("Learned codes are tuned without --preset and --atoms; leave them out.")
    trials = _learnt(set_, grid) if is_learnt else _asked(preset, set_, grid, given)
    known, asked = _parts(data, train, validation, limit, trials.votes)
    if not is_learnt:
        given_names = (
            Configuration.named(configuration.parse_settings(set_ or [])).keys() | trials.grid.keys()
        )
        settings = trials.votes if preset else for_images(trials.votes, known.source, given_names)
        trials = tuning.Trials.of(settings, trials.grid, given)
    trials.require_neighbours(known, metric, neighbours)
    with engine_for(where, known.source) as engine:
        found = trials.tried(known, asked, engine, metric, neighbours, started)
    best = " ".join(set_to(name, value) for name, value in found.best_params.items())
    result, rows, values = found.to_dict() | {"set": rendered(best, in_shell)}, found.trials, found.grid
    if out is not None:
        with whole_file(out, overwrite) as temporary:
            Path(temporary).write_text(json_text.dumps(result, indent=1, allow_nan=False) + "\n")
    if plot is not None:
        _draw(plot, rows, values, overwrite)
    if json:
        print_json(result)
        return
    console = result_console()
    console.print(trials_table(rows, values, result))
    console.print(result["set"], highlight=False, soft_wrap=True)


def _asked(
    preset_name: str | None,
    assignments: list[str] | None,
    grid: list[str] | None,
    atoms: NDArray[np.floating[Any]] | None,
) -> tuning.Trials:
    """Return what does not vary, what does, and all combinations; what has no meaning is wrong usage."""
    with usage(TypeError):
        changes = Configuration.named(configuration.parse_settings(assignments or []))
        if atoms is not None:
            changes.setdefault("dictionary_method", "given")
        values = grids.parse_grid(grid or [])
        settings = configuration.preset(preset_name) if preset_name else Configuration()
        return tuning.Trials.of(settings.replace(**changes), values, atoms)


def _is_learnt(assignments: list[str] | None, grid: list[str] | None) -> bool:
    """Tell whether --set or --grid ask for learned codes; both kinds in one grid are wrong usage."""
    texts = [text.partition("=") for text in [*(assignments or []), *(grid or [])]]
    asked = {
        one.strip() for name, _, values in texts if name in ("code", "feature") for one in values.split(",")
    }
    with usage():
        learnt = {one for one in asked if learned_code({"code": one})}
    if learnt and asked - learnt:
        raise WrongUsage(
            f"{', '.join(sorted(learnt))} and {', '.join(sorted(asked - learnt))} have settings of their own; tune them one "
            f"after the other."
        )
    return bool(learnt)


def _learnt(assignments: list[str] | None, grid: list[str] | None) -> tuning.Trials:
    """Return the same of learned codes."""
    with usage(TypeError):
        values = grids.parse_grid(grid or [], learnt=True)
        return tuning.Trials.of_learnt(configuration.parse_settings(assignments or []), values)


def _parts(
    data: Location, train: str, validation: str, limit: int | None, settings: Configuration
) -> tuple[Labelled, Labelled]:
    """Return images and labels to learn from and to judge by."""
    whole = Labelled.open(data, train, settings, fitted=False)
    try:
        judge: float | Labelled = float(validation)
    except ValueError:
        judge = Labelled.open(data, validation, settings, fitted=False)
    with usage():
        return tuning.parts(whole, judge, limit, settings.random_state)


def trials_table(rows: Sequence[Trial], values: dict[str, list[Any]], result: dict[str, Any]) -> Sheet:
    """Return all combinations, the best first, with their intervals, and which lie within that of the best."""
    varied = [key for key in values if len(values[key]) > 1] or list(values)
    lines = []
    for number, row in enumerate(rows, 1):
        low, high = row.interval
        mark = f"{number} best" if number == 1 else f"{number} within" if row.within else f"{number}"
        interval = f"{tables.percent(low)} to {tables.percent(high)}"
        chosen = [grids.value_text(row.changes[key]) for key in varied]
        lines.append([mark, *chosen, tables.percent(row.top1), interval, tables.percent(row.top5)])
    mirrored = ", mirrored too" if result["mirrored"] else ""
    title = (
        f"{counted(len(rows), 'combination')}: {counted(result['n_train'], 'image')} to learn from{mirrored}, "
        f"{result['n_validation']:,} to judge by, {result['metric']}"
    )
    return tables.table(title, ("", *varied, "top-1", "95 % interval", "top-5"), lines)


def _draw(plot: Path, rows: Sequence[Trial], values: dict[str, list[Any]], overwrite: bool) -> None:
    from smtdist.monitor.plots import tuning_figure  # matplotlib takes its time, and only here

    figure = tuning_figure([(row.changes, row.top1, row.interval) for row in rows], values)
    with whole_file(plot, overwrite) as temporary:
        figure.savefig(temporary, format=plot.suffix[1:].lower(), dpi=150)
