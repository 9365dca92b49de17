"""Embedding and pooling, compiled."""

from smtdist.kernels.generic.representation import embed, pool

__all__ = ["embed", "pool"]
