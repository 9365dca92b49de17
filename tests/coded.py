"""Random codes, and sums over them that two bodies make."""

import numpy as np

from smtdist.kernels.types import Codes


def random_codes(rng, n, k, share):
    """Codes with `share` of the atoms active (one at most where share is 0); a fifth of the patches left out."""
    active = rng.random((n, k)) < share
    if share == 0:
        active[np.arange(n), rng.integers(0, k, n)] = True
    active[rng.random(n) < 0.2] = False
    indptr = np.concatenate([[0], np.cumsum(active.sum(axis=1))]).astype(np.int64)
    return Codes(indptr, np.nonzero(active)[1].astype(np.uint16), k)


def same_sums(fast, plain, k, dtype=np.int64):
    """Both start from the same rubbish, which must survive below the diagonal."""
    left = np.random.default_rng(1).integers(0, 99, (k, k)).astype(dtype)
    right = left.copy()
    fast(left)
    plain(right)
    np.testing.assert_array_equal(left, right)
