"""The public re-implementation of the transform beside ours: the same images, end to end, as commands.

    git clone https://github.com/as821/sparse-manifold-transform PEER
    python -m benchmarks.peers.reimplementation --peer PEER --data cifar10_jpeg.h5 --json results

PEER is a checkout beside the project; `--python` is an interpreter that has what it needs, by default the one of PEER/.venv
where there is one: torch, einops, tqdm, NumPy 1 and SciPy 1.12, the last release in which its sparse codes pass its own checks.
Both learn from `--images` images with their mirror images, second order over the whole image, one mean pixel taken off the
patches of an image, a diverse dictionary of K atoms, 384 components after the first 16, and judge by soft k-NN on `--test`
images, mirror images voting too. Our commands run a second time with half of the atoms drawn and the other half their mirror
images (`dictionary_mirrored`), which the peer cannot do: mirror images then need no second look. Its statistics are the
operator, the second moment and the cost matrix, without the eigensolves; ours the pass "statistics". CPU seconds count all
processes, memory is the largest sum over them, scratch what lies in its folder of memory maps.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from benchmarks.contest import Outcome
from benchmarks.kernels.pass3 import read_images
from benchmarks.processes import watched
from benchmarks.record import write_record
from benchmarks.rows import row

COMMAND = "from smtdist.cli import main; main()"
TORCHVISION = {
    "__init__.py": "from . import datasets, transforms\n",
    "datasets.py": """
import os
import numpy as np

class CIFAR10:
    classes = list(range(10))

    def __init__(self, root, train, transform, download):
        data = np.load(os.path.join(root, "images.npz"))
        group = "train" if train else "test"
        self.images, self.labels, self.transform = data[group], data[group + "_labels"], transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.transform(self.images[index]), int(self.labels[index])

MNIST = CIFAR10
""",
    "transforms.py": """
import torch
from types import SimpleNamespace

class ToTensor:
    def __call__(self, image):
        return torch.from_numpy(image).permute(2, 0, 1).float() / 255

class Compose:
    def __init__(self, steps):
        self.steps = steps

    def __call__(self, image):
        for step in self.steps:
            image = step(image)
        return image

functional = SimpleNamespace(hflip=lambda image: image.flip(-1))
""",
}
"""All that the peer uses of torchvision, over a file of images: neither downloads nor another data format."""
SITE = """
import resource

raise_limit = resource.setrlimit

def as_far_as_allowed(kind, limits):
    try:
        raise_limit(kind, limits)
    except ValueError:
        raise_limit(kind, 2 * resource.getrlimit(kind)[1:])

resource.setrlimit = as_far_as_allowed
"""
"""For each process of the peer: as many open files as the machine allows, where it asks for more than that."""


def write_data(options: argparse.Namespace, folder: Path) -> None:
    """Write the same images for both: `data.h5`, and `images.npz` with the small torchvision beside it."""
    images = read_images(options.data, options.images + options.test)
    labels = np.arange(len(images)) % 10
    if options.data is not None:
        with h5py.File(options.data, "r", locking=False) as file:
            labels = file["train/labels"][: len(images)].astype(np.int64)
    cut = options.images
    parts = {"train": slice(0, cut), "test": slice(cut, None)}
    with h5py.File(folder / "data.h5", "w") as file:
        for name, part in parts.items():
            file.create_dataset(
                f"{name}/images", data=images[part], chunks=(min(50, len(images[part])), *images.shape[1:])
            )
            file[f"{name}/labels"] = labels[part]
    arrays = {name: images[part] for name, part in parts.items()}
    arrays |= {f"{name}_labels": labels[part] for name, part in parts.items()}
    np.savez(folder / "images.npz", **arrays)
    (folder / "stub" / "torchvision").mkdir(parents=True)
    (folder / "stub" / "sitecustomize.py").write_text(SITE)
    for name, text in TORCHVISION.items():
        (folder / "stub" / "torchvision" / name).write_text(text)


def peer_run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run the peer once."""
    scratch, times = folder / "scratch", folder / "times.json"
    words = {
        "dataset": "cifar10",
        "dataset-path": str(folder),
        "samples": options.images,
        "test-samples": options.test,
        "mmap-path": str(scratch),
        "dict-sz": options.atoms,
        "dict_thresh": options.cosine,
        "embed-dim": options.components,
        "gq_thresh": 0.3,
        "optim": "two",
        "context-sz": 32,
        "diff_op_a_chunk": 1024,
        "diff_op_d_chunk": 100,
        "cov_chunk": 1024,
    }
    driver = Path(__file__).with_name("reimplementation_driver.py").resolve()
    own = Path(options.peer, ".venv", "bin", "python").absolute()
    python = options.python or (str(own) if own.exists() else sys.executable)
    command = [python, str(driver), str(times), *(f"--{key}={value}" for key, value in words.items())]
    libraries = [str(folder / "stub"), *options.libraries]
    found = watched(
        command,
        scratch=scratch,
        folder=Path(options.peer).resolve(),
        environment={"PYTHONPATH": ":".join(libraries), "OMP_NUM_THREADS": str(options.threads)},
    )
    spent = json.loads(times.read_text())
    summing = (
        spent["construct_diff_op"]
        + spent["_get_inv_sqrt_cov"]
        + spent["_calc_inner"]
        - spent["mx_inv_sqrt"]
    )
    lines = found.pop("lines")
    found["facts"] |= {
        "statistics_seconds": summing,
        "accuracy": next((line for line in lines if line.startswith("Test set accuracy")), ""),
        "sparsity": next((line for line in lines if line.startswith("Total sparsity")), ""),
    }
    return found


