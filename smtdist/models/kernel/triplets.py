"""Triplets (anchor, positive, negative) of data in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import DataError
from smtdist.kernels.augment import Augmentation, negatives
from smtdist.models.kernel.encoder import require_rows

Float64 = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Triplets:
    """Anchors X, positives X⁺ and negatives X⁻, each (n, d)."""

    anchors: Float64
    positives: Float64
    negatives: Float64

    def __post_init__(self) -> None:
        shapes = [part.shape for part in (self.anchors, self.positives, self.negatives)]
        if len(set(shapes)) != 1:
            raise DataError(
                f"Anchors, positives and negatives have the shapes {', '.join(map(str, shapes))}; give three of the same."
            )

    @property
    def stacked(self) -> Float64:
        """All 3 n rows: anchors, positives, negatives."""
        return np.concatenate([self.anchors, self.positives, self.negatives])


def given_triplets(anchors: NDArray[Any], positives: NDArray[Any], negatives_: NDArray[Any]) -> Triplets:
    """Return triplets of your own, checked."""
    named = (("Anchors", anchors), ("Positives", positives), ("Negatives", negatives_))
    for name, rows in named:
        require_rows(np.asarray(rows), name=name)
    return Triplets(*(np.asarray(rows, np.float64) for _, rows in named))


def drawn_triplets(
    rows: NDArray[Any],
    augmentation: Augmentation,
    seed: int,
    shape: tuple[int, int, int] | None = None,
    copies: int = 1,
) -> Triplets:
    """Make triplets: the positive is the augmented anchor, the negative another of the rows, at random.

    rows : (n, d). shape : (height, width, channels) of a row that is an image. copies : triplets of each
        anchor.
    """
    require_rows(rows)
    whole = np.tile(np.asarray(rows), (copies, 1))
    samples = whole.reshape(len(whole), *(shape or (1, 1, rows.shape[1])))
    positives = augmentation(samples, 0, seed).reshape(whole.shape)
    # copies of an anchor are numbered on, so that each has its own draw; no negative is a copy of its anchor
    places = [negatives_of(copy, len(rows), seed) for copy in range(copies)]
    anchors = whole.astype(np.float64)
    return Triplets(anchors, positives.astype(np.float64), anchors[np.concatenate(places)])


def negatives_of(copy: int, n: int, seed: int) -> NDArray[np.intp]:
    """Return the rows that are the negatives of the rows of one copy."""
    first = copy * n
    return negatives(seed, first, n, np.arange(first, first + n))
