"""The published tables of SMT 2023, cell by cell, beside ours.

    python -m replication.quality 6 --data DATA --work RUN --json results
    python -m replication.quality 6 --data DATA --work RUN --columns 1,000 2,000 --judge batch-5 --votes paper ours --minutes 4
    python -m replication.quality 3 7 figure-6 --data DATA --work RUN --votes paper ours --json results
    python -m replication.quality all --data DATA --work RUN --plan --json results

Tables are 1 to 7, figure-6, ablations, recipe and jpeg. DATA holds mnist.h5, cifar10_lossless.h5,
cifar10_test_lossless.h5 (all 10,000 test images), cifar10_jpeg.h5 and
tiny_imagenet_100_jpeg.h5 (groups train and test). RUN keeps models, checkpoints and what is done of each cell: the same command
goes on where it ended, and cells of one fit, of several tables too, are judged together. --minutes ends it after so long, with
exit code 3. --plan states what cells that are not done would cost, and runs none. --train, --dictionary, --components and
--test make everything smaller, and the record says so. --json writes a dated record and, from all records,
replication/quality/TABLES.md.

--judge says by which images: test images, or the last fifth of the training images (CIFAR-10's batch 5), of which
nothing is learnt then. Choices (recipe) are always judged by the last training images before that fifth. --votes paper flipped
ours judges by all three in one pass. --seeds 0 1 2 makes every cell so often, and its figure is their mean. --recipe paper takes
the settings as SMT 2023 prints them in place of those that are recommended here.

Representations of test images lie in RUN while cells are judged, and those of training images for linear probes alone: 576 bytes
of an image and component with the usual pooling, so 1.4 GB for 50 components of 50,000 images, and 23 GB for 800. If a GPU has
room for those of training images, at least in float16, they are made and kept there instead.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.record import write_record
from benchmarks.steps import UNFINISHED, Steps
from replication.quality import markdown
from replication.quality.cells import (
    BATCH_5,
    CALLED,
    PRESET,
    RECIPES,
    TEST,
    VOTES,
    Cell,
    Scale,
    deviation,
    tables,
)
from replication.quality.costs import planned
from replication.quality.fits import wanted_components
from replication.quality.judged import Family, families, fits_of
from replication.quality.paired import DRAWS, ahead
from smtdist.configuration import Configuration, parse_settings
from smtdist.engine.folder import locked as held
from smtdist.engine.memory import memory_limit
from smtdist.engine.session import executor_for
from smtdist.errors import ConfigurationError, InterruptedRun, SmtdistError
from smtdist.evaluate.metrics import wilson
from smtdist.evaluate.run import Directions

HELD_BYTES: Final = 8 * 2**30
"""Most bytes of test images that are held while training images pass by."""
PAGE: Final = Path(__file__).with_name("TABLES.md")


@dataclass(frozen=True)
class Asked:
    """A cell as it is printed, by votes of a name; and at the size of this run, once for each seed."""

    printed: Cell
    votes: str
    cells: tuple[Cell, ...]

    @property
    def key(self) -> tuple[str, ...]:
        """What its figure depends on, test images aside."""
        return tuple(cell.key for cell in self.cells)

    @property
    def elsewhere(self) -> str:
        """The command that measures it, where that is another one."""
        return self.printed.elsewhere

    def done(self, work: Steps, options: argparse.Namespace) -> bool:
        """Return whether it is known for all seeds."""
        return all(work.done(_file(cell, options)) for cell in self.cells)

    def right(self, work: Steps, options: argparse.Namespace) -> NDArray[np.float64]:
        """Return which images it gets right, (seeds, images)."""
        found = [np.load(work.path(_file(cell, options, "-right.npy"))) for cell in self.cells]
        return np.array(found, float)


def of_table(options: argparse.Namespace) -> list[Asked]:
    """Return the cells of the table, by all votes that are asked for; rows that are about votes by the first alone.

    Cells that are not asked for are left out where changed settings do not suit them.
    """
    made, found = tables(options.recipe), dict[tuple[Any, ...], Asked]()
    names = list(made) if "all" in options.table else list(dict.fromkeys(options.table))
    changes = tuple(Configuration.named(parse_settings(options.set)).items())
    seeds = [[("seed", seed)] for seed in options.seeds] or [[]]
    for name in names:
        for printed in made[name]():
            for votes in dict.fromkeys(options.votes):
                own = VOTES[votes]
                scales = (
                    Scale(
                        options.train,
                        options.dictionary,
                        options.components,
                        (*changes, *seed),
                        options.mirrored or own.mirrored,
                        options.k or own.k,
                        options.temperature or own.temperature,
                        options.leading,
                        options.whiten,
                        options.judge,
                    )
                    for seed in seeds
                )
                try:
                    cells = tuple(scale.cell(printed) for scale in scales)
                except ConfigurationError as error:
                    if is_chosen(printed, options):
                        raise SystemExit(f"{printed.row}, {printed.column}: {error}") from error
                    continue
                one = Asked(printed, votes, cells)
                found.setdefault((printed.table, printed.row, printed.column, one.key), one)
    return list(found.values())


def is_chosen(printed: Cell, options: argparse.Namespace) -> bool:
    """Return whether a cell was asked for."""
    return (not options.rows or printed.row in options.rows) and (
        not options.columns or printed.column in options.columns
    )


def chosen(every: Sequence[Asked], options: argparse.Namespace) -> list[Asked]:
    """Return the cells that were asked for."""
    found = [one for one in every if is_chosen(one.printed, options)]
    if not found:
        raise SystemExit(
            f"Table {' '.join(options.table)} has no such cell; leave out --rows and --columns to see all."
        )
    return found


def _open(work: Steps, asked: Sequence[Asked], options: argparse.Namespace) -> list[Cell]:
    """Return the cells that are not done yet, each once."""
    cells = {cell.key: cell for one in asked if not one.elsewhere for cell in one.cells}
    return [cell for cell in cells.values() if not work.done(_file(cell, options))]


def run(work: Steps, asked: Sequence[Asked], options: argparse.Namespace) -> None:
    """Fit and judge what is not done yet."""
    memory = min(memory_limit() // 3, HELD_BYTES)
    with executor_for(workers=options.workers) as executor:
        for group in families(_open(work, asked, options)):
            Family(work, group, Path(options.data), options.test, executor, memory).run()
            keys = {cell.key for cell in group}
            for one in asked:
                if keys & set(one.key) and one.done(work, options):
                    print(_told(row_of(work, one, options)), flush=True)


def plans(work: Steps, asked: Sequence[Asked], options: argparse.Namespace) -> None:
    """Plan the fits of cells that are not done."""
    cells = _open(work, asked, options)
    for key, fit in fits_of(cells).items():
        parts = [part for cell in cells for part in cell.parts if part.fit.key == key]
        work.facts(f"plans/{key}.json", lambda: planned(fit, wanted_components(parts), Path(options.data)))  # noqa: B023


def row_of(work: Steps, asked: Asked, options: argparse.Namespace) -> dict[str, Any]:
    """Return what the record says of a cell: the paper's figure, ours where it is done, else its plan."""
    printed = asked.printed
    row: dict[str, Any] = {
        "table": printed.table,
        "row": printed.row,
        "column": printed.column,
        "paper": printed.paper,
        "remark": printed.remark,
        "deviation": None,
        "ours": None,
        "asked": {
            "n_train": [part.fit.n_train for part in printed.parts],
            "dictionary": [part.fit.settings.n_atoms for part in printed.parts],
        },
    }
    if asked.elsewhere:
        row["elsewhere"] = asked.elsewhere
    elif asked.done(work, options):
        own = over_seeds([work.facts(_file(cell, options), dict) for cell in asked.cells], options.seeds)
        row["ours"] = {**own, "said": _settings_said(own, options)}
        row["deviation"] = deviation(printed, own)
    else:
        keys = fits_of(asked.cells)
        found = [work.facts(f"plans/{key}.json", dict) for key in keys if work.done(f"plans/{key}.json")]
        row["plan"] = {"fits": found}
    return row


