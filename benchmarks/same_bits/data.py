"""The data of the fits: small, drawn from fixed seeds, and made once for both trees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np

LINES = (
    "the cat sat on the mat .",
    "a dog sat on the rug .",
    "the dog and the cat ran .",
    "no rug ran on a mat .",
)
"""Sentences that the texts repeat in an order drawn by a seed."""


def make_data(folder: Path) -> None:
    """Write images.h5, tables.h5, clips.h5 and three texts."""
    folder.mkdir(parents=True, exist_ok=True)
    _images(folder / "images.h5")
    _tables(folder / "tables.h5")
    _clips(folder / "clips.h5")
    for seed, name in enumerate("abc"):
        order = np.random.default_rng(seed).integers(0, len(LINES), 60)
        (folder / f"{name}.txt").write_text("".join(f"{LINES[one]}\n" for one in order), encoding="utf-8")


def drawn(seed: int, n: int, *shape: int) -> Any:
    """Images (n, *shape) of blocks of 2 x 2 pixels with noise; every one has contrast."""
    draw = np.random.default_rng(seed)
    blocks = draw.integers(0, 200, (n, (shape[0] + 1) // 2, (shape[1] + 1) // 2, *shape[2:]))
    coarse = blocks.repeat(2, axis=1).repeat(2, axis=2)[:, : shape[0], : shape[1]]
    return (coarse + draw.integers(0, 56, (n, *shape))).astype(np.uint8)


def _images(path: Path) -> None:
    with h5py.File(path, "w") as file:
        for seed, (name, n) in enumerate((("train", 96), ("test", 32), ("0", 24), ("1", 24), ("2", 24))):
            file.create_dataset(f"{name}/images", data=drawn(seed, n, 10, 10), chunks=(8, 10, 10))
            file[f"{name}/labels"] = np.arange(n) % 3
        file.create_dataset("colour/images", data=drawn(9, 40, 8, 8, 3), chunks=(8, 8, 8, 3))
        file["colour/labels"] = np.arange(40) % 3


def _tables(path: Path) -> None:
    draw = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        for name, n in (("x", 240), ("more", 40)):
            centres = np.eye(3, 5)[np.arange(n) % 3] * 3
            file[name] = (centres + 0.4 * draw.standard_normal((n, 5))).astype(np.float32)
        bits = draw.integers(0, 2, (200, 4))
        rows = bits @ draw.standard_normal((4, 8)) + 0.05 * draw.standard_normal((200, 8))
        file.create_dataset("z", data=rows.astype(np.float32), chunks=(64, 8))


def _clips(path: Path) -> None:
    draw = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        for name in ("one", "two"):
            texture = draw.integers(0, 256, (24, 64), dtype=np.uint8)
            group = file.create_group(name)
            group["frames"] = np.stack([texture[:, t : t + 30] for t in range(33)])
            group.attrs["cuts"] = np.array([17] if name == "two" else [], np.int64)
