"""The images that all methods see: the same pixels, the same labels, the same draws of few labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
from numpy.typing import NDArray

from smtdist.configuration import Configuration
from smtdist.evaluate.few_labels import draw_labelled
from smtdist.evaluate.run import Labelled


@dataclass(frozen=True)
class ImageSet:
    """Training images of a file, and how few of their labels are given.

    title : in the table. file : in the data folder; test_file : the one that holds its group test, where that is
    another. images : training images, the first ones. labels : of few labels, how many in all. resize : side of
    encoded images that are made smaller. mirrored : whether a mirror image is of the same class. preset, settings, kinds : of
    smtdist's models, as the preset cifar10-gq-joined has them. heads : whether `replication.heads` measures the same.
    """

    title: str
    file: str
    images: int
    labels: tuple[int, ...] = ()
    resize: int | None = None
    mirrored: bool = True
    preset: str = "cifar10-gq"
    settings: tuple[str, ...] = ("whitening_covariance=data",)
    kinds: tuple[str, ...] = ("colour", "grey")
    heads: bool = False
    test_file: str | None = None


ALL_TEST_IMAGES: Final = "cifar10_test_lossless.h5"

SETS: Final = {
    "cifar10-2000": ImageSet(
        "CIFAR-10, 2,000 training images", "cifar10_lossless.h5", 2000, (100,), heads=True, test_file=ALL_TEST_IMAGES
    ),
    "cifar10-10000": ImageSet(
        "CIFAR-10, 10,000 training images", "cifar10_lossless.h5", 10_000, (100, 1000), heads=True, test_file=ALL_TEST_IMAGES
    ),
    "mnist-2000": ImageSet(
        "MNIST, 2,000 training images", "mnist.h5", 2000, (100,), mirrored=False, preset="mnist-vq", kinds=("colour",)
    ),
    "tiny-2000": ImageSet(
        "Tiny ImageNet, 100 classes, 2,000 training images of 32 x 32", "tiny_imagenet_100_jpeg.h5", 2000, (500,), resize=32
    ),
}  # fmt: skip


def write_images(one: ImageSet, folder: Path, out: Path, images: int, test: int) -> None:
    """Write the first training and test images as plain uint8 pixels, with labels, in groups train and test."""
    scaling = Configuration(resize=one.resize, channels=3) if one.resize else None
    with h5py.File(out, "w") as file:
        for group, name, count in (("train", one.file, images), ("test", one.test_file or one.file, test)):
            whole = Labelled.open(folder / name, group, scaling)
            part = whole.first(min(count, whole.source.n_samples) if group == "test" else count)
            with part.source.opened() as reader:
                pixels = reader.read(0, part.source.n_samples)
            # one channel is no axis for smtdist
            file[f"{group}/images"] = pixels[..., 0] if pixels.shape[-1] == 1 else pixels
            file[f"{group}/labels"] = part.labels


def read_images(path: Path, group: str) -> NDArray[np.float32]:
    """Return images as (n, height, width, channels) numbers from 0 to 1."""
    with h5py.File(path) as file:
        pixels = np.asarray(file[f"{group}/images"], np.float32) / np.float32(255)
    return pixels[..., None] if pixels.ndim == 3 else pixels


def read_labels(path: Path, group: str) -> NDArray[np.int64]:
    """Return the labels of a group."""
    with h5py.File(path) as file:
        return np.asarray(file[f"{group}/labels"], np.int64)


def labelled(y: NDArray[np.int64], labels: int, draws: int, seed: int) -> list[NDArray[np.int64]]:
    """Return which training images have labels in each draw; with `labels` 0 there is one draw, of all."""
    if not labels:
        return [np.arange(len(y))]
    return [draw_labelled(y, labels, seed, draw) for draw in range(draws)]


def found(hits: list[NDArray[np.bool_]], chosen: list[Any]) -> dict[str, Any]:
    """Return what a judge prints: right answers of each draw, and what was chosen by training images."""
    return {"n_test": len(hits[0]), "right": [int(one.sum()) for one in hits], "chosen": chosen}


def of_seeds(each: list[dict[str, Any]]) -> dict[str, Any]:
    """Return runs of one network as one: what each of them found, the CPU seconds of one, and the memory of the largest."""
    drawn = {name: [one["said"][name][0] for one in each] for name in ("right", "chosen")}
    return {
        "said": {**each[0]["said"], **drawn},
        "cpu_seconds": float(np.mean([one["cpu_seconds"] for one in each])),
        "peak_bytes": max(one["peak_bytes"] for one in each),
    }
