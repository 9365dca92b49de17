"""What a dictionary that is closed under mirroring saves: a fit with flips, and representing with mirrored votes.

    python -m benchmarks.kernels.mirrored --data cifar10_lossless.h5 --atoms 2048 8192 --json benchmarks/results

Both ways have the same whitening and the same atoms: one codes mirror images, and solves the whole eigenproblem; the other takes
their sums from those of the images, and solves two problems of half the size. The sums of both are compared to the last integer.
They run in turns; ratios are medians of those of each turn. Whitening and dictionary pass are the same for both, and count in the
whole fit. `--judge` does the same for votes: how many points k-NN has with a mirrored dictionary, and with one that is not.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.record import write_record
from smtdist.configuration import Configuration, preset
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.evaluate import run
from smtdist.models.fit import fit
from smtdist.models.model import Model
from smtdist.models.readout import and_mirrored
from smtdist.models.transform import represented

STEPS = ("statistics", "solve")


def seconds(records: list[dict[str, Any]]) -> dict[str, float]:
    """Return the seconds of each pass."""
    return {one["name"]: one["seconds"] for one in records}


def again(model: Model, source: Any, settings: Configuration) -> tuple[Model, dict[str, float]]:
    """Sum and solve with the whitening and atoms of a model."""
    found, records = fit(source, settings, Engine(SerialExecutor()), base=model)
    return found, seconds(records)


def represent(model: Model, source: Any) -> tuple[np.ndarray[Any, Any], float]:
    """Represent images and mirror images; return the time, too."""
    started = time.perf_counter()
    z = represented(and_mirrored(model), source, Engine(SerialExecutor()))
    return z, time.perf_counter() - started


def measured(source: Any, settings: Configuration, turns: int) -> dict[str, Any]:
    """Return the times of both ways, turn by turn, and their ratios."""
    model, records = fit(source, settings, Engine(SerialExecutor()))
    direct_settings = settings.replace(dictionary_mirrored=False)
    before = sum(seconds(records)[name] for name in ("whitening", "dictionary"))
    rows = []
    for _ in range(turns):
        short, own = again(model, source, settings)
        direct, other = again(model, source, direct_settings)
        assert direct.statistics is not None
        assert short.statistics is not None
        for name, matrix in direct.statistics.matrices.items():
            if not np.array_equal(matrix, short.statistics.matrices[name]):
                raise SystemExit(f"The sums {name} of both ways are not the same.")
        z, fast = represent(short, source)
        twice, slow = represent(replace(short, settings=direct_settings), source)
        if not np.array_equal(z, twice):
            raise SystemExit("The features of mirror images are not the same.")
        rows.append({"mirrored": {**own, "transform": fast}, "direct": {**other, "transform": slow}})

    def ratio(*names: str, both: float = 0.0) -> float:
        taken = [
            [both + sum(one[way][name] for name in names) for way in ("mirrored", "direct")] for one in rows
        ]
        return float(statistics.median(own / other for own, other in taken))

    return {
        "atoms": settings.dictionary,
        "images": source.n_samples,
        "before": before,
        "turns": rows,
        "ratios": {
            **{name: ratio(name) for name in (*STEPS, "transform")},
            "fit": ratio(*STEPS, both=before),
        },
    }


def judged(source: Any, asked: Any, settings: Configuration) -> dict[str, float]:
    """Return percent right by the votes of the preset, with and without a mirrored dictionary."""
    found = {}
    for mirrored in (True, False):
        model, _ = fit(
            source.source, settings.replace(dictionary_mirrored=mirrored), Engine(SerialExecutor())
        )
        votes = run.Neighbours.of(model.votes)
        top1 = run.evaluated(model, source.and_mirrored(), asked, Engine(SerialExecutor()), votes).top1
        found["mirrored" if mirrored else "free"] = 100 * top1
    return found


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Measure each number of atoms."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="HDF5 file with labelled groups train and test")
    parser.add_argument("--atoms", type=int, nargs="+", default=[2048, 8192])
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--test", type=int, default=1000, help="images to judge by")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--judge", action="store_true", help="accuracy in place of times")
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    found = []
    for atoms in options.atoms:
        settings = (
            preset("cifar10-gq").replace(dictionary=atoms, dictionary_mirrored=True).with_atoms(atoms)
        )
        known = run.Labelled.open(options.data, "train", settings).first(options.images)
        if options.judge:
            asked = run.Labelled.open(options.data, "test", settings).first(options.test)
            found.append({"atoms": atoms, "images": options.images, **judged(known, asked, settings)})
        else:
            found.append(measured(known.source, settings, options.turns))
        print(found[-1].get("ratios", found[-1]), flush=True)
    if options.json:
        write_record(options.json, "mirrored", {"rows": found})
    return found


if __name__ == "__main__":
    main()
