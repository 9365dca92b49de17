"""`concepts`: binary concepts of a table of rows; and what holds which of them."""

from __future__ import annotations

import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from smtdist.cli import options as opt
from smtdist.cli.errors import WrongUsage
from smtdist.cli.session import Where, engine_for, print_json, result_console
from smtdist.data.source import Source
from smtdist.data.table import as_table
from smtdist.data.writing import check_target
from smtdist.engine.manifest import Facts
from smtdist.errors import ConfigurationError

if TYPE_CHECKING:
    from smtdist.concepts.model import ConceptModel

# SciPy's optimisers, NetworkX and the compiled sweeps take a second to import: only this command waits for them
SHOWN = 20
MEMBERS = 8


def concepts(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="X.h5", help="HDF5 file with rows of numbers, or a .npy file; or, to --search, concepts."
        ),
    ],
    dataset: Annotated[str, typer.Option(help="Rows in the file: (points, dimensions).")] = "z",
    out: Annotated[Path | None, typer.Option(metavar="CONCEPTS.h5", help="File to write.")] = None,
    method: Annotated[str, typer.Option(help="rejection, hopfield, hybrid or convex.")] = "hybrid",
    n_concepts: Annotated[int, typer.Option(min=1, help="Concepts to look for.")] = 32,
    set_: opt.Set = None,
    search: Annotated[
        str | None,
        typer.Option(
            metavar="FORMULA",
            help='List the points of X.h5, a file of concepts, that hold a formula: "17 and not 4".',
        ),
    ] = None,
    workers: opt.Workers = None,
    cluster: opt.Cluster = None,
    checkpoint: opt.Checkpoint = None,
    overwrite: opt.Overwrite = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Find binary concepts whose memberships reproduce the similarities of rows, such as embeddings or word vectors.

    A search that was stopped goes on, to the same concepts, when it is started again with the same --checkpoint.
    """
    from smtdist.concepts import files
    from smtdist.concepts.fit import fit_concepts
    from smtdist.concepts.settings import ConceptSettings

    if search is not None:
        _search(data, search, json)
        return
    if out is None:
        raise WrongUsage("Name the file to write with --out, or give --search with a file of concepts.")
    try:
        settings = ConceptSettings(method=method, n_concepts=n_concepts)
        settings = settings.with_texts(set_ or [])
    except (ConfigurationError, TypeError) as error:
        raise WrongUsage(str(error)) from error
    check_target(out, overwrite)
    started = time.perf_counter()
    source = as_table(data if data.suffix == ".npy" else (data, dataset))
    where, kept = Where(workers, cluster, quiet), checkpoint and checkpoint.absolute()
    with (
        engine_for(where, source, kept) as engine,
        engine.run_of(lambda: Facts.of(source, asdict(settings))),
        tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder,
    ):
        model = fit_concepts(source, settings, engine, folder=Path(folder))
    size = files.save(model, out, overwrite=overwrite)
    result = {
        "out": str(out.absolute()),
        "bytes": size,
        "n_points": model.points,
        "n_concepts": model.n_concepts,
        "cka": model.cka,
        "loss": model.loss,
        "n_dense": int(model.dense.sum()),
        "sweeps": len(model.history),
        "seconds": time.perf_counter() - started,
        "configuration": asdict(settings),
    }
    if json:
        print_json(result)
    else:
        _show(model, source, result)


def _show(model: ConceptModel, source: Source, result: dict[str, Any]) -> None:
    from smtdist.concepts import reading

    console = result_console()
    line = f"{result['out']}: {model.n_concepts:,} concepts of {model.points:,} points, CKA {model.cka:.4f}"
    console.print(line, highlight=False, soft_wrap=True)
    order = np.argsort(-model.weights * model.members * (1 - model.members / model.points), kind="stable")
    for concept in order[:SHOWN]:
        members = reading.typical_members(model, source, int(concept), count=MEMBERS)
        text = f"  {concept:>4}  {model.members[concept]:>9,} members, weight {model.weights[concept]:.3g}; typical: "
        console.print(text + ", ".join(map(str, members)), highlight=False, soft_wrap=True)


def _search(path: Path, query: str, json: bool) -> None:
    from smtdist.concepts import files, reading

    model = files.load(path)
    try:
        found = reading.search(model.concepts, query)
    except ConfigurationError as error:
        raise WrongUsage(str(error)) from error
    if json:
        print_json({"query": query, "n_points": len(found), "points": found.tolist()})
    else:
        result_console().print(" ".join(map(str, found)), highlight=False, soft_wrap=True)
