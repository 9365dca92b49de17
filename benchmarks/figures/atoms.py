"""Figure 4: dictionary elements, and the elements that the embedding puts beside them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures.drawing import canvas, drawn, enlarged, framed, grid, show
from benchmarks.figures.work import Work
from smtdist.configuration import Configuration, preset
from smtdist.models.model import Model
from smtdist.plot import atoms_as_patches
from smtdist.plot.models import nearest_atoms
from smtdist.plot.sheets import stretched

COLUMNS: Final = 12
SCALE, GAP, FRAME = 6, 4, 3
MNIST_ATOMS: Final = (100, 200)
CIFAR_ATOMS: Final = (100, 200)
"""Elements that are shown, chosen by eye."""


def mnist_settings(work: Work) -> Configuration:
    """Return the settings of the fit of digits."""
    return preset("mnist-vq").replace(dictionary=work.sizes.mnist_atoms, dictionary_rounds=work.sizes.rounds)


def cifar_settings(work: Work) -> Configuration:
    """Return the settings of the fit of natural images with the 1-sparse feature."""
    return preset("cifar10-gq").replace(
        feature="vq", dictionary=work.sizes.cifar_atoms, context=3, n_components=64, drop=1, flip=False
    )  # fmt: skip


def figure_4(work: Work) -> tuple[NDArray[np.uint8], dict[str, Any]]:
    """Return the picture, and the cosines of the first and last neighbours shown."""
    digits = work.model("mnist", work.sizes.mnist, mnist_settings(work))
    natural = work.model("cifar10", work.sizes.cifar, cifar_settings(work))
    panels = [*((digits, atom) for atom in MNIST_ATOMS), *((natural, atom) for atom in CIFAR_ATOMS)]
    figure = canvas(400)
    facts: dict[str, Any] = {}
    for axes, letter, (model, atom) in zip(figure.subplots(2, 2).flat, "abcd", panels, strict=True):
        picture, cosines = neighbourhood(model, atom % len(model.dictionary.grid), work.sizes.patches)
        name = "MNIST" if model is digits else "CIFAR-10"
        show(axes, picture, f"({letter}) {name}, cosine {cosines[1]:.2f} to {cosines[-1]:.2f}")
        facts[letter] = {"atom": atom, "first": float(cosines[1]), "last": float(cosines[-1])}
    return drawn(figure), facts


def neighbourhood(
    model: Model, atom: int, count: int
) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Return an element in a red frame with the nearest, row after row, and the cosines."""
    near, cosines = nearest_atoms(model, np.array([atom]), count)
    patches = enlarged(stretched(atoms_as_patches(model, near[0])), SCALE)
    padded = np.full((len(patches), *(side + 2 * FRAME for side in patches.shape[1:3]), 3), 255, np.uint8)
    padded[:, FRAME:-FRAME, FRAME:-FRAME] = patches
    padded[0] = framed(padded[0], FRAME)
    return grid(padded, COLUMNS, 0), cosines[0]
