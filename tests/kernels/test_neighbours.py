"""The rows of the largest cosines are those of sorting all, whatever multiplies, and in whatever blocks they come."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smtdist.errors import ConfigurationError
from smtdist.kernels import neighbours
from smtdist.kernels.cpu import dictionary, integer_products
from smtdist.kernels.cpu import neighbours as cpu
from smtdist.kernels.device import PRODUCTS_VARIABLE
from smtdist.kernels.generic import neighbours as plain

BODIES = [name for name, flag in dictionary.BODIES.items() if flag in ["", *dictionary.processor_flags()]]


@pytest.fixture(autouse=True)
def bytes_always_pay(monkeypatch):
    monkeypatch.setattr(cpu, "WORTH", 0)


pytestmark = pytest.mark.usefixtures("thread_count")


def searched(queries, scale, rows, others, k, cuts, body=None):
    """Offer rows in blocks between the cuts, in any order."""
    with pytest.MonkeyPatch.context() as patch:
        if body is not None:
            patch.setenv(PRODUCTS_VARIABLE, body)
        found = neighbours.search(queries, scale, len(rows), k, packed=True)
        for start, stop in cuts:
            found.offer(rows[start:stop], others[start:stop], start)
    return found.keys


def drawn_blocks(rng, columns):
    cuts = [0, *np.sort(rng.integers(0, columns + 1, 3)).tolist(), columns]
    blocks = list(itertools.pairwise(cuts))
    return [blocks[i] for i in rng.permutation(len(blocks))]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 20), st.integers(20, 300), st.sampled_from(BODIES))
def test_equals_sorting_all(seed, k, columns, body):
    """Whole numbers, so that every product is exact and many cosines are equal."""
    rng = np.random.default_rng(seed)
    features = int(rng.integers(1, 80))
    queries, rows = (
        rng.integers(-2, 3, (count, features)).astype(np.float32) * np.float32(2.0 ** rng.integers(-9, 9))
        for count in (5, columns)
    )
    with np.errstate(divide="ignore"):
        scale, others = (
            np.where(one.any(axis=1), 1 / np.sqrt((one**2).sum(axis=1)), 0).astype(np.float32)
            for one in (queries, rows)
        )
    keys = searched(queries, scale, rows, others, k, drawn_blocks(rng, columns), body)
    cosines = (queries @ rows.T) * scale[:, None] * others + np.float32(0)
    found, places = neighbours.sorted_neighbours(keys)
    expected = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(places, expected)
    np.testing.assert_array_equal(found, np.clip(np.take_along_axis(cosines, expected, 1), -1, 1))
    assert not np.signbit(found[found == 0]).any()


@pytest.mark.parametrize("spread", [0.0, 3.0])
@pytest.mark.parametrize("features", [7, 250, 1601])
def test_bits_do_not_depend_on_products_or_blocks(features, spread):
    """Rows of numbers of one size, and rows with a few that are much larger."""
    rng = np.random.default_rng(features)
    centre = rng.normal(size=features)
    queries, rows = (
        (
            centre + 0.3 * rng.normal(size=(count, features)) * np.exp(spread * rng.normal(size=features))
        ).astype(np.float32)
        for count in (40, 700)
    )
    rows[600] = rows[3]
    scale, others = (1 / np.sqrt((one**2).sum(axis=1)) for one in (queries, rows))
    wanted = np.sort(searched(queries, scale, rows, others, 9, [(0, 700)], "float32"))
    exact = (queries.astype(float) @ rows.astype(float).T).astype(np.float32) * scale[:, None] * others
    found, places = neighbours.sorted_neighbours(wanted)
    np.testing.assert_allclose(found, -np.sort(-exact, axis=1)[:, :9], rtol=3e-7)
    for body in BODIES:
        for cuts in ([(0, 700)], [(400, 700), (0, 65), (65, 66), (66, 400)]):
            keys = searched(queries, scale, rows, others, 9, cuts, body)
            np.testing.assert_array_equal(np.sort(keys), wanted)
    assert (places >= 0).all()


@pytest.mark.skipif(not dictionary.has_bytes(), reason="needs AVX-512 with VNNI")
def test_products_of_bytes_that_are_too_coarse_lead_to_no_exact_sums(monkeypatch):
    """Among cosines that lie close together they would leave nearly every pair to float64."""
    used, own = [], cpu.offer
    rng = np.random.default_rng(0)
    rows = (3 + rng.normal(size=(300, 900))).astype(np.float32)
    scale = (1 / np.sqrt((rows.astype(float) ** 2).sum(axis=1))).astype(np.float32)
    found = neighbours.search(rows[:20], scale[:20], 300, 3, packed=True)
    assert found._kind is integer_products.Bytes512
    monkeypatch.setattr(cpu, "offer", lambda *given: (used.append(found._kind), own(*given)))
    found.offer(rows, scale, 0)
    assert set(used) == {integer_products.Atoms512}


@pytest.mark.skipif(not dictionary.has_bytes(), reason="needs AVX-512 with VNNI")
def test_long_rows_lead_to_few_exact_sums(monkeypatch):
    """Rounding is bounded within a run of features: over all of them the bound would be wider than these cosines differ."""
    monkeypatch.setattr(cpu, "WIDEST", 1000)
    queries, rows = (
        np.random.default_rng(count).uniform(0, 1, (count, 60_000)).astype(np.float32) for count in (20, 64)
    )
    scale, others = (1 / np.sqrt(neighbours.squares(one)).astype(np.float32) for one in (queries, rows))
    exact = (queries.astype(np.float64) @ rows.T.astype(np.float64)) * scale[:, None] * others
    found = cpu.Search(queries, scale, len(rows), 3, packs=True)
    lowest, near = np.empty(len(queries), np.float32), np.zeros(len(queries), np.int64)
    cosines = found._approximate(rows, others, lowest, near)
    assert np.abs(cosines - exact).max() < (cpu.RUN + 60_000 / cpu.RUN) * 2.0**-23 + cpu.ROUNDING
    assert near.min() >= 3
    assert near.mean() < 12  # 64 with a bound over all features
    np.testing.assert_array_equal(
        np.sort(neighbours.sorted_neighbours(searched(queries, scale, rows, others, 3, [(0, 64)]))[1]),
        np.sort(np.argsort(-exact, axis=1)[:, :3]),
    )


@pytest.mark.skipif(not dictionary.has_bytes(), reason="needs AVX-512 with VNNI")
def test_few_rows_are_not_packed_as_bytes_first(monkeypatch):
    monkeypatch.undo()
    rows, one = np.ones((400, 8), np.float32), np.ones(400, np.float32)
    kinds = [neighbours.search(rows, one, count, 3, packed=True)._kind for count in (400, 4000)]
    assert kinds == [integer_products.Atoms512, integer_products.Bytes512]


def test_the_partition_of_other_devices_keeps_the_same_rows():
    rng = np.random.default_rng(4)
    queries, rows = (rng.integers(1, 4, (count, 12)).astype(np.float32) for count in (6, 90))
    scale, others = (1 / np.sqrt((one**2).sum(axis=1)) for one in (queries, rows))
    other = plain.Search(queries, scale, 90, 5)
    for start, stop in ((50, 90), (0, 50)):
        other.offer(rows[start:stop], others[start:stop], start)
    keys = searched(queries, scale, rows, others, 5, [(0, 90)])
    np.testing.assert_array_equal(np.sort(other.keys), np.sort(keys))


def test_ascending_cosines_replace_all():
    """The worst order: every block is better than all before."""
    angles = np.linspace(1.5, 0.1, 1000)
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    one = np.ones(1000, np.float32)
    keys = searched(rows[-1:], one[:1], rows, one, 7, [(a, a + 100) for a in range(0, 1000, 100)])
    _, places = neighbours.sorted_neighbours(keys)
    np.testing.assert_array_equal(places, [np.arange(999, 992, -1)])


def test_other_shapes_are_refused():
    with pytest.raises(ConfigurationError, match="do not fit 3 scales"):
        neighbours.search(np.zeros((2, 3), np.float32), np.ones(3, np.float32), 4, 1)
