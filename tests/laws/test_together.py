"""Statistics that are summed together obey the laws that each of them obeys, and are what each is alone."""

import itertools

import numpy as np
from drawing import small_images
from hypothesis import given, settings
from hypothesis import strategies as st

from smtdist.configuration import Configuration
from smtdist.kernels.pixels import pixel_scale
from smtdist.kernels.types import Geometry
from smtdist.kernels.whitening import atoms_to_grid
from smtdist.models.model import Whitening, make_encoder, unwhitened, whitened
from smtdist.statistics.base import check_state
from smtdist.statistics.candidates import Candidates
from smtdist.statistics.cooccurrence import CodeSums
from smtdist.statistics.covariance import PatchMoment
from smtdist.statistics.together import NestedSums, Together

GEOMETRY = Geometry(7, 6, 1, 3)
ATOMS = atoms_to_grid(np.random.default_rng(5).normal(size=(12, 9)))
PLAIN = Configuration(patch=3, flip=True, mean="patch")
UNWHITENED = unwhitened(PLAIN, GEOMETRY, pixel_scale(np.uint8, None))
WHITENER = whitened(UNWHITENED, Whitening(np.eye(9), np.eye(9), np.eye(9), None))


def code_sums(size, **changes):
    one = PLAIN.replace(**changes)
    encoder = make_encoder(one, WHITENER, ATOMS[:size])
    return CodeSums(encoder, one.context, one.order, True, 100)


NESTED = NestedSums(
    (
        ("low", code_sums(12, threshold=0.3)),
        ("high", code_sums(12, threshold=0.6, zero_code="activate_best")),
        ("few", code_sums(5, threshold=0.3, context=1)),
        ("second", code_sums(7, threshold=0.3, context=2, order=2)),
    )
)
JOINT = Together(
    (
        ("moment", PatchMoment(UNWHITENED, True)),
        ("sketch", Candidates(WHITENER, True, 9, 1)),
        ("codes", NESTED),
    )
)


def sum_of(statistic, images, first=0):
    state = statistic.zero()
    statistic.update(state, images, first)
    return state


def assert_equal(left, right):
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name, strict=True)


@settings(deadline=None, max_examples=15)
@given(st.data())
def test_any_grouping_gives_the_same_bits(data):
    images = small_images(data.draw(st.integers(0, 2**16)), 9, 7, 6)
    whole = sum_of(JOINT, images)
    edges = [0, *sorted(data.draw(st.sets(st.integers(1, 8), max_size=4))), 9]
    parts = [sum_of(JOINT, images[start:stop], start) for start, stop in itertools.pairwise(edges)]
    while len(parts) > 1:
        left, right, *rest = data.draw(st.permutations(parts))
        before = {key: value.copy() for key, value in right.items()}
        parts = [JOINT.merge(left, right), *rest]
        assert_equal(right, before)
    assert_equal(parts[0], whole)
    for name, one in JOINT.parts[:2]:
        assert_equal(JOINT.part(whole, name), sum_of(one, images))
    for name, one in NESTED.parts:
        assert_equal(NESTED.part(JOINT.part(whole, "codes"), name), sum_of(one, images))


def test_zero_is_neutral_and_describes_the_state():
    whole = sum_of(JOINT, small_images(4, 3, 7, 6))
    assert JOINT.exact
    assert_equal(JOINT.merge(JOINT.zero(), whole), whole)
    assert check_state(whole, JOINT.zero())
    assert sum(value.nbytes for value in whole.values()) <= JOINT.state_bytes() + 500  # counters
    assert JOINT.batch_bytes(8) >= NESTED.batch_bytes(8) > max(one.batch_bytes(8) for _, one in NESTED.parts)
