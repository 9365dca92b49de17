"""Unit vectors on the integer grid, compiled."""

from smtdist.kernels.generic.whitening import unit_grid

__all__ = ["unit_grid"]
