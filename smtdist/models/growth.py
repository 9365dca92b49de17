"""How the time of a batch of the sums grows with its images and with the dictionary, from small ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONSTANT, IMAGES, PRODUCTS, PAIRS, SWEEP = range(5)
"""The terms of `Batch.terms`."""
FULL = 0.9
"""Share of active atoms from which their number says little of how often they were."""


@dataclass(frozen=True)
class Batch:
    """What one update of the K x K sums took; `active` atoms, of `atoms` = K, occurred in its `images`.

    different : images that are not copies of another; 0: all. area : entries of the upper triangle that
    were summed, those of some rows; 0: all, K² / 2.
    """

    atoms: int
    images: int
    active: int
    seconds: float
    different: int = 0
    area: float = 0.0

    @property
    def terms(self) -> tuple[float, ...]:
        """What an update consists of: see `predicted`."""
        n, k = float(self.images), float(self.atoms)
        square = 2 * self.area or k**2
        return 1.0, n, n * k, n * square, square * self.active / k

    @property
    def draws(self) -> float:
        """How often an atom is drawn in an image, if each time any of K is as likely."""
        share = min(self.active, self.atoms - 0.5) / self.atoms
        return -self.atoms * math.log1p(-share) / (self.different or self.images)


def predicted(found: Sequence[Batch], atoms: int, images: int, area: float = 0.0) -> float:
    """Return the seconds of an update by a + b n + c n K + d n S + e S r / K, none negative, through what was found.

    S is K², or twice the area that is summed of the upper triangle. Products of n images' patches with K
    atoms are n K, pairs of their active atoms n to n S by how many are active, and a row of the sums is
    swept for each of the r atoms that occur at all: few in a batch of a few images, soon nearly all, so
    that the sweep is paid by the batch and not by the image. Batches of one size do not tell what an update
    or an image costs from what grows with it, nor do those of one dictionary: that is taken for n S then,
    since a plan may rather be too long than too short.

    >>> law = lambda k, n, r: Batch(k, n, r, 1e-3 * n + 1e-6 * n * k + 1e-8 * k * r)
    >>> few = [law(512, 4, 300), law(512, 16, 500), law(512, 64, 512), law(2048, 4, 700), law(2048, 16, 1800)]
    >>> round(predicted(few, 8192, 256), 2), round(law(8192, 256, 8192).seconds, 2)
    (3.02, 3.02)
    >>> predicted([Batch(512, 1, 512, 0.5)], 512, 64)
    32.0
    """
    left_out = set[int]()
    if len({batch.images for batch in found}) == 1:
        left_out |= {CONSTANT, SWEEP}
    if {batch.atoms for batch in found} in ({one.atoms} for one in found if one.atoms != atoms):
        left_out |= {IMAGES, PRODUCTS}
    columns = [term for term in range(SWEEP + 1) if term not in left_out]
    active = active_of(found, atoms, images)
    wanted = np.array(Batch(atoms, images, active, 0.0, area=area).terms)[columns]
    terms = np.array([batch.terms for batch in found])[:, columns]
    times = np.array([batch.seconds for batch in found])
    from scipy.optimize import nnls  # 19 MiB of optimisers, which only a plan that is extrapolated needs

    # relative errors count: the largest would drown the others
    coefficients, _ = nnls(
        terms / wanted / times[:, None], np.ones(len(times)), maxiter=100 * terms.shape[1]
    )
    return float(coefficients.sum())


def active_of(found: Sequence[Batch], atoms: int, images: int) -> int:
    """Return how many of K atoms occur in so many images, each drawn as often as those of the batches found.

    Between dictionaries draws grow by a power of K that is seen in the two largest: none for one-hot codes,
    of which a patch has one, and K where a patch activates a share of all.

    >>> vq = [Batch(k, 4, round(k * (1 - math.exp(-800 / k))), 1.0) for k in (1024, 4096)]
    >>> active_of(vq, 65536, 64) / (65536 * (1 - math.exp(-64 * 200 / 65536)))  # doctest: +ELLIPSIS
    1.00...
    """
    telling = [
        _telling([one for one in found if one.atoms == size]) for size in {one.atoms for one in found}
    ]
    *_, near = telling = sorted(telling, key=lambda batch: batch.atoms)
    power = 1.0
    if len(telling) > 1:
        before = telling[-2]
        power = math.log(near.draws / before.draws) / math.log(near.atoms / before.atoms)
    draws = near.draws * (atoms / near.atoms) ** min(1.0, max(0.0, power)) * images
    return max(1, round(-atoms * math.expm1(-draws / atoms)))


def _telling(found: Sequence[Batch]) -> Batch:
    """Return the batch that tells most of how often atoms occur: of many images, but not so many that all atoms do."""
    few = [batch for batch in found if batch.active < FULL * batch.atoms]
    choose, among = (max, few) if few else (min, found)
    return choose(among, key=lambda batch: batch.different or batch.images)