def over_seeds(found: Sequence[dict[str, Any]], seeds: Sequence[int]) -> dict[str, Any]:
    """Return what is known of a cell: that of its only run, or the mean of its runs with several seeds and each of them."""
    if not seeds:
        return found[0]
    top1, n_test = [one["top1"] for one in found], found[0]["n_test"]
    mean = float(np.mean(top1))
    return {
        **found[0],
        "top1": mean,
        "interval": list(wilson(round(mean * n_test), n_test)),
        "standard_error": float(np.sqrt(mean * (1 - mean) / n_test)),
        "seconds": sum(one["seconds"] for one in found),
        "peak_bytes": max(one["peak_bytes"] for one in found),
        "configurations": [settings for one in found for settings in one["configurations"]],
        "by_seed": dict(zip(map(str, seeds), top1, strict=True)),
    }


def _settings_said(own: dict[str, Any], options: argparse.Namespace) -> str:
    """Return what is said of settings and votes beside a figure."""
    said = ["the paper's recipe"] * (options.recipe == "paper") + list(options.set)
    if by_seed := own.get("by_seed"):
        each = ", ".join(f"{100 * top1:.2f}" for top1 in by_seed.values())
        said.append(f"mean of seeds {', '.join(by_seed)} ({each})")
    if "k" in own:
        name = [name for name, votes in VOTES.items() if asdict(votes).items() <= own.items()]
        mirrored = ", mirrored images too" if own["mirrored"] else ""
        votes = f"{own['k']} neighbours at T = {own['temperature']}{mirrored}"
        said.append(f"{CALLED[name[0]]}: {votes}" if name else votes)
    elif own.get("mirrored"):
        said.append("learnt from mirrored images too")
    if own.get("rows", "float32") != "float32":
        said.append(f"rows in {own['rows']}")
    if "leading" in own:
        said.append(f"in {own['leading']} leading directions, whitened by {own['whiten']:g}")
    return ", ".join(said)


