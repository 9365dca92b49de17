"""`spirals`: two entangled spirals told apart and unrolled, with the picture (SMT 2023, figure 2)."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from smtdist.cli import options as opt
from smtdist.cli.errors import WrongUsage
from smtdist.cli.session import Where, engine_for, print_json, result_console, say
from smtdist.data.table import as_table
from smtdist.data.writing import check_target, whole_file
from smtdist.errors import counted
from smtdist.models.points import spirals as spiral_data
from smtdist.monitor import tables


def spirals(
    out: opt.Picture = None,
    points: Annotated[int, typer.Option(min=100, help="Number of points on both spirals.")] = 8000,
    landmarks: Annotated[
        int, typer.Option(min=8, help="Number of landmarks, chosen among the points.")
    ] = 300,
    noise: Annotated[
        float, typer.Option(min=0.0, help="Standard deviation of the noise of copies.")
    ] = 0.03,
    seed: Annotated[int, typer.Option(min=0, help="Seed of points and noise.")] = 0,
    workers: opt.Workers = None,
    cluster: opt.Cluster = None,
    overwrite: opt.Overwrite = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Separate two entangled spirals by noisy copies of their points, and show the components."""
    started = time.perf_counter()
    if landmarks > points:
        raise WrongUsage(
            f"--landmarks is {landmarks}, more than the {counted(points, 'point')}; ask for fewer."
        )
    kind = "" if out is None else opt.picture_kind(out)
    if out is not None:
        check_target(out, overwrite)
    drawn = spiral_data.two_spirals(points, seed)
    with engine_for(Where(workers, cluster, quiet), as_table(drawn.points)) as engine:
        model, records = spiral_data.fit_spirals(drawn, engine, landmarks=landmarks, noise=noise, seed=seed)
    result = {
        **spiral_data.judged(model, drawn),
        "passes": records,
        "seconds": time.perf_counter() - started,
    }
    if out is not None:
        with whole_file(out, overwrite) as temporary:
            spiral_data.draw_spirals(model, drawn, temporary, kind)
        result["picture"] = str(out)
    if json:
        print_json(result)
        return
    facts = [
        ("told apart by the sign of one direction of components 1 and 2", f"{result['separation']:.4f}"),
        (
            "rank correlation of one direction of components 3 and 4 with the place along each",
            f"{result['monotone']:.4f}",
        ),
        ("nearest tenth on the same spiral, in the embedding", f"{result['stays']:.4f}"),
        ("nearest tenth on the same spiral, in the plane", f"{result['stayed']:.4f}"),
    ]
    result_console().print(
        tables.facts_table(f"{counted(points, 'point')} of two spirals, {landmarks} landmarks", facts)
    )
    if out is not None:
        say(str(out))
