"""Patches minus their mean, compiled."""

from smtdist.kernels.generic.patches import centred_patches

__all__ = ["centred_patches"]