def compared(
    work: Steps, asked: Sequence[Asked], options: argparse.Namespace, draws: int = DRAWS
) -> list[dict[str, Any]]:
    """Return how far each cell of a group lies behind the best, on the same test images: points, 95 % bootstrap interval.

    Choices are compared with the preset, how far they are ahead of it. With several seeds an image counts by how often it is
    right, and the points of each seed are told.
    """
    done = [one for one in asked if not one.elsewhere and one.done(work, options)]
    generator, found = np.random.default_rng(0), []
    groups: dict[tuple[str, ...], list[Asked]] = {}
    for one in done:
        groups.setdefault((one.printed.table, one.printed.names[0], one.votes), []).append(one)
    for (table, group, votes), own in groups.items():
        right = {id(one): one.right(work, options) for one in own}
        first = max(own, key=lambda one: right[id(one)].mean())
        if table == "recipe":
            presets = [one for one in own if (one.printed.row, one.printed.column) == PRESET]
            if not presets:
                continue
            first = presets[0]
        for one in own:
            if one.key == first.key:
                continue
            names = {"best": first.printed.names[1], "other": one.printed.names[1]}
            sides = right[id(first)], right[id(one)]
            if table == "recipe":
                names = {"preset": PRESET[0], "other": names["other"]}
                sides = sides[1], sides[0]
            gap = ahead(sides[0].mean(axis=0), sides[1].mean(axis=0), generator, draws)
            if options.seeds:
                gap["by_seed"] = [
                    round(100 * float(each), 2) for each in (sides[0] - sides[1]).mean(axis=1)
                ]
            found.append({"table": table, "group": group, "votes": votes, **names, **gap})
    return found


def _file(cell: Cell, options: argparse.Namespace, ending: str = ".json") -> str:
    return f"cells/{cell.key}-{options.test or 'all'}{ending}"


