"""Figure 6: the fixed point against conjugate gradients, time to equal KL divergence, each at its best damping.

The KL divergence differs from minus the energy functional by log p(v) alone, so that equal KL is equal energy. The target
is what the slower of the two best runs ends at, less a hundredth of what it gained.

    python -m benchmarks.s3c.timing --data cifar10.h5 --units 400 1600 --patch 6 20 --json benchmarks/results
"""

from __future__ import annotations

import argparse
import itertools
import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import write_record
from benchmarks.s3c.common import fitted_in_steps, images_of, with_settings
from benchmarks.steps import Steps
from smtdist.kernels.spike_slab import Posterior, Schedule, SpikeSlab, energy, iterate
from smtdist.kernels.spike_slab_steps import iterate_conjugate

DAMPING = (0.1, 0.2, 0.3, 0.4, 0.5)
STEPS = (1, 2, 3, 5, 10)
ITERATIONS = 40


def timed(ways: Iterator[Posterior], rows: Any, model: SpikeSlab) -> list[tuple[float, float]]:
    """Return (seconds so far, mean energy functional) after each iteration; judging is not timed."""
    curve, seconds = [], 0.0
    while True:
        started = time.perf_counter()
        step = next(ways, None)
        seconds += time.perf_counter() - started
        if step is None:
            return curve
        curve.append((seconds, float(energy(rows, step, model).mean(dtype=np.float64))))


def until(curve: list[tuple[float, float]], target: float) -> float:
    """Return the seconds until a curve reaches the target for good, infinity where it does not."""
    reached = float("inf")
    for seconds, value in reversed(curve):
        if value < target:
            break
        reached = seconds
    return reached


def products(name: str, setting: str, curve: list[tuple[float, float]], target: float) -> float:
    """Return the products of n x N x D until a curve reaches the target for good, 1e9 where it does not."""
    each = 4 if name == "fixed" else 4 + 2 * int(setting.rpartition(" ")[2])
    counted = [(float(each * (at + 1)), value) for at, (_, value) in enumerate(curve)]
    reached = until(counted, target)
    return 1e9 if np.isinf(reached) else reached


def compare(rows: Any, model: SpikeSlab, repeats: int, damping: Sequence[float] = DAMPING) -> dict[str, Any]:
    """Return the best time of each method to the same energy functional."""
    curves: dict[str, dict[str, list[tuple[float, float]]]] = {
        "fixed": {},
        "conjugate": {},
        "preconditioned": {},
    }
    for _ in range(repeats):
        for eta_h, eta_s in itertools.product(damping, damping):
            # the first step may turn signs, see the model's documentation
            schedule = Schedule((eta_h,) * ITERATIONS, (0.7,) + (eta_s,) * (ITERATIONS - 1))
            _keep(
                curves["fixed"], f"h {eta_h}, s {eta_s}", timed(iterate(rows, model, schedule), rows, model)
            )
        _keep(curves["fixed"], "schedule in use", timed(iterate(rows, model, Schedule()), rows, model))
        for eta, steps in itertools.product(damping, STEPS):
            for name in ("conjugate", "preconditioned"):
                ways = iterate_conjugate(
                    rows, model, (eta,) * ITERATIONS, steps, preconditioned=name == "preconditioned"
                )
                _keep(curves[name], f"h {eta}, steps {steps}", timed(ways, rows, model))
    best = {name: max(max(v for _, v in curve) for curve in each.values()) for name, each in curves.items()}
    start = float(curves["fixed"]["schedule in use"][0][1])
    found: dict[str, Any] = {"best_energy": best, "first_energy": start}
    for share in (0.9, 0.99):
        target = start + share * (min(best.values()) - start)
        times = {
            name: min((until(curve, target), setting) for setting, curve in each.items())
            for name, each in curves.items()
        }
        found[f"seconds_to_{share}"] = {
            name: {"seconds": None if np.isinf(seconds) else seconds, "setting": setting}
            for name, (seconds, setting) in times.items()
        }
        # what does not depend on who else works on the machine
        counts = {
            name: min((products(name, setting, curve, target), setting) for setting, curve in each.items())
            for name, each in curves.items()
        }
        found[f"products_to_{share}"] = {
            name: {"products": count, "setting": setting} for name, (count, setting) in counts.items()
        }
    return found


def ratios(found: dict[str, Any], share: float) -> dict[str, float | None]:
    """Return how many times longer than the fixed point the other ways take; None for one that does not arrive."""
    seconds = {name: one["seconds"] for name, one in found[f"seconds_to_{share}"].items()}
    fixed = seconds.pop("fixed")
    return {
        name: None if fixed is None or other is None else other / fixed for name, other in seconds.items()
    }


def _keep(into: dict[str, list[tuple[float, float]]], name: str, curve: list[tuple[float, float]]) -> None:
    if name not in into or curve[-1][0] < into[name][-1][0]:
        into[name] = curve


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--group", default="train")
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--units", type=int, nargs="+", default=[400, 1600])
    parser.add_argument("--patch", type=int, nargs="+", default=[6, 20])
    parser.add_argument("--examples", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--damping", type=float, nargs="+", default=list(DAMPING))
    parser.add_argument("--work", help="folder that keeps fitted coders")
    parser.add_argument("--only-fit", action="store_true", help="fit what is to be timed, and time nothing")
    parser.add_argument("--json")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="smtdist-timing-") as name:
        return run(options, Steps(Path(options.work or name), math.inf))


def run(options: argparse.Namespace, steps: Steps) -> dict[str, Any]:
    """Time every size."""
    images, _ = images_of(options.data, options.group, options.images)
    result: dict[str, Any] = {"damping": options.damping, "examples": options.examples}
    for patch, units in itertools.product(options.patch, options.units):
        wanted = with_settings(options.set, units=units, patch=patch)
        coder = fitted_in_steps(steps, f"s3c-{patch}-{units}", images, wanted)
        if options.only_fit:
            continue
        model = coder.parameters.astype(np.float32)
        rows = coder.rows(images[: max(1, options.examples // 4)])
        chosen = np.random.default_rng(0).choice(len(rows), options.examples, replace=False)
        result[f"{patch}x{patch}, N = {units}"] = compare(
            rows[chosen], model, options.repeats, options.damping
        )
        for share in (0.9, 0.99):
            print(
                f"{patch}x{patch}, N = {units}", share, ratios(result[f"{patch}x{patch}, N = {units}"], share)
            )
    if options.json and not options.only_fit:
        write_record(options.json, "s3c-timing", result)
    return result


if __name__ == "__main__":
    main()
