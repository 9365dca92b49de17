"""Hashes of columns: equal bits have equal hashes, and patterned differences do not cancel."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from smtdist.kernels.hashing import column_hashes


def test_differences_that_cancel_in_weighted_sums_are_told_apart():
    words = np.full((6, 4), 0x3F800000, np.uint32)
    words[[0, 2, 4], 1] += np.array([1, -2, 1]).astype(np.uint32)  # no weight that grows evenly sees it
    words[[0, 1], 2] = words[[1, 0], 2] + np.array([1, 0], np.uint32)
    words[[1, 3], 3] ^= np.uint32(1 << 31)  # signs of two places
    assert len(np.unique(column_hashes(words.view(np.float32)))) == 4


@given(st.integers(0, 2**32), st.integers(1, 30), st.integers(2, 40), st.integers(0, 31))
def test_columns_have_one_hash_if_and_only_if_their_bits_are_the_same(seed, rows, columns, bit):
    draw = np.random.default_rng(seed)
    words = np.repeat(draw.integers(0, 2**32, (rows, 1), dtype=np.uint32), columns, 1)
    words ^= draw.integers(0, 2, words.shape, dtype=np.uint32) << np.uint32(bit)
    hashes = column_hashes(words.view(np.float32))
    for column in range(columns):
        same = (words == words[:, [column]]).all(0)
        assert ((hashes == hashes[column]) == same).all()
