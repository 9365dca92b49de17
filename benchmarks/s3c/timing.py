"""Figure 6: the fixed point against conjugate gradients, time to equal KL divergence, each damped as is best for it.

The KL divergence differs from minus the energy functional by log p(v) alone, so that equal KL is equal energy. The level is
a share of the way from the prior, where all begin, to the worst of what the methods come to at most in 60 iterations, each
damped in six plain ways. The dampings of every single iteration (of ĥ; of the fixed point also those of ŝ, and ρ) are searched
on the patches that are timed, as in the paper, with as many tries for each method; how many iterations they take on other
patches is told beside, None where they do not arrive. An iteration has one or two steps of conjugate gradients. All have
compiled steps and one thread. `conjugate` is the paper's; `preconditioned` divides by the diagonal, which the paper does not.

    python -m benchmarks.s3c.timing --data cifar10.h5 --units 400 1600 --patch 6 20 --work DIR --only-search
    python -m benchmarks.s3c.timing --data cifar10.h5 --units 400 1600 --patch 6 20 --work DIR --json benchmarks/results
"""

from __future__ import annotations

import argparse
import itertools
import math
import tempfile
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.record import write_record
from benchmarks.s3c.common import fitted_in_steps, images_of, with_settings
from benchmarks.s3c.dampings import Way, crossing, searched, until
from benchmarks.steps import UNFINISHED, Steps
from smtdist.errors import InterruptedRun
from smtdist.kernels.spike_slab import Padded, Posterior, energy, sigmoid
from smtdist.kernels.threads import single_blas
from smtdist.models.s3c.model import PatchCoder

WAYS: Final = (
    Way("fixed"),
    *(Way("conjugate", steps) for steps in (1, 2)),
    Way("preconditioned", 1),
)
SHARES: Final = (0.9, 0.99)
CONSTANT: Final = (0.1, 0.3, 0.5)
LONG: Final = 60
PLACE: Final = 4
"""Patches of an image: others are of the first images, those that are timed of the images after them."""


