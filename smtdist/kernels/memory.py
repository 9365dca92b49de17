"""What a batch costs in memory: plain arithmetic over the buffers that the kernels allocate."""

from __future__ import annotations

from typing import NamedTuple

from smtdist.kernels.threads import threads
from smtdist.kernels.types import Geometry


class BatchBytes(NamedTuple):
    """Bytes that live at the same time while a batch goes through a stage."""

    whitening: int
    """Peak of centring and summing the patch moments."""
    encoding: int
    """Peak of turning raw images into codes, these included."""
    scatter: int
    """Peak of adding codes to sums, codes included, K x K outputs left out."""
    embedding: int
    """Peak of embedding and pooling, codes included."""


def code_capacity(geometry: Geometry, n_atoms: int, feature: str, images: int) -> int:
    """Return the entries to provide for a batch's codes: one image's worst case, and 1/16 of all atoms a patch.

    >>> code_capacity(Geometry(32, 32, 3, 6), 2048, "gq", 1)
    1492992
    """
    n = geometry.positions
    if feature == "vq":
        return images * n
    return max(n * n_atoms, images * n * max(1, n_atoms // 16))


def batch_bytes(
    geometry: Geometry,
    n_atoms: int,
    feature: str,
    images: int,
    *,
    components: int = 0,
    pooled: int = 0,
    raw_bytes: int = 1,
) -> BatchBytes:
    """Return the peak working memory of each stage for a batch of images, on the present number of threads.

    pooled : pooled positions per image; components : L; raw_bytes : of one stored number.

    >>> batch_bytes(Geometry(32, 32, 3, 6), 2048, "gq", 8).whitening > 8 * 729 * 108 * 8
    True
    """
    patches = images * geometry.positions
    raw = images * geometry.height * geometry.width * geometry.channels * (raw_bytes + 4)
    centred = 8 * geometry.pixels * patches
    capacity = code_capacity(geometry, n_atoms, feature, images)
    codes = 2 * capacity + 8 * (patches + 1)
    tiles = threads() * (1 << 20)
    grid = 4 * geometry.pixels * patches
    encoding = raw + grid + max(2 * centred + grid, codes + tiles + patches * (n_atoms // 8))
    scatter = codes + 4 * capacity + 12 * n_atoms * images + (16 << 20) * threads()
    embedding = codes + 4 * components * (patches + 3 * images * pooled)
    return BatchBytes(raw + centred + 16 * geometry.pixels**2, encoding, scatter, embedding)
