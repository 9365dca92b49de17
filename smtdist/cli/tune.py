"""`tune`: settings chosen by trying them on held-out images."""

from __future__ import annotations

import json as json_text
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smtdist.cli import options as opt
from smtdist.cli.errors import in_shell, usage
from smtdist.cli.session import engine_for, say_result
from smtdist.data.writing import check_target, require_picture, whole_file
from smtdist.errors import counted, rendered, set_to
from smtdist.evaluate import judging, tuning
from smtdist.evaluate.run import Labelled
from smtdist.models.image_jobs import read_atoms
from smtdist.models.tuning import grid as grids
from smtdist.monitor import tables


def tune(
    data: list[str],
    train: str,
    grid: list[str] | None = None,
    validation: str = "0.2",
    limit: int | None = None,
    preset: str | None = None,
    settings: Mapping[str, Any] = opt.NOTHING,
    atoms: Path | None = None,
    metric: str = "knn",
    n_neighbors: int | None = None,
    out: Path | None = None,
    plot: Path | None = None,
    where: opt.Where = opt.HERE,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Try every combination of a grid of settings on held-out images, in far less time than separate fits.

    Example: smtdist tune data.h5 --train train --limit 2000 --grid whitening_reg=0.001,0.01,0.1 --grid n_components=64,256
    """
    started = time.perf_counter()
    with usage():
        judging.refuse_idle(metric, n_neighbors=n_neighbors)
        if plot is not None:
            require_picture(plot, ".png", ".svg", ".pdf")
    for target in filter(None, (out, plot)):
        check_target(target, overwrite, inputs=(atoms,), data=data)
    with usage():
        given = None if atoms is None else read_atoms(atoms)
        trials = tuning.Trials.asked(settings, grid or [], preset, given)
    whole = Labelled.open(data, train, trials.votes, fitted=False)
    try:
        judge: float | Labelled = float(validation)
    except ValueError:
        judge = Labelled.open(data, validation, trials.votes, fitted=False)
    with usage():
        known, asked = tuning.parts(whole, judge, limit, trials.votes.random_state)
    if not preset:
        trials = trials.suited(known.source, settings)
    trials.require_neighbours(known, metric, n_neighbors)
    with engine_for(where, known.source) as engine:
        found = trials.tried(known, asked, engine, metric, n_neighbors, started)
    best = " ".join(set_to(name, value) for name, value in found.best_params.items())
    result = found.to_dict() | {"set": rendered(best, in_shell)}
    if out is not None:
        with whole_file(out, overwrite) as temporary:
            Path(temporary).write_text(json_text.dumps(result, indent=1, allow_nan=False) + "\n")
    if plot is not None:
        from smtdist.monitor.plots import tuning_figure  # matplotlib takes its time, and only here

        figure = tuning_figure([(row.changes, row.top1, row.interval) for row in found.trials], found.grid)
        with whole_file(plot, overwrite) as temporary:
            figure.savefig(temporary, format=plot.suffix[1:].lower(), dpi=150)
    # all combinations, the best first, and which lie within its interval
    varied = [key for key in found.grid if len(found.grid[key]) > 1] or list(found.grid)
    lines = []
    for number, row in enumerate(found.trials, 1):
        low, high = row.interval
        mark = f"{number} best" if number == 1 else f"{number} within" if row.within else f"{number}"
        interval = f"{tables.percent(low)} to {tables.percent(high)}"
        chosen = [grids.value_text(row.changes[key]) for key in varied]
        lines.append([mark, *chosen, tables.percent(row.top1), interval, tables.percent(row.top5)])
    mirrored = ", mirrored too" if result["mirrored"] else ""
    title = (
        f"{counted(len(found.trials), 'combination')}: {counted(result['n_train'], 'image')} to learn from{mirrored}, "
        f"{result['n_validation']:,} to judge by, {result['metric']}"
    )
    table = tables.table(title, ("", *varied, "top-1", "95 % interval", "top-5"), lines)
    say_result(result, json, table, result["set"])
