"""What `tune` costs beside separate fits of every combination.

    python -m replication.quality.tune --data cifar10_jpeg.h5 --train 2000 --validation 500 --json DIR

The data hold a group `train` (plain or encoded images, labels). A few combinations are fitted and evaluated by
themselves in the same run, before and after the tuning; their mean time stands for all. Both ratios are written: the cost
of fits alone, and of fits with their evaluation, over the cost of the tuning, which includes all its evaluations.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import write_record
from smtdist.configuration import Configuration, parse_settings
from smtdist.data.array import ArraySource
from smtdist.data.look import labels_name, read_labels
from smtdist.data.opening import open_source
from smtdist.engine.passes import Engine
from smtdist.engine.session import executor_for
from smtdist.evaluate.knn import SoftNeighbours
from smtdist.kernels.threads import available_cores
from smtdist.models.fit import fit
from smtdist.models.transform import transform
from smtdist.models.tuning.grid import combinations, parse_grid
from smtdist.models.tuning.split import Part, split
from smtdist.models.tuning.tune import tune

GRID = ["ridge=0.001,0.01,0.1", "threshold=0.25,0.3", "n_components=64,128,256,384", "drop=0,8,16"]


def held(part: Part) -> ArraySource:
    """Return the images of a part in memory, so that neither side pays for decoding."""
    with part.source.opened() as reader:
        return ArraySource(reader.read(0, part.source.n_samples).copy())


def separate(
    settings: Configuration, known: tuple[Any, Any], asked: tuple[Any, Any], engine: Engine
) -> dict[str, Any]:
    """Fit one combination and evaluate it, as a user would without `tune`."""
    started = time.perf_counter()
    model, passes = fit(known[0], settings, engine)
    fitted = time.perf_counter()
    z = []
    for source, _ in (known, asked):
        own = np.empty(
            (source.n_samples, *model.feature_shape(settings.n_components)), dtype=settings.dtype
        )
        for first, values in transform(model, source, engine):
            own[first : first + len(values)] = values
        z.append(own.reshape(len(own), -1))
    found = SoftNeighbours()(z[0], known[1], z[1], asked[1])
    return {
        "top1": found.top1,
        "fit_seconds": fitted - started,
        "evaluation_seconds": time.perf_counter() - fitted,
        "passes": {one["name"]: round(one["seconds"], 3) for one in passes},
    }


class Clock:
    """Notes how long each stage took, from the stream of events."""

    def __init__(self) -> None:
        self.begun: dict[str, float] = {}
        self.taken: dict[str, float] = {}

    def __call__(self, event: dict[str, Any]) -> None:
        """Take one event."""
        if event["kind"] == "pass_started":
            self.begun[event["pass"]] = time.perf_counter()
        elif event["kind"] == "pass_finished":
            name = event["pass"]
            taken = time.perf_counter() - self.begun[name]
            self.taken[name] = round(self.taken.get(name, 0.0) + taken, 3)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Parse the command line, measure, and return what was measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True)
    parser.add_argument("--train", type=int, default=2000)
    parser.add_argument("--validation", type=int, default=500)
    parser.add_argument("--dictionary", type=int, default=1024)
    parser.add_argument(
        "--separate", type=int, default=4, help="combinations that are fitted by themselves"
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--grid", action="append", metavar="KEY=VALUE,VALUE")
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    settings = Configuration(n_atoms=options.dictionary).replace(
        **Configuration.named(parse_settings(options.set))
    )
    trials = combinations(settings, parse_grid(options.grid or GRID))
    total = options.train + options.validation
    source = open_source(options.data, "train", settings)
    labels = read_labels(options.data, labels_name(options.data, "train"), source.n_samples)
    known, asked = (
        (held(part), labels[part.samples]) for part in split(source, options.validation / total, total, 0)
    )
    with executor_for(workers=0) as executor:
        engine = Engine(executor)
        picked = np.linspace(0, len(trials) - 1, options.separate).round().astype(int)
        fit(
            ArraySource(known[0].array[:64]), settings.replace(dictionary=16, n_components=4), engine
        )  # compile
        half = len(picked) // 2
        alone = [separate(trials[i][1], known, asked, engine) for i in picked[:half]]
        clock = Clock()
        engine.events.subscribe(clock)
        started = time.perf_counter()
        rows = tune(trials, known, asked, SoftNeighbours(), engine, at_once=available_cores())
        seconds = time.perf_counter() - started
        engine = Engine(executor)
        alone += [separate(trials[i][1], known, asked, engine) for i in picked[half:]]
    found = {tuple(row.changes.items()): row for row in rows}
    for i, one in zip(picked, alone, strict=True):
        one["settings"] = trials[i][0]
        one["tuned_top1"] = found[tuple(trials[i][0].items())].top1
    fitting = float(np.mean([one["fit_seconds"] for one in alone]))
    evaluating = float(np.mean([one["evaluation_seconds"] for one in alone]))
    result = {
        "combinations": len(trials),
        "train": known[0].n_samples,
        "validation": asked[0].n_samples,
        "tune_seconds": seconds,
        "stages": clock.taken,
        "separate": alone,
        "fit_seconds": fitting,
        "evaluation_seconds": evaluating,
        "ratio_fits": len(trials) * fitting / seconds,
        "ratio_fits_and_evaluations": len(trials) * (fitting + evaluating) / seconds,
        "best": rows[0].to_dict(),
    }
    print({key: value for key, value in result.items() if key != "separate"})
    if options.json:
        name = f"tune-{Path(options.data).stem}-{options.train}-K{options.dictionary}"
        write_record(options.json, name, result)
    return result


if __name__ == "__main__":
    main()
