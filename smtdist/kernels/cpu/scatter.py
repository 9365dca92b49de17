"""Sums over sparse codes, compiled."""

from smtdist.kernels.generic.scatter import (
    add_image_outer,
    add_second_moment,
    add_weighted_activity,
    add_weighted_moment,
    image_counts,
)

__all__ = [
    "add_image_outer",
    "add_second_moment",
    "add_weighted_activity",
    "add_weighted_moment",
    "image_counts",
]
