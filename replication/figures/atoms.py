"""Figure 4: dictionary elements, and the elements that the embedding puts beside them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from replication.figures.drawing import enlarged, framed, grid, page
from replication.figures.work import Work
from replication.quality.images import Images
from smtdist.configuration import Configuration, preset
from smtdist.evaluate.knn import nearest
from smtdist.models.model import Model
from smtdist.plot import atoms_as_patches
from smtdist.plot.sheets import stretched

COLUMNS: Final = 11
SCALE, FRAME = 6, 3
AROUND: Final = 4
"""Pixels on each side of a patch that are shown where it comes from."""
MNIST_ATOMS: Final = (640, 417)
CIFAR_ATOMS: Final = (345, 209)
"""Elements that are shown, chosen by eye: a curve, strokes that meet; the wheel of a truck, the nose of a dog."""


def mnist_settings(work: Work) -> Configuration:
    """Return the settings of the fit of digits."""
    return preset("mnist-vq").replace(
        dictionary=work.sizes.mnist_atoms, dictionary_rounds=work.sizes.rounds
    )


def cifar_settings(work: Work) -> Configuration:
    """Return the settings of the fit of natural images with the 1-sparse feature."""
    return preset("cifar10-gq").replace(
        feature="vq", dictionary=work.sizes.cifar_atoms, context=3, n_components=work.sizes.vq_components, drop=1, flip=False
    )  # fmt: skip


def figure_4(work: Work) -> tuple[NDArray[np.uint8], dict[str, Any]]:
    """Return the picture, and for each panel the element and the cosines of the first and the last of its neighbours."""
    digits = work.model("mnist", work.sizes.mnist, mnist_settings(work))
    natural = work.model("cifar10", work.sizes.cifar, cifar_settings(work))
    images = work.images("cifar10", "train", work.sizes.cifar, natural.settings)
    panels = [
        *((digits, "MNIST", atom) for atom in MNIST_ATOMS),
        *((natural, "CIFAR-10", atom) for atom in CIFAR_ATOMS),
    ]
    facts: dict[str, Any] = {}
    pictures, sources = [], []
    for letter, (model, name, number) in zip("abcd", panels, strict=True):
        atom = number % len(model.dictionary.grid)
        near, cosines = neighbours(model, atom, work.sizes.patches)
        patches = _with_margin(enlarged(stretched(atoms_as_patches(model, near)), SCALE))
        title = f"({letter}) {name}, cosines {cosines[1]:.2f} to {cosines[-1]:.2f}"
        pictures.append((title, grid(patches, COLUMNS, 0)))
        facts[letter] = {"atom": atom, "cosines": [float(cosines[1]), float(cosines[-1])]}
        if model is natural:
            sources.append((f"where the patches of ({letter}) come from", _sources(model, images, near)))
            labels = images.labels[model.dictionary.source_sample[near]]
            facts[letter]["classes"] = np.bincount(labels, minlength=10).tolist()
    facts["same_class"], facts["chance"] = same_class(natural, images.labels, work.sizes.patches)
    return page([pictures[:2], pictures[2:], sources]), facts


def neighbours(model: Model, atom: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return an element and those whose embeddings have the highest cosine with its, itself first, and the cosines."""
    columns = model.components()
    cosines, near = nearest(columns[[atom]], columns, count + 1)
    others = near[0] != atom
    return np.append(atom, near[0][others])[:count], np.append(np.float32(1), cosines[0][others])[:count]


def same_class(model: Model, labels: NDArray[np.int64], count: int) -> tuple[float, float]:
    """Return how often the nearest of an element come from an image of its class, over all elements, and by chance."""
    classes = labels[model.dictionary.source_sample]
    columns = model.components()
    _, near = nearest(columns, columns, count)
    shares = np.bincount(classes) / len(classes)
    return float((classes[near[:, 1:]] == classes[:, None]).mean()), float((shares * shares).sum())


def _with_margin(patches: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return patches on white, the first in a red frame."""
    padded = np.pad(patches, ((0, 0), (FRAME, FRAME), (FRAME, FRAME), (0, 0)), constant_values=255)
    padded[0] = framed(padded[0], FRAME)
    return padded


def _sources(model: Model, images: Images, atoms: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return the surroundings of the patches that atoms are, each patch in a red frame, as they are in the images."""
    known, side = model.dictionary, model.geometry.patch
    reach = side + 2 * AROUND
    found = []
    for atom in atoms:
        row, column = divmod(int(known.source_position[atom]), model.geometry.columns)
        image = np.pad(
            images.array[known.source_sample[atom]],
            ((AROUND, AROUND), (AROUND, AROUND), (0, 0)),
            constant_values=255,
        )
        part = enlarged(image[row : row + reach, column : column + reach], 3)
        inner = np.s_[3 * AROUND - 1 : -3 * AROUND + 1]
        part[inner, inner] = framed(part[inner, inner], 1)
        found.append(framed(part, 1, (255, 255, 255)))
    return grid(np.stack(found), COLUMNS, 0)
