"""What a model of images holds: its spectrum, its atoms, and which atoms the embedding puts side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import ModelError
from smtdist.models.store import model_of
from smtdist.plot.figures import own_axes
from smtdist.plot.sheets import atoms_as_patches, sheet, stretched

MOST_ATOMS: Final = 1024


def spectrum(model: Any, axes: Any = None) -> Any:
    """Draw the generalised eigenvalues of the stored components, ascending (SMT 2023, eq. 3); return the axes.

    model : of images, words, points or video, or an estimator of one.
    """
    model = model_of(model)
    if getattr(model, "embedding", None) is None:
        raise ModelError("The model has no embedding yet; it holds whitening and dictionary only.")
    return curve(model.embedding.eigenvalues, "component", "eigenvalue", axes)


def curve(values: Sequence[float] | NDArray[Any], across: str, up: str, axes: Any = None) -> Any:
    """Draw values by their number, from 1 on; return the axes."""
    axes = own_axes(axes, (5.2, 3.0))
    axes.plot(np.arange(1, len(values) + 1), values, marker="." if len(values) < 60 else None)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(alpha=0.4)
    return axes


def filter_axes(filters: NDArray[Any], axes: Any = None) -> Any:
    """Draw filters (n, height, width, channels) on one sheet, each with its own grey scale; return the axes."""
    axes = own_axes(axes, (5.2, 5.2))
    _picture(axes, sheet(stretched(filters)))
    return axes


def busiest(model: Any, count: int) -> NDArray[np.int64]:
    """Return the numbers of so many atoms that live, the most active first; without statistics the first ones."""
    alive = np.flatnonzero(~np.asarray(model.embedding.dead, bool))
    if model.statistics is not None:
        alive = alive[np.argsort(-model.statistics.activity[alive], kind="stable")]
    return np.asarray(alive[:count], np.int64)


def dictionary(model: Any, axes: Any = None, most: int = 256) -> Any:
    """Draw atoms as patches, unwhitened, each with its own grey scale, the most active first; return the axes.

    model : a transform of images or a coder of patches, or an estimator of one.
    """
    model = model_of(model)
    count = min(most, MOST_ATOMS)
    chosen = None if getattr(model, "embedding", None) is None else busiest(model, count)
    return filter_axes(atoms_as_patches(model, chosen)[:count], axes)


def nearest_atoms(
    model: Any, atoms: NDArray[np.int64], count: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return for some atoms the `count` atoms whose embeddings (columns of P) have the highest cosine, and the cosines.

    The first is the atom itself (SMT 2023, Figure 4).
    """
    columns = np.asarray(model.embedding.components, np.float64).T
    lengths = np.linalg.norm(columns, axis=1)
    unit = columns / np.where(lengths > 0, lengths, 1)[:, None]
    cosines = unit[atoms] @ unit.T
    cosines[np.arange(len(atoms)), atoms] = 2  # itself first, also where another atom is as near
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :count]
    found = np.take_along_axis(cosines, order, axis=1)
    return order, np.minimum(found, 1)


def atom_neighbours(model: Any, axes: Any = None, rows: int = 12, columns: int = 12) -> Any:
    """Draw a selection of active atoms, each followed by its nearest atoms in the embedding; return the axes."""
    axes = own_axes(axes, (5.2, 5.2))
    model = model_of(model)
    size = len(model.embedding.dead)
    numbers = busiest(model, size)
    shown = numbers[np.linspace(0, len(numbers) - 1, min(rows, len(numbers))).astype(int)]
    near, _ = nearest_atoms(model, shown, min(columns, size))
    pictures = stretched(atoms_as_patches(model, near.reshape(-1)))
    _picture(axes, sheet(pictures, near.shape[1]))
    return axes


def _picture(axes: Any, picture: NDArray[np.uint8]) -> None:
    axes.imshow(picture, interpolation="nearest")
    axes.set_axis_off()