def _told(row: dict[str, Any]) -> str:
    name, own = f"{row['table']}: {row['row']}, {row['column']}", row["ours"]
    if own is None:
        return f"{name}: {row.get('elsewhere') or row['plan']['fits'] or 'not done'}"
    low, high = own["interval"]
    paper = "" if row["paper"] is None else f", paper {row['paper']}"
    figure = f"{100 * own['top1']:.2f} % ({100 * low:.1f} to {100 * high:.1f}){paper}"
    return ", ".join(filter(None, [f"{name}: {figure}", own["said"], f"{own['seconds']:.0f} s"]))


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Parse the command line, run it, and return what it found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", nargs="+", choices=[*tables(), "all"])
    parser.add_argument("--data", required=True, help="folder with the data files")
    parser.add_argument("--work", required=True, help="folder that keeps what is done")
    parser.add_argument("--rows", nargs="+", help="these rows only")
    parser.add_argument("--columns", nargs="+", help="these columns only")
    parser.add_argument("--train", type=int, default=0, help="training images at most")
    parser.add_argument("--test", type=int, default=0, help="the first so many test images; 0: all")
    parser.add_argument("--dictionary", type=int, default=0, help="atoms at most")
    parser.add_argument("--components", type=int, default=0, help="components at most")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--seeds", type=int, nargs="+", default=[], help="of which figures are the mean")
    parser.add_argument(
        "--recipe", choices=list(RECIPES), default="ours", help="settings of our presets, or of the paper's"
    )
    parser.add_argument("--judge", choices=[TEST, BATCH_5], default=TEST, help="images to judge by")
    parser.add_argument("--votes", nargs="+", choices=list(VOTES), default=["paper"])
    parser.add_argument("--mirrored", action="store_true", help="mirrored training images vote too")
    parser.add_argument(
        "--k", type=int, default=0, help="neighbours that vote, in place of those of --votes"
    )
    parser.add_argument("--temperature", type=float, default=0.0, help="of their votes, likewise")
    parser.add_argument("--leading", type=int, default=0, help="directions in which is compared; 0: all")
    parser.add_argument("--whiten", type=float, default=Directions.whiten, help="of leading directions")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--plan", action="store_true", help="state costs, run nothing")
    parser.add_argument("--json", help="folder for the dated result")
    parser.add_argument("--page", type=Path, default=PAGE, help="the generated tables")
    options = parser.parse_args(arguments)
    every = of_table(options)
    asked = chosen(every, options)
    work = Steps(Path(options.work), options.minutes)
    unfinished = None
    try:
        # one process a folder: a family that ends removes the rows of all that is judged there
        with held(work.folder):
            (plans if options.plan else run)(work, asked, options)
    except InterruptedRun as error:
        unfinished = error
    except SmtdistError as error:
        raise SystemExit(str(error)) from error
    # what earlier runs in the same folder have done belongs to the record too
    seen = {one.key: {one.printed.key} for one in asked}
    told = list[Asked]()
    for one in every:
        # cells that only the smaller size makes equal are told once, and so are choices that are the preset's
        printed = one.printed.table != "recipe" and one.printed.key in seen.get(one.key, set())
        fresh = one.key not in seen or printed
        if one in asked or (fresh and one.done(work, options)):
            told.append(one)
            seen.setdefault(one.key, set()).add(one.printed.key)
    rows = [row_of(work, one, options) for one in told]
    for row in rows:
        print(_told(row))
    result = {
        "table": "-".join(options.table),
        "cells": rows,
        "compared": compared(work, told, options),
    }
    if unfinished is not None:
        print("The minutes are over; repeat the command to go on.", flush=True)
        raise SystemExit(UNFINISHED) from unfinished
    if options.json:
        name = f"{markdown.PREFIX}{result['table']}{_said(options)}"
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
    parts += ["batch5"] * (options.judge == BATCH_5)
    parts += [f"votes_{'_'.join(options.votes)}"] if options.votes != ["paper"] else []
    parts += [f"seeds_{'_'.join(map(str, options.seeds))}"] if options.seeds else []
    parts += [f"{options.recipe}recipe"] if options.recipe != "ours" else []
    return "".join(f"-{part}" for part in parts)


if __name__ == "__main__":
    main()
