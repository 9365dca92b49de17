"""The published tables of SMT 2023, cell by cell, beside ours.

    python -m benchmarks.quality 6 --data DATA --work RUN --json benchmarks/results
    python -m benchmarks.quality 6 --data DATA --work RUN --columns 1,000 2,000 --test 2000 --minutes 4
    python -m benchmarks.quality all --data DATA --work RUN --plan --json benchmarks/results

Tables are 1 to 7, figure-6, ablations, recipe and jpeg. DATA holds mnist.h5, cifar10_jpeg.h5 and tiny_imagenet_100_jpeg.h5
(groups train and test). RUN keeps models, checkpoints and what is done of each cell: the same command goes on where it ended,
and cells of one fit are judged together. --minutes ends it after so long, with exit code 3. --plan states what cells that are
not done would cost, and runs none. --train, --dictionary, --components and --test make everything smaller, and the record says
so. --json writes a dated record and, from all records, benchmarks/quality/TABLES.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.quality import markdown
from benchmarks.quality.cells import Cell, Scale, tables
from benchmarks.quality.costs import planned
from benchmarks.quality.fits import wanted_components
from benchmarks.quality.judged import Family, families, fits_of
from benchmarks.quality.paired import DRAWS, ahead
from benchmarks.record import write_record
from benchmarks.steps import Steps
from smtdist.configuration import parse_setting
from smtdist.engine.memory import memory_limit
from smtdist.engine.session import executor_for
from smtdist.errors import InterruptedRun
from smtdist.evaluate.run import Directions

UNFINISHED: Final = 3
HELD_BYTES: Final = 2**30
"""Most bytes of test images that are held while training images pass by."""
ROWS_COMPETE: Final = ("3", "4", "figure-6")
"""Tables whose rows are compared with each other; in others the columns are."""
PAGE: Final = Path(__file__).with_name("TABLES.md")


Pair = tuple[Cell, Cell]


def of_table(options: argparse.Namespace) -> list[Pair]:
    """Return the cells of the table, as they are printed and at the size of this run."""
    scale = Scale(
        options.train,
        options.dictionary,
        options.components,
        tuple(map(parse_setting, options.set)),
        options.mirrored,
        options.k,
        options.temperature,
        options.leading,
        options.whiten,
    )
    names = list(tables()) if options.table == "all" else [options.table]
    return [(cell, scale.cell(cell)) for name in names for cell in tables()[name]()]


def chosen(pairs: Sequence[Pair], options: argparse.Namespace) -> list[Cell]:
    """Return the cells that were asked for, at the size of this run."""
    found = [
        cell
        for _, cell in pairs
        if (not options.rows or cell.row in options.rows)
        and (not options.columns or cell.column in options.columns)
    ]
    if not found:
        raise SystemExit(
            f"Table {options.table} has no such cell; leave out --rows and --columns to see all."
        )
    return found


def run(work: Steps, cells: Sequence[Cell], options: argparse.Namespace) -> None:
    """Fit and judge what is not done yet."""
    open_ones = [cell for cell in cells if not work.done(_file(cell, options)) and not cell.elsewhere]
    with executor_for(workers=options.workers) as executor:
        for group in families(list({cell.key: cell for cell in open_ones}.values())):
            Family(
                work, group, Path(options.data), options.test, executor, min(memory_limit() // 8, HELD_BYTES)
            ).run()
            for cell in group:
                print(_told(row_of(work, cell, cell, options)), flush=True)


def plans(work: Steps, cells: Sequence[Cell], options: argparse.Namespace) -> None:
    """Plan the fits of cells that are not done."""
    open_ones = [cell for cell in cells if not work.done(_file(cell, options)) and not cell.elsewhere]
    for key, fit in fits_of(open_ones).items():
        parts = [part for cell in open_ones for part in cell.parts if part.fit.key == key]
        work.facts(f"plans/{key}.json", lambda: planned(fit, wanted_components(parts), Path(options.data)))  # noqa: B023


def row_of(work: Steps, printed: Cell, cell: Cell, options: argparse.Namespace) -> dict[str, Any]:
    """Return what the record says of a cell: the paper's figure, ours where it is done, else its plan."""
    row: dict[str, Any] = {
        "table": cell.table,
        "row": cell.row,
        "column": cell.column,
        "paper": cell.paper,
        "remark": cell.remark,
        "deviation": None,
        "ours": None,
        "asked": {
            "n_train": [part.fit.n_train for part in printed.parts],
            "dictionary": [part.fit.settings.dictionary for part in printed.parts],
        },
    }
    if cell.elsewhere:
        row["elsewhere"] = cell.elsewhere
    elif work.done(_file(cell, options)):
        own = work.facts(_file(cell, options), dict)
        said = [*options.set, *(["mirrored images vote too"] if own.get("mirrored") else [])]
        votes = own.get("k", Cell.k), own.get("temperature", Cell.temperature)
        said += [f"{votes[0]} neighbours at T = {votes[1]}"] if votes != (Cell.k, Cell.temperature) else []
        if "leading" in own:
            said.append(f"in {own['leading']} leading directions, whitened by {own['whiten']:g}")
        row["ours"] = {**own, "said": ", ".join(said)}
        if cell.paper is not None:
            row["deviation"] = round(100 * own["top1"] - cell.paper, 2)
    else:
        keys = fits_of([cell])
        found = [work.facts(f"plans/{key}.json", dict) for key in keys if work.done(f"plans/{key}.json")]
        row["plan"] = {"fits": found}
    return row


