"""The smallest eigenvectors of real whitened statistics: the default's iterations beside `scipy.linalg.eigh`.

    python -m benchmarks.solve.eigen --data cifar10_jpeg.h5 --atoms 2048 4096 --json results
    python -m benchmarks.solve.eigen --data cifar10_jpeg.h5 --atoms 8192 --images 400 --keep FOLDER --repeats 1

Statistics of colour f_gq (t = 0.3, whole-image context, flips) are whitened, V = UᵀU, Q = U⁻ᵀ C U⁻¹, outside the times of
both sides. LAPACK is given the copy that it overwrites. The floor is what the iterations cannot do without: their products of
the matrix with vectors, at the rate of one large product measured in the same run. Residuals are ‖Q u - μ u‖ / ‖Q‖ in float64;
`gap_residual` is the same over the distance of the last wanted eigenvalue from the mean one, which is far smaller than ‖Q‖.
`--keep` writes Q there, or takes it from there; without `--data` images are smooth random ones.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg

from benchmarks.kernels.pass3 import read_images
from benchmarks.record import write_record
from smtdist.configuration import Configuration
from smtdist.data.array import as_source
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.memory import peak_bytes, reset_peak, resident_bytes
from smtdist.engine.passes import Engine
from smtdist.kernels import threads
from smtdist.kernels.triangle import UpperTiles
from smtdist.models.fit import fit
from smtdist.solve import lanczos, tiled
from smtdist.solve.factor import cholesky, whitened


def quotient(options: argparse.Namespace, atoms: int) -> Any:
    """Return Q, whitened outside any measurement."""
    path = None if options.keep is None else Path(options.keep, f"Q{atoms}_{options.images}.npy")
    if path is not None and path.exists():
        return np.load(path)
    images = read_images(options.data, options.images)
    settings = Configuration(n_atoms=atoms, n_components=1, augment_flip=True, null_tolerance=None)
    model, _ = fit(as_source(images), settings, Engine(SerialExecutor(options.threads)))
    sums = model.statistics
    assert sums is not None
    scatter, moment = (
        UpperTiles.of(one / sums.n_positions) for one in (sums.context_scatter, sums.second_moment)
    )
    factor = cholesky(moment)
    assert factor is not None, "V has a null space; use more images"
    result = whitened(scatter, factor).full()
    if path is not None:
        np.save(path, result)
    return result


def measure(matrix: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Time both ways in turns."""
    size, count = len(matrix), options.components
    rate = product_rate(matrix.astype(np.float32))
    applied = {np.dtype("float32"): 0, np.dtype("float64"): 0}
    product = UpperTiles.product

    def counted(self: UpperTiles, columns: Any) -> Any:
        applied[columns.dtype] += columns.shape[1]
        return product(self, columns)

    ours, theirs = [], []
    for turn in range(options.repeats):
        applied.update(dict.fromkeys(applied, 0))
        tiles = UpperTiles.of(matrix)
        UpperTiles.product = counted  # type: ignore[method-assign,assignment]
        reset_peak()
        before, start = resident_bytes(), time.perf_counter()
        vectors = tiled._smallest(tiles, count)
        ours.append(time.perf_counter() - start)
        peak = peak_bytes()
        extra = peak - before
        UpperTiles.product = product  # type: ignore[method-assign]
        del tiles
        if turn < options.peer_repeats:
            copy = matrix.copy()
            reset_peak()
            before, start = resident_bytes(), time.perf_counter()
            values, direct = scipy.linalg.eigh(
                copy.T, subset_by_index=(0, count - 1), overwrite_a=True, check_finite=False
            )
            theirs.append(time.perf_counter() - start)
            peer_peak = peak_bytes()
            peer_extra = peer_peak - before
            del copy
    moved = matrix @ vectors
    found = np.einsum("ka,ka->a", vectors, moved)
    moved -= vectors * found
    left, norm = np.linalg.norm(moved, axis=0).max(), np.abs(matrix).sum(axis=1).max()
    spectral = max(abs(found[0]), float(np.trace(matrix)) / size)
    flops = 2.0 * size * size * (applied[np.dtype("float32")] + 2 * applied[np.dtype("float64")])
    row: dict[str, Any] = {
        "atoms": size,
        "components": count,
        "seconds": statistics.median(ours),
        "floor_seconds": flops / rate,
        "sgemm_gflops": rate / 1e9,
        "products_float32": applied[np.dtype("float32")],
        "products_float64": applied[np.dtype("float64")],
        "residual": float(left / spectral),
        "residual_row_sums": float(left / norm),
        "gap_residual": float(left / (np.trace(matrix) / size - found[-1])),
        "peak_bytes": peak,
        "extra_bytes": extra,
        "default": "iterations" if tiled.suits(size, count) else "LAPACK",
        "turns": [round(one, 2) for one in ours],
    }
    if theirs:
        row |= {
            "eigh_seconds": statistics.median(theirs),
            "ratio": statistics.median(theirs) / statistics.median(ours),
            "eigh_peak_bytes": peer_peak,
            "eigh_extra_bytes": peer_extra,
            "largest_value_difference": float(np.abs(values - found).max() / spectral),
            "smallest_cosine_of_spaces": float(np.linalg.svd(direct.T @ vectors, compute_uv=False)[-1]),
            "eigh_turns": [round(one, 2) for one in theirs],
        }
    return row


def product_rate(single: Any) -> float:
    """Return the operations a second of the matrix times a block of vectors in float32."""
    block = np.ones((len(single), lanczos.BLOCK), np.float32)
    taken = []
    for _ in range(6):
        start = time.perf_counter()
        single @ block
        taken.append(time.perf_counter() - start)
    return float(2.0 * single.size * lanczos.BLOCK / min(taken))


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Run, print a table, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data")
    parser.add_argument("--atoms", type=int, nargs="+", default=[2048, 4096])
    parser.add_argument("--components", type=int, default=400)
    parser.add_argument("--images", type=int, default=1200)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peer-repeats", type=int, default=5, help="0: ours alone")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--keep", help="folder in which Q is kept")
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    threads.set_threads(options.threads)
    rows = []
    print(f"{'atoms':>6} {'ours':>8} {'floor':>8} {'eigh':>8} {'ratio':>6} {'residual':>9}")
    for atoms in options.atoms:
        row = measure(quotient(options, atoms), options)
        rows.append(row)
        print(
            f"{atoms:>6} {row['seconds']:>7.2f}s {row['floor_seconds']:>7.2f}s {row.get('eigh_seconds', 0):>7.2f}s "
            f"{row.get('ratio', 0):>6.2f} {row['residual']:>9.1e}",
            flush=True,
        )
    if options.json:
        sizes = "-".join(map(str, options.atoms))
        write_record(options.json, f"solve-eigen-{sizes}", {"threads": options.threads, "runs": rows})
    return rows


if __name__ == "__main__":
    main()
