"""Sums over neighbouring patches, compiled."""

from smtdist.kernels.generic.context import add_second_order, add_window_cooccurrence

__all__ = ["add_second_order", "add_window_cooccurrence"]