def drawn(coder: PatchCoder, images: Any, count: int, part: int) -> Any:
    """Return whitened patches of the images of a part, drawn with a fixed seed."""
    each = max(1, count // PLACE)
    rows = coder.rows(images[part * each : (part + 1) * each])
    return rows[np.random.default_rng(part).choice(len(rows), count, replace=False)]


def bests(rows: Any, model: Padded) -> dict[str, Any]:
    """Return the energy functional of the prior, and what each method comes to at most."""
    best: dict[str, float] = {}
    prior = Posterior(*(np.broadcast_to(part, (len(rows), model.model.n_units))
                        for part in (sigmoid(model.model.bias), model.model.mu)))  # fmt: skip
    start = float(energy(rows, prior, model.model).mean(dtype=np.float64))
    for way in WAYS:
        for damping in (*(way.constant(each, LONG) for each in CONSTANT), *way.starts(LONG)):
            highest = float(np.nanmax(way.curve(rows, model, damping)))
            best[way.method] = max(best.get(way.method, -math.inf), highest)
    return {"prior": start, "best": best}


def level(told: dict[str, Any], share: float) -> float:
    """Return the energy functional a share of the way from the prior to the worst of the methods' best."""
    return float(told["prior"] + share * (min(told["best"].values()) - told["prior"]))


@dataclass(frozen=True)
class Size:
    """What is timed: a model of so many units and pixels, patches, others, and the dampings of the size before."""

    name: str
    model: Padded
    rows: Any
    others: Any
    before: dict[str, Any] | None


def damped(steps: Steps, size: Size, options: argparse.Namespace) -> dict[str, Any]:
    """Return the dampings found for every way and share, one search a step; it may begin with those of the first size."""
    told = steps.facts(f"{size.name}-bests.json", lambda: bests(size.rows, size.model))
    found: dict[str, Any] = {}
    for way, share in itertools.product(WAYS, options.shares):
        key = f"{way.method}-{way.steps}-{share}"
        starts = way.starts(options.iterations)
        if size.before is not None:
            starts.append(np.asarray(size.before[key]["damping"]))

        def search(
            way: Way = way, target: float = level(told, share), starts: list[Any] = starts
        ) -> dict[str, Any]:
            values, least = searched(
                lambda values: crossing(way.curve(size.rows, size.model, values), target),
                starts,
                options.tries,
            )
            return {"crossing": least, "damping": [round(float(value), 4) for value in values]}

        found[key] = steps.facts(f"{size.name}-{key}.json", search)
        print(size.name, key, round(found[key]["crossing"], 2), flush=True)
    return found


def timed(
    size: Size, told: dict[str, Any], found: dict[str, Any], options: argparse.Namespace
) -> dict[str, Any]:
    """Return what every way takes to each level, and the best of each method."""
    rows, model, elsewhere = size.rows, size.model, bests(size.others, size.model)
    result: dict[str, Any] = {"prior_energy": told["prior"], "best_energy": told["best"]}
    for share in options.shares:
        target, ready, others = level(told, share), {}, {}
        for way in WAYS:
            damping = found[f"{way.method}-{way.steps}-{share}"]["damping"]
            count = until(way.curve(rows, model, damping), target)
            if count is not None:
                ready[way] = damping, count
                others[way] = until(way.curve(size.others, model, damping), level(elsewhere, share))
        seconds: dict[Way, list[float]] = {way: [] for way in ready}
        for _, way in itertools.product(range(options.turns), ready):
            started = time.perf_counter()
            deque(way.run(rows, model, *ready[way]), maxlen=0)
            seconds[way].append(time.perf_counter() - started)
        result[f"to_{share}"] = _best(ready, seconds, others)
    return result


def _best(
    ready: dict[Way, Any], seconds: dict[Way, list[float]], others: dict[Way, int | None]
) -> dict[str, Any]:
    """Return each method's way with the least median, and how many times longer than the fixed point it takes."""
    found: dict[str, Any] = {}
    for way in sorted(ready, key=lambda way: float(np.median(seconds[way]))):
        damping, count = ready[way]
        found.setdefault(
            way.method,
            {
                "seconds": float(np.median(seconds[way])),
                "quartiles": [float(value) for value in np.percentile(seconds[way], [25, 75])],
                "iterations": count,
                "iterations_elsewhere": others[way],
                "steps": way.steps,
                "products": way.products * count - 1,
                "damping": damping,
            },
        )
    fixed = found.get("fixed", {}).get("seconds")
    for one in found.values():
        one["ratio"] = one["seconds"] / fixed if fixed else None
    return found


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True)
    parser.add_argument("--group", default="train")
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--units", type=int, nargs="+", default=[400, 1600])
    parser.add_argument("--patch", type=int, nargs="+", default=[6, 20])
    parser.add_argument("--examples", type=int, default=100)
    parser.add_argument("--turns", type=int, default=11)
    parser.add_argument("--iterations", type=int, default=20, help="most that a search allows")
    parser.add_argument("--tries", type=int, default=600, help="dampings that each search tries")
    parser.add_argument(
        "--shares", type=float, nargs="+", default=list(SHARES), help="of the way to the level"
    )
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--work", help="folder that keeps fitted coders, and the dampings found")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so many; needs --work")
    parser.add_argument("--only-fit", action="store_true", help="fit what is to be timed, and time nothing")
    parser.add_argument("--only-search", action="store_true", help="search the dampings too")
    parser.add_argument("--json")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="smtdist-timing-") as name, single_blas():
        try:
            return run(options, Steps(Path(options.work or name), options.minutes))
        except InterruptedRun as error:
            print(f"{error} Repeat the command to go on.", flush=True)
            raise SystemExit(UNFINISHED) from error


def run(options: argparse.Namespace, steps: Steps) -> dict[str, Any]:
    """Time every size."""
    images, _ = images_of(options.data, options.group, options.images)
    asked = ("examples", "turns", "iterations", "tries")
    result: dict[str, Any] = {name: getattr(options, name) for name in asked}
    before = None
    for patch, units in itertools.product(options.patch, options.units):
        wanted = with_settings(options.set, units=units, patch=patch)
        coder = fitted_in_steps(steps, f"s3c-{patch}-{units}", images, wanted)
        if options.only_fit:
            continue
        model = Padded(coder.parameters.astype(np.float32))
        patches = [drawn(coder, images, options.examples, part) for part in (1, 0)]
        size = Size(f"{patch}-{units}", model, *patches, before)
        found = damped(steps, size, options)
        before = before or found
        if options.only_search:
            continue
        one = timed(size, steps.facts(f"{size.name}-bests.json", dict), found, options)
        one["fit"] = {name: getattr(coder.settings, name) for name in ("rounds", "images", "patches")}
        result[f"{patch}x{patch}, N = {units}"] = one
        for share in options.shares:
            ratios = {name: each["ratio"] for name, each in one[f"to_{share}"].items()}
            print(f"{patch}x{patch}, N = {units}", share, ratios, flush=True)
    if options.json and not (options.only_fit or options.only_search):
        write_record(options.json, "s3c-timing", result)
    return result


if __name__ == "__main__":
    main()
