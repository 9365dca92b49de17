"""What must hold for every statistic: sums of pieces are the sum, in any order and grouping, bit for bit."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import reference as oracle
from drawing import small_images
from hypothesis import given, settings
from hypothesis import strategies as st

from smtdist.configuration import Configuration
from smtdist.kernels.pixels import pixel_scale
from smtdist.kernels.types import Geometry, Sampling
from smtdist.kernels.whitening import atoms_to_grid
from smtdist.models.model import Whitening, make_encoder, unwhitened, whitened
from smtdist.statistics.base import check_state
from smtdist.statistics.candidates import Candidates
from smtdist.statistics.centroids import Centroids
from smtdist.statistics.cooccurrence import CodeSums
from smtdist.statistics.covariance import PatchMoment, covariance

GEOMETRY = Geometry(7, 6, 1, 3)
ATOMS = atoms_to_grid(np.random.default_rng(5).normal(size=(12, 9)))


def whitener_of(settings):
    first = unwhitened(settings, GEOMETRY, pixel_scale(np.uint8, settings.pixel_range))
    return whitened(first, Whitening(np.eye(9), np.eye(9), np.eye(9), None))


def code_sums(**changes):
    settings = Configuration(**{"patch": 3, "threshold": 0.4, "dictionary": 12, "flip": True, **changes})
    return CodeSums(
        make_encoder(settings, whitener_of(settings), ATOMS),
        settings.context,
        settings.order,
        settings.flip,
        100,
    )


def statistics_by_name():
    plain = Configuration(patch=3, flip=True)
    whitener = whitener_of(plain)
    encoder = make_encoder(plain.replace(feature="vq"), whitener, ATOMS)
    spares = Candidates(whitener, True, 5, 3)
    few = replace(whitener, sampling=Sampling(2, 3, 7))
    return {
        "moment-drawn": PatchMoment(replace(few, whiten=None), True),
        "candidates-stride": Candidates(few, True, 9, 1),
        "centroids-drawn": Centroids(replace(encoder, whitener=few), True, replace(spares, whitener=few)),
        "gq-drawn": code_sums(positions=5),
        "gq-drawn-complete": code_sums(
            positions=5, constant_patch="activate_best", zero_code="activate_best"
        ),
        "gq-window-drawn": code_sums(context=2, stride=2, positions=4, threshold=0.2),
        "gq-second-order-drawn": code_sums(context=2, order=2, positions=6),
        "vq-stride": code_sums(feature="vq", context=2, stride=2),
        "vq-drawn-second-order": code_sums(feature="vq", order=2, positions=4),
        "moment": PatchMoment(unwhitened(plain, GEOMETRY, pixel_scale(np.uint8, None)), True),
        "candidates": Candidates(whitener, True, 9, 1),
        "centroids": Centroids(encoder, True, spares),
        "gq-whole": code_sums(),
        "gq-whole-kept": code_sums(constant_patch="keep", zero_code="keep"),
        "gq-window-left-out": code_sums(context=1, zero_code="leave_out"),
        "vq-window-kept": code_sums(feature="vq", context=2, constant_patch="keep"),
        "gq-whole-complete": code_sums(constant_patch="activate_best", zero_code="activate_best"),
        "gq-window": code_sums(context=1),
        "gq-second-order": code_sums(context=2, order=2),
        "vq-whole": code_sums(feature="vq"),
        "vq-window": code_sums(feature="vq", context=2),
        "vq-whole-second-order": code_sums(feature="vq", order=2),
    }


STATISTICS = statistics_by_name()


def assert_equal(left, right):
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name, strict=True)


def sum_of(statistic, images, first=0):
    state = statistic.zero()
    statistic.update(state, images[first:], first)
    return state


@pytest.mark.parametrize("name", STATISTICS)
@settings(deadline=None, max_examples=15)
@given(st.data())
def test_any_grouping_gives_the_same_bits(name, data):
    statistic = STATISTICS[name]
    images = small_images(data.draw(st.integers(0, 2**16)), 9, 7, 6)
    whole = sum_of(statistic, images)
    cuts = sorted(data.draw(st.sets(st.integers(1, 8), max_size=4)))
    edges = [0, *cuts, 9]
    parts = []
    for start, stop in itertools.pairwise(edges):
        part = statistic.zero()
        middle = data.draw(st.integers(start, stop))
        for begin, end in ((start, middle), (middle, stop)):
            if begin < end:
                statistic.update(part, images[begin:end], begin)
        parts.append(part)
    while len(parts) > 1:
        order = data.draw(st.permutations(range(len(parts))))
        left, right = parts[order[0]], parts[order[1]]
        before = {key: value.copy() for key, value in right.items()}
        merged = statistic.merge(left, right)
        assert_equal(right, before)
        parts = [merged, *(parts[i] for i in order[2:])]
    assert_equal(parts[0], whole)


@pytest.mark.parametrize("name", STATISTICS)
def test_zero_is_neutral_and_describes_the_state(name):
    statistic = STATISTICS[name]
    images = small_images(4, 3, 7, 6)
    whole = sum_of(statistic, images)
    assert_equal(statistic.merge(statistic.zero(), whole), whole)
    assert check_state(whole, statistic.zero())
    assert sum(value.nbytes for value in whole.values()) <= statistic.state_bytes() + 100


@pytest.mark.parametrize("name", STATISTICS)
def test_the_sum_is_not_trivial(name):
    """A law about zeros would prove nothing."""
    statistic = STATISTICS[name]
    state = sum_of(statistic, small_images(4, 3, 7, 6))
    informative = [key for key, value in state.items() if value.ndim]
    assert all(np.any(state[key]) for key in informative if key not in ("deficit", "moment_high"))


def test_sums_beyond_64_bits_are_exact():
    from smtdist.statistics import limbs

    rng = np.random.default_rng(0)
    values = rng.integers(-(2**62), 2**62, (50, 3))
    high, low = np.zeros(3, np.int64), np.zeros(3, np.int64)
    half = np.zeros(3, np.int64), np.zeros(3, np.int64)
    for i, value in enumerate(values):
        limbs.add(*((high, low) if i % 2 else half), value)
    limbs.merge(high, low, *half)
    assert limbs.exact(high, low).tolist() == values.astype(object).sum(axis=0).tolist()
    assert low.min() >= 0
    assert low.max() < 2**32


def test_candidates_nest_and_do_not_depend_on_how_many_are_asked_for():
    images = small_images(1, 8, 7, 6)
    small, large = (
        sum_of(Candidates(STATISTICS["candidates"].whitener, True, size, 1), images) for size in (5, 40)
    )
    for name in ("hash", "vector", "sample", "position", "view"):
        np.testing.assert_array_equal(small[name], large[name][: len(small[name])])
    assert len(np.unique(large["vector"], axis=0)) == len(large["vector"])


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_the_whitening_covariance_merges_within_three_roundings_of_the_exact_value(data):
    """The one floating-point statistic: whatever the grouping, 2^-51 of each entry from Σ m mᵀ / N in rational numbers."""
    mean = data.draw(st.sampled_from(["context", "patch", "global"]))
    n = data.draw(st.integers(2, 12))
    images = small_images(data.draw(st.integers(0, 2**16)), n, 7, 6, 1)
    whitener = replace(whitener_of(Configuration(patch=3, mean=mean)), whiten=None)
    moment = PatchMoment(whitener, False)
    states = []
    for part in np.array_split(data.draw(st.permutations(range(n))), data.draw(st.integers(1, n))):
        states.append(moment.zero())
        moment.update(states[-1], images[part], 0)
    while len(states) > 1:
        pair = data.draw(st.integers(1, len(states) - 1))
        states[0] = moment.merge(states[0], states.pop(pair))
    whole = moment.zero()
    moment.update(whole, images, 0)
    (got, mu), (want, _) = (covariance(state, whitener) for state in (states[0], whole))
    np.testing.assert_array_equal(got, want)
    removed = oracle.mean_removed(
        oracle.pixel_units(images), 3, mean, "whole", np.zeros(9, np.int64) if mu is None else mu
    )
    total, count = oracle.patch_moment(removed), n * GEOMETRY.positions
    for (i, j), value in np.ndenumerate(got):
        exact = Fraction(int(total[i, j]), count) * Fraction(1, 255 * 256) ** 2
        assert abs(Fraction(value) - exact) <= abs(exact) * Fraction(1, 2**51)
