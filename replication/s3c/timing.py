"""Figure 6: fixed points against conjugate gradients, time to equal KL divergence, each damped as is best for it.

The KL divergence differs from minus the energy functional by log p(v) alone, so that equal KL is equal energy. The level is
a share of the way from the prior, where all begin, to the worst of what the methods come to at most in `--long` iterations,
each damped in five plain ways. Dampings are searched on `--groups` groups of patches, and the group that takes longest is what
counts: what does well on most patches and runs away on a few arrives late, or never. First the few numbers of a ramp are
searched, then the damping of every single iteration from there, with as many tries for each method (as in the paper).
Times are of other patches, of other images, in `--sets` sets: of each the median of several turns, of the sets the median.

`fixed` is Algorithm 1; `blocks` the same fixed point, blocks of units in turn; `conjugate` the paper's conjugate gradients, one
or two steps an iteration; `preconditioned` ones divide by the diagonal, which the paper does not. All have compiled steps and
one thread.

    python -m replication.s3c.timing --data cifar10.h5 --units 400 1600 --patch 6 20 --work DIR --only-search
    python -m replication.s3c.timing --data cifar10.h5 --units 400 1600 --patch 6 20 --work DIR --json results
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from benchmarks.record import write_record
from benchmarks.steps import Steps, folder_of
from replication.s3c.common import fitted_in_steps, images_of, with_settings
from replication.s3c.dampings import Vector, Way, crossing, horizon, reached, searched
from smtdist.codes.s3c import PatchCoder
from smtdist.kernels.spike_slab import Padded, Posterior, energy, sigmoid
from smtdist.kernels.threads import single_blas

WAYS: Final = (
    Way("blocks"),
    Way("fixed"),
    *(Way("conjugate", steps) for steps in (1, 2)),
    Way("preconditioned", 1),
)
SHARES: Final = (0.9, 0.99)
PLACE: Final = 4
"""Patches of an image."""


def drawn(coder: PatchCoder, images: Any, groups: int, examples: int, first: int) -> list[Any]:
    """Return groups of whitened patches of the images from `first` on, drawn with a fixed seed."""
    count = groups * examples
    here = images[first : first + max(1, -(-count // PLACE))]
    rows = coder.rows(here)
    return np.split(rows[np.random.default_rng(first).choice(len(rows), count, replace=False)], groups)


def bests(groups: list[Any], model: Padded, iterations: int) -> dict[str, Any]:
    """Return of each group the energy functional of the prior, and what each method comes to at most."""
    prior = Posterior(*(np.broadcast_to(part, (1, model.model.n_units))
                        for part in (sigmoid(model.model.bias), model.model.mu)))  # fmt: skip
    best: dict[str, list[float]] = {}
    for way in WAYS:
        for numbers in way.plain():
            with np.errstate(all="ignore"):
                curves = way.curves(groups, model, way.ramp(numbers, iterations))
            highest = np.where(np.isfinite(curves), curves, -np.inf).max(axis=1)
            best[way.method] = np.maximum(best.get(way.method, highest), highest).tolist()
    start = [float(energy(rows, prior, model.model).mean(dtype=np.float64)) for rows in groups]
    return {"prior": start, "best": best, "long": iterations}


def levels(told: dict[str, Any], share: float) -> Vector:
    """Return the energy functionals a share of the way from the prior to the worst of the methods' best, one a group."""
    prior, worst = np.array(told["prior"]), np.min(list(told["best"].values()), axis=0)
    return np.asarray(prior + share * (worst - prior))


@dataclass(frozen=True)
class Size:
    """What is timed: a model of so many units and pixels, groups to search on, and sets that are timed."""

    name: str
    model: Padded
    groups: list[Any]
    sets: list[Any]


