"""How fast explicit features reach the exact kernel's embedding: principal angles against the number of features.

    python -m replication.kernel_models.convergence --json results --plot results
    python -m replication.kernel_models.convergence --data mnist.h5 --samples 500 --features 3000 --landmarks 256 512 \
        --cases fourier nystroem --json results

The simple contrastive model of the same triplets, exact and in features; angles are those between the spaces that the
embeddings of new points span, for random Fourier, random ReLU and Nyström features.
"""

from __future__ import annotations

import argparse
import datetime
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
from sklearn.datasets import make_circles
from threadpoolctl import threadpool_limits

from benchmarks.record import write_record
from replication.kernel_models.images import first_classes
from smtdist.kernels.augment import Augmentation
from smtdist.kernels.feature_maps import FeatureMap, NystroemFeatures, map_rows, random_features
from smtdist.kernels.gram import Kernel, with_bandwidth
from smtdist.models.kernel.contrastive import Triplets, contrastive, drawn_triplets, top_components
from smtdist.solve.positive import gram_root
from smtdist.statistics.contrast import ContrastSums, finish
from smtdist.statistics.rows import TripletMaker

CASES = (("gaussian", "fourier"), ("laplacian", "fourier"), ("relu", "relu"), ("gaussian", "nystroem"))


def features_of(kernel: Kernel, kind: str, count: int, rows: np.ndarray, seed: int) -> FeatureMap:
    """Return features, of Nyström with so many landmarks among the rows."""
    if kind != "nystroem":
        return random_features(kernel, kind, rows.shape[1], count, seed)
    chosen = np.random.default_rng(seed).permutation(len(rows))[:count]
    root = gram_root(kernel(rows[chosen], rows[chosen]), kernel.label, 1e-7)
    return NystroemFeatures(kernel, rows[chosen], root.inverse)


def in_features(features: FeatureMap, triplets: Triplets, components: int, asked: np.ndarray) -> np.ndarray:
    """Return the embedding of new points by the model in features."""
    samples = np.concatenate([triplets.anchors, triplets.positives, triplets.negatives], axis=1)
    statistic = ContrastSums(features, TripletMaker(0))
    state = statistic.zero()
    statistic.update(state, samples.astype(np.float32).reshape(len(samples), 1, 1, -1), 0)
    _, vectors = top_components(finish(state, features.n_features), components, "features")
    return map_rows(features, asked.astype(np.float32)) @ vectors


def angles(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the principal angles between two embeddings, in degrees, the largest first."""
    return np.degrees(scipy.linalg.subspace_angles(left, right))


def draw_plot(runs: list[dict[str, Any]], path: Path) -> None:
    """Draw the largest angle against the number of features."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for kernel, kind in CASES:
        chosen = [run for run in runs if (run["kernel"], run["features"]) == (kernel, kind)]
        counts = sorted({run["n_features"] for run in chosen})
        means = [np.mean([r["largest"] for r in chosen if r["n_features"] == count]) for count in counts]
        axes.loglog(counts, means, marker="o", label=f"{kernel}, {kind}")
    axes.set_xlabel("number of features (of landmarks)")
    axes.set_ylabel("largest principal angle, degrees")
    axes.set_title("Embeddings in explicit features against the exact kernel")
    axes.legend()
    axes.grid(visible=True, which="both", alpha=0.3)
    figure.savefig(path, dpi=120)


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="images; else points on circles")
    parser.add_argument(
        "--cases", nargs="+", default=["fourier", "relu", "nystroem"], help="kinds of features"
    )
    parser.add_argument("--noise", type=float, default=0.3)
    parser.add_argument("--samples", type=int, default=400)
    parser.add_argument("--features", type=int, nargs="+", default=[32, 64, 128, 256, 512, 1024, 2048])
    parser.add_argument("--landmarks", type=int, nargs="+", default=[8, 16, 32, 64, 128, 256])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--components", type=int, default=2)
    parser.add_argument("--plot", help="folder for the plot")
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    if options.data:
        points, _ = first_classes(options.data, 10, 2 * options.samples)
    else:
        points, _ = make_circles(2 * options.samples, noise=0.05, factor=0.5, random_state=0)
    cases = [
        one for one in CASES if one[1] in options.cases and not (options.data and one[0] == "laplacian")
    ]
    rows, asked = points[: options.samples], points[options.samples :]
    triplets = drawn_triplets(rows, Augmentation(options.noise), 0)
    runs = []
    with threadpool_limits(1):
        for name, kind in cases:
            kernel = with_bandwidth(Kernel(name), "median", rows)
            encoder, spectrum = contrastive(kernel, triplets, options.components)
            exact = encoder(asked)
            for count in options.landmarks if kind == "nystroem" else options.features:
                for seed in range(options.repeats):
                    features = features_of(kernel, kind, count, rows, seed)
                    started = time.perf_counter()
                    found = angles(in_features(features, triplets, options.components, asked), exact)
                    seconds = time.perf_counter() - started
                    run = {
                        "kernel": name,
                        "features": kind,
                        "n_features": count,
                        "seed": seed,
                        "seconds": seconds,
                    }
                    runs.append({**run, "angles": found.tolist(), "largest": float(found.max())})
                some = [run["largest"] for run in runs[-options.repeats :]]
                print(
                    f"{name:<10} {kind:<9} {count:>6} features: {np.mean(some):7.3f} degrees, {seconds:.2f} s",
                    flush=True,
                )
            print(f"{name}: eigenvalues {spectrum.eigenvalues[: options.components + 1].round(3)}")
    if options.plot:
        draw_plot(runs, Path(options.plot, f"{datetime.date.today().isoformat()}-kernel-convergence.png"))
    if options.json:
        sizes = {"samples": options.samples, "components": options.components}
        name = f"kernel-convergence-{Path(options.data).stem}" if options.data else "kernel-convergence"
        write_record(options.json, name, {**sizes, "runs": runs})
    return runs


if __name__ == "__main__":
    main()
