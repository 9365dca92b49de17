"""k-means on whitened patches: our round of Lloyd beside FAISS's, from the same patches and the same first centroids.

    python -m benchmarks.kernels.kmeans --data mnist.h5 --atoms 4096 16384 --json results

A turn is `--iterations` rounds from the first centroids. The inertia is that of the first 50,000 patches with the
centroids that come out, found for all in the same way, after the clock. FAISS uses all patches and no initialisation of its own.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.contest import Outcome, Side, Work, contest, installed
from benchmarks.encoders import digits, encoder_of
from benchmarks.record import write_record
from benchmarks.rows import row
from smtdist.configuration import Configuration
from smtdist.kernels import codes
from smtdist.kernels.codes import add_label_sums
from smtdist.kernels.whitening import grid_scale
from smtdist.models.dictionary import moved_once
from smtdist.statistics.base import State


def patches_and_centroids(data: str | None, patches: int, atoms: int) -> tuple[Any, Any]:
    """Return whitened unit patches on the grid (36, N), none constant, and centroids (K, 36) among them."""
    images = digits(data, min(60000, max(16, patches // 60)))
    encoder = encoder_of(images[: max(256, atoms // 16)], Configuration(code="vq", patch_size=6), atoms)
    parts, found = [], 0
    for start in range(0, len(images), 64):
        grid, constant = codes.grid_patches(images[start : start + 64], encoder.whitener, False)
        parts.append(grid[:, ~constant])
        found += parts[-1].shape[1]
        if found >= patches:
            break
    if found < patches:
        raise SystemExit(f"{len(images)} images have {found} patches that are not constant, not {patches}.")
    return np.ascontiguousarray(np.concatenate(parts, axis=1)[:, :patches]), encoder.atoms


JUDGED = 50_000


def inertia_of(centroids: Any, grid: Any) -> float:
    """Return the mean squared distance of the first patches to their nearest centroid; both in units of length."""
    rows = grid[:, :JUDGED].T / np.float32(grid_scale(len(grid)))
    centroids = np.ascontiguousarray(centroids, np.float32)
    norms, total = (centroids**2).sum(axis=1), 0.0
    for start in range(0, len(rows), 1000):
        part = rows[start : start + 1000]
        nearest = ((centroids @ part.T) * -2 + norms[:, None]).min(axis=0)
        total += float((nearest + (part**2).sum(axis=1)).sum(dtype=np.float64))
    return total / len(rows)


def judged(outcome: Callable[[], Any], grid: Any, **facts: Any) -> dict[str, Any]:
    """Time what makes centroids, then judge them."""
    started = time.perf_counter()
    centroids = outcome()
    spent = time.perf_counter() - started
    return {"seconds": spent, "inertia": inertia_of(centroids, grid), **facts}


def ours(data: str | None, patches: int, atoms: int, iterations: int) -> Work:
    """Prepare rounds of this project's kernels."""
    grid, start = patches_and_centroids(data, patches, atoms)
    scale, settings = grid_scale(len(grid)), Configuration(code="vq", dictionary_method="kmeans")
    spares = np.zeros((0, len(grid)), np.float32)

    def rounds() -> Any:
        centres = start
        for _ in range(iterations):
            counts, sums = np.zeros(atoms, np.int64), np.zeros((atoms, len(grid)), np.int64)
            labels, _ = codes.nearest_atoms(grid, centres, euclidean=True)
            add_label_sums(counts, sums, labels, grid)
            state: State = {"counts": counts, "sums": sums, "spare_vector": spares}
            centres = moved_once(centres, state, settings)
        return centres / np.float32(scale)

    return lambda: judged(rounds, grid)


def faiss_rounds(data: str | None, patches: int, atoms: int, iterations: int) -> Work:
    """Prepare rounds of FAISS's k-means."""
    import faiss

    grid, start = patches_and_centroids(data, patches, atoms)
    scale = np.float32(grid_scale(len(grid)))
    rows, first = np.ascontiguousarray(grid.T) / scale, start / scale
    grid = np.ascontiguousarray(grid[:, :JUDGED])

    def rounds() -> Any:
        means = faiss.Kmeans(rows.shape[1], atoms, niter=iterations, max_points_per_centroid=len(rows))
        means.train(rows, init_centroids=first)
        return means.centroids

    return lambda: judged(rounds, grid, version=faiss.__version__)


