"""Table 1 on another data set of 100 classes: best cross-validated accuracy of S3C, sparse coding and OMP-1 side by side.

The rivals split signs, so that they are given half the units or a smaller pooling grid, as in the paper.

    python -m benchmarks.s3c.table_1 --data tiny_imagenet_100_jpeg.h5 --units 1600 --train 0 --json benchmarks/results
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from benchmarks.record import write_record
from benchmarks.s3c.common import features, fitted, images_of, with_settings
from smtdist.evaluate.svm import cross_validate
from smtdist.models.s3c.settings import OMP_THRESHOLDS, SC_PENALTIES


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--units", type=int, default=1600)
    parser.add_argument("--train", type=int, default=0)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--costs", type=float, nargs="+", default=[0.1, 1.0, 10.0])
    parser.add_argument("--penalties", type=float, nargs="+", default=list(SC_PENALTIES))
    parser.add_argument("--thresholds", type=float, nargs="+", default=list(OMP_THRESHOLDS))
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--json")
    options = parser.parse_args(arguments)
    images, labels = images_of(options.data, "train", options.train)
    half = max(1, options.units // 2)
    rows: list[tuple[str, int, tuple[int, ...], str, list[Any]]] = [
        ("s3c", options.units, (3,), "feature", ["h"]),
        ("s3c", options.units, (1, 2, 3), "feature", ["h"]),
        ("sc", options.units, (2,), "penalty", options.penalties),
        ("sc", half, (3,), "penalty", options.penalties),
        ("omp", options.units, (2,), "threshold", options.thresholds),
        ("omp", half, (3,), "threshold", options.thresholds),
    ]
    table = []
    for model, units, pooling, name, values in rows:
        coder = None
        for value in values:
            settings = with_settings(options.set, model=model, units=units, pooling=pooling).replace(
                **{name: value}
            )
            if coder is None or name == "penalty":
                coder, _ = fitted(images, settings)
            coder = replace(coder, settings=settings)
            z = features(coder, images)
            path = cross_validate(z, labels, options.costs, options.folds)
            best = max(path, key=lambda one: one["top1"])
            grid = " + ".join(f"{one}x{one}" for one in pooling)
            table.append({"model": model, "units": units, "pooling": grid, name: value, **best})
            print(table[-1], flush=True)
    result = {"classes": len(set(labels.tolist())), "train": len(images), "table": table}
    if options.json:
        write_record(options.json, f"s3c-table-1-N{options.units}", result)
    return result


if __name__ == "__main__":
    main()
