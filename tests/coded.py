"""Random codes, and sums over them that two bodies make."""

from fractions import Fraction

import numpy as np
from reference import whole_weight

from smtdist.kernels import codes as code_kernels
from smtdist.kernels import scatter
from smtdist.kernels.triangle import UpperTiles
from smtdist.kernels.types import Codes
from smtdist.statistics import limbs
from smtdist.statistics.sums import LIMBS


def encode(images, encoder, mirror):
    """The codes of raw images in one piece."""
    ((_, _, codes),) = code_kernels.encode_pieces(images, encoder, mirror, 2**40)
    return codes


def random_codes(rng, n, k, share):
    """Codes with `share` of the atoms active (one at most where share is 0); a fifth of the patches left out."""
    active = rng.random((n, k)) < share
    if share == 0:
        active[np.arange(n), rng.integers(0, k, n)] = True
    active[rng.random(n) < 0.2] = False
    return codes_of(active)


def codes_of(active):
    """The codes of patches (n) whose active atoms (k) are given."""
    indptr = np.concatenate([[0], np.cumsum(active.sum(axis=1))]).astype(np.int64)
    return Codes(indptr, np.nonzero(active)[1].astype(np.uint16), active.shape[1])


def same_sums(fast, plain, k, dtype=np.int64):
    """Both start from the same rubbish, which must survive below the diagonal."""
    left = np.random.default_rng(1).integers(0, 99, (k, k)).astype(dtype)
    right = left.copy()
    fast(left)
    plain(right)
    np.testing.assert_array_equal(left, right)


def whole_second_order(codes, kept, usual=1, bits=40):
    """2^bits A D Dᵀ Aᵀ of whole images beyond the usual one, of pieces; one patch has none."""
    counts, k = scatter.image_counts(codes, len(kept)), codes.n_atoms
    total = np.zeros((k, k), object)
    for first, shift, panel in scatter.whole_second_order(codes, kept, counts, usual, bits, k):
        total[first : first + len(panel), first:] += panel.astype(object) * (1 << shift)
    return np.triu(total) + np.triu(total, 1).T


def full(matrix):
    """A matrix of sums, without tiles."""
    return matrix.full() if isinstance(matrix, UpperTiles) else np.asarray(matrix)


def exact_scatter(statistics):
    """A D Dᵀ Aᵀ of second-order sums of whole images, as they state it: exact fractions."""
    if LIMBS[0] in statistics.matrices:
        numbers = limbs.exact(*(full(statistics.matrices[name]).astype(np.int64) for name in LIMBS))
        return numbers * Fraction(1, 1 << statistics.weight_bits)
    n = statistics.equal_sites
    return full(statistics.context_scatter).astype(object) * Fraction(n, max(1, n - 1) ** 2)


def same_scatter(statistics, oracle):
    """Sums say what the oracle does, in whole numbers; of whole images at second order they are exact where all n are equal."""
    if statistics.n_views is None or not oracle["sites"]:
        assert not oracle["sites"]
        assert statistics.n_views is not None or statistics.scatter_scale == oracle["scale"]
        np.testing.assert_array_equal(full(statistics.context_scatter), oracle["context_scatter"])
        return
    n, found = oracle["sites"][0], exact_scatter(statistics)
    assert (LIMBS[0] in statistics.matrices) == (len(set(oracle["sites"])) > 1)
    if len(set(oracle["sites"])) > 1:
        assert statistics.scatter_scale == oracle["scale"]
        assert (found * oracle["scale"] == oracle["context_scatter"]).all()
        exact = limbs.exact(*(full(statistics.matrices[name]).astype(np.int64) for name in LIMBS))
        np.testing.assert_allclose(full(statistics.context_scatter), exact.astype(float), rtol=2**-52)
    elif n > 1:
        weight, _ = whole_weight(n, oracle["most"])
        assert (found * Fraction((n - 1) ** 2, n) * weight == oracle["context_scatter"]).all()


def same_statistics(left, right):
    """The same sums in the same form, of the same samples; tiles are compared as the whole that they are."""
    assert left.matrices.keys() == right.matrices.keys()
    for name in ("second_moment", "context_scatter", "cooccurrence", "activity"):
        np.testing.assert_array_equal(full(getattr(left, name)), full(getattr(right, name)), err_msg=name)
    for name in ("n_samples", "n_positions", "equal_degree", "scatter_scale", "one_hot"):
        assert getattr(left, name) == getattr(right, name), name
    if left.origin is not None and right.origin is not None:
        np.testing.assert_array_equal(left.origin.samples, right.origin.samples)
        assert left.origin.basis == right.origin.basis
