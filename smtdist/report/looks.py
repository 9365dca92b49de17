"""What a model of images does to labelled images: who is like whom, what goes wrong, and which patches decide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.data.source import Source
from smtdist.data.views import AndMirrored
from smtdist.engine.passes import Engine
from smtdist.evaluate import judging, knn, run
from smtdist.evaluate.knn import SoftNeighbours
from smtdist.evaluate.metrics import Evaluation
from smtdist.models.transform import represented
from smtdist.models.tuning import split as splitting
from smtdist.plot.sheets import as_bytes

NEIGHBOURS: Final = 8
"""Neighbours that are shown."""
WINDOWS: Final = 3
"""Pairs of windows that are shown of a pair of images."""


@dataclass(frozen=True, eq=False)
class Looked:
    """Test images beside the images they were judged by.

    z : (m, rows', columns', L) of the test images, for the map. found : classes found (m,). rows, cosines :
        the nearest
    images to learn from, (m, NEIGHBOURS). evaluation : of the soft k-NN. known, asked : the images
        themselves, uint8. names : of the classes, where they have some.
    """

    model: Any
    evaluation: Evaluation
    known: NDArray[np.uint8]
    known_labels: NDArray[np.int64]
    asked: NDArray[np.uint8]
    asked_labels: NDArray[np.int64]
    known_z: NDArray[np.float32]
    asked_z: NDArray[np.float32]
    found: NDArray[np.int64]
    rows: NDArray[np.int64]
    cosines: NDArray[np.float32]
    names: tuple[str, ...] = ()


def look_at_some(
    model: Any, known: run.Labelled, asked: run.Labelled, limit: int, engine: Engine
) -> Looked:
    """Judge some samples by their nearest neighbours among others, who vote as the model says; by raw pixels beside it.

    So many of each are drawn by the seed of the model; classes are matched by their names. Memory: the representations and images
    of both, and of mirror images if they vote.
    """

    def some(whole: run.Labelled) -> run.Labelled:
        part = splitting.limited(whole.source, limit, model.settings.random_state)
        return run.Labelled(part.source, whole.labels[part.samples], names=whole.names)

    known = some(known)
    asked = known.matched(some(asked))
    votes, n, learnt, voters = model.votes, known.source.n_samples, known, known.source
    settings = SoftNeighbours(min(votes.n_neighbors, n), votes.temperature, votes.vote)
    if votes.mirrored_votes:
        voters, learnt = AndMirrored(voters), known.and_mirrored()
    z = [represented(model, one, engine).astype(np.float32, copy=False) for one in (voters, asked.source)]
    flat = [one.reshape(len(one), -1) for one in z]
    nearest = knn.nearest(flat[1], flat[0], settings.k)
    n_classes = int(max(known.labels.max(), asked.labels.max())) + 1
    scores = knn.vote(nearest[0], learnt.labels[nearest[1]], n_classes, settings.vote, settings.temperature)
    shown = min(NEIGHBOURS, settings.k)
    cosines, rows = nearest[0][:, :shown], nearest[1][:, :shown]
    if votes.mirrored_votes:  # what is shown are images as they are
        cosines, rows = knn.nearest(flat[1], flat[0][:n], shown)
    evaluation = knn.evaluation_of(*nearest, learnt.labels, asked.labels, settings)
    return Looked(
        model,
        judging.with_pixels(evaluation, run.Comparison(model, learnt, asked, settings), engine),
        _pixels(known.source),
        known.labels,
        _pixels(asked.source),
        asked.labels,
        z[0][:n],
        z[1],
        scores.argmax(axis=1),
        rows,
        cosines,
        asked.names,
    )


def _pixels(source: Source) -> NDArray[np.uint8]:
    with source.opened() as reader:
        return as_bytes(np.array(reader.read(0, source.n_samples)))


def matching_windows(looked: Looked, asked: int, known: int) -> list[tuple[tuple[int, int, int, int], ...]]:
    """Return the pairs of pooling windows of two images whose representations are most alike, none overlapping another.

    A window is (top, left, height, width) in pixels. Representations of windows have length 1, so their
    products are cosines (SMT 2023, Figures 8 and 9).
    """
    left, right = looked.asked_z[asked], looked.known_z[known]
    across = left.shape[1]
    products = left.reshape(-1, left.shape[2]) @ right.reshape(-1, right.shape[2]).T
    side, step = looked.model.window
    pairs = []
    for _ in range(min(WINDOWS, len(products))):
        one, other = np.unravel_index(int(products.argmax()), products.shape)
        if products[one, other] <= 0:
            break
        pairs.append(
            tuple((int(at) // across * step, int(at) % across * step, side, side) for at in (one, other))
        )
        _leave_out(products, int(one), across, axis=0, reach=-(-side // step))
        _leave_out(products, int(other), across, axis=1, reach=-(-side // step))
    return pairs


def _leave_out(products: NDArray[Any], window: int, across: int, axis: int, reach: int) -> None:
    """Set the products of a window, and of those that overlap it, below all others."""
    at = np.arange(products.shape[axis])
    near = (abs(at // across - window // across) < reach) & (abs(at % across - window % across) < reach)
    near[window] = True
    if axis == 0:
        products[near] = -2
    else:
        products[:, near] = -2