def our_run(options: argparse.Namespace, folder: Path, mirrored: bool = False) -> dict[str, Any]:
    """Run our two commands once, with `mirrored` with a dictionary that is closed under mirroring."""
    settings = {
        "feature": "gq",
        "threshold": 0.3,
        "context": "whole",
        "order": 2,
        "flip": "true",
        "dictionary": options.atoms,
        "dictionary_method": "diverse",
        "dictionary_cosine": options.cosine,
        "dictionary_mirrored": str(mirrored).lower(),
        "n_components": options.components,
        "drop": 16,
        "ridge": 1e-3,
        "mean": "level",  # the peer takes one number off a patch, the mean pixel of its context
        "pool_size": 4,
        "pool_stride": 2,
    }
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    words.append("--no-first-look")
    data, model = str(folder / "data.h5"), str(folder / "model.h5")
    quiet = ["--workers", "0", "--quiet", "--json"]
    before = {path.name for path in folder.iterdir()}
    fit = ["fit", data, "--dataset", "train/images", "--out", model, "--overwrite", *words, *quiet]
    fitted = watched([sys.executable, "-c", COMMAND, *fit])
    judge = [
        "evaluate",
        model,
        data,
        "--train",
        "train",
        "--test",
        "test",
        "--metric",
        "knn",
        "--mirrored",
        *("--neighbours", "30", "--temperature", "0.03"),
        *quiet,
    ]
    judged = watched([sys.executable, "-c", COMMAND, *judge])
    left = {path.name for path in folder.iterdir()} - before - {"model.h5"}
    passes = {record["name"]: record for record in json.loads(fitted["lines"][-1])["passes"]}
    return {
        "seconds": fitted["seconds"] + judged["seconds"],
        "cpu_seconds": fitted["cpu_seconds"] + judged["cpu_seconds"],
        "peak_bytes": max(fitted["peak_bytes"], judged["peak_bytes"]),
        "added_bytes": 0,
        "facts": {
            "statistics_seconds": passes["statistics"]["seconds"],
            "top1": json.loads(judged["lines"][-1])["top1"],
            "scratch_files": sorted(left),
        },
    }


def rows_from(
    ours: Outcome, peer: Outcome, options: argparse.Namespace, with_what: str = ""
) -> list[dict[str, Any]]:
    """Return the rows: end to end in CPU seconds, and statistics in seconds."""
    what = f"{options.images} images with flips, K = {options.atoms:,}{with_what}"
    whole = row(
        f"end to end, {what}",
        ours,
        peer=("as821/sparse-manifold-transform", peer),
        asked="at least 25x fewer CPU-seconds, at most 1/10 of its memory, zero scratch",
    )
    whole["facts"] |= {
        "times_cpu": whole["peer_cpu_seconds"] / whole["ours_cpu_seconds"],
        "memory_share": whole["ours_peak_bytes"] / whole["peer_peak_bytes"],
    }
    patches = 2 * options.images * 27 * 27
    mine, theirs = ours.facts["statistics_seconds"], peer.facts["statistics_seconds"]
    sums = row(
        f"statistics, {what}",
        mine,
        peer=("as821/sparse-manifold-transform", theirs),
        asked="at least 40x",
        patches=patches,
        patches_per_second=patches / mine,
        peer_patches_per_second=patches / theirs,
    )
    return [whole, sums]


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Run, print, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", required=True, help="folder of the peer's checkout")
    parser.add_argument("--python", help="interpreter for the peer")
    parser.add_argument("--libraries", nargs="*", default=[], help="folders of packages for the peer")
    parser.add_argument("--data", help="HDF5 file with train/bytes, train/offsets, train/labels")
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--test", type=int, default=200)
    parser.add_argument("--atoms", type=int, default=2048)
    parser.add_argument("--cosine", type=float, default=0.7)
    parser.add_argument("--components", type=int, default=384)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peer-repeats", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    ours, closed, peer = Outcome(), Outcome(), Outcome()
    for turn in range(max(options.repeats, options.peer_repeats)):
        for outcome, run, count in (
            (ours, our_run, options.repeats),
            (closed, partial(our_run, mirrored=True), options.repeats),
            (peer, peer_run, options.peer_repeats),
        ):
            if turn < count:
                with tempfile.TemporaryDirectory(prefix="smtdist-peer-") as name:
                    write_data(options, Path(name))
                    outcome.take(run(options, Path(name)))
    rows = rows_from(ours, peer, options)
    rows += rows_from(closed, peer, options, ", atoms closed under mirroring")
    for one in rows:
        print(one, flush=True)
    if options.json:
        write_record(options.json, f"reimplementation-K{options.atoms}", {"rows": rows})
    return rows


if __name__ == "__main__":
    main()
