"""Random codes for the tests of kernels."""

import numpy as np

from smtdist.kernels.types import Codes


def random_codes(seed, n, k, share):
    """Codes with `share` of the atoms active; a fifth of the patches left out, one full."""
    rng = np.random.default_rng(seed)
    active = rng.random((n, k)) < share
    active[rng.random(n) < 0.2] = False
    active[n // 2 : n // 2 + 1] = True
    indptr = np.concatenate([[0], np.cumsum(active.sum(axis=1))]).astype(np.int64)
    return Codes(indptr, np.nonzero(active)[1].astype(np.uint16), k)
