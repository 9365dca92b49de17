"""Every benchmark that the one command runs: how it is called, at full size and tiny, and what it needs."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.contest import installed
from benchmarks.encoders import digits_and_labels
from benchmarks.rows import row
from smtdist.engine.memory import peak_bytes

FOLDERS: Final = ("SMTDIST_DATA", "../shared/data")


@dataclass(frozen=True)
class Bench:
    """`module.main(arguments)` returns rows, or what `rows` makes rows of.

    `data` is the file of real data; where it is missing the benchmark makes its own, or gets digits where it `needs_file`.
    `needs` are modules without which there is nothing to compare.
    """

    name: str
    group: str
    module: str
    full: tuple[str, ...]
    tiny: tuple[str, ...]
    data: str | None = None
    needs: tuple[str, ...] = ()
    option: str | None = None
    rows: Callable[[Any], list[dict[str, Any]]] | None = None
    needs_file: bool = False
    repeats: bool = True
    gpu: bool = False

    def missing(self, given: dict[str, str], gpu: bool) -> str | None:
        """Return why it cannot run here, None where it can."""
        absent = [name for name in self.needs if not installed(name)]
        if absent:
            return f"needs {', '.join(absent)}"
        if self.option and self.option not in given:
            return f"needs --{self.option}"
        if self.gpu != gpu:
            return "is for a GPU" if self.gpu else "is for the CPU"
        return None

    def run(self, given: dict[str, str], folder: Path | None, tiny: bool) -> list[dict[str, Any]]:
        """Run it and return its rows."""
        words = list(self.tiny if tiny else self.full)
        if self.option:
            words += [f"--{self.option}", given[self.option]]
        with tempfile.TemporaryDirectory(prefix="smtdist-bench-") as made:
            if self.data and folder is not None and not tiny and (folder / self.data).exists():
                words = ["--data", str(folder / self.data), *words]
            elif self.needs_file:
                words = ["--data", str(digits_file(Path(made, "digits.h5"))), *words]
            found = importlib.import_module(self.module).main(words)
        rows: list[dict[str, Any]] = found if self.rows is None else self.rows(found)
        return rows


def data_folder(given: str | None) -> Path | None:
    """Return the folder of real data: the given one, SMTDIST_DATA, or the one beside the project."""
    if given is not None:
        return Path(given)
    named = os.environ.get(FOLDERS[0])
    folder = Path(named) if named else Path(__file__).parents[1] / FOLDERS[1]
    return folder if folder.is_dir() else None


def digits_file(path: Path) -> Path:
    """Write digits that stand in for MNIST."""
    import h5py

    with h5py.File(path, "w") as file:
        for group, count in (("train", 300), ("test", 60)):
            images, labels = digits_and_labels(count, group)
            file.create_dataset(f"{group}/images", data=images, chunks=(50, 28, 28))
            file[f"{group}/labels"] = labels
    return path


def pass_rows(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of `kernels.pass3`."""
    asked = {
        (2048, False, "gq"): "at most 1.5x its sgemm",
        (8192, False, "gq"): "at most 1.8x its sgemm",
        (16384, False, "vq"): "at most 1.3x its sgemm",
        (16384, True, "vq"): "at most 1.3x its sgemm",
        (2048, True, "gq"): "at most 2.2x its sgemm",
        (8192, True, "gq"): "at most 2.2x its sgemm",
    }
    rows = []
    for one in found:
        colour = "grey" if one["grey"] else "colour"
        threshold = f", t = {one['threshold']}" if one["threshold"] is not None else ""
        made = row(
            f"statistics pass, {colour} f_{one['feature']}{threshold}, context {one['context']}, K = {one['atoms']:,}",
            one["seconds"],
            floor=("sgemm", one["sgemm_seconds"]),
            asked=asked.get((one["atoms"], one["grey"], one["feature"]), ""),
            **{key: one[key] for key in ("patches", "active_per_patch", "sgemm_gflops", "ratio_by_turn")},
        )
        rows.append({**made, "ours_peak_bytes": one["peak_bytes"]})
    return rows


