"""smtdist's heads by fewer windows of an image, judged by training images alone, in a process of its own; it prints JSON.

    python -m replication.when_to_use.pooling FEATURES.h5 --held-out 1000

FEATURES.h5 is what `smtdist transform --features both --mirrored` wrote of training images. Heads learn from all but the last,
which judge. The embedding in 4 x 4 windows and the codes in 2 x 2 cells, as they are, are compared with their means over the
whole image: `evaluate --pool 1` pools the embedding so. Differences are paired, from the kernel of all windows.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
from numpy.typing import NDArray

from replication.quality.paired import ahead
from smtdist.evaluate.cosine_rows import Comparer, Part
from smtdist.evaluate.kernel_ridge import fit_kernel_ridge
from smtdist.evaluate.linear import fit_probe
from smtdist.evaluate.run import Kernel
from smtdist.models.readout import layout_from

Float32 = NDArray[np.float32]
KERNELS: Final = (
    ("embedding", "codes"),
    ("embedding over all", "codes"),
    ("embedding over all", "codes over all"),
    ("codes over all",),
)
PROBES: Final = (("embedding", False), ("embedding over all", False), ("embedding over all", True))
"""Parts that a linear probe sees, and whether mirror images are training images, too."""


def read(path: Path) -> tuple[dict[str, Float32], NDArray[np.int64]]:
    """Return parts (n, 2, F), of images and their mirror images, and labels."""
    with h5py.File(path) as file:
        z, labels = file["z"][:], file["labels"][:].astype(np.int64)
        (columns,) = layout_from(json.loads(file.attrs["parts"]))
    parts: dict[str, Float32] = {}
    for one in columns:
        if one.mirrored is None:
            raise SystemExit(f"{path} has no mirror images; write it with transform --mirrored.")
        each = [z[:, start : start + one.block.size] for start in (one.start, one.mirrored)]
        rows = np.stack(each, axis=1)
        cells = rows.reshape(*rows.shape[:2], -1, one.block.shape[-1])
        # counts of codes are stored as square roots
        mean = np.sqrt((cells**2).mean(axis=2)) if one.block.counts else cells.mean(axis=2)
        parts |= {one.block.name: rows, f"{one.block.name} over all": mean}
    return parts, labels


def compared(parts: dict[str, Float32], y: NDArray[np.int64], held_out: int) -> list[dict[str, Any]]:
    """Return what each head gets right of the images that are held out."""
    known, asked = slice(0, len(y) - held_out), slice(len(y) - held_out, None)
    found: list[tuple[dict[str, Any], NDArray[np.bool_]]] = []
    for names in KERNELS:

        def seen(rows: slice, names: tuple[str, ...] = names) -> list[list[Part]]:
            own = [(name, np.ascontiguousarray(parts[name][rows].swapaxes(0, 1))) for name in names]
            return [[Part(views[0], views[1], name.startswith("codes")) for name, views in own]]

        train = seen(known)
        fitted = fit_kernel_ridge(train, y[known], comparer=Comparer.of(train, Kernel().temperature))
        right = fitted.predict(seen(asked)) == y[asked]
        found.append(({"head": "kernel", "parts": list(names), "mirrored": True, "penalty": fitted.penalty}, right))  # fmt: skip
    for name, mirrored in PROBES:
        views = [0, 1] if mirrored else [0]
        rows = np.concatenate([parts[name][known, view] for view in views])
        probe = fit_probe(rows, np.tile(y[known], len(views)))
        logits = parts[name][asked, 0] @ probe.coefficients.T + probe.intercepts
        right = probe.classes[logits.argmax(axis=1)] == y[asked]
        about = {"head": "linear", "parts": [name], "mirrored": mirrored, "C": probe.C}
        found.append((about, right))
    draw = np.random.default_rng(0)
    return [
        {**about, "top1": float(right.mean()), **ahead(right, found[0][1], draw)} for about, right in found
    ]


def main() -> None:
    """Compare, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("features", type=Path)
    parser.add_argument("--held-out", type=int, default=1000)
    arguments = parser.parse_args()
    parts, labels = read(arguments.features)
    rows = compared(parts, labels, arguments.held_out)
    print(json.dumps({"n_train": len(labels) - arguments.held_out, "n_judged": arguments.held_out, "rows": rows}))  # fmt: skip


if __name__ == "__main__":
    main()
