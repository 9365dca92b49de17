"""The compiled keeping of nearest rows returns what a partition of keys does, and what sorting everything does."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smtdist.errors import ConfigurationError
from smtdist.kernels import neighbours, threads
from smtdist.kernels.generic import neighbours as plain


@pytest.fixture(params=[1, 2], autouse=True)
def thread_count(request):
    before = threads.threads()
    threads.set_threads(request.param)
    yield request.param
    threads.set_threads(before)


def blocks_of(rng, rows, columns, values):
    """Products, drawn from a few values so that many are equal, and cut into blocks of any width."""
    products = rng.choice(np.asarray(values, np.float32), (rows, columns))
    scale = rng.choice(np.float32([0, 0.5, 1, 2]), rows)
    others = rng.choice(np.float32([0, 0.25, 1]), columns)
    cuts = np.sort(rng.integers(0, columns + 1, 3)).tolist()
    return products, scale, others, list(zip([0, *cuts], [*cuts, columns], strict=True))


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 20), st.integers(20, 300))
def test_equals_partition_and_sort(seed, k, columns):
    rng = np.random.default_rng(seed)
    values = [-1.5, -0.25, -0.0, 0.0, 1e-40, 0.25, 0.5, 1.0]
    products, scale, others, cuts = blocks_of(rng, 5, columns, values)
    order = rng.permutation(len(cuts))
    fast, slow = (plain.nothing_kept(np, 5, k) for _ in range(2))
    for start, stop in (cuts[i] for i in order):
        block = np.ascontiguousarray(products[:, start:stop])
        neighbours.keep_nearest(fast, block.copy(), scale, others[start:stop], start)
        plain.keep_nearest(slow, block, scale, others[start:stop], start)
    cosines = products * scale[:, None] * others + np.float32(0)
    np.testing.assert_array_equal(np.sort(fast), np.sort(slow))
    found, rows = neighbours.sorted_neighbours(fast)
    expected = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(rows, expected)
    np.testing.assert_array_equal(found, np.clip(np.take_along_axis(cosines, expected, 1), -1, 1))
    assert not np.signbit(found[found == 0]).any()


def test_ascending_products_replace_all():
    """The worst order: every block is better than all before."""
    keys = plain.nothing_kept(np, 300, 7)
    one, products = np.ones(300, np.float32), np.tile(np.arange(100, dtype=np.float32) / 1000, (300, 1))
    for first in range(0, 1000, 100):
        neighbours.keep_nearest(keys, products + np.float32(first / 1000), one, one[:100], first)
    _, rows = neighbours.sorted_neighbours(keys)
    np.testing.assert_array_equal(rows, np.tile(np.arange(999, 992, -1), (300, 1)))


def test_other_shapes_are_refused():
    keys = plain.nothing_kept(np, 2, 1)
    with pytest.raises(ConfigurationError, match="2 rows of keys and 2 x 4"):
        neighbours.keep_nearest(
            keys, np.zeros((2, 3), np.float32), np.ones(2, np.float32), np.ones(4, np.float32), 0
        )