def memory_rows(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of `scaling.memory_and_disk`: seconds of each pass, its peak beside its projection."""
    rows = []
    for one in found:
        for part in one["passes"]:
            if "projected_bytes" not in part:
                continue
            made = row(
                f"pass {part['name']}, {one['samples']:,} images, {one['workers']} workers",
                part["seconds"],
                projected_bytes=part["projected_bytes"],
            )
            rows.append(
                {**made, "ours_peak_bytes": part["peak_bytes"], "asked": "peak at most as projected"}
            )
    return rows


def decode_rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of `kernels.decode`."""
    images = found["images"]
    made = row(
        f"reading and decoding {images:,} JPEGs of 32 x 32",
        images / found["reader_per_second"],
        floor=("reading the bytes alone", images / found["stored_per_second"]),
        peer=("Pillow, one thread", images / found["pillow_per_second"]),
        **{key: found[key] for key in ("threads", "share_of_pass", "atoms", "pass_per_second")},
    )
    return [{**made, "ours_peak_bytes": peak_bytes(), "asked": "a small share of the pass it feeds"}]


def solve_rows(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of `solve.eigen`."""
    rows = []
    for one in found:
        made = row(
            f"the {one['components']} smallest eigenvectors, K = {one['atoms']:,}, whitening excluded",
            one["seconds"],
            floor=("its products at the rate of a large one", one["floor_seconds"]),
            peer=("scipy.linalg.eigh", one["eigh_seconds"]) if "eigh_seconds" in one else None,
            asked="at least 2x LAPACK at K = 8,192" if one["atoms"] == 8192 else "",
            **{key: one[key] for key in ("residual", "turns", "default", "sgemm_gflops")},
        )
        rows.append(
            {**made, "ours_peak_bytes": one["peak_bytes"], "peer_peak_bytes": one.get("eigh_peak_bytes")}
        )
    return rows


CIFAR: Final = "cifar10_jpeg.h5"
MNIST: Final = "mnist.h5"
_SMALL: Final = ("--images", "8", "--batch", "4", "--repeats", "1", "--atoms", "48")

BENCHES: Final = (
    Bench(
        "pass3", "kernels", "benchmarks.kernels.pass3", ("--repeats", "7"), _SMALL, CIFAR, rows=pass_rows
    ),
    Bench(
        "pass3-grey",
        "kernels",
        "benchmarks.kernels.pass3",
        ("--repeats", "7", "--grey"),
        (*_SMALL, "--grey"),
        CIFAR,
        rows=pass_rows,
    ),
    Bench(
        "pass3-vq",
        "kernels",
        "benchmarks.kernels.pass3",
        ("--repeats", "5", "--feature", "vq", "--atoms", "16384", "--batch", "32"),
        (*_SMALL, "--feature", "vq"),
        CIFAR,
        rows=pass_rows,
    ),
    Bench(
        "pass3-vq-grey",
        "kernels",
        "benchmarks.kernels.pass3",
        ("--repeats", "5", "--feature", "vq", "--grey", "--atoms", "16384", "--batch", "64"),
        (*_SMALL, "--feature", "vq", "--grey"),
        CIFAR,
        rows=pass_rows,
    ),
    Bench(
        "pass3-gpu",
        "kernels",
        "benchmarks.kernels.pass3",
        ("--repeats", "7", "--gpu", "--batch", "512"),
        (*_SMALL, "--gpu"),
        CIFAR,
        needs=("cupy",),
        rows=pass_rows,
        gpu=True,
    ),
    Bench(
        "kmeans",
        "kernels",
        "benchmarks.kernels.kmeans",
        ("--atoms", "4096", "--iterations", "2", "--cold"),
        ("--patches", "500", "--atoms", "16", "--iterations", "2", "--repeats", "1", "--here"),
        MNIST,
    ),
    Bench(
        "kmeans-16384",
        "kernels",
        "benchmarks.kernels.kmeans",
        ("--atoms", "16384", "--iterations", "1", "--cold"),
        ("--patches", "500", "--atoms", "32", "--iterations", "1", "--repeats", "1", "--here"),
        MNIST,
    ),
    Bench(
        "neighbours",
        "kernels",
        "benchmarks.kernels.neighbours",
        ("--cold",),
        ("--train", "90", "--test", "20", "--features", "32", "-k", "3", "--repeats", "1", "--here"),
        MNIST,
    ),
    Bench(
        "decode",
        "kernels",
        "benchmarks.kernels.decode",
        ("--images", "2048", "--fitted", "512"),
        ("--images", "12", "--fitted", "8", "--atoms", "64", "--batch", "4", "--repeats", "1"),
        CIFAR,
        rows=decode_rows,
    ),
    Bench(
        "solve",
        "kernels",
        "benchmarks.solve.eigen",
        ("--atoms", "8192", "--images", "400", "--repeats", "5", "--peer-repeats", "5"),
        (
            *("--atoms", "64", "--images", "40", "--components", "4"),
            *("--repeats", "1", "--peer-repeats", "1", "--threads", "1"),
        ),
        CIFAR,
        rows=solve_rows,
    ),
    Bench(
        "fit-gpu",
        "end to end",
        "benchmarks.end_to_end.fit",
        ("--gpu",),
        ("--images", "30", "--atoms", "64", "--components", "4", "--gpu"),
        CIFAR,
        needs=("cupy",),
        repeats=False,
        gpu=True,
    ),
    Bench(
        "fit",
        "end to end",
        "benchmarks.end_to_end.fit",
        ("--images", "5000", "--atoms", "2048"),
        ("--images", "30", "--atoms", "64", "--components", "4"),
        CIFAR,
        repeats=False,
    ),
    Bench(
        "cold-start",
        "end to end",
        "benchmarks.end_to_end.cold_start",
        (),
        ("--repeats", "1"),
    ),
    Bench(
        "memory-and-disk",
        "scaling",
        "benchmarks.scaling.memory_and_disk",
        ("--samples", "2000", "--workers", "2", "--set", "dictionary=1024"),
        ("--samples", "280", "--workers", "1", "--set", "dictionary=64"),
        MNIST,
        rows=memory_rows,
        needs_file=True,
        repeats=False,
    ),
    Bench(
        "sparse-sums",
        "peers",
        "benchmarks.peers.sparse_sums",
        (),
        ("--atoms", "48", "--images", "3", "--peer-images", "2", "--repeats", "1", "--here"),
        CIFAR,
    ),
    Bench(
        "kmeans-sklearn",
        "peers",
        "benchmarks.kernels.kmeans",
        ("--peer", "scikit-learn", "--patches", "200000", "--atoms", "1024", "--iterations", "3"),
        (
            *("--peer", "scikit-learn", "--patches", "400", "--atoms", "16"),
            *("--iterations", "2", "--repeats", "1", "--here"),
        ),
        MNIST,
    ),
    Bench(
        "kmeans-dask-ml",
        "peers",
        "benchmarks.kernels.kmeans",
        ("--peer", "dask-ml", "--patches", "200000", "--atoms", "1024", "--iterations", "3"),
        (
            *("--peer", "dask-ml", "--patches", "400", "--atoms", "16"),
            *("--iterations", "2", "--repeats", "1", "--here"),
        ),
        MNIST,
        needs=("dask_ml",),
    ),
    Bench(
        "torch-pipeline",
        "peers",
        "benchmarks.peers.torch_pipeline",
        (),
        ("--atoms", "96", "--images", "4", "--repeats", "1", "--here"),
        CIFAR,
        needs=("torch",),
    ),
    Bench(
        "reimplementation",
        "peers",
        "benchmarks.peers.reimplementation",
        (),
        ("--images", "40", "--test", "10", "--atoms", "64", "--components", "16", "--repeats", "1"),
        CIFAR,
        needs=("torch", "einops"),
        option="peer",
    ),
)
