"""Windows that nobody asked for: as many along the shorter side, whatever its length, and no position left out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smtdist.kernels.representation import GRID, asked_windows, pooled_shape, windows


@given(st.integers(1, 300), st.integers(0, 300), st.integers(1, 8))
def test_windows_cover_the_shorter_side(side, more, wanted):
    size, step = windows(side, side + more, wanted)
    count = pooled_shape(side, side + more, size, step)[0]
    assert count == min(wanted, side)
    assert (count - 1) * step + size == side  # the last window ends with the side
    assert step <= size < step + wanted  # nothing between two windows, and little in both


@pytest.mark.parametrize(("asked", "found"), [((5, 3), (5, 3)), ((5, None), (5, 2)), ((None, 3), (4, 3))])
def test_what_is_asked_for_stays(asked, found):
    assert asked_windows(27, 27, *asked) == found
    assert asked_windows(27, 27, None, None) == windows(27, 27, GRID)
