"""Figure 3 of the kernel paper: de-noising by kernel autoencoders against a network's.

    python -m benchmarks.kernel_models.figure_3 --mnist mnist.h5 --cifar cifar10_jpeg.h5 --json benchmarks/results

The first five classes, 225 images to learn from and 225 others to judge by; noise of deviation 0.1 on pixels in [0, 1] (the
paper writes N(0, 0.1) and not of what). The error is the mean square over pixels against the clean image. λ is chosen
among three values on a fifth of the learning part, for every kernel; the network has the same bottleneck.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.kernel_models import networks
from benchmarks.kernel_models.figure_1 import KERNELS
from benchmarks.kernel_models.images import first_classes
from benchmarks.record import write_record
from smtdist.kernels.augment import normal
from smtdist.models.kernel.estimators import KernelAutoencoder

RIDGES = (0.01, 0.1, 1.0)


def fitted(kernel: str, ridge: float, components: int, noisy: np.ndarray, clean: np.ndarray) -> Any:
    """Return a kernel autoencoder fitted on noisy and clean rows."""
    model = KernelAutoencoder(
        components, kernel=kernel, ridge=ridge, nugget=1e-2, tolerance=1e-3, max_iterations=100
    )
    return model.fit(noisy, clean=clean)


def error(model: Any, noisy: np.ndarray, clean: np.ndarray) -> float:
    """Return the mean square error of a reconstruction."""
    return float(np.square(model.inverse_transform(model.transform(noisy)) - clean).mean())


def one_set(path: str, n: int, deviation: float, components: int, repeats: int, steps: int) -> dict[str, Any]:
    """Return the errors by kernel, of the network, and of the noisy images as they are."""
    rows, _ = first_classes(path, 5, 2 * n)
    found: dict[str, list[float]] = {}
    for seed in range(repeats):
        order = np.random.default_rng(seed).permutation(len(rows))
        clean = rows[order]
        noisy = clean + deviation * normal(seed, 0, *clean.shape, 31)
        learn, held, judge = slice(0, n - n // 5), slice(n - n // 5, n), slice(n, 2 * n)
        for kernel in KERNELS:
            errors = [
                error(fitted(kernel, ridge, components, noisy[learn], clean[learn]), noisy[held], clean[held])
                for ridge in RIDGES
            ]
            best = fitted(kernel, RIDGES[int(np.argmin(errors))], components, noisy[:n], clean[:n])
            found.setdefault(kernel, []).append(error(best, noisy[judge], clean[judge]))
        found.setdefault("as it is", []).append(float(np.square(noisy[judge] - clean[judge]).mean()))
        if networks.missing() is None:
            net = networks.denoiser(noisy[:n], clean[:n], components, 256, steps, seed)
            squares = np.square(net(noisy[judge]) - clean[judge])
            found.setdefault("network", []).append(float(squares.mean()))
    return {name: [float(np.mean(values)), float(np.std(values))] for name, values in found.items()}


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mnist")
    parser.add_argument("--cifar")
    parser.add_argument("--samples", type=int, default=225)
    parser.add_argument("--deviation", type=float, default=0.1)
    parser.add_argument("--components", type=int, nargs="+", default=[2, 10])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=500, help="of a network's training")
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    table: dict[str, Any] = {}
    if networks.missing():
        print(networks.missing())
    with threadpool_limits(1):
        for name, path in (("mnist", options.mnist), ("cifar10", options.cifar)):
            for components in options.components if path is not None else ():
                sizes = (options.samples, options.deviation, components, options.repeats, options.steps)
                scores = table[f"{name}, h = {components}"] = one_set(path, *sizes)
                line = "  ".join(f"{kernel} {mean:.4f} ± {d:.4f}" for kernel, (mean, d) in scores.items())
                print(f"{name:<8} h = {components:<3} {line}", flush=True)
    if options.json:
        told = {key: getattr(options, key) for key in ("samples", "deviation", "repeats", "steps")}
        write_record(
            options.json, "kernel-figure-3", {"table": table, **told, "networks": networks.missing()}
        )
    return table


if __name__ == "__main__":
    main()
