"""Exact nearest neighbours beside FAISS's flat index, on representations of MNIST.

    python -m benchmarks.kernels.neighbours --z z.h5 --json results

`--z` is a file with `train` (n, d) and `test` (m, d); without it, rows are cosines of random projections of MNIST, or of
digits that stand in for it. Our time holds the scaling of all rows to length 1; FAISS gets rows that are scaled already, and
its index, another copy of them, is made before the clock starts.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contest import Side, Work, contest, installed
from benchmarks.encoders import digits
from benchmarks.floors import bare_product
from benchmarks.record import write_record
from benchmarks.rows import row

__all__ = ["bare_product", "faiss_flat", "ours"]


def rows_of(z: str | None, data: str | None, train: int, test: int, features: int) -> tuple[Any, Any]:
    """Return float32 training and test rows."""
    if z is not None:
        import h5py

        with h5py.File(z, "r", locking=False) as file:
            read = [
                file[name][:count].reshape(count, -1) for name, count in (("train", train), ("test", test))
            ]
        return read[0].astype(np.float32), read[1].astype(np.float32)
    draw = np.random.default_rng(0)
    matrix = draw.standard_normal((784, features), dtype=np.float32) * np.float32(0.02)
    phases = draw.uniform(0, 2 * np.pi, features).astype(np.float32)
    found = []
    for group, count in (("train", train), ("test", test)):
        images = digits(data, count, group).reshape(count, -1)
        rows = np.empty((count, features), np.float32)
        for start in range(0, count, 4096):
            block = rows[start : start + 4096]
            np.matmul(images[start : start + 4096].astype(np.float32) / 16, matrix, out=block)
            block += phases
            np.cos(block, out=block)
        found.append(rows)
    return found[0], found[1]


def ours(z: str | None, data: str | None, train: int, test: int, features: int, k: int) -> Work:
    """Prepare this project's search."""
    from smtdist.evaluate.knn import nearest

    rows, queries = rows_of(z, data, train, test, features)
    nearest(queries[:8], rows[:64], min(k, 64))

    def work() -> dict[str, Any]:
        _, found = nearest(queries, rows, k)
        return {"checksum": int(found.sum())}

    return work


def faiss_flat(z: str | None, data: str | None, train: int, test: int, features: int, k: int) -> Work:
    """Prepare an index of inner products."""
    import faiss

    rows, queries = rows_of(z, data, train, test, features)
    for block in (rows, queries):
        block /= np.linalg.norm(block, axis=1, keepdims=True)
    index = faiss.IndexFlatIP(features)
    index.add(rows)
    del rows

    def work() -> dict[str, Any]:
        _, found = index.search(queries, k)
        return {"checksum": int(found.sum()), "version": faiss.__version__}

    return work


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Run, print, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--z", help="HDF5 file of representations")
    parser.add_argument("--data", help="HDF5 file with MNIST's train/images and test/images")
    parser.add_argument("--train", type=int, default=60000)
    parser.add_argument("--test", type=int, default=10000)
    parser.add_argument("--features", type=int, default=3200)
    parser.add_argument("-k", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cold", action="store_true", help="no turn to warm up")
    parser.add_argument("--here", action="store_true", help="all in this process")
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    names = ("z", "data", "train", "test", "features", "k")
    settings = {name: getattr(options, name) for name in names}
    here = "benchmarks.kernels.neighbours"
    product = {"rows": options.test, "inner": options.features, "columns": options.train}
    sides = {
        "ours": Side(here, "ours", settings),
        "floor": Side(here, "bare_product", {**product, "threads": options.threads}),
    }
    if installed("faiss"):
        sides["peer"] = Side(here, "faiss_flat", settings)
    found = contest(
        sides, options.repeats, threads=options.threads, apart=not options.here, warm=not options.cold
    )
    rows_bytes = 4 * options.features * (options.train + options.test)
    result = row(
        f"exact {options.k}-NN, {options.test:,} x {options.train:,}, d = {options.features:,}",
        found["ours"],
        floor=("sgemm", found["floor"]),
        peer=("FAISS flat", found["peer"]) if "peer" in found else None,
        asked="no slower than FAISS flat; memory bounded by the block",
        representation=Path(options.z).stem if options.z else "random cosines",
        rows_bytes=rows_bytes,
    )
    print(result, flush=True)
    if options.json:
        write_record(options.json, f"neighbours-{options.test}-{options.train}", {"rows": [result]})
    return [result]


if __name__ == "__main__":
    main()
