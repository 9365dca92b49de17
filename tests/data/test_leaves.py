"""Leaves follow a table; fingerprints do not see batches."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smtdist.data.fingerprint import LeafHasher, combine
from smtdist.data.leaves import leaf_bounds


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
        (262_145, 1, 1021, 257),
        (1_281_167, 32, 1001, 1280),
        (10**9, 1, 1024, 976_563),
        (10**9, 1024, 1024, 976_896),
    ],
)
def test_table(n_samples: int, chunk_samples: int, n_leaves: int, leaf: int) -> None:
    bounds = leaf_bounds(n_samples, chunk_samples, 3072)
    assert len(bounds) - 1 == n_leaves
    assert bounds[1] == leaf


@given(st.integers(1, 10**7), st.integers(1, 10**5))
def test_leaves_cover_the_samples_in_whole_chunks(n_samples: int, chunk_samples: int) -> None:
    bounds = leaf_bounds(n_samples, chunk_samples, 1)
    sizes = np.diff(bounds)
    assert bounds[0] == 0
    assert bounds[-1] == n_samples
    assert len(sizes) <= 1024
    assert (sizes > 0).all()
    assert all(bound % chunk_samples == 0 for bound in bounds[:-1])
    assert len(set(sizes[:-1].tolist())) <= 1
    assert sizes[-1] <= sizes[0]
    assert len(sizes) == 1 or sizes[0] >= 256


@pytest.mark.parametrize("numbers", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_numbers_below_one_are_refused(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        leaf_bounds(*numbers)


@given(st.lists(st.integers(0, 20), max_size=5), st.sampled_from(["uint8", "float32", ">f4"]))
def test_a_leaf_hash_does_not_see_batches(cuts: list[int], dtype: str) -> None:
    samples = np.random.default_rng(0).integers(0, 256, (20, 3, 2, 1)).astype(dtype)
    whole, pieces = LeafHasher(), LeafHasher()
    whole.update(samples.astype(samples.dtype.newbyteorder("=")))
    bounds = sorted({0, 20, *cuts})
    for start, stop in itertools.pairwise(bounds):
        pieces.update(samples[start:stop])
    pieces.update(samples[:0])
    assert whole.hexdigest() == pieces.hexdigest()
    assert len(whole.hexdigest()) == 32


def test_a_hash_sees_content_order_shape_and_dtype() -> None:
    one, two = LeafHasher(), LeafHasher()
    samples = np.arange(8, dtype=np.uint8).reshape(2, 2, 2, 1)
    one.update(samples)
    two.update(samples[::-1])
    digests = [one.hexdigest(), two.hexdigest()]
    assert digests[0] != digests[1]
    whole = combine(digests, (4, 2, 2, 1), "uint8")
    assert whole == combine(iter(digests), np.array([4, 2, 2, 1]), np.dtype(np.uint8))
    others = [
        (digests[::-1], (4, 2, 2, 1), "uint8"),
        (digests, (4, 4, 1, 1), "uint8"),
        (digests, (4, 2, 2, 1), "i1"),
    ]
    assert all(combine(*other) != whole for other in others)
