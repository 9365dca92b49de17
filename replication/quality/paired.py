"""Two runs of the tables beside each other: how far one cell is ahead of another on the same images.

    python -m replication.quality.paired RUN/cells/ONE-all RUN/cells/OTHER-all --json results

A cell is named by its files in the folder that a run works in, less their ending: what is known of it, and which images it gets
right.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.record import write_record

DRAWS: Final = 2000
TOLD: Final = (
    "top1", "data", "judged_by", "n_train", "n_test", "dictionary", "components", "mirrored", "k", "temperature", "leading",
    "whiten",
)  # fmt: skip


def ahead(
    one: NDArray[Any], other: NDArray[Any], generator: np.random.Generator, draws: int = DRAWS
) -> dict[str, Any]:
    """Return by how many points one cell is right more often than another, with a 95 % bootstrap interval over the images.

    Of each image: whether a cell is right, or how often it is with several seeds.

    >>> ahead(np.ones(50, bool), np.zeros(50, bool), np.random.default_rng(0))
    {'points': 100.0, 'interval': [100.0, 100.0]}
    """
    gap = one.astype(float) - other
    means = generator.choice(gap, (draws, len(gap))).mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return {
        "points": round(100 * float(gap.mean()), 2),
        "interval": [round(100 * float(low), 2), round(100 * float(high), 2)],
    }


def settings_apart(cells: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return of each cell, for each part of its representation, the settings that the parts of all cells do not share.

    A setting that a cell of an earlier version lacks is None there.

    >>> settings_apart([{"configurations": [{"drop": 32, "seed": 0}]}, {"configurations": [{"drop": 16, "seed": 0}]}])
    [[{'drop': 32}], [{'drop': 16}]]
    """
    every = [part for cell in cells for part in cell["configurations"]]
    known = dict.fromkeys(name for part in every for name in part)
    names = [name for name in known if any(part.get(name) != every[0].get(name) for part in every)]
    return [[{name: part.get(name) for name in names} for part in cell["configurations"]] for cell in cells]


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Parse the command line, compare, and return what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cells", nargs=2, metavar="CELL")
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    known = [json.loads(Path(f"{cell}.json").read_text()) for cell in options.cells]
    one, other = (np.load(f"{cell}-right.npy") for cell in options.cells)
    if len(one) != len(other):
        raise SystemExit(
            f"The cells are judged by {len(one):,} and {len(other):,} images; name two of the same images."
        )
    told = [
        {name: cell[name] for name in TOLD if name in cell} | {"settings": own}
        for cell, own in zip(known, settings_apart(known), strict=True)
    ]
    result: dict[str, Any] = {"cells": told, **ahead(one, other, np.random.default_rng(0))}
    low, high = result["interval"]
    print(
        f"{100 * known[0]['top1']:.2f} and {100 * known[1]['top1']:.2f} %: {result['points']:+.2f} points ({low} to {high})"
    )
    if options.json:
        write_record(options.json, f"paired-{'-'.join(Path(cell).name for cell in options.cells)}", result)
    return result


if __name__ == "__main__":
    main()
