"""Accuracy against the number of labels (Figure 3), and transfer: features from one data set, few labels of another.

python -m benchmarks.s3c.labels --data cifar10.h5 --units 400 --train 10000 --json benchmarks/results
python -m benchmarks.s3c.labels --unlabelled tiny_imagenet.h5 --data cifar10.h5 --labels 120 --name transfer ...
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.record import write_record
from benchmarks.s3c.common import features, fitted, images_of, with_settings
from smtdist.evaluate.few_labels import label_sweep
from smtdist.models.s3c.settings import OMP_THRESHOLDS, SC_PENALTIES

COUNTS = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--unlabelled", help="data set that features are learned on; the same by default")
    parser.add_argument("--units", type=int, default=400)
    parser.add_argument("--pooling", type=int, nargs="+", default=[3])
    parser.add_argument("--train", type=int, default=10000)
    parser.add_argument("--test", type=int, default=0)
    parser.add_argument("--labels", type=int, nargs="+", default=list(COUNTS))
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--models", nargs="+", default=["s3c", "sc", "omp"])
    parser.add_argument("--features", nargs="+", default=["h"], help="of s3c: h, hs, both, signs")
    parser.add_argument(
        "--penalties", type=float, nargs="+", default=[1.0], help=f"of sc; the paper's: {SC_PENALTIES}"
    )
    parser.add_argument(
        "--thresholds", type=float, nargs="+", default=[0.25], help=f"of omp; {OMP_THRESHOLDS}"
    )
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--rival-rounds", type=int, default=30)
    parser.add_argument("--name", default="labels")
    parser.add_argument("--json")
    options = parser.parse_args(arguments)
    images, labels = images_of(options.data, "train", options.train)
    asked, wanted = images_of(options.data, "test", options.test)
    unlabelled = images_of(options.unlabelled, "train", options.train)[0] if options.unlabelled else images
    result: dict[str, Any] = {"units": options.units, "train": len(images), "test": len(asked), "sweeps": {}}
    for model in options.models:
        base = {"units": options.units, "pooling": tuple(options.pooling)}
        # the rivals' dictionaries settle in fewer rounds
        settings = with_settings(options.set, model=model, **base)
        if model != "s3c":
            settings = settings.replace(rounds=min(settings.rounds, options.rival_rounds))
        grids: dict[str, list[tuple[str, Any]]] = {
            "s3c": [("feature", one) for one in options.features],
            "sc": [("penalty", one) for one in options.penalties],
            "omp": [("threshold", one) for one in options.thresholds],
        }
        coder, seconds = fitted(unlabelled, settings)
        for name, value in grids[model]:
            if name == "penalty" and value != coder.settings.penalty:
                coder, seconds = fitted(unlabelled, settings.replace(penalty=value))
            coder = replace(coder, settings=coder.settings.replace(**{name: value}))
            started = time.perf_counter()
            z, far = features(coder, images), features(coder, asked)
            coding = time.perf_counter() - started
            sweep = label_sweep(z, labels, far, wanted, options.labels, draws=options.draws)
            key = f"{model}, {name} {value}"
            result["sweeps"][key] = {
                "fit_seconds": seconds,
                "coding_seconds": coding,
                "features": int(z.shape[1]),
                "active": float(np.mean(z[:100] > 0)),
                "sweep": sweep,
            }
            print(key, [(one["labels"], round(100 * one["mean"], 1)) for one in sweep], flush=True)
    if options.json:
        write_record(options.json, f"s3c-{options.name}-N{options.units}", result)
    return result


if __name__ == "__main__":
    main()