def found_damping(
    size: Size, way: Way, targets: Vector, before: list[Vector], options: argparse.Namespace
) -> dict[str, Any]:
    """Return the dampings that a search finds, and the iterations of the group that takes longest."""
    iterations = options.iterations

    def cost(values: Vector, least: float) -> float:
        with np.errstate(all="ignore"):
            curves = way.curves(size.groups, size.model, values, horizon(least, iterations))
        return max(itertools.starmap(crossing, zip(curves.tolist(), targets, strict=True)))

    def of_ramp(numbers: Vector, least: float) -> float:
        return cost(way.ramp(numbers, iterations), least)

    numbers, _ = searched(of_ramp, [*way.plain(), *before], options.tries // 2)
    values, least = searched(cost, [way.ramp(numbers, iterations)], options.tries - options.tries // 2)
    return {
        "crossing": least,
        "tries": options.tries,
        "damping": [round(float(value), 4) for value in values],
        "ramp": [round(float(value), 4) for value in numbers],
    }


def prepared(
    steps: Steps, size: Size, before: dict[str, Any], options: argparse.Namespace
) -> dict[str, Any]:
    """Return what is to be timed: dampings of every way and share, and the iterations they take on every set."""
    told = steps.facts(f"{size.name}-bests.json", lambda: bests(size.groups, size.model, options.long))
    others = steps.facts(f"{size.name}-bests-sets.json", lambda: bests(size.sets, size.model, options.long))
    found: dict[str, Any] = dict(others)
    for way, share in itertools.product(WAYS, options.shares):
        key = f"{way.method}-{way.steps}-{share}"
        starts = [np.asarray(before[key]["ramp"])] if key in before else []

        def one(way: Way = way, share: float = share, starts: list[Vector] = starts) -> dict[str, Any]:
            return found_damping(size, way, levels(told, share), starts, options)

        def other(way: Way = way, share: float = share, key: str = key) -> list[int | None]:
            with np.errstate(all="ignore"):
                curves = way.curves(size.sets, size.model, found[key]["damping"], 2 * options.iterations)
            return [reached(*pair) for pair in zip(curves.tolist(), levels(others, share), strict=True)]

        found[key] = steps.facts(f"{size.name}-{key}.json", one)
        found[key]["iterations"] = steps.facts(f"{size.name}-{key}-sets.json", other)
        print(size.name, key, round(found[key]["crossing"], 2), found[key]["iterations"], flush=True)
    return found


def timed(size: Size, found: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Return what every way takes to each level on the sets, and the best of each method."""
    result: dict[str, Any] = {
        "long": found["long"],
        "prior_energy": float(np.mean(found["prior"])),
        "best_energy": {name: float(np.mean(each)) for name, each in found["best"].items()},
    }
    for share in options.shares:
        ready = {way: found[f"{way.method}-{way.steps}-{share}"] for way in WAYS}
        seconds: dict[Way, list[list[float]]] = {way: [[] for _ in size.sets] for way in WAYS}
        for _, way, at in itertools.product(range(options.turns), WAYS, range(len(size.sets))):
            count = ready[way]["iterations"][at]
            if count is not None:
                started = time.perf_counter()
                deque(way.run(size.sets[at], size.model, ready[way]["damping"], count), maxlen=0)
                seconds[way][at].append(time.perf_counter() - started)
        medians = {
            way: [float(np.median(each)) if each else math.inf for each in seconds[way]] for way in WAYS
        }
        result[f"to_{share}"] = _best(ready, medians)
    return result


def _best(ready: dict[Way, Any], medians: dict[Way, list[float]]) -> dict[str, Any]:
    """Return each method's way with the least median over the sets, and its time over that of both fixed points.

    A set on which a way does not arrive takes for ever.
    """
    found: dict[str, Any] = {}
    for way in sorted(ready, key=lambda way: float(np.median(medians[way]))):
        counts = ready[way]["iterations"]
        median = float(np.median(medians[way]))
        if way.method in found or not math.isfinite(median):
            continue
        arrived = [each for each in medians[way] if math.isfinite(each)]
        found[way.method] = {
            "seconds": median,
            "quartiles": [float(value) for value in np.percentile(arrived, [25, 75])],
            "iterations": counts,
            "iterations_searched": ready[way]["crossing"],
            "tries": ready[way].get("tries"),
            "steps": way.steps,
            "products": [way.products * count - way.spared if count else None for count in counts],
            "damping": ready[way]["damping"],
        }
    for name in ("fixed", "blocks"):
        if name in found:
            for one in found.values():
                one[f"over_{name}"] = one["seconds"] / found[name]["seconds"]
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
    parser.add_argument("--groups", type=int, default=3, help="of so many examples, to search on")
    parser.add_argument("--sets", type=int, default=5, help="of so many examples, to time")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=16, help="most that a search allows")
    parser.add_argument("--tries", type=int, default=160, help="dampings that each search tries")
    parser.add_argument(
        "--shares", type=float, nargs="+", default=list(SHARES), help="of the way to the level"
    )
    parser.add_argument("--long", type=int, default=60, help="iterations that tell what a method comes to")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--work", help="folder that keeps fitted coders, and the dampings found")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so many; needs --work")
    parser.add_argument("--only-fit", action="store_true", help="fit what is to be timed, and time nothing")
    parser.add_argument("--only-search", action="store_true", help="search the dampings too")
    parser.add_argument("--name", default="s3c-timing")
    parser.add_argument("--json")
    options = parser.parse_args(arguments)
    with folder_of(options.work) as folder, single_blas():
        return run(options, Steps(folder, options.minutes))


def run(options: argparse.Namespace, steps: Steps) -> dict[str, Any]:
    """Time every size."""
    images, _ = images_of(options.data, options.group, options.images)
    asked = ("examples", "groups", "sets", "turns", "iterations", "long")
    result: dict[str, Any] = {name: getattr(options, name) for name in asked}
    before: dict[str, Any] = {}
    for patch, units in itertools.product(options.patch, options.units):
        wanted = with_settings(options.set, units=units, patch=patch)
        coder = fitted_in_steps(steps, f"s3c-{patch}-{units}", images, wanted)
        if options.only_fit:
            continue
        model = Padded(coder.parameters.astype(np.float32))
        groups = drawn(coder, images, options.groups, options.examples, 0)
        sets = drawn(coder, images, options.sets, options.examples, len(images) // 2)
        size = Size(f"{patch}-{units}", model, groups, sets)
        found = prepared(steps, size, before, options)
        before = before or found
        if options.only_search:
            continue
        one = timed(size, found, options)
        settings = coder.settings
        one["fit"] = {"rounds": settings.max_iter, "images": settings.images, "patches": settings.patches}
        result[f"{patch}x{patch}, N = {units}"] = one
        for share in options.shares:
            ratios = {name: (round(each.get("over_blocks", math.nan), 2), round(each.get("over_fixed", math.nan), 2))
                      for name, each in one[f"to_{share}"].items()}  # fmt: skip
            print(f"{patch}x{patch}, N = {units}", share, ratios, flush=True)
    if options.json and not (options.only_fit or options.only_search):
        write_record(options.json, options.name, result)
    return result


if __name__ == "__main__":
    main()
