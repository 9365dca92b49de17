"""Table 1 on another data set of 100 classes: best cross-validated accuracy of S3C, sparse coding and OMP-1 side by side.

The rivals split signs, so that they are given half the units or a smaller pooling grid, as in the paper.

    python -m replication.s3c.table_1 --data tiny_imagenet_100_jpeg.h5 --units 1600 --train 0 --json results

With --work the steps are kept in a folder, and the same command goes on where it was; --minutes ends it after so long, with
exit code 3.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.steps import Steps
from replication.s3c.common import (
    OMP_THRESHOLDS,
    SC_PENALTIES,
    carried_out,
    fitted_in_steps,
    images_of,
    represented_in_steps,
    with_settings,
)
from replication.s3c.labels import SWEEPS
from smtdist.evaluate.few_labels import in_span, standardised
from smtdist.evaluate.linear import cross_validate

GRIDS: Final = {(1, 2, 3): "1x1 + 2x2 + 3x3", (3,): "3x3", (2,): "2x2"}
POOLED: Final = {"s3c": (1, 2, 3), "sc": (2, 3), "omp": (2, 3)}
"""Grids that are pooled at once; rows of the table take theirs."""


def cells_of(pooled: tuple[int, ...], wanted: tuple[int, ...]) -> NDArray[np.int64]:
    """Return which of the cells of several grids are those of some of them.

    >>> cells_of((2, 3), (3,)).tolist()
    [4, 5, 6, 7, 8, 9, 10, 11, 12]
    """
    grids = np.repeat(pooled, np.square(pooled))
    return np.flatnonzero(np.isin(grids, wanted))


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Make the table, step by step."""
    steps = Steps(folder, options.minutes)
    apart = ("minutes", "work", "json", "scalings")
    asked = {name: value for name, value in vars(options).items() if name not in apart}
    steps.same({**asked, "data": Path(options.data).name})
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
        pooled = POOLED[model]
        for value in values:
            settings = with_settings(options.set, model=model, units=units, pooling=pooled).replace(
                **{name: value}
            )
            if model != "s3c":
                settings = settings.replace(rounds=min(settings.max_iter, options.rival_rounds))
            key = f"{model}-{units}-{value}"

            def judged(
                scaling: str, key: str = key, settings: Any = settings, pooling: Any = pooling
            ) -> NDArray[Any]:
                coder = fitted_in_steps(steps, key, images, settings)
                z = represented_in_steps(steps, key, coder, images).reshape(len(images), -1, settings.width)
                (z,) = standardised(z[:, cells_of(settings.pooling_grid, pooling)], each=scaling == "each")
                span = in_span(z, z[:0])[0] if len(z) < z.shape[1] else z
                path = cross_validate(span, labels, options.costs, options.folds, standardise=False)
                return np.array([[one["C"], one["top1"], *one["folds"]] for one in path])

            for scaling in options.scalings:
                step = f"{key}-{len(pooling)}-{pooling[0]}-path" + (
                    "" if scaling == "each" else f"-{scaling}"
                )
                path = steps.array(step, partial(judged, scaling))
                C, top1, *folds = path[path[:, 1].argmax()].tolist()
                row = {"model": model, "units": units, "pooling": GRIDS[pooling], name: value}
                table.append(row | {"scaling": scaling, "C": C, "top1": top1, "folds": folds})
                print(table[-1], flush=True)
    return {"classes": len(set(labels.tolist())), "train": len(images), "table": table}


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True)
    parser.add_argument("--units", type=int, default=1600)
    parser.add_argument("--train", type=int, default=0)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--costs", type=float, nargs="+", default=[0.1, 1.0, 10.0])
    parser.add_argument("--penalties", type=float, nargs="+", default=list(SC_PENALTIES))
    parser.add_argument("--thresholds", type=float, nargs="+", default=list(OMP_THRESHOLDS))
    parser.add_argument("--scalings", nargs="+", choices=SWEEPS, default=["each"], help="as of labels")
    return carried_out(parser, arguments, run, lambda options: f"s3c-table-1-N{options.units}")


if __name__ == "__main__":
    main()
