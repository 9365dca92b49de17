"""Images and labels of the tables, by name, in memory."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from replication.quality.cells import BATCH_5, FILES, TEST, TEST_FILES, Fit, before_batch_5
from smtdist.data.array import ArraySource
from smtdist.data.opening import open_labels, open_source
from smtdist.data.source import Source


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


def read(folder: Path, fit: Fit, group: str, count: int = 0, first: int = 0) -> Images:
    """Return `count` images of a group from the first on (0: all that follow), as a fit takes them."""
    path, name, source = _opened(folder, fit, group)
    last = min(first + count, source.n_samples) if count else source.n_samples
    with source.opened() as reader:
        images = np.array(reader.read(first, last))
    labels = open_labels(str(path), name, source)[first:last]
    if fit.quality:
        images = np.stack([compressed(image, fit.quality) for image in images])
    return Images(images, labels)


def judges(folder: Path, fit: Fit, judge: str, count: int) -> Images:
    """Return the images that a cell is judged by, of `JUDGES`; SystemExit where the fit has seen them.

    `count` of them: the first (0: all), and the last of those held out for choices (0: up to 1,000).
    """
    if judge == TEST:
        return read(folder, fit, "test", count)
    *_, source = _opened(folder, fit, "train")
    images = source.n_samples
    edge, learnt = before_batch_5(images), fit.n_train or images
    if judge == BATCH_5:
        kept, first = max(0, images - max(edge, learnt)), edge
        count = count or images - edge
    else:
        kept = max(0, edge - learnt)
        count = count or min(kept, 1000)
        first = edge - count
    if not 0 < count <= kept:
        raise SystemExit(
            f"The fit leaves {kept} training images to judge by; give --train or a smaller --test."
        )
    return read(folder, fit, "train", count, first)


def _opened(folder: Path, fit: Fit, group: str) -> tuple[Path, str, Source]:
    """Return the file of a group, the group's name there, and its source."""
    file = TEST_FILES.get(fit.data, FILES[fit.data]) if group == TEST else FILES[fit.data]
    path = folder / file
    if not path.exists():
        raise SystemExit(f"There is no {path}; give the folder that holds {file} as --data.")
    name = f"{group}/images" if fit.data == "mnist" else group
    return path, name, open_source(str(path), name, fit.settings)


def without_scaling(settings: Any) -> Any:
    """Return settings for images that are decoded already."""
    return settings.replace(resize=None, crop=None, channels=None)


def compressed(image: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
    """Return an image after one more JPEG compression, colours at half resolution as usual."""
    room = io.BytesIO()
    Image.fromarray(image.squeeze()).save(room, "JPEG", quality=quality)
    with Image.open(room) as found:
        return np.asarray(found).reshape(image.shape)
