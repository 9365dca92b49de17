"""The guard of whole numbers that are summed as floats, on a device or here."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from smtdist.kernels.generic.scatter import exact_groups


@given(
    st.lists(st.lists(st.integers(0, 2**28), min_size=1, max_size=3), min_size=0, max_size=30).filter(
        lambda rows: len({len(row) for row in rows}) <= 1
    ),
    st.sampled_from([1, 2**6, 2**26]),
)
def test_groups_of_images_add_up_exactly(rows, scale):
    """The guard of sums held as floats: groups are all images in order, and none of several passes what its type holds."""
    squares = np.array(rows, np.int64).reshape(len(rows), len(rows[0]) if rows else 1) * scale
    groups = list(exact_groups(squares))
    assert [number for start, stop, _ in groups for number in range(start, stop)] == list(range(len(rows)))
    for start, stop, dtype in groups:
        total = squares[start:stop].sum(axis=0).max()
        assert stop == start + 1 or total < (2**24 if dtype == "float32" else 2**53)
    if len(rows) and squares.sum(axis=0).max() < 2**24:
        assert groups == [(0, len(rows), "float32")]
