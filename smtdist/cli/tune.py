"""`tune`: settings chosen by trying them on held-out images."""

from __future__ import annotations

import json as json_text
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.table import Table

from smtdist import configuration
from smtdist.cli import options as opt
from smtdist.cli.errors import WrongUsage, usage
from smtdist.cli.evaluate import Metric
from smtdist.cli.fit import coded_feature, read_atoms
from smtdist.cli.session import Where, engine_for, print_json, result_console
from smtdist.configuration import Configuration
from smtdist.data import opening
from smtdist.data.locations import Location
from smtdist.data.source import Source
from smtdist.data.writing import check_target, whole_file
from smtdist.engine.memory import memory_limit
from smtdist.errors import ConfigurationError
from smtdist.evaluate import judging, knn, run
from smtdist.evaluate.knn import SoftNeighbours
from smtdist.evaluate.metrics import checked_labels
from smtdist.models.tuning import grid as grids
from smtdist.models.tuning import split as splitting
from smtdist.models.tuning import tune as tuning
from smtdist.models.tuning.learnt import learnt_trials, tune_learnt
from smtdist.monitor import tables

SHARE = "0.2"

Labelled = tuple[Source, NDArray[np.int64]]


def tune(
    data: opt.Data,
    train: Annotated[
        str, typer.Option(metavar="GROUP", help="Group with images and labels to learn from.")
    ],
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid", metavar="KEY=VALUE,VALUE", help="Values of one setting to try; may be repeated."
        ),
    ] = None,
    validation: Annotated[
        str,
        typer.Option(
            metavar="GROUP|SHARE",
            help="Images to judge by: another group, or a share of the training group.",
        ),
    ] = SHARE,
    limit: Annotated[
        int | None, typer.Option(min=2, help="Use so many images of the training group, drawn by the seed.")
    ] = None,
    preset: opt.Preset = None,
    set_: opt.Set = None,
    atoms: opt.Atoms = None,
    metric: Annotated[Metric, typer.Option(help="Classifier.")] = Metric.knn,
    neighbours: opt.NeighboursThatVote = None,
    out: Annotated[
        Path | None, typer.Option(metavar="TUNE.json", help="Write all results to this file too.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="TUNE.png", help="Draw the effect of every setting.")
    ] = None,
    workers: opt.Workers = None,
    cluster: opt.Cluster = None,
    overwrite: opt.Overwrite = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Try every combination of a grid of settings on held-out images, at a fraction of the cost of separate fits."""
    started = time.perf_counter()
    with usage():
        judging.refuse_idle(metric, neighbours=neighbours)
    for target in (out, plot):
        if target is not None:
            check_target(target, overwrite, inputs=(atoms,), data=data)
    if plot is not None and plot.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise WrongUsage(f"{plot} is no picture by its name; end it with .png, .svg or .pdf.")
    given = None if atoms is None else read_atoms(atoms)
    is_learnt = _is_learnt(set_, grid)
    if is_learnt and (preset or given is not None):
        raise WrongUsage("Learned codes are tuned without --preset and --atoms; leave them out.")
    settings, values, trials = _learnt(set_, grid) if is_learnt else _asked(preset, set_, grid, given)
    known, asked = _parts(data, train, validation, limit, settings)
    if not is_learnt:
        named = [*(set_ or []), *(f"{name}=null" for name in values)]
        settings = opt.for_images(settings, known[0], preset, named, None)
        trials = grids.combinations(settings, values, None if given is None else len(given))
    votes = run.Neighbours.of(settings, neighbours)
    if metric is Metric.knn:
        run.require_neighbours(votes, known[0].n_samples)

    budget = memory_limit() // run.MEMORY_SHARE
    # blocks of the k-NN side by side; the linear probe takes all threads and the memory for itself
    at_once = max(1, budget // knn.BLOCK_BYTES) if metric is Metric.knn else 1

    def probe(
        train_z: Any, train_y: NDArray[np.int64], test_z: Any, test_y: NDArray[np.int64]
    ) -> run.Found:
        return run.judged(train_z, train_y, test_z, test_y, run.Linear())

    nearest = SoftNeighbours(
        votes.k, votes.temperature, votes.vote, block_bytes=min(knn.BLOCK_BYTES, budget)
    )
    classify: tuning.Classifier = nearest if metric is Metric.knn else probe
    with engine_for(Where(workers, cluster, quiet), known[0]) as engine:
        if is_learnt:
            rows = tune_learnt(trials, known, asked, classify, engine)
        else:
            rows = tuning.tune(trials, known, asked, classify, engine, atoms=given, at_once=at_once)
    result = {
        "metric": metric.value,
        "n_train": known[0].n_samples,
        "n_validation": asked[0].n_samples,
        "grid": values,
        "best": rows[0].to_dict(),
        "set": grids.as_text(rows[0].changes, "--set "),
        "trials": [row.to_dict() for row in rows],
        "configuration": configuration.parse_settings(set_ or []) if is_learnt else settings.to_dict(),
        "seconds": time.perf_counter() - started,
    }
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
) -> tuple[Configuration, dict[str, list[Any]], list[tuple[dict[str, Any], Any]]]:
    """Return what does not vary, what does, and all combinations; what has no meaning is wrong usage."""
    with usage(TypeError):
        changes = dict(configuration.parse_setting(text) for text in assignments or [])
        if atoms is not None:
            changes.setdefault("dictionary_method", "given")
        values = grids.parse_grid(grid or [])
        settings = (configuration.preset(preset_name) if preset_name else Configuration()).replace(
            **changes
        )
        return settings, values, grids.combinations(settings, values, None if atoms is None else len(atoms))


def _is_learnt(assignments: list[str] | None, grid: list[str] | None) -> bool:
    """Tell whether --set or --grid ask for learned codes; both kinds in one grid are wrong usage."""
    texts = [text.partition("=") for text in [*(assignments or []), *(grid or [])]]
    asked = {one.strip() for name, _, values in texts if name == "feature" for one in values.split(",")}
    learnt = {one for one in asked if coded_feature([f"feature={one}"])}
    if learnt and asked - learnt:
        raise WrongUsage(
            f"{', '.join(sorted(learnt))} and {', '.join(sorted(asked - learnt))} have settings of their own; tune them one "
            f"after the other."
        )
    return bool(learnt)


def _learnt(
    assignments: list[str] | None, grid: list[str] | None
) -> tuple[Configuration, dict[str, list[Any]], list[tuple[dict[str, Any], Any]]]:
    """Return the votes, what varies, and all combinations of settings of learned codes."""
    with usage(TypeError):
        values = grids.parse_grid(grid or [], learnt=True)
        return (
            Configuration(),
            values,
            learnt_trials(configuration.parse_settings(assignments or []), values),
        )


def _parts(
    data: Location, train: str, validation: str, limit: int | None, settings: Configuration
) -> tuple[Labelled, Labelled]:
    """Return images and labels to learn from and to judge by."""
    source = opening.open_source(data, train, settings)
    labels = _labels(data, train, source)
    try:
        share = float(validation)
    except ValueError:
        other = opening.open_source(data, validation, settings)
        if other.shape[1:] != source.shape[1:]:
            raise ConfigurationError(
                f"{other.name} has images of {other.shape[1:]}, but {source.name} has {source.shape[1:]} (height, width, "
                f"channels); judge by images of the same shape."
            ) from None
        known, asked = splitting.limited(source, limit, settings.seed), splitting.whole(other)
        return (known.source, labels[known.samples]), (
            other,
            _labels(data, validation, other)[asked.samples],
        )
    with usage():
        known, asked = splitting.split(source, share, limit, settings.seed)
    return (known.source, labels[known.samples]), (asked.source, labels[asked.samples])


def _labels(data: Location, group: str, source: Source) -> NDArray[np.int64]:
    labels = opening.open_labels(data, group, source)
    return checked_labels(labels, source.n_samples, f"labels of {group}")


def trials_table(rows: list[tuning.Trial], values: dict[str, list[Any]], result: dict[str, Any]) -> Table:
    """Return all combinations, the best first, with their intervals, and which lie within that of the best."""
    varied = [key for key in values if len(values[key]) > 1] or list(values)
    lines = []
    for number, row in enumerate(rows):
        low, high = row.interval
        mark = "best" if not number else ("within" if row.within else "")
        interval = f"{tables.percent(low)} to {tables.percent(high)}"
        chosen = [grids.value_text(row.changes[key]) for key in varied]
        lines.append([mark, *chosen, tables.percent(row.top1), interval, tables.percent(row.top5)])
    title = (
        f"{len(rows):,} combinations: {result['n_train']:,} images to learn from, {result['n_validation']:,} to judge by, "
        f"{result['metric']}"
    )
    return tables.table(title, ("", *varied, "top-1", "95 % interval", "top-5"), lines)


def _draw(plot: Path, rows: list[tuning.Trial], values: dict[str, list[Any]], overwrite: bool) -> None:
    from smtdist.monitor.plots import tuning_figure  # matplotlib takes its time, and only here

    figure = tuning_figure([(row.changes, row.top1, row.interval) for row in rows], values)
    with whole_file(plot, overwrite) as temporary:
        figure.savefig(temporary, format=plot.suffix[1:].lower(), dpi=150)
