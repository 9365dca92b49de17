"""Figure 2 of the kernel paper: kernel models against one-hidden-layer networks of the same losses, on images.

    python -m replication.kernel_models.figure_2 --mnist mnist.h5 --cifar cifar10_jpeg.h5 --json results

The first two classes, 500 images; splits, h = 2 and k = 3 as in Figure 1. Without PyTorch the networks are left out. A
network is trained with two rates and judged with the one that reached the lower loss. With --parts FOLDER finished parts
are kept, so that a stopped run goes on.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from benchmarks.record import write_record
from examples.kernel_bandwidth import choose
from replication.kernel_models import networks
from replication.kernel_models.figure_1 import KERNELS, WITH_BANDWIDTH, accuracy, maker, split
from replication.kernel_models.images import first_classes
from replication.kernel_models.parts import kept
from smtdist.kernels.augment import Augmentation
from smtdist.kernels.gram import median_bandwidth
from smtdist.models.kernel.contrastive import drawn_triplets

Keep = Callable[[str, Callable[[], float]], float]
METHODS = ("contrastive", "spectral", "autoencoder")


def one_split(
    rows: np.ndarray,
    labels: np.ndarray,
    seed: int,
    kernels: list[str],
    shares: tuple[float, ...],
    noise: float,
    sizes: tuple[int, int],
    keep: Keep,
) -> dict[str, dict[str, float]]:
    """Return the accuracies of one split, by method and kernel; "network" is the network of the method.

    sizes : hidden units and steps of a network.
    """
    unlabelled, labelled, test = split(labels, seed)
    fitted_on = rows[np.concatenate([unlabelled, labelled])]
    known, asked = labels[labelled], labels[test]
    found: dict[str, dict[str, float]] = {
        "raw": {"raw": accuracy(rows[labelled], known, rows[test], asked)}
    }
    triplets = drawn_triplets(fitted_on, Augmentation(noise), seed)
    parts = (triplets.anchors, triplets.positives, triplets.negatives)
    for method in METHODS:

        def of_kernel(kernel: str, method: str = method) -> float:
            middle = median_bandwidth(fitted_on, kernel) if kernel in WITH_BANDWIDTH else 1.0
            grid = tuple(share * middle for share in shares) if kernel in WITH_BANDWIDTH else (1.0,)
            make = maker(method, kernel, noise, 2)
            choice = choose(make, grid, rows[unlabelled], rows[labelled], known)
            near, far = (choice.estimator.transform(rows[part]) for part in (labelled, test))
            return accuracy(near, known, far, asked)

        def of_network(method: str = method) -> float:
            net = networks.embedding(method, parts, 2, *sizes, seed)
            return accuracy(net(rows[labelled]), known, net(rows[test]), asked)

        found[method] = {
            kernel: keep(f"{seed}-{method}-{kernel}", partial(of_kernel, kernel)) for kernel in kernels
        }
        if networks.missing() is None:
            found[method]["network"] = keep(f"{seed}-{method}-network", of_network)
    return found


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mnist")
    parser.add_argument("--cifar")
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300, help="of a network's training")
    parser.add_argument("--noise", type=float, default=0.1)
    parser.add_argument(
        "--bandwidths",
        type=float,
        nargs="+",
        default=[0.1, 0.3, 1.0, 3.0, 10.0],
        help="shares of the median",
    )
    parser.add_argument("--hidden", type=int, default=128, help="units of a network's hidden layer")
    parser.add_argument("--parts", help="folder for finished parts")
    parser.add_argument("--kernels", nargs="*", default=list(KERNELS), help="none for the networks alone")
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    table: dict[str, Any] = {}
    if networks.missing():
        print(networks.missing())
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)  # steps are few on purpose
        for name, path in (("mnist", options.mnist), ("cifar10", options.cifar)):
            if path is None:
                continue
            rows, labels = first_classes(path, 2, options.samples)
            told = {
                key: getattr(options, key) for key in ("samples", "steps", "noise", "bandwidths", "hidden")
            }

            def keep(part: str, compute: Callable[[], float], name: str = name, told: Any = told) -> float:
                return float(kept(options.parts, f"figure-2-{name}-{part}", told, compute))

            sizes = (options.kernels, tuple(options.bandwidths), options.noise)
            runs = [
                one_split(rows, labels, seed, *sizes, (options.hidden, options.steps), keep)
                for seed in range(options.splits)
            ]
            table[name] = {
                method: {
                    kernel: [
                        float(np.mean([run[method][kernel] for run in runs])),
                        float(np.std([run[method][kernel] for run in runs])),
                    ]
                    for kernel in runs[0][method]
                }
                for method in runs[0]
            }
            for method, scores in table[name].items():
                line = "  ".join(f"{k} {100 * mean:.1f} ± {100 * d:.1f}" for k, (mean, d) in scores.items())
                print(f"{name:<8} {method:<12} {line}", flush=True)
    if options.json:
        shown = ("samples", "splits", "steps", "noise", "bandwidths", "hidden")
        told = {key: getattr(options, key) for key in shown}
        write_record(
            options.json,
            "-".join(("kernel-figure-2", *table)),
            {"table": table, **told, "networks": networks.missing()},
        )
    return table


if __name__ == "__main__":
    main()
