"""Leaves follow a table; fingerprints do not see batches."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smtdist.data.fingerprint import fingerprint, sample_digests
from smtdist.data.source import leaf_bounds


@pytest.mark.parametrize(
    ("n_samples", "chunk_samples", "n_leaves", "leaf"),
    [
        (1, 1, 1, 1),
        (256, 1, 1, 256),
        (257, 1, 2, 256),
        (1000, 100, 4, 300),
        (1000, 256, 4, 256),
        (60_000, 4096, 15, 4096),
        (60_000, 64, 235, 256),
        (60_000, 100_000, 1, 60_000),
        (262_144, 1, 1024, 256),
        (262_145, 1, 1534, 171),
        (1_281_167, 32, 6673, 192),
        (10**9, 1, 16_384, 61_036),
        (10**9, 1024, 16_277, 61_440),
    ],
)
def test_table(n_samples: int, chunk_samples: int, n_leaves: int, leaf: int) -> None:
    bounds = leaf_bounds(n_samples, chunk_samples, 3072)
    assert len(bounds) - 1 == n_leaves
    assert bounds[1] == leaf


@pytest.mark.parametrize(("side", "chunk", "leaf"), [(64, 85, 85), (224, 6, 84)])
def test_imagenet_has_a_dozen_leaves_for_each_of_a_thousand_workers(
    side: int, chunk: int, leaf: int
) -> None:
    bounds = leaf_bounds(1_281_167, chunk, side * side * 3)
    assert bounds[1] == leaf
    assert len(bounds) - 1 >= 15_000


@given(st.integers(1, 10**7), st.integers(1, 10**5), st.integers(1, 10**6))
def test_leaves_cover_the_samples_in_whole_chunks(
    n_samples: int, chunk_samples: int, sample_bytes: int
) -> None:
    bounds = leaf_bounds(n_samples, chunk_samples, sample_bytes)
    sizes = np.diff(bounds)
    assert bounds[0] == 0
    assert bounds[-1] == n_samples
    assert len(sizes) <= (1024 if n_samples <= 262_144 else 16_384)
    assert (sizes > 0).all()
    assert all(bound % chunk_samples == 0 for bound in bounds[:-1])
    assert len(set(sizes[:-1].tolist())) <= 1
    assert sizes[-1] <= sizes[0]
    assert len(sizes) == 1 or sizes[0] >= (256 if n_samples <= 262_144 else 64)


@pytest.mark.parametrize("numbers", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_numbers_below_one_are_refused(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        leaf_bounds(*numbers)


@given(st.lists(st.integers(0, 20), max_size=5), st.sampled_from(["uint8", "float32", ">f4"]))
def test_the_hash_of_a_sample_does_not_see_batches_or_neighbours(cuts: list[int], dtype: str) -> None:
    samples = np.random.default_rng(0).integers(0, 256, (20, 3, 2, 1)).astype(dtype)
    whole = sample_digests(samples.astype(samples.dtype.newbyteorder("=")))
    pieces = [sample_digests(samples[a:b]) for a, b in itertools.pairwise(sorted({0, 20, *cuts}))]
    np.testing.assert_array_equal(np.concatenate(pieces), whole)
    np.testing.assert_array_equal(sample_digests(samples[::-1]), whole[::-1])
    assert len(set(whole.tolist())) == 20


def test_a_hash_sees_content_shape_and_dtype() -> None:
    sample = np.arange(8, dtype=np.uint8).reshape(1, 2, 2, 2)
    changed = sample.copy()
    changed[0, 1, 1, 1] ^= 1
    others = [changed, sample.reshape(1, 4, 2, 1), sample.view(np.int8), sample.astype(np.float32)]
    digests = {int(sample_digests(one)[0]) for one in [sample, *others]}
    assert len(digests) == 5
    assert 0 not in digests


def test_a_fingerprint_sees_order_and_number() -> None:
    digests = sample_digests(np.arange(8, dtype=np.uint8).reshape(4, 1, 2, 1))
    assert fingerprint(digests) == fingerprint(digests.astype(">u8"))
    assert len({fingerprint(some) for some in (digests, digests[::-1], digests[:3])}) == 3
    assert len(fingerprint(digests[:0])) == 32
