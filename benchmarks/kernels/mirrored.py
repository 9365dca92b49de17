"""What a dictionary that is closed under mirroring saves: a fit with flips, and representing with mirrored votes.

    python -m benchmarks.kernels.mirrored --data cifar10_lossless.h5 --atoms 2048 8192 --json results

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
from smtdist.evaluate import knn, run
from smtdist.models.fit import fit
from smtdist.models.model import Model
from smtdist.models.readout import and_mirrored
from smtdist.models.transform import represented


def represent(model: Model, source: Any) -> tuple[np.ndarray[Any, Any], float]:
    """Represent images and mirror images; return the time, too."""
    started = time.perf_counter()
    z = represented(and_mirrored(model), source, Engine(SerialExecutor()))
    return z, time.perf_counter() - started


def measured(source: Any, settings: Configuration, turns: int, solves: int) -> dict[str, Any]:
    """Return the times of both ways, turn by turn, and their ratios; each step has its turns before the next begins."""
    model, records = fit(source, settings, Engine(SerialExecutor()))
    ways = {
        "mirrored": model,
        "direct": replace(model, settings=settings.replace(dictionary_mirrored=False)),
    }
    before = sum(one["seconds"] for one in records if one["name"] in ("whitening", "dictionary"))
    taken: dict[str, dict[str, list[float]]] = {
        step: {way: [] for way in ways} for step in ("statistics", "transform", "solve")
    }
    for _ in range(turns):
        sums, rows = {}, {}
        for way, one in ways.items():
            sums[way], record = one.summed(source, Engine(SerialExecutor()))
            taken["statistics"][way].append(record["seconds"])
        for name, matrix in sums["direct"].matrices.items():
            if not np.array_equal(matrix, sums["mirrored"].matrices[name]):
                raise SystemExit(f"The sums {name} of both ways are not the same.")
        for way, one in ways.items():
            rows[way], seconds = represent(one, source)
            taken["transform"][way].append(seconds)
        # the one adds up both halves of the atoms apart, so sums of float32 are rounded in another order
        if not np.allclose(rows["mirrored"], rows["direct"], atol=1e-5):
            raise SystemExit("The features of mirror images are not the same.")
    for _ in range(solves):
        for way, one in ways.items():
            _, record = one.solved(sums["direct"], Engine(SerialExecutor()))
            taken["solve"][way].append(record["seconds"])
    medians = {
        step: {way: statistics.median(all_of) for way, all_of in both.items()}
        for step, both in taken.items()
    }
    whole = [before + medians["statistics"][way] + medians["solve"][way] for way in ways]
    return {
        "atoms": settings.n_atoms,
        "images": source.n_samples,
        "before": before,
        "seconds": taken,
        "ratios": {
            **{
                step: statistics.median(
                    a / b for a, b in zip(both["mirrored"], both["direct"], strict=True)
                )
                for step, both in taken.items()
            },
            "fit": whole[0] / whole[1],
        },
    }


def judged(source: Any, asked: Any, settings: Configuration) -> dict[str, float]:
    """Return percent right by the votes of the preset, with and without a mirrored dictionary."""
    found = {}
    for mirrored in (True, False):
        model, _ = fit(
            source.source, settings.replace(dictionary_mirrored=mirrored), Engine(SerialExecutor())
        )
        votes = knn.SoftNeighbours.of(model.votes)
        top1 = (
            run.Comparison(model, source.and_mirrored(), asked, votes).found(Engine(SerialExecutor())).top1
        )
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
    parser.add_argument("--solves", type=int, default=1, help="turns of the solve")
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
            found.append(measured(known.source, settings, options.turns, options.solves))
        print(found[-1].get("ratios", found[-1]), flush=True)
    if options.json:
        write_record(options.json, "mirrored", {"rows": found})
    return found


if __name__ == "__main__":
    main()
