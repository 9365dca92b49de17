"""Images and their mirror images as one source."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smtdist.data.array import ArraySource
from smtdist.data.mirrored import WithMirrored
from smtdist.errors import DataError


@given(st.integers(1, 12), st.sampled_from([1, 3]), st.data())
def test_any_range_is_that_of_the_images_and_their_mirror_images(n, channels, data):
    images = np.random.default_rng(n).integers(0, 256, (n, 3, 4, channels), np.uint8)
    both = np.concatenate([images, images[:, :, ::-1]])
    start = data.draw(st.integers(0, 2 * n))
    stop = data.draw(st.integers(start, 2 * n))
    source = WithMirrored(ArraySource(images))
    room = np.full((2 * n, 3, 4, channels), 7, np.uint8)
    with source.opened() as reader:
        np.testing.assert_array_equal(reader.read(start, stop), both[start:stop])
        np.testing.assert_array_equal(reader.read(start, stop, room), both[start:stop])
        assert reader.read_bytes == 2 * both[start:stop].nbytes
    assert (room[stop - start :] == 7).all()
    assert source.stored_bytes == 2 * ArraySource(images).stored_bytes


def test_damage_keeps_its_place():
    images = np.zeros((4, 2, 2), np.float32)
    images[1, 0, 1] = np.nan
    source = WithMirrored(ArraySource(images))
    with source.opened() as reader, pytest.raises(DataError, match="sample 1: row 0, column 1"):
        reader.read(4, 8)
