"""Share of atoms that a Gabor function explains, beside random patches: natural images, 4 times overcomplete.

python -m replication.sparse.gabors --data ../shared/data/natural.h5 --picture atoms.png --json results
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from benchmarks.record import write_record
from replication.sparse.gabor import gabor_fits
from replication.sparse.images import natural_tiles
from smtdist.codes.l1 import SparseCoder, SparseSettings
from smtdist.configuration import parse_settings
from smtdist.data.array import ArraySource
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.kernels.threads import set_threads
from smtdist.models.coders.fit import fit_coder
from smtdist.plot.sheets import save_filters


def shares(coder: Any, most: int) -> dict[str, float]:
    """Return the share of the first atoms with R² of at least 0.75, with 95 % of a binomial, and the median R²."""
    found, _ = gabor_fits(coder.whitened_filters()[:most, :, :, 0])
    share = float((found >= 0.75).mean())
    error = 1.96 * float(np.sqrt(share * (1 - share) / len(found)))
    return {"atoms": len(found), "share": share, "plus_minus": error, "median": float(np.median(found))}


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--side", type=int, default=64, help="pixels of a tile's side")
    parser.add_argument("--patch", type=int, default=12)
    parser.add_argument("--overcomplete", type=float, default=4.0)
    parser.add_argument("--most", type=int, default=300, help="atoms that Gabor functions are fitted to")
    parser.add_argument("--set", action="append", default=[], help="name=value of the settings")
    parser.add_argument("--picture")
    parser.add_argument("--json")
    options = parser.parse_args(arguments)
    set_threads(1)
    tiles = natural_tiles(options.data, options.side)
    settings = SparseSettings(
        n_atoms=round(options.overcomplete * options.patch**2),
        patch_size=options.patch,
        images=256,
        patches=8,
        pooling_grid=(1,),
    ).replace(**parse_settings(options.set))
    source, started = ArraySource(tiles), time.perf_counter()
    learned, _ = fit_coder(SparseCoder, source, settings, Engine(SerialExecutor(1)))
    seconds = time.perf_counter() - started
    start, _ = fit_coder(SparseCoder, source, settings.replace(rounds=0), Engine(SerialExecutor(1)))
    if options.picture:
        save_filters(learned.whitened_filters(), options.picture, 1024)
    result = {
        **learned.summary(),
        "tiles": len(tiles),
        "settings": options.set,
        "fit_seconds": seconds,
        "learned": shares(learned, options.most),
        "random_patches": shares(start, options.most),
    }
    if options.json:
        write_record(options.json, f"sparse-gabors-{options.overcomplete:g}x", result)
    return result


if __name__ == "__main__":
    print(main())
