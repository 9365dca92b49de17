"""What `smtdist tune` costs beside `smtdist fit` of every combination, as commands, start of the process included.

    python -m replication.quality.tune_commands --data cifar10_jpeg.h5 --images 2000 --turns 3 --json DIR

The first images of the group `train` (encoded, with labels) go to a file of their own. Each turn fits a few combinations,
spread over the grid, and then tunes the grid; their mean time stands for all. The tuning includes its evaluations, which
the fits do without.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean, median
from typing import Any

import h5py
import numpy as np

from benchmarks.record import write_record
from replication.quality.tune import GRID
from smtdist.configuration import Configuration
from smtdist.models.tuning.grid import combinations, parse_grid, value_text


def first_images(data: str, images: int, target: Path) -> None:
    """Copy the first encoded images and their labels."""
    with h5py.File(data) as file, h5py.File(target, "w") as copy:
        group = file["train"]
        offsets = group["offsets"][: images + 1]
        copy["train/bytes"], copy["train/offsets"] = group["bytes"][: offsets[-1]], offsets
        copy["train/labels"] = group["labels"][:images]


def seconds(*arguments: str) -> float:
    """Return how long a command of ours takes."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "smtdist", *arguments, "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Parse the command line, measure, and return what was measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--dictionary", type=int, default=1024)
    parser.add_argument("--separate", type=int, default=4, help="combinations that are fitted in a turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--grid", action="append", metavar="KEY=VALUE,VALUE")
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    grid, fixed = options.grid or GRID, ["--set", f"dictionary={options.dictionary}"]
    trials = combinations(Configuration(n_atoms=options.dictionary), parse_grid(grid))
    picked = np.linspace(0, len(trials) - 1, options.separate).round().astype(int)
    fits, tunes = [], []
    with tempfile.TemporaryDirectory() as folder:
        data, model = Path(folder, "d.h5"), Path(folder, "m.h5")
        first_images(options.data, options.images, data)
        fit = "fit", str(data), "--dataset", "train", "--no-first-look"
        for _ in range(options.turns):
            for i in picked:
                own = [f"--set={name}={value_text(value)}" for name, value in trials[i][0].items()]
                fits.append(seconds(*fit, *fixed, *own, "--out", str(model)))
                model.unlink()
            asked = [word for text in grid for word in ("--grid", text)]
            tunes.append(seconds("tune", str(data), "--train", "train", *fixed, *asked))
    result = {
        "combinations": len(trials),
        "images": options.images,
        "fit_seconds": fits,
        "tune_seconds": tunes,
        "ratio": len(trials) * mean(fits) / median(tunes),
    }
    print(result)
    if options.json:
        name = f"tune-commands-{Path(options.data).stem}-{options.images}-K{options.dictionary}"
        write_record(options.json, name, result)
    return result


if __name__ == "__main__":
    main()
