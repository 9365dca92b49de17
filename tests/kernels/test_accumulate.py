"""Products that are added in place equal those that are made first, of views and transposes of any shape."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smtdist.kernels.products import add_product


def drawn(rng, shape, dtype, way):
    """Small whole numbers, so that every sum is exact: a matrix, part of a wider one, transposed, or every other column."""
    rows, columns = shape
    if way == "transposed":
        return drawn(rng, shape[::-1], dtype, "part").T
    wide = rng.integers(-9, 10, (rows + 3, 2 * columns + 5)).astype(dtype)
    return {
        "whole": wide[:rows, :columns].copy(),
        "part": wide[2 : rows + 2, 3 : columns + 3],
        "spread": wide[:rows, : 2 * columns : 2],
    }[way]


@given(
    st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
    st.sampled_from(["float32", "float64"]),
    st.lists(st.sampled_from(["whole", "part", "transposed", "spread"]), min_size=2, max_size=2),
    st.sampled_from(["whole", "part"]),
    st.sampled_from([1.0, -1.0, 0.5]),
    st.integers(0, 2**32 - 1),
)
def test_equals_the_sum(shape, dtype, ways, way, alpha, seed):
    rng = np.random.default_rng(seed)
    m, k, n = shape
    left, right = drawn(rng, (m, k), dtype, ways[0]), drawn(rng, (k, n), dtype, ways[1])
    out = drawn(rng, (m, n), dtype, way)
    around = np.array(out.base) if way == "part" else None
    wanted = out + alpha * (left @ right)
    add_product(out, left, right, alpha)
    np.testing.assert_array_equal(out, wanted)
    if around is not None:  # nothing beside it is touched
        around[2 : m + 2, 3 : n + 3] = wanted
        np.testing.assert_array_equal(out.base, around)


def test_parts_of_one_matrix():
    whole = np.arange(24.0).reshape(3, 8)
    wanted = whole.copy()
    wanted[:, 5:] -= whole[:, :2] @ np.ones((2, 3))
    add_product(whole[:, 5:], whole[:, :2], np.ones((2, 3)), -1)
    np.testing.assert_array_equal(whole, wanted)


@pytest.mark.parametrize(
    "out",
    [
        np.zeros((3, 2)).T,
        np.zeros((2, 3), np.float32),
        np.zeros((2, 4)),
        np.broadcast_to(np.zeros(3), (2, 3)),
        np.zeros((2, 6))[:, ::2],
    ],
)
def test_what_it_cannot_add_to_is_refused(out):
    with pytest.raises(ValueError, match=r"one type|does not make"):
        add_product(out, np.ones((2, 1)), np.ones((1, 3)))
