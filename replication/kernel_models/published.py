"""What the kernel paper says of Figure 1, held against a record of it, cell by cell.

    python -m replication.kernel_models.published results/2026-11-21-kernel-figure-1.json --json results

The figure is a plot without numbers; the text says of it that (1) for every data set some embedding is better than k-NN on
the original features, (2) the proposed methods are on par with Kernel PCA or better, overall, and without a clear order
among them, (3) the kernel matters. A cell is a data set, a kernel and a method; it is on par where the means over splits
differ by at most two standard errors of the difference, splits taken as independent.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from benchmarks.record import write_record

METHODS = ("contrastive", "spectral", "autoencoder")
Cell = dict[str, float]


def verdict(ours: Cell, other: Cell, splits: int) -> tuple[str, float]:
    """Return "above", "par" or "below", and the difference of the means.

    >>> verdict({"mean": 0.9, "deviation": 0.01}, {"mean": 0.8, "deviation": 0.01}, 5)[0]
    'above'
    """
    difference = ours["mean"] - other["mean"]
    error = math.sqrt((ours["deviation"] ** 2 + other["deviation"] ** 2) / max(1, splits - 1))
    return ("par" if abs(difference) <= 2 * error else "above" if difference > 0 else "below"), difference


def compared(table: dict[str, Any], splits: int) -> dict[str, Any]:
    """Return the three statements for every data set, and how all cells compare with Kernel PCA."""
    found: dict[str, Any] = {"sets": {}, "cells": {"above": 0, "par": 0, "below": 0}}
    for name, scores in table.items():
        raw = scores["raw"]["raw"]
        kernels = [kernel for kernel in scores["kernel_pca"] if kernel != "chosen"]
        cells = {(method, kernel): scores[method][kernel] for method in METHODS for kernel in kernels}
        best = max(cells, key=lambda at: cells[at]["mean"])
        against = {
            f"{method} {kernel}": verdict(cell, scores["kernel_pca"][kernel], splits)
            for (method, kernel), cell in cells.items()
        }
        for word, _ in against.values():
            found["cells"][word] += 1
        found["sets"][name] = {
            "best": " ".join(best),
            "best_mean": cells[best]["mean"],
            "raw_mean": raw["mean"],
            "some_embedding_above_raw": cells[best]["mean"] > raw["mean"],
            "best_against_raw": verdict(cells[best], raw, splits)[0],
            "order_of_methods": sorted(
                METHODS, key=lambda method: -max(scores[method][kernel]["mean"] for kernel in kernels)
            ),
            "range_over_kernels": {
                method: max(cells[method, kernel]["mean"] for kernel in kernels)
                - min(cells[method, kernel]["mean"] for kernel in kernels)
                for method in METHODS
            },
            "against_kernel_pca": against,
        }
    return found


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("record", type=Path, help="dated result of figure_1")
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    result = json.loads(options.record.read_text())["result"]
    found = compared(result["table"], result["splits"])
    for name, one in found["sets"].items():
        spread = ", ".join(f"{method} {100 * one['range_over_kernels'][method]:.0f}" for method in METHODS)
        print(
            f"{name:<11} best {one['best']} {100 * one['best_mean']:.1f}, raw {100 * one['raw_mean']:.1f} "
            f"({one['best_against_raw']}); points between kernels: {spread}; order {' > '.join(one['order_of_methods'])}"
        )
        for cell, (word, difference) in one["against_kernel_pca"].items():
            print(f"  {cell:<24} {word:<6} {100 * difference:+5.1f} points against Kernel PCA")
    print(
        "cells against Kernel PCA:", ", ".join(f"{count} {word}" for word, count in found["cells"].items())
    )
    if options.json:
        write_record(options.json, "kernel-figure-1-compared", {**found, "record": options.record.name})
    return found


if __name__ == "__main__":
    main()
