"""The autoencoder's search (Definition 3): its default beside the best of many random starts, one point, and one start alone.

python -m replication.kernel_models.starts --data tabular.h5 --json results
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from benchmarks.record import write_record
from replication.kernel_models.figure_1 import load
from smtdist.kernels.gram import Kernel, with_bandwidth
from smtdist.models.kernel import autoencoder as fitting
from smtdist.models.kernel.descent import descend
from smtdist.models.kernel.settings import KernelSettings

SETTINGS = KernelSettings(model="autoencoder")
SETS = ("circles", "cubes", "iris", "ionosphere", "digits", "pixels")


def rows_of(name: str, path: str | None, count: int, split: int) -> Any:
    """Return rows of a set, scaled to deviation one ("pixels": the digits, all by 1/16); equal rows are left out."""
    rows = load_digits().data / 16 if name in ("digits", "pixels") else load(name, path, 300)[0]
    if name == "digits":
        rows = (rows - rows.mean(axis=0)) / np.maximum(rows.std(axis=0), 1e-9)
    rows = np.unique(rows, axis=0)
    return rows[np.random.default_rng(split).permutation(len(rows))[:count]]


def plain(kernel: Kernel, rows: Any, gram: Any, ridge: float) -> tuple[float, float]:
    """Return the loss of one descent in Z from the leading eigenvectors, as it was before, and its seconds."""
    n = len(rows)

    def value(flat: Any) -> tuple[float, Any]:
        lengths = np.linalg.norm(flat.reshape(n, 2), axis=1)[:, None]
        points = flat.reshape(n, 2) / lengths
        loss, slope = fitting.autoencoder_objective(points, Kernel(), inverse, rows, ridge)
        return loss, (fitting.tangent(points, slope) / lengths).reshape(-1)

    started = time.perf_counter()
    inverse = fitting._roots(gram, "gaussian")[1]
    _, found = descend(value, fitting._leading(gram, 2, 0).reshape(-1), SETTINGS)
    return found.loss, time.perf_counter() - started


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--rows", type=int, default=80)
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--starts", type=int, default=100, help="random starts, each followed to its end")
    parser.add_argument("--seeds", type=int, default=1, help="of the default")
    parser.add_argument("--json")
    options = parser.parse_args(arguments)
    ridge, found = SETTINGS.numeric_ridge(), []
    for name in options.sets:
        for split in range(options.splits):
            rows = rows_of(name, options.data, options.rows, split)
            kernel = with_bandwidth(Kernel(), "median", rows)
            gram = kernel(rows, rows) + SETTINGS.nugget * np.eye(len(rows))
            point = np.tile([1.0, 0.0], (len(rows), 1))
            row: dict[str, Any] = {
                "set": name, "split": split,
                "one_point": fitting.autoencoder_objective(point, Kernel(), fitting._roots(gram, "gaussian")[1], rows, ridge)[0],
                "one_start": dict(zip(("loss", "seconds"), plain(kernel, rows, gram, ridge), strict=True)),
            }  # fmt: skip
            defaults = []
            for seed in range(options.seeds):
                started = time.perf_counter()
                ended = fitting.autoencoder(kernel, rows, SETTINGS.replace(random_state=seed))[2]
                defaults.append({**vars(ended), "seconds": time.perf_counter() - started})
            row["default"] = defaults
            row["of_starts"] = of_starts(kernel, rows, gram, options.starts)
            best = min(row["of_starts"]["losses"], default=np.inf)
            row["over_the_best"] = [one["loss"] / best - 1 for one in defaults]
            found.append(row)
            print({k: v for k, v in row.items() if k != "of_starts"}, best, flush=True)
    result = {"rows": options.rows, "starts": options.starts, "n_init": SETTINGS.n_init, "found": found}
    if options.json:
        write_record(options.json, "kernel-autoencoder-starts", result)
    return result


def of_starts(kernel: Kernel, rows: Any, gram: Any, starts: int) -> dict[str, Any]:
    """Return the losses of random starts that are each followed to the end; their seed is another than the default's."""
    _, _, value, scale = fitting._space(gram, kernel.label, rows, SETTINGS)
    rng = np.random.default_rng(1000)
    started, losses = time.perf_counter(), []
    for _ in range(starts):
        start = rng.standard_normal(2 * len(rows))
        losses.append(descend(value, start, SETTINGS, scale)[1].loss)
    return {"losses": sorted(losses), "seconds": time.perf_counter() - started}


if __name__ == "__main__":
    main()
