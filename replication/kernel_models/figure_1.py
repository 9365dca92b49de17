"""Figure 1 of the kernel paper: k-NN on embeddings of partially labelled data, three methods, four kernels.

    python -m replication.kernel_models.figure_1 --data tabular.h5 --json results

Half of the rows are unlabelled, 5 % labelled, 45 % for the test; h = 2, k = 3; five splits. Models learn from the unlabelled
and the labelled rows without labels; the bandwidth (15 values from 0.01 to 100) is chosen by leave-one-out on the labelled
rows alone, and so is the kernel in the row "chosen".
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import h5py
import numpy as np
from sklearn.datasets import make_circles, make_classification
from sklearn.decomposition import KernelPCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import KNeighborsClassifier
from threadpoolctl import threadpool_limits

from benchmarks.record import write_record
from examples.kernel_bandwidth import BANDWIDTHS, choose, leave_one_out
from smtdist.errors import DataError
from smtdist.kernels.gram import Kernel
from smtdist.models.kernel.estimators import (
    ContrastiveKernel,
    KernelAutoencoder,
    SpectralContrastiveKernel,
)

KERNELS = ("gaussian", "laplacian", "linear", "relu")
WITH_BANDWIDTH = ("gaussian", "laplacian")


def cubes(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return n points about the corners of a cube, two corners a class: the paper names scikit-learn and no settings."""
    rows, labels = make_classification(
        n,
        3,
        n_informative=3,
        n_redundant=0,
        n_clusters_per_class=2,
        class_sep=1.5,
        flip_y=0,
        random_state=0,
    )
    return rows, labels


def load(name: str, path: str | None, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows scaled to deviation one, and labels."""
    if name == "circles":
        rows, labels = make_circles(n, noise=0.05, factor=0.5, random_state=0)
    elif name == "cubes":
        rows, labels = cubes(n)
    else:
        with h5py.File(path, "r") as file:
            rows, labels = file[f"{name}/X"][()], file[f"{name}/y"][()]
    labels = np.unique(labels, return_inverse=True)[1]
    return (rows - rows.mean(axis=0)) / np.maximum(rows.std(axis=0), 1e-9), labels


def split(labels: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows that are unlabelled, labelled and for the test; every class has a labelled row."""
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(labels))
    half, few = len(labels) // 2, max(round(0.05 * len(labels)), len(np.unique(labels)))
    rest = order[half:]
    first = [rest[np.flatnonzero(labels[rest] == label)[0]] for label in np.unique(labels)]
    others = [row for row in rest if row not in first]
    labelled = np.array([*first, *others[: few - len(first)]])
    return order[:half], labelled, np.array(others[few - len(first) :])


def maker(method: str, kernel: str, noise: float, components: int) -> Any:
    """Return a function from a bandwidth to an unfitted model."""

    def make(bandwidth: float) -> Any:
        if method == "kernel_pca":
            return _Pca(components, Kernel(kernel, bandwidth))
        common: dict[str, Any] = {"kernel": kernel, "bandwidth": bandwidth}
        if method == "contrastive":
            return ContrastiveKernel(components, noise=noise, **common)
        if method == "spectral":
            return SpectralContrastiveKernel(components, noise=noise, max_iterations=200, **common)
        # rows that are equal, and kernels of small rank, need the nugget
        return KernelAutoencoder(
            components, ridge=0.1, nugget=1e-3, tolerance=1e-3, max_iterations=100, n_init=2, **common
        )

    return make


class _Pca:
    """Kernel PCA of scikit-learn on our Gram matrices: it knows no Laplacian and no ReLU kernel."""

    def __init__(self, components: int, kernel: Kernel) -> None:
        self._kernel = kernel
        self._pca = KernelPCA(components, kernel="precomputed", eigen_solver="dense")

    def fit(self, rows: np.ndarray) -> _Pca:
        self._rows = rows
        try:
            self._pca.fit(self._kernel(rows, rows))
        except (
            ValueError
        ) as error:  # LAPACK finds no pair where all eigenvalues are equal, as for tiny bandwidths
            raise DataError(f"Kernel PCA of scikit-learn failed: {error}.") from error
        if (self._pca.eigenvalues_ <= 0).any():
            raise DataError("Kernel PCA has fewer positive eigenvalues than components.")
        return self

    def transform(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(self._pca.transform(self._kernel(rows, self._rows)))


def accuracy(train: np.ndarray, train_y: np.ndarray, test: np.ndarray, test_y: np.ndarray) -> float:
    """Return the accuracy of three nearest neighbours."""
    near = KNeighborsClassifier(min(3, len(train))).fit(train, train_y)
    return float((near.predict(test) == test_y).mean())


def one_split(
    rows: np.ndarray,
    labels: np.ndarray,
    seed: int,
    methods: list[str],
    values: tuple[float, ...],
    noise: float,
) -> dict[str, Any]:
    """Return the accuracies of one split, by method and kernel, and the kernel that leave-one-out chooses."""
    unlabelled, labelled, test = split(labels, seed)
    found: dict[str, Any] = {
        "raw": {"raw": accuracy(rows[labelled], labels[labelled], rows[test], labels[test])}
    }
    for method in methods:
        scores, chosen = {}, {}
        for kernel in KERNELS:
            grid = values if kernel in WITH_BANDWIDTH else (1.0,)
            choice = choose(
                maker(method, kernel, noise, 2), grid, rows[unlabelled], rows[labelled], labels[labelled]
            )
            near, far = (choice.estimator.transform(rows[part]) for part in (labelled, test))
            scores[kernel] = accuracy(near, labels[labelled], far, labels[test])
            chosen[kernel] = leave_one_out(near, labels[labelled])
        found[method] = {**scores, "chosen": scores[max(chosen, key=chosen.__getitem__)]}
    return found


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="tabular.h5, for iris and ionosphere")
    parser.add_argument("--sets", nargs="+", default=["circles", "cubes", "iris", "ionosphere"])
    parser.add_argument(
        "--methods", nargs="+", default=["kernel_pca", "contrastive", "spectral", "autoencoder"]
    )
    parser.add_argument("--samples", type=int, default=300, help="rows of circles and cubes")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--bandwidths", type=int, default=15)
    parser.add_argument("--noise", type=float, default=0.1, help="of positives, in deviations of a column")
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    values = BANDWIDTHS if options.bandwidths == 15 else tuple(np.logspace(-2, 2, options.bandwidths))
    table: dict[str, Any] = {}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)  # steps are few on purpose
        for name in options.sets:
            rows, labels = load(name, options.data, options.samples)
            runs = [
                one_split(rows, labels, seed, options.methods, values, options.noise)
                for seed in range(options.splits)
            ]
            table[name] = {
                method: {
                    kernel: {
                        "mean": float(np.mean([run[method][kernel] for run in runs])),
                        "deviation": float(np.std([run[method][kernel] for run in runs])),
                    }
                    for kernel in runs[0][method]
                }
                for method in runs[0]
            }
            for method, scores in table[name].items():
                line = "  ".join(
                    f"{kernel} {100 * one['mean']:.1f} ± {100 * one['deviation']:.1f}"
                    for kernel, one in scores.items()
                )
                print(f"{name:<11} {method:<12} {line}", flush=True)
    if options.json:
        told = {name: value for name, value in vars(options).items() if name not in ("data", "json")}
        write_record(options.json, "kernel-figure-1", {"table": table, **told})
    return table


if __name__ == "__main__":
    main()
