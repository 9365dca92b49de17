"""Images and labels of the tables, by name, in memory."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.quality.cells import Fit
from smtdist.data.array import ArraySource
from smtdist.data.opening import open_labels, open_source

FILES: Final = {
    "mnist": "mnist.h5",
    "cifar10": "cifar10_jpeg.h5",
    "tiny": "tiny_imagenet_100_jpeg.h5",
}


@dataclass(frozen=True, eq=False)
class Images:
    """The images of a group, uint8, and their labels."""

    array: NDArray[np.uint8]
    labels: NDArray[np.int64]

    def and_mirrored(self) -> Images:
        """Return these images and, after them, their mirror images."""
        both = np.concatenate([self.array, self.array[:, :, ::-1]])
        return Images(both, np.concatenate([self.labels, self.labels]))

    @cached_property
    def source(self) -> ArraySource:
        """The images as a source."""
        return ArraySource(self.array)


def read(folder: Path, fit: Fit, group: str, count: int) -> Images:
    """Return the first `count` images of a group (0: all), as a fit takes them."""
    path = folder / FILES[fit.data]
    if not path.exists():
        raise SystemExit(f"There is no {path}; give the folder that holds {FILES[fit.data]} as --data.")
    name = f"{group}/images" if fit.data == "mnist" else group
    source = open_source(str(path), name, fit.settings)
    count = min(count or source.n_samples, source.n_samples)
    last = source.n_samples if fit.classes else count
    with source.opened() as reader:
        images = np.array(reader.read(0, last))
    labels = open_labels(str(path), name, source)[:last]
    if fit.classes:
        chosen = np.flatnonzero(labels < fit.classes)[:count]
        images, labels = images[chosen], labels[chosen]
    if fit.quality:
        images = np.stack([compressed(image, fit.quality) for image in images])
    return Images(images, labels)


def without_scaling(settings: Any) -> Any:
    """Return settings for images that are decoded already."""
    return settings.replace(resize=None, crop=None, channels=None)


def compressed(image: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
    """Return an image after one more JPEG compression, colours at half resolution as usual."""
    room = io.BytesIO()
    Image.fromarray(image.squeeze()).save(room, "JPEG", quality=quality)
    with Image.open(room) as found:
        return np.asarray(found).reshape(image.shape)
