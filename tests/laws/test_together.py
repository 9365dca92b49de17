"""Statistics that are summed together are what each is alone."""

from drawing import small_images
from hypothesis import given, settings
from hypothesis import strategies as st
from laws.every_statistic import JOINT, NESTED
from toys import assert_same_bits, sum_of


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 2**16))
def test_each_part_is_what_it_is_alone(seed):
    assert JOINT.exact
    samples = small_images(seed, 9, 7, 6)
    whole = sum_of(JOINT, samples)
    for name, one in JOINT.parts[:2]:
        assert_same_bits(JOINT.part(whole, name), sum_of(one, samples))
    for name, one in NESTED.parts:
        assert_same_bits(NESTED.part(JOINT.part(whole, "codes"), name), sum_of(one, samples))


def test_the_workspace_is_that_of_the_largest_part_and_more():
    assert (
        JOINT.batch_bytes(8) >= NESTED.batch_bytes(8) > max(one.batch_bytes(8) for _, one in NESTED.parts)
    )
