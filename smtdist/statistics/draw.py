"""Which positions of a batch a statistic codes, drawn by what each sample holds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from smtdist.data.fingerprint import sample_digests
from smtdist.kernels import positions as lattices
from smtdist.kernels.types import Whitener


def drawn_views(
    whitener: Whitener, images: NDArray[np.generic], flip: bool
) -> Iterator[tuple[bool, NDArray[np.int32] | None]]:
    """Yield (mirrored, positions (images, m) or None for all) for each view of a batch of raw images.

    A draw is keyed by the hash of the sample's content, not by its number: the same sample has the same
    positions in every pass and in every file, so that its sums can be added and withdrawn. Memory: see
    `drawn_positions`.
    """
    drawn = whitener.sampling.positions is not None
    samples = sample_digests(images) if drawn else np.zeros(len(images), np.uint64)
    for mirrored in (False, True) if flip else (False,):
        yield mirrored, lattices.drawn_positions(whitener, samples, int(mirrored))
