"""Figures 7 to 9: images that are taken for horses, their neighbours, and the windows that make them neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import smtdist
from replication.figures.drawing import enlarged, framed, grid, page
from replication.figures.work import Work
from replication.quality.images import Images
from smtdist.configuration import Configuration, preset
from smtdist.evaluate.knn import nearest, vote
from smtdist.models import store
from smtdist.models.model import Model

CLASSES: Final = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
ASKED: Final = {7: ("deer", 0), 8: ("dog", 0), 9: ("deer", 1)}
"""Figure: class of the image, and which of its class it is among those taken for horses."""
FOUND: Final = "horse"
COLUMNS: Final = 5
KEPT: Final = 0.1
"""Share of the windows that are shown of a neighbour: those most alike to the asked image's at the same place."""
FADED: Final = 0.22
SCALE, GAP = 3, 2
RED, BLUE = (224, 0, 0), (0, 114, 178)


@dataclass(frozen=True, eq=False)
class Mistakes:
    """Test images and training images, their windows (n, places, components) of length 1, and the nearest of each.

    found : classes found, (m,). rows, cosines : training images nearest to each test image, (m, k).
    """

    model: Model
    known: Images
    asked: Images
    known_z: NDArray[np.float32]
    asked_z: NDArray[np.float32]
    found: NDArray[np.int64]
    rows: NDArray[np.int64]
    cosines: NDArray[np.float32]


def settings_of(work: Work) -> Configuration:
    """Return the settings of the fit."""
    return preset("cifar10-gq").replace(
        dictionary=work.sizes.cifar_atoms, n_components=work.sizes.components
    )


def looked(work: Work) -> Mistakes:
    """Fit, represent the training and the test images, and let the nearest vote."""
    settings = settings_of(work)
    file = work.model_file("cifar10", work.sizes.cifar, settings)
    model = store.load(file)
    known = work.images("cifar10", "train", work.sizes.cifar_known, settings)
    asked = work.images("cifar10", "test", work.sizes.cifar_test, settings)
    z = [_represented(work, file, model, name, part) for name, part in (("train", known), ("test", asked))]
    k = min(settings.n_neighbors, len(known.labels))
    cosines, rows = nearest(z[1], z[0], k)
    votes = vote(cosines, known.labels[rows], len(CLASSES), settings.vote, settings.temperature)
    return Mistakes(model, known, asked, z[0], z[1], votes.argmax(axis=1), rows, cosines)


def _represented(work: Work, file: Path, model: Model, name: str, images: Images) -> NDArray[np.float32]:
    """Return representations (n, places, components), computed once."""

    def make() -> NDArray[np.float32]:
        smt = smtdist.SMT.from_file(file, workers=0)
        flat = smt.transform(images.array)
        return flat.reshape(len(flat), -1, model.components().shape[1]).astype(np.float32)

    found: NDArray[np.float32] = work.steps.array(
        f"z-{name}-{len(images.labels)}-{model.settings.digest()}", make
    )
    return found


def chosen(look: Mistakes, figure: int) -> int:
    """Return the test image of a figure: of its class and taken for a horse, with the most horses among its neighbours.

    Where there are none of that class, as with few images, of all mistakes.
    """
    name, place = ASKED[figure]
    horse = CLASSES.index(FOUND)
    of_class = (look.asked.labels == CLASSES.index(name)) & (look.found == horse)
    rows = np.flatnonzero(of_class)
    if len(rows) <= place:
        rows = np.flatnonzero(look.found != look.asked.labels)
    horses = (look.known.labels[look.rows[rows, : COLUMNS**2 - 1]] == horse).sum(axis=1)
    return int(rows[np.argsort(-horses, kind="stable")[min(place, len(rows) - 1)]])


def figure_of(look: Mistakes, figure: int) -> tuple[NDArray[np.uint8], dict[str, Any]]:
    """Return the picture of one mistake, and what it counts."""
    number = chosen(look, figure)
    near = look.rows[number, : COLUMNS**2 - 1]
    image = _coloured(look.asked.array[number])
    pictures = _coloured(look.known.array[near])
    same = np.einsum("pc,npc->np", look.asked_z[number], look.known_z[near])
    classes = look.known.labels[near]
    own, found = int(look.asked.labels[number]), int(look.found[number])

    left = [framed(enlarged(image, SCALE), 3, RED)]
    left += [
        enlarged(one, SCALE) if label != own else framed(enlarged(one, SCALE), 3, BLUE)
        for one, label in zip(pictures, classes, strict=True)
    ]
    right = [enlarged(_shown(image, same.mean(axis=0), look.model), SCALE)]
    right[0] = framed(right[0], 3, RED)
    right += [
        enlarged(_shown(one, row, look.model), SCALE) for one, row in zip(pictures, same, strict=True)
    ]
    of_found, of_own = int((classes == found).sum()), int((classes == own).sum())
    title = f"a {CLASSES[own]} taken for a {CLASSES[found]}; of {len(near)} neighbours {of_found} {CLASSES[found]}"
    title += f", {of_own} {CLASSES[own]} (blue)" if own != found else ""
    pixels = page(
        [
            [
                (title, grid(np.stack(left), COLUMNS, GAP)),
                (
                    f"the {KEPT:.0%} of windows most alike at the same place",
                    grid(np.stack(right), COLUMNS, GAP),
                ),
            ]
        ]
    )
    names, counts = np.unique(classes, return_counts=True)
    facts = {
        "test_image": number,
        "class": CLASSES[own],
        "found": CLASSES[found],
        "neighbours": {CLASSES[name]: int(count) for name, count in zip(names, counts, strict=True)},
        "cosines": [float(look.cosines[number, 0]), float(look.cosines[number, len(near) - 1])],
        "top1": float((look.found == look.asked.labels).mean()),
    }
    return pixels, facts


def _shown(image: NDArray[np.uint8], alike: NDArray[np.float32], model: Model) -> NDArray[np.uint8]:
    """Return an image (height, width, 3) with the windows that are most alike as they are, and the rest nearly white."""
    _, across, _ = model.feature_shape(1)
    side, step = model.window
    seen = np.zeros(image.shape[:2], bool)
    for window in np.argsort(-alike, kind="stable")[: max(1, round(KEPT * len(alike)))]:
        top, left = int(window) // across * step, int(window) % across * step
        seen[top : top + side, left : left + side] = True
    faded = 255 - FADED * (255 - image.astype(np.float64))
    return np.where(seen[..., None], image, faded).astype(np.uint8)


def _coloured(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return images if images.shape[-1] == 3 else np.repeat(images, 3, axis=-1)
