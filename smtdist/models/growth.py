"""How the time of a batch of the sums grows with its images and with the dictionary, from small ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls


@dataclass(frozen=True)
class Batch:
    """What one update of the K x K sums took; `active` atoms, of `atoms` = K, occurred in its `images`."""

    atoms: int
    images: int
    active: int
    seconds: float

    @property
    def terms(self) -> tuple[float, ...]:
        """What an update consists of: see `predicted`."""
        n, k = float(self.images), float(self.atoms)
        return 1.0, n, n * k, n * k**2, k * self.active


def predicted(found: Sequence[Batch], atoms: int, images: int) -> float:
    """Return the seconds of an update by a + b n + c n K + d n K² + e K r, none negative, through what was found.

    Products of n images' patches with K atoms are n K, pairs of their active atoms n to n K² by how many are active, and a
    row of the K x K sums is swept for each of the r atoms that occur at all: few in a batch of a few images, soon nearly
    all, so that the sweep is paid by the batch and not by the image. Beyond the batches found, r is at most K.

    >>> law = lambda k, n, r: Batch(k, n, r, 1e-3 * n + 1e-6 * n * k + 1e-8 * k * r)
    >>> few = [law(512, 4, 300), law(512, 16, 500), law(512, 64, 512), law(2048, 4, 700), law(2048, 16, 1800)]
    >>> round(predicted(few, 8192, 256), 2), round(law(8192, 256, 8192).seconds, 2)
    (3.02, 3.02)
    """
    # of copies of an image no more atoms are active than of that image
    nearest = max(found, key=lambda batch: (batch.atoms, batch.active, -batch.images))
    active = min(atoms, round(nearest.active * images / nearest.images))
    wanted = np.array(Batch(atoms, images, max(1, active), 0.0).terms)
    terms = np.array([batch.terms for batch in found])
    times = np.array([batch.seconds for batch in found])
    # relative errors count: the largest would drown the others
    coefficients, _ = nnls(terms / wanted / times[:, None], np.ones(len(times)))
    return float(coefficients.sum())
