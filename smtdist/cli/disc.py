"""`disc`: functionals of a point that moves on the unit disc, and sparse functions recovered (SMT 2018, figure 2)."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from smtdist.cli import options as opt
from smtdist.cli.errors import WrongUsage
from smtdist.cli.session import Where, engine_for, print_json, result_console, say
from smtdist.data.array import ArraySamples
from smtdist.data.writing import check_target, whole_file
from smtdist.errors import counted
from smtdist.models.functional import disc as unit_disc
from smtdist.models.functional import disc_judge
from smtdist.models.functional.disc_picture import draw_disc
from smtdist.monitor import tables


def disc(
    out: opt.Picture = None,
    landmarks: Annotated[int, typer.Option(min=40, help="Number of landmarks on the disc.")] = 300,
    sequences: Annotated[int, typer.Option(min=100, help="Number of straight paths of a point.")] = 10000,
    functionals: Annotated[
        int, typer.Option(min=10, help="Number of functionals (rows of the embedding).")
    ] = unit_disc.FUNCTIONALS,
    functions: Annotated[
        int,
        typer.Option(min=1, help="Number of sparse functions to recover, for each number of functionals."),
    ] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Seed of landmarks, paths and functions.")] = 0,
    workers: opt.Workers = None,
    cluster: opt.Cluster = None,
    overwrite: opt.Overwrite = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Find the functionals that straighten the paths of a point on the unit disc, and recover sparse functions from them."""
    started = time.perf_counter()
    if functionals > landmarks:
        raise WrongUsage(
            f"--functionals is {functionals}, more than the {counted(landmarks, 'landmark')}; ask for fewer."
        )
    kind = "" if out is None else opt.picture_kind(out)
    if out is not None:
        check_target(out, overwrite)
    places = unit_disc.disc_landmarks(landmarks, seed)
    paths = unit_disc.moving_points(sequences, seed)
    with engine_for(Where(workers, cluster, quiet), ArraySamples(paths)) as engine:
        model, records = unit_disc.fit_disc(paths, places, engine, functionals)
    components = model.solution.components
    result = disc_judge.judged(components, places, functions=functions, seed=seed)
    result["eigenvalues"] = model.solution.eigenvalues.tolist()
    result["passes"] = records
    if out is not None:
        drawn = disc_judge.recovery(
            components,
            places,
            disc_judge.sparse_points(4, 1, seed, disc_judge.APART * float(result["landmark_spacing"])),
        )
        with whole_file(out, overwrite) as temporary:
            draw_disc(components, places, drawn, result, temporary, kind)
        result["picture"] = str(out)
    result["seconds"] = time.perf_counter() - started
    if json:
        print_json(result)
        return
    facts = [
        (
            "functionals 1 to 10 and Zernike polynomials of orders 0 to 3: cosine",
            _least(result["zernike_cosines"]),
        ),
        (
            "share of one angular frequency in each of functionals 11 on",
            _least(result["angular_share"][10:]),
        ),
        ("position error of 1-sparse functions", _ends(result["one_sparse"])),
        ("position error of 4-sparse functions", _ends(result["four_sparse"])),
        ("spacing of landmarks", f"{result['landmark_spacing']:.4f}"),
    ]
    result_console().print(
        tables.facts_table(
            f"{landmarks} landmarks, {counted(sequences, 'path')}, {counted(functionals, 'functional')}",
            facts,
        )
    )
    if out is not None:
        say(str(out))


def _least(values: list[float]) -> str:
    return f"{min(values):.4f} at least" if values else "none"


def _ends(errors: list[float]) -> str:
    return f"{errors[0]:.4f} from 3 functionals, {errors[-1]:.4f} from all"
