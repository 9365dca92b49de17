"""The figures of SMT 2023 from real data, by one command.

    python -m replication.figures --data DATA --work RUN --out docs/figures
    python -m replication.figures --data DATA --work RUN --out docs/figures --only 4 7
    python -m replication.figures --small --data DATA --work RUN --out FOLDER

DATA holds `mnist.h5`, `cifar10_lossless.h5`, `text/corpus.txt.gz`, `text/wikitext2_valid.txt` and
`text/wikitext2_test.txt`. Models are kept in RUN, so that a figure drawn again is
not fitted again. What a figure counts is printed, and kept in RUN.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.steps import Steps
from benchmarks.suite import data_folder
from replication.figures import mistakes
from replication.figures.atoms import figure_4
from replication.figures.drawing import write
from replication.figures.spirals import figure_2
from replication.figures.words import figure_5
from replication.figures.work import SMALL, Sizes, Work

FIGURES = (2, 4, 5, 7, 8, 9)


def main(arguments: list[str] | None = None) -> dict[int, dict[str, Any]]:
    """Parse the command line, draw what is asked for, and return what the figures count."""
    parser = argparse.ArgumentParser(
        prog="python -m replication.figures",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", help="folder of real data")
    parser.add_argument("--work", required=True, type=Path, help="folder for models")
    parser.add_argument("--out", required=True, type=Path, help="folder for the pictures")
    parser.add_argument("--only", nargs="+", type=int, choices=FIGURES, default=FIGURES, help="figures")
    parser.add_argument(
        "--small", action="store_true", help="seconds instead of minutes, to see that it runs"
    )
    options = parser.parse_args(arguments)
    data = data_folder(options.data)
    if data is None:
        raise SystemExit("There are no data; give the folder that holds them as --data.")
    steps = Steps(options.work)
    sizes = SMALL if options.small else Sizes()
    steps.same({"data": str(data.resolve()), "small": options.small})
    work = Work(data, steps, sizes)
    looked = cache(lambda: mistakes.looked(work))

    def draw(figure: int) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        whole = {2: figure_2, 4: figure_4, 5: figure_5}
        return whole[figure](work) if figure in whole else mistakes.figure_of(looked(), figure)

    options.out.mkdir(parents=True, exist_ok=True)
    result = {}
    for figure in sorted(set(options.only)):
        started = time.perf_counter()
        pixels, facts = draw(figure)
        path = options.out / f"figure-{figure}.png"
        size = write(pixels, path)
        result[figure] = {**facts, "bytes": size, "seconds": round(time.perf_counter() - started, 1)}
        steps.keep(f"figure-{figure}.json", result[figure])
        print(f"{path}: {json.dumps(result[figure])}", flush=True)
    return result


if __name__ == "__main__":
    main()
