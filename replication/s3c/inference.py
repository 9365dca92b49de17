"""Figures 1 and 2 as numbers and a plot: how sparse the posterior is, how explaining-away sparsifies it, what falls.

python -m replication.s3c.inference --data cifar10.h5 --units 400 --json results
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from benchmarks.record import write_record
from replication.s3c.common import fitted, images_of, with_settings
from replication.s3c.steps import iterate_sequential
from smtdist.kernels.spike_slab import energy, iterate
from smtdist.models import store
from smtdist.plot.sheets import save_filters


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--group", default="train")
    parser.add_argument("--model", help="a fitted coder; else one is fitted")
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--units", type=int, default=400)
    parser.add_argument("--patches", type=int, default=100)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--json")
    parser.add_argument("--plot", help="folder for the pictures")
    options = parser.parse_args(arguments)
    images, _ = images_of(options.data, options.group, options.images)
    if options.model:
        coder = store.load(options.model)
        coder = getattr(coder, "coder", coder)  # of a transform on it
    else:
        coder, _ = fitted(images, with_settings(options.set, units=options.units))
    rows = coder.rows(images[: max(1, options.patches)])
    chosen = np.random.default_rng(0).choice(len(rows), options.patches, replace=False)
    rows, model = rows[chosen].astype(np.float64), coder.parameters
    steps = list(iterate(rows, model, coder.settings.schedule()))
    energies = np.array([energy(rows, step, model) for step in steps])
    sequential = np.array([energy(rows, step, model) for step in iterate_sequential(rows, model, 10)])
    rises = np.diff(energies, axis=0)
    last = steps[-1].h
    result = {
        "units": model.n_units,
        "patches": options.patches,
        "share_below_0.01": float((last < 0.01).mean()),
        "mean_h": [float(step.h.mean()) for step in steps],
        "share_above_0.01": [float((step.h >= 0.01).mean()) for step in steps],
        "share_above_0.5": [float((step.h >= 0.5).mean()) for step in steps],
        "energy": energies.mean(axis=1).tolist(),
        "parallel": {
            "share_of_falls": float((rises < 0).mean()),
            "largest_fall": float(-rises.min(initial=0)),
            "mean_fall": float(-rises[rises < 0].mean()) if (rises < 0).any() else 0.0,
        },
        "sequential": {
            "energy": sequential.mean(axis=1).tolist(),
            "share_of_falls": float((np.diff(sequential, axis=0) < -1e-9).mean()),
        },
    }
    if options.plot:
        Path(options.plot).mkdir(parents=True, exist_ok=True)
        figure = inference_figure(last, result["mean_h"], result["share_above_0.01"])
        figure.savefig(f"{options.plot}/s3c-inference.png", dpi=120)
        save_filters(coder.filters(), f"{options.plot}/s3c-filters.png")
    if options.json:
        write_record(options.json, f"s3c-inference-N{model.n_units}", result)
    return result


def inference_figure(active: NDArray[Any], means: Sequence[float], shares: Sequence[float]) -> Any:
    """Return a Figure of Figures 1 and 2: the histogram of ĥ, and how it sparsifies from one iteration to the next.

    active : all ĥ after the last iteration. means, shares : after each, the mean ĥ and the share of units
        above 0.01.
    """
    figure = Figure(figsize=(8, 3), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    left.hist(active.reshape(-1), bins=50, log=True, color="0.4")
    left.set_xlabel("Q(h)")
    left.set_ylabel("units x patches")
    steps = np.arange(len(means))
    right.plot(steps, 100 * np.asarray(means), "o-", markersize=3, label="mean Q(h)")
    right.plot(steps, 100 * np.asarray(shares), "s-", markersize=3, label="share above 0.01")
    right.set_xlabel("iteration")
    right.set_ylabel("%")
    right.set_ylim(bottom=0)
    right.legend(fontsize="small")
    return figure


if __name__ == "__main__":
    found = main()
    print({name: value for name, value in found.items() if not isinstance(value, list)})
    print("share of ĥ >= 0.01:", [round(100 * value, 2) for value in found["share_above_0.01"]])