def compared(
    work: Steps, cells: Sequence[Cell], options: argparse.Namespace, draws: int = DRAWS
) -> list[dict[str, Any]]:
    """Return how far each cell of a group lies behind the best, on the same test images: points, 95 % bootstrap interval."""
    done = [cell for cell in cells if not cell.elsewhere and work.done(_file(cell, options))]
    right = {id(cell): np.load(work.path(_file(cell, options, "-right.npy"))) for cell in done}
    generator, found = np.random.default_rng(0), []
    group = {id(cell): (cell.table, _names(cell)[0]) for cell in done}
    for place in dict.fromkeys(group.values()):
        own = [cell for cell in done if group[id(cell)] == place]
        best = max(own, key=lambda cell: right[id(cell)].mean())
        for cell in own:
            if cell is best:
                continue
            names = {"best": _names(best)[1], "other": _names(cell)[1]}
            gap = ahead(right[id(best)], right[id(cell)], generator, draws)
            found.append({"table": cell.table, "group": place[1], **names, **gap})
    return found


def _names(cell: Cell) -> tuple[str, str]:
    """Return what a cell has in common with those it competes with, and what sets it apart."""
    return (cell.column, cell.row) if cell.table in ROWS_COMPETE else (cell.row, cell.column)


def _file(cell: Cell, options: argparse.Namespace, ending: str = ".json") -> str:
    return f"cells/{cell.key}-{options.test or 'all'}{ending}"


def _told(row: dict[str, Any]) -> str:
    name, own = f"{row['table']}: {row['row']}, {row['column']}", row["ours"]
    if own is None:
        return f"{name}: {row.get('elsewhere') or row['plan']['fits'] or 'not done'}"
    low, high = own["interval"]
    paper = "" if row["paper"] is None else f", paper {row['paper']}"
    return f"{name}: {100 * own['top1']:.2f} % ({100 * low:.1f} to {100 * high:.1f}){paper}, {own['seconds']:.0f} s"


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Parse the command line, run it, and return what it found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=[*tables(), "all"])
    parser.add_argument("--data", required=True, help="folder with the data files")
    parser.add_argument("--work", required=True, help="folder that keeps what is done")
    parser.add_argument("--rows", nargs="+", help="these rows only")
    parser.add_argument("--columns", nargs="+", help="these columns only")
    parser.add_argument("--train", type=int, default=0, help="training images at most")
    parser.add_argument("--test", type=int, default=0, help="the first so many test images; 0: all")
    parser.add_argument("--dictionary", type=int, default=0, help="atoms at most")
    parser.add_argument("--components", type=int, default=0, help="components at most")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--mirrored", action="store_true", help="mirrored training images vote too")
    parser.add_argument("--k", type=int, default=0, help="neighbours that vote")
    parser.add_argument("--temperature", type=float, default=0.0, help="of their votes")
    parser.add_argument("--leading", type=int, default=0, help="directions in which is compared; 0: all")
    parser.add_argument("--whiten", type=float, default=Directions.whiten, help="of leading directions")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--plan", action="store_true", help="state costs, run nothing")
    parser.add_argument("--json", help="folder for the dated result")
    parser.add_argument("--page", type=Path, default=PAGE, help="the generated tables")
    options = parser.parse_args(arguments)
    pairs = of_table(options)
    cells = chosen(pairs, options)
    work = Steps(Path(options.work), options.minutes)
    unfinished = None
    try:
        (plans if options.plan else run)(work, cells, options)
    except InterruptedRun as error:
        unfinished = error
    # what earlier runs in the same folder have done belongs to the record too
    seen = {cell.key: {printed.key} for printed, cell in pairs if cell in cells}
    told = list[Pair]()
    for printed, cell in pairs:
        asked = cell in cells
        # cells that only the smaller size makes equal are told once
        fresh = cell.key not in seen or printed.key in seen[cell.key]
        if asked or (fresh and work.done(_file(cell, options))):
            told.append((printed, cell))
            seen.setdefault(cell.key, set()).add(printed.key)
    rows = [row_of(work, printed, cell, options) for printed, cell in told]
    for row in rows:
        print(_told(row))
    result = {
        "table": options.table,
        "cells": rows,
        "compared": compared(work, [cell for _, cell in told], options),
    }
    if unfinished is not None:
        print("The minutes are over; repeat the command to go on.", flush=True)
        raise SystemExit(UNFINISHED) from unfinished
    if options.json:
        name = f"{markdown.PREFIX}{options.table}{_said(options)}"
        write_record(options.json, name, result)
        order = [(cell.table, cell.row, cell.column) for make in tables().values() for cell in make()]
        markdown.write(Path(options.json), options.page, order)
    return result


def _said(options: argparse.Namespace) -> str:
    """Return how a record's name tells of its size."""
    parts = [
        f"{name}{getattr(options, name)}"
        for name in ("train", "dictionary", "test", "k", "temperature")
        if getattr(options, name)
    ]
    parts += [text.replace("=", "") for text in options.set]
    parts += ["mirrored"] * options.mirrored
    parts += [f"leading{options.leading}", f"whiten{options.whiten:g}"] if options.leading else []
    return "".join(f"-{part}" for part in parts)


if __name__ == "__main__":
    main()
