"""Second-order sums of whole images by size: how far they are from the exact ones, their peak, and their time beside first order.

    python -m benchmarks.kernels.second_order --sides 32 64 128 256 512 768 --json results

Images are made up: smooth random ones, in which a constant square leaves out patches, of one size in all images (`equal`) or
of another in each (`unequal`). The exact sum is Σ n / (n - 1)² (n A Aᵀ - s sᵀ), by rational numbers, from the first-order
sums of each image alone (64 atoms); an error is stated as a share of the sum of absolute terms. Peak and time are those of the
statistics pass of `smtdist fit` with `--atoms` atoms, in processes of their own, of both orders in turn; ratios are medians.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import Any, Final

import h5py
import numpy as np
from numpy.typing import NDArray

from benchmarks.encoders import encoder_of
from benchmarks.record import write_record
from smtdist.configuration import Configuration
from smtdist.kernels import threads
from smtdist.statistics import limbs
from smtdist.statistics.cooccurrence import CodeSums
from smtdist.statistics.sums import Statistics, finish

SETTINGS: Final = Configuration(
    context_size="whole", difference_order=2, threshold=0.3, subtract_mean="patch"
)
POSITIONS: Final = 500_000  # of a fit, about


def made_images(side: int, count: int, *, equal: bool, seed: int = 0) -> NDArray[np.uint8]:
    """Return smooth random images, each with a constant square."""
    rng = np.random.default_rng(seed)
    images = rng.standard_normal((count, side, side, 1)).cumsum(axis=1).cumsum(axis=2)
    images -= images.min(axis=(1, 2, 3), keepdims=True)
    images *= 245 / images.max(axis=(1, 2, 3), keepdims=True)
    images = images.astype(np.uint8) + rng.integers(0, 5, images.shape, dtype=np.uint8)
    for number, image in enumerate(images):
        rows, columns = (8, 8) if equal else (8 + number % (side // 2), 8 + 7 * number % (side // 2))
        image[:rows, :columns] = 255
    return images


def summed(encoder: Any, images: NDArray[np.uint8], order: int) -> Statistics:
    """Return the sums of images."""
    sums = CodeSums(encoder, "whole", order, False, len(images))
    state = sums.zero()
    sums.update(state, images, 0)
    return finish(sums, state)


def error(encoder: Any, images: NDArray[np.uint8]) -> tuple[float, int]:
    """Return the largest error of an entry as a share of its absolute terms, and how many different n there are."""
    found, sizes = summed(encoder, images, 2), set()
    exact, terms = (np.zeros((len(found.activity), len(found.activity)), object) for _ in range(2))
    for image in images:
        alone = summed(encoder, image[None], 1)
        n, moment = alone.n_positions, alone.second_moment.astype(object)
        if n > 1:
            sizes.add(n)
            outer, weight = alone.cooccurrence.astype(object) + moment, Fraction(n, (n - 1) ** 2)
            exact += weight * (n * moment - outer)
            terms += weight * (n * moment + outer)
    if found.equal_sites is None:
        value = limbs.exact(*found._limbs()) * Fraction(1, 1 << found.weight_bits)
    else:
        n = found.equal_sites
        value = found.context_scatter.astype(object) * Fraction(n, (n - 1) ** 2)
    off = [
        abs(one - other) / size
        for one, other, size in zip(value.flat, exact.flat, terms.flat, strict=True)
        if size
    ]
    return float(max(off)), len(sizes)


def fitted(images: NDArray[np.uint8], atoms: int, turns: int) -> dict[str, Any]:
    """Fit with either order in turn; return the peak of the statistics pass, what was projected, and ratios of its time."""
    seconds: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as folder:
        with h5py.File(Path(folder, "images.h5"), "w") as file:
            file["images"] = images
        for turn in range(turns + 1):
            for order in (1, 2) if turn % 2 else (2, 1):
                settings = (
                    f"context_size=whole difference_order={order} threshold=0.3 subtract_mean=patch "
                    f"n_components=32 n_atoms={atoms}"
                )
                words = [word for one in settings.split() for word in ("--set", one)]
                command = [
                    "fit",
                    "images.h5",
                    "--dataset",
                    "images",
                    "--out",
                    "m.h5",
                    "--overwrite",
                    *words,
                ]
                done = subprocess.run(
                    [sys.executable, "-m", "smtdist", *command, "--no-first-look", "--quiet", "--json"],
                    cwd=folder, capture_output=True, text=True, check=False,
                )  # fmt: skip
                if done.returncode:
                    raise SystemExit(done.stderr)
                passes = {one["name"]: one for one in json.loads(done.stdout)["passes"]}
                if turn:  # the first compiles
                    seconds[order].append(passes["statistics"]["seconds"])
                if order == 2:
                    peak = {name: passes["statistics"][name] for name in ("peak_bytes", "projected_bytes")}
    ratios = [second / first for first, second in zip(seconds[1], seconds[2], strict=True)]
    return {**peak, "seconds": median(seconds[2]), "time_over_first_order": median(ratios)}


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Measure each size, with equal and unequal numbers of patches; print a line each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sides", type=int, nargs="+", default=[32, 64, 128, 256, 512, 768])
    parser.add_argument("--atoms", type=int, default=2048)
    parser.add_argument("--exact", type=int, default=300, help="most images that errors are computed of")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    threads.set_threads(2)
    rows = []
    for side in options.sides:
        count = max(2, POSITIONS // side**2)
        for equal in (True, False):
            images = made_images(side, count, equal=equal)
            few = images[: options.exact]
            off, sizes = error(encoder_of(few, SETTINGS, 64), few)
            took = fitted(images, options.atoms, options.turns)
            row = {
                "side": side, "images": count, "equal": equal, "sizes": sizes, "error": off, "bound": 2**-30,
                **took,
            }  # fmt: skip
            rows.append(row)
            print(
                f"{side:>4} px, {count:>4} images, {sizes:>3} different n: error {off:.1e}, peak "
                f"{took['peak_bytes'] / 2**20:,.0f} of {took['projected_bytes'] / 2**20:,.0f} MiB, statistics "
                f"{took['seconds']:.1f} s, {took['time_over_first_order']:.2f} of first order",
                flush=True,
            )
    if options.json:
        write_record(options.json, "second-order", {"atoms": options.atoms, "runs": rows})
    return rows


if __name__ == "__main__":
    main()
