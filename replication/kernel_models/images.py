"""A few images of the first classes of MNIST and CIFAR-10, as rows in [0, 1]."""

from __future__ import annotations

import h5py
import numpy as np

from smtdist.data.opening import open_source


def first_classes(
    path: str, classes: int, n: int, *, group: str = "train"
) -> tuple[np.ndarray, np.ndarray]:
    """Return n images of the first so many classes, about as many of each, as rows (n, pixels), and labels."""
    with h5py.File(path, "r") as file:
        labels = file[f"{group}/labels"][: 40 * n].reshape(-1)
    per_class = -(-n // classes)
    chosen = np.sort(np.concatenate([np.flatnonzero(labels == c)[:per_class] for c in range(classes)]))[:n]
    source = open_source(path, group)
    rows = []
    with source.opened() as reader:
        for start in range(0, int(chosen[-1]) + 1, 1000):
            block = reader.read(start, min(start + 1000, source.n_samples))
            inside = chosen[(chosen >= start) & (chosen < start + 1000)] - start
            rows.append(block[inside].reshape(len(inside), -1) / 255)
    order = np.random.default_rng(0).permutation(len(chosen))
    return np.concatenate(rows)[order], labels[chosen][order].astype(np.int64)