def sklearn_rounds(data: str | None, patches: int, atoms: int, iterations: int) -> Work:
    """Prepare rounds of scikit-learn's k-means (Lloyd)."""
    from sklearn.cluster import KMeans

    grid, start = patches_and_centroids(data, patches, atoms)
    scale = np.float32(grid_scale(len(grid)))
    rows, first = np.ascontiguousarray(grid.T) / scale, start / scale

    def rounds() -> Any:
        means = KMeans(atoms, init=first, n_init=1, max_iter=iterations, tol=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it says that it did not converge
            means.fit(rows)
        return means.cluster_centers_

    return lambda: judged(rounds, grid)


def dask_ml_rounds(data: str | None, patches: int, atoms: int, iterations: int) -> Work:
    """Prepare rounds of dask-ml's k-means, on threads, the patches in two chunks."""
    import dask.array
    from dask_ml.cluster import KMeans

    grid, start = patches_and_centroids(data, patches, atoms)
    scale = np.float32(grid_scale(len(grid)))
    rows, first = np.ascontiguousarray(grid.T) / scale, start / scale
    chunked = dask.array.from_array(rows, chunks=(-(-patches // 2), rows.shape[1]))

    def rounds() -> Any:
        means = KMeans(atoms, init=first, max_iter=iterations, tol=0)
        means.fit(chunked)
        return means.cluster_centers_

    return lambda: judged(rounds, grid)


PEERS = {
    "FAISS": ("faiss", "faiss_rounds"),
    "scikit-learn": ("sklearn", "sklearn_rounds"),
    "dask-ml": ("dask_ml", "dask_ml_rounds"),
}


def per_iteration(outcome: Outcome, iterations: int) -> Outcome:
    """Return the outcome of one round."""
    return replace(
        outcome,
        seconds=[one / iterations for one in outcome.seconds],
        cpu_seconds=[one / iterations for one in outcome.cpu_seconds],
    )


def compare(options: argparse.Namespace, atoms: int) -> dict[str, Any]:
    """Run one size."""
    settings = {"data": options.data, "patches": options.patches, "atoms": atoms}
    rounds = {**settings, "iterations": options.iterations}
    here = "benchmarks.kernels.kmeans"
    sides = {"ours": Side(here, "ours", rounds)}
    product = {"rows": atoms, "inner": 36, "columns": options.patches, "threads": options.threads}
    sides["floor"] = Side("benchmarks.floors", "bare_product", product)
    module, function = PEERS[options.peer]
    if installed(module):
        sides["peer"] = Side(here, function, rounds)
    found = contest(
        sides, options.repeats, threads=options.threads, apart=not options.here, warm=not options.cold
    )
    found.update(
        {name: per_iteration(found[name], options.iterations) for name in found if name != "floor"}
    )
    facts: dict[str, Any] = {"patches": options.patches, "iterations": options.iterations}
    if "peer" in found:
        facts["inertia_ratio"] = found["ours"].facts["inertia"] / found["peer"].facts["inertia"]
    return row(
        f"k-means round, {options.patches:,} patches of 36 pixels, K = {atoms:,}",
        found["ours"],
        floor=("sgemm", found["floor"]),
        peer=(options.peer, found["peer"]) if "peer" in found else None,
        asked=f"faster than {options.peer}, inertia within 1 %",
        **facts,
    )


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Run, print, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="HDF5 file with MNIST's train/images")
    parser.add_argument("--patches", type=int, default=1_000_000)
    parser.add_argument("--atoms", type=int, nargs="+", default=[4096, 16384])
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peer", choices=list(PEERS), default="FAISS")
    parser.add_argument("--cold", action="store_true", help="no turn to warm up")
    parser.add_argument("--here", action="store_true", help="all in this process")
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    rows = [compare(options, atoms) for atoms in options.atoms]
    for one in rows:
        print({key: value for key, value in one.items() if not key.endswith("by_turn")}, flush=True)
    if options.json:
        write_record(options.json, f"kmeans-{options.peer}-K{options.atoms[-1]}", {"rows": rows})
    return rows


if __name__ == "__main__":
    main()
