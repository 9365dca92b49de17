"""`concepts`: binary concepts of a table of rows; and what holds which of them."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from smtdist.cli import options as opt
from smtdist.cli.errors import WrongUsage, usage
from smtdist.cli.session import engine_for, print_json, result_console
from smtdist.configuration import parse_settings
from smtdist.data import hdf5
from smtdist.data.source import Source
from smtdist.data.table import as_table
from smtdist.data.writing import check_target
from smtdist.engine.manifest import Facts
from smtdist.errors import DataError, counted

if TYPE_CHECKING:
    from smtdist.concepts.model import ConceptModel

# SciPy's optimisers, NetworkX and the compiled sweeps take a second to import: only this command waits for them
SHOWN = 20
MEMBERS = 8


def concepts(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="X.h5",
            help="HDF5 file with rows of numbers, or a .npy file. For --search and --draw: a file of concepts.",
        ),
    ],
    dataset: Annotated[str, typer.Option(help="Dataset with the rows (points, dimensions).")] = "z",
    out: Annotated[
        Path | None, typer.Option(metavar="CONCEPTS.h5", help="File of concepts to write.")
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            help="Search: rejection (fast), hopfield (any data), hybrid (both), or convex (up to 500 rows)."
        ),
    ] = "hybrid",
    n_concepts: Annotated[int, typer.Option(min=1, help="Number of concepts to look for.")] = 32,
    set_: opt.Set = None,
    search: Annotated[
        str | None,
        typer.Option(
            metavar="FORMULA",
            help='List the points whose concepts fulfil a formula, such as "17 and not 4". X.h5 is a file of concepts.',
        ),
    ] = None,
    draw: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="Draw which concepts separate these points, given by name or number, and where all others lie. X.h5 is a "
            "file of concepts.",
        ),
    ] = None,
    names: Annotated[
        str | None,
        typer.Option(metavar="FILE.h5:DATASET", help="Dataset with the names of the points, for --draw."),
    ] = None,
    figure: Annotated[
        Path,
        typer.Option(
            metavar="PREFIX",
            help="Name of the pictures of --draw: PREFIX-analogram.png, PREFIX-projection.png.",
        ),
    ] = Path("points"),
    where: opt.Where = opt.HERE,
    checkpoint: opt.Checkpoint = None,
    overwrite: opt.Overwrite = False,
    json: opt.Json = False,
) -> None:
    """Find binary concepts of rows, such as embeddings or word vectors; shared concepts reproduce their similarity.

    With --checkpoint, a stopped search continues when you start it again, and finds the same concepts.
    """
    from smtdist.concepts.fit import fit_concepts
    from smtdist.concepts.settings import ConceptSettings
    from smtdist.models import store

    if search is not None:
        _search(data, search, json)
        return
    if draw is not None:
        _draw(data, draw, names, figure, overwrite, json)
        return
    if out is None:
        raise WrongUsage(
            "Name the file to write with --out, or give --search or --draw with a file of concepts."
        )
    with usage(TypeError):
        settings = ConceptSettings(method=method, n_concepts=n_concepts)
        settings = settings.replace(**parse_settings(set_ or []))
    check_target(out, overwrite, data=data)
    started = time.perf_counter()
    source = as_table(data if data.suffix == ".npy" else (data, dataset))
    with (
        engine_for(
            where,
            source,
            checkpoint,
            lambda: Facts.of(source, settings.to_dict()),
        ) as engine,
        tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder,
    ):
        model = fit_concepts(source, settings, engine, folder=Path(folder))
    size = store.save(model, out, overwrite=overwrite)
    result = {
        "out": str(out.absolute()),
        "bytes": size,
        "n_points": model.points,
        "n_concepts": model.n_concepts,
        "cka": model.cka,
        "loss": model.loss,
        "n_dense": int(model.dense.sum()),
        "sweeps": len(model.history),
        "n_iter": model.ending.n_iter if model.ending else None,
        "converged": model.ending.converged if model.ending else None,
        "gap": model.ending.gap if model.ending else None,
        "advice": model.advice,
        "seconds": time.perf_counter() - started,
        "configuration": settings.to_dict(),
    }
    if json:
        print_json(result)
    else:
        _show(model, source, result)


def _show(model: ConceptModel, source: Source, result: dict[str, Any]) -> None:
    from smtdist.concepts import reading

    console = result_console()
    line = f"{result['out']}: {counted(model.n_concepts, 'concept')} of {counted(model.points, 'point')}, CKA {model.cka:.4f}"
    console.print(line, highlight=False, soft_wrap=True)
    if model.advice:
        console.print(model.advice, style="yellow", highlight=False)
    order = np.argsort(-model.weights * model.members * (1 - model.members / model.points), kind="stable")
    for concept in order[:SHOWN]:
        members = reading.typical_members(model, source, int(concept), count=MEMBERS)
        text = f"  {concept:>4}  {model.members[concept]:>9,} members, weight {model.weights[concept]:.3g}; typical: "
        console.print(text + ", ".join(map(str, members)), highlight=False, soft_wrap=True)


def _search(path: Path, query: str, json: bool) -> None:
    from smtdist.concepts import reading
    from smtdist.concepts.model import ConceptModel
    from smtdist.models import store

    model = store.load(path, kind=ConceptModel)
    with usage():
        found = reading.search(model.concepts, query)
    if json:
        print_json({"query": query, "n_points": len(found), "points": found.tolist()})
    else:
        result_console().print(" ".join(map(str, found)), highlight=False, soft_wrap=True)


def _draw(path: Path, text: str, names: str | None, figure: Path, overwrite: bool, json: bool) -> None:
    from smtdist.concepts import drawing
    from smtdist.concepts.model import ConceptModel
    from smtdist.models import store

    model = store.load(path, kind=ConceptModel)
    label = None if names is None else _names(names, model.points)
    points = [_point(word.strip(), label, model.points) for word in text.split(",")]
    with usage():
        kinds, paths = drawing.draw_points(model, points, figure, names=label, overwrite=overwrite)
    if json:
        found = [{"pattern": kind.pattern, "concepts": kind.concepts} for kind in kinds]
        print_json({"points": points, "kinds": found, "files": paths})
        return
    console = result_console()
    for line in paths:
        console.print(line, highlight=False, soft_wrap=True)
    for kind in kinds:
        inside = ", ".join(
            word.strip() for word, held in zip(text.split(","), kind.pattern, strict=True) if held
        )
        console.print(
            f"  {len(kind.concepts):>4} concepts separate {inside} from the others",
            highlight=False,
            soft_wrap=True,
        )


def _names(text: str, points: int) -> list[str]:
    path, colon, dataset = text.rpartition(":")
    if not colon:
        raise WrongUsage(f"{text!r} names no dataset; write FILE.h5:DATASET.")
    with hdf5.open_dataset(path, dataset) as stored:
        if stored.shape != (points,) or stored.dtype.kind not in "OS":
            raise DataError(f"{text} does not hold {points:,} names; give one text for each point.")
        return [str(name) for name in stored.asstr()[()]]


def _point(word: str, names: list[str] | None, points: int) -> int:
    if names is not None and word in names:
        return names.index(word)
    if word.isdecimal() and int(word) < points:
        return int(word)
    raise WrongUsage(f"There is no point {word!r}; give a name, or a number from 0 to {points - 1}.")
