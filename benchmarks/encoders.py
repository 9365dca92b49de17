"""Images, and encoders for them whose atoms are patches: what a benchmark of one step needs, without a whole fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from smtdist.configuration import Configuration
from smtdist.data.array import as_source
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.kernels import codes
from smtdist.kernels.types import Encoder
from smtdist.models.fit import fit


def digits(path: str | None, count: int, group: str = "train") -> Any:
    """Return the first MNIST images of a file, or others that stand in for them."""
    if path is not None and Path(path).exists():
        import h5py

        with h5py.File(path, "r", locking=False) as file:
            return file[f"{group}/images"][:count]
    return digits_and_labels(count, group)[0]


def digits_and_labels(count: int, group: str = "train") -> tuple[Any, Any]:
    """Return handwritten digits of scikit-learn, drawn and moved in 28 x 28 pixels, and what they are."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = np.kron(bunch.images * 15.9375, np.ones((3, 3))).astype(np.uint8)
    draw = np.random.default_rng(0 if group == "train" else 1)
    made, chosen = np.zeros((count, 28, 28), np.uint8), draw.integers(0, len(images), count)
    for image, which, (row, column) in zip(made, chosen, draw.integers(0, 5, (count, 2)), strict=True):
        image[row : row + 24, column : column + 24] = images[which]
    return made, bunch.target[chosen]


def encoder_of(images: Any, settings: Configuration, atoms: int, threads: int = 2) -> Encoder:
    """Return an encoder whitened on these images; its atoms are random patches of them, no two equal."""
    small = settings.replace(
        n_components=1,
        drop=0,
        dictionary=8,
        context="whole",
        zero_code="leave_out",
        dictionary_method="random",
    )
    model, _ = fit(as_source(images), small, Engine(SerialExecutor(threads)))
    encoder = replace(model.encoder, zero_code=settings.zero_code)
    grid, constant = codes.grid_patches(images, encoder.whitener, False)
    lively = np.flatnonzero(~constant)
    chosen = np.random.default_rng(0).permutation(lively)[: 2 * atoms]
    found = np.unique(grid[:, chosen].T, axis=0)
    if len(found) < atoms:
        raise SystemExit(f"These images have {len(found)} different patches, too few for {atoms} atoms.")
    return replace(encoder, atoms=np.ascontiguousarray(np.random.default_rng(1).permutation(found)[:atoms]))
