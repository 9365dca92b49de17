"""Sparse codes, compiled."""

from __future__ import annotations

from collections.abc import Callable

from smtdist.kernels.generic.codes import gq_codes, nearest_atoms
from smtdist.kernels.types import Array, Whitener

__all__ = ["gq_codes", "grid_patches", "nearest_atoms"]


def grid_patches(
    images: Array,
    whitener: Whitener,
    mirror: bool,
    whole: Callable[[Array, Whitener, bool], tuple[Array, Array]],
) -> tuple[Array, Array]:
    """Return the patches on the grid."""
    return whole(images, whitener, mirror)
