"""The E-step against enumeration: the energy functional, exact marginals, what rises and what may fall."""

import numpy as np
import pytest
import reference as oracle
from drawing import unit_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from measured import on_threads

from replication.s3c.steps import (
    iterate_conjugate,
    iterate_conjugate_tile,
    iterate_sequential,
    log_likelihood,
    sequential,
)
from smtdist.errors import ConfigurationError, DataError
from smtdist.kernels.spike_slab import (
    Padded,
    Schedule,
    SpikeSlab,
    energy,
    infer,
    iterate,
    iterate_tile,
    tile_rows,
)


def model_of(seed, n_units, n_inputs, scalar=False):
    rng = np.random.default_rng(seed)
    atoms = unit_rows(rng, n_units, n_inputs)
    beta = np.full(n_inputs, 3.0) if scalar else rng.uniform(0.5, 6, n_inputs)
    return SpikeSlab(
        atoms,
        rng.normal(0, 1, n_units),
        rng.uniform(0.3, 4, n_units),
        rng.normal(-1, 1.5, n_units),
        beta,
    )


def parts(model):
    return model.atoms.T, model.mu, model.alpha, model.bias, model.beta


def rows_of(seed, model, n):
    return oracle.draw_spike_slab(np.random.default_rng(seed), n, *parts(model))[0]


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    n_units=st.integers(1, 10),
    n_inputs=st.integers(1, 6),
    steps=st.integers(1, 19),
)
def test_evidence_less_the_energy_functional_is_the_divergence(seed, n_units, n_inputs, steps):
    model = model_of(seed, n_units, n_inputs)
    rows = rows_of(seed + 1, model, 2)
    schedule = Schedule(Schedule().h[:steps], Schedule().s[:steps])
    for found in (infer(rows, model, schedule), sequential(rows, model, steps)):
        energies = energy(rows, found, model)
        for v, h, s, value in zip(rows, found.h, found.s, energies, strict=True):
            exact = oracle.ExactPosterior(v, *parts(model))
            wanted = exact.divergence(h, s, model.atoms.T, model.alpha, model.beta)
            assert wanted >= -1e-12
            assert abs(exact.log_evidence - value - wanted) < 1e-10 * max(1, abs(exact.log_evidence))


def test_the_evidence_is_that_of_the_oracle():
    model = model_of(3, 6, 4)
    rows = rows_of(4, model, 5)
    wanted = [oracle.ExactPosterior(v, *parts(model)).log_evidence for v in rows]
    np.testing.assert_allclose(log_likelihood(rows, model), wanted, rtol=1e-12)
    with pytest.raises(ConfigurationError, match="2\\^15 states of h; at most 14"):
        log_likelihood(np.zeros((1, 2)), model_of(0, 15, 2))


def test_marginals_are_exact_where_units_are_orthogonal():
    rng = np.random.default_rng(5)
    model = model_of(5, 5, 8, scalar=True)
    atoms = np.linalg.qr(rng.standard_normal((8, 5)))[0].T
    model = SpikeSlab(atoms, model.mu, model.alpha, model.bias, model.beta)
    rows = rows_of(6, model, 6)
    many = (
        sequential(rows, model, 1),
        infer(rows, model, Schedule.constant(0.8, 60)),
        list(iterate_conjugate(rows, model, (0.8,) * 60, 5))[-1],
    )
    for found in many:
        for v, h, product in zip(rows, found.h, found.mean, strict=True):
            exact = oracle.ExactPosterior(v, *parts(model))
            np.testing.assert_allclose(h, exact.spike_marginals(), atol=1e-10)
            np.testing.assert_allclose(product, exact.mean_product(), atol=1e-10)
            # no divergence is left
            assert abs(exact.divergence(h, product / h, atoms.T, model.alpha, model.beta)) < 1e-10


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10**6), n_units=st.integers(1, 40), n_inputs=st.integers(1, 12))
def test_sequential_sweeps_never_lower_the_energy_functional(seed, n_units, n_inputs):
    model = model_of(seed, n_units, n_inputs)
    rows = rows_of(seed + 1, model, 4)
    values = np.array([energy(rows, found, model) for found in iterate_sequential(rows, model, 12)])
    # the start: Q at the prior
    assert (np.diff(values, axis=0) >= -1e-9 * np.abs(values[:-1])).all()


def test_conjugate_gradients_solve_for_the_slabs():
    model = model_of(7, 12, 9)
    rows = rows_of(8, model, 3)
    (found,) = iterate_conjugate(rows, model, (0.5,), 12)
    (again,) = iterate_conjugate(rows, model, (0.5,), 12, preconditioned=True)
    h = 1 / (1 + np.exp(-model.bias))  # the ĥ that ŝ was solved for
    gram = (model.atoms * model.beta) @ model.atoms.T
    matrix = np.outer(h, h) * (gram - np.diag(np.diag(gram))) + np.diag(h * (np.diag(gram) + model.alpha))
    right = h * (rows @ (model.atoms * model.beta).T + model.alpha * model.mu)
    np.testing.assert_allclose(found.s, np.linalg.solve(matrix, right.T).T, rtol=1e-7)
    np.testing.assert_allclose(again.s, found.s, rtol=1e-7)


@pytest.mark.parametrize("units", [16, 21])
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("preconditioned", [False, True])
def test_compiled_conjugate_gradients_follow_the_plain_ones(units, steps, preconditioned):
    model = model_of(7, units, 9)
    rows = rows_of(8, model, 5)
    damping = (0.3, 0.7, 0.5)
    small = rows.astype(np.float32)
    wanted = iterate_conjugate(rows, model, damping, steps, preconditioned=preconditioned)
    padded = Padded(model.astype(np.float32))
    found = iterate_conjugate_tile(small, padded, damping, steps, preconditioned=preconditioned)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.h, other.h, atol=2e-4)
        np.testing.assert_allclose(one.mean, other.mean, atol=2e-3)


def test_rising_dampings_end_nearer_the_optimum_where_the_noise_is_small():
    rng = np.random.default_rng(11)
    atoms = unit_rows(rng, 120, 30)
    units = np.ones(120)
    model = SpikeSlab(atoms, units, 7 * units, -3 * units, np.full(30, 30.0))
    rows = rows_of(12, model, 40)
    rising, stepped = (
        np.mean(
            [
                oracle.spike_slab_energy(v, *one, *parts(model))
                for v, *one in zip(rows, found.h, found.s, strict=True)
            ]
        )
        for found in (infer(rows, model, schedule) for schedule in (Schedule(), Schedule.stepped()))
    )
    optimum = np.mean(
        [
            oracle.spike_slab_energy(v, *oracle.spike_slab_one_by_one(v, *parts(model), 60), *parts(model))
            for v in rows
        ]
    )
    assert Schedule().iterations == Schedule.stepped().iterations
    assert rising > stepped + 1
    assert rising > optimum - 0.03


def test_the_energy_and_updates_of_one_unit_after_another_are_those_of_the_oracle():
    model = model_of(3, 9, 5)
    rows = rows_of(4, model, 6)
    for sweeps in (1, 2, 7):
        found = sequential(rows, model, sweeps)
        energies = energy(rows, found, model)
        for v, h, s, one in zip(rows, found.h, found.s, energies, strict=True):
            wanted = oracle.spike_slab_one_by_one(v, *parts(model), sweeps)
            np.testing.assert_allclose((h, s), wanted, rtol=1e-8, atol=1e-10)
            assert one == pytest.approx(oracle.spike_slab_energy(v, h, s, *parts(model)), rel=1e-9)
    # the oracle itself: log p(v) less the energy is the divergence from the enumerated posterior
    exact = oracle.ExactPosterior(rows[0], *parts(model))
    gap = exact.divergence(found.h[0], found.s[0], model.atoms.T, model.alpha, model.beta)
    assert exact.log_evidence - energies[0] == pytest.approx(gap, rel=1e-8)


def test_a_tile_goes_through_the_iterations_of_the_generic_body():
    model = model_of(7, 21, 9)
    rows = rows_of(8, model, 5)
    for schedule in (Schedule.constant(0.4, 4), Schedule.in_blocks(4, 16), Schedule.in_blocks(4)):
        found = iterate_tile(rows.astype(np.float32), Padded(model.astype(np.float32)), schedule)
        for one, other in zip(found, iterate(rows, model, schedule), strict=True):
            np.testing.assert_allclose(one.h, other.h, atol=2e-4)
            np.testing.assert_allclose(one.s, other.s, atol=2e-3)


def crowded():
    """Return a model ten times overcomplete, and rows, a tenth of them of ten times the contrast."""
    rng = np.random.default_rng(11)
    atoms = unit_rows(rng, 320, 30)
    units = np.ones(320)
    model = SpikeSlab(atoms, units, 7 * units, -4 * units, np.full(30, 30.0))
    rows = rows_of(12, model, 100)
    rows[:10] *= 10
    return model, rows


def test_blocks_in_turn_find_what_takes_all_units_at_once_three_times_the_products():
    model, rows = crowded()
    schedules = Schedule.stepped(), Schedule.rising(), Schedule.in_blocks(), Schedule.in_blocks(38)
    whole, rising, turns, longer = (energy(rows, infer(rows, model, one), model) for one in schedules)
    assert [one.products * one.iterations for one in schedules] == [76, 76, 24, 76]
    assert turns[10:].mean() > whole[10:].mean() + 1
    assert turns[:10].mean() > whole[:10].mean() + 300
    assert longer[10:].mean() > rising[10:].mean() > turns[10:].mean()
    # where the contrast is great, all at once get into each other's way
    one_by_one = energy(rows, sequential(rows, model, 20), model)
    assert (rising - one_by_one).min() < -1000
    assert min((turns - one_by_one).min(), (longer - one_by_one).min()) > -30
    assert longer.mean() > turns.mean() > one_by_one.mean()


def test_blocks_come_to_rest_at_the_fixed_point_of_algorithm_1():
    model, rows = crowded()
    schedule = Schedule(
        (*Schedule.in_blocks(20).h, *(0.8,) * 300), (*Schedule.in_blocks(20).s, *(0.8,) * 300), block=32
    )
    found = infer(rows, model, schedule)
    pull = (rows - found.mean @ model.atoms) * model.beta @ model.atoms.T + model.gains * found.mean
    wanted = (model.alpha * model.mu + pull) / model.gamma
    drive = (
        found.s * (pull - model.gains * found.s / 2)
        + model.offsets
        - model.alpha / 2 * (found.s - model.mu) ** 2
    )
    still = np.abs(found.s - wanted).max(axis=1) < 1e-6
    assert still.mean() > 0.9
    np.testing.assert_allclose(found.h[still], 1 / (1 + np.exp(-drive[still])), atol=1e-6)


def test_all_ways_meet_where_the_problem_is_easy():
    model = model_of(9, 10, 30)
    model = SpikeSlab(model.atoms, model.mu, model.alpha, model.bias, np.full(30, 20.0))
    rows = rows_of(10, model, 20)
    evidence = log_likelihood(rows, model)
    ways = {
        "fixed": infer(rows, model, Schedule((0.1,) * 300, (0.7,) + (0.1,) * 299)),
        "conjugate": list(iterate_conjugate(rows, model, (0.4,) * 60, 5))[-1],
        "sequential": sequential(rows, model, 60),
    }
    gaps = {name: float((evidence - energy(rows, found, model)).mean()) for name, found in ways.items()}
    assert all(-1e-9 < gap < 2 for gap in gaps.values()), gaps
    assert max(gaps.values()) - min(gaps.values()) < 0.3, gaps


@pytest.mark.parametrize("schedule", [Schedule(), Schedule.in_blocks()])
@pytest.mark.parametrize(
    ("n_units", "n_inputs", "n"), [(1, 1, 1), (17, 5, 33), (300, 40, 500), (16, 108, 7)]
)
def test_the_compiled_body_is_the_generic_one(n_units, n_inputs, n, schedule):
    model = model_of(11, n_units, n_inputs)
    rows = rows_of(12, model, n)
    exact = infer(rows, model, schedule)
    fast = infer(rows.astype(np.float32), model.astype(np.float32), schedule)
    assert fast.h.dtype == fast.s.dtype == np.float32
    np.testing.assert_allclose(fast.h, exact.h, atol=1e-3)  # a few units near a bistable point
    np.testing.assert_allclose(fast.s, exact.s, atol=1e-3)
    assert np.abs(fast.h - exact.h).mean() < 1e-6


def test_extreme_drives_neither_overflow_nor_stay_open():
    model = SpikeSlab(
        np.eye(2), np.full(2, 100.0), np.ones(2), np.array([-200.0, 200.0]), np.full(2, 100.0)
    )
    rows = np.array([[100.0, -500.0], [0.0, 0.0]])
    for dtype in (np.float32, np.float64):
        found = infer(rows.astype(dtype), model.astype(dtype), Schedule.constant(0.9, 40))
        assert np.isfinite(found.s).all()
        np.testing.assert_allclose(found.h, [[1, 1], [0, 1e-30]], atol=0.02)


def test_rows_and_threads_do_not_change_a_bit():
    model = model_of(13, 200, 20).astype(np.float32)
    rows = rows_of(14, model, 3 * tile_rows(200)).astype(np.float32)
    found = []
    for count in (1, 2, 3):
        with on_threads(count):
            found.append([part.tobytes() for part in infer(rows, model)])
    assert found[0] == found[1] == found[2]
    alone = infer(rows[tile_rows(200) : 2 * tile_rows(200)], model)
    np.testing.assert_array_equal(alone.h, infer(rows, model).h[tile_rows(200) : 2 * tile_rows(200)])


def test_a_slab_at_zero_is_not_frozen():
    # the printed rule clips to ρ |0| = 0 wherever sign(ŝ*) differs from sign(0)
    model = SpikeSlab(np.eye(3), np.zeros(3), np.ones(3), np.zeros(3), np.full(3, 4.0))
    for dtype in (np.float32, np.float64):
        found = infer(np.array([[2.0, -2.0, 0.0]], dtype), model.astype(dtype), Schedule.constant(0.5, 60))
        np.testing.assert_allclose(found.s, [[1.6, -1.6, 0.0]], atol=1e-3)


def test_reflections_are_clipped():
    model = SpikeSlab(np.eye(1), np.ones(1), np.ones(1), np.full(1, 5.0), np.full(1, 50.0))
    rows = np.array([[-30.0]])
    for dtype in (np.float32, np.float64):
        found = infer(rows.astype(dtype), model.astype(dtype), Schedule((1.0,), (1.0,), 0.5))
        np.testing.assert_allclose(found.s, [[-0.5]], rtol=1e-6)
        free = infer(np.array([[30.0]], dtype), model.astype(dtype), Schedule((1.0,), (1.0,), 0.5))
        np.testing.assert_allclose(free.s, [[1501 / 51]], rtol=1e-6)
        # damping comes after clipping
        damped = infer(rows.astype(dtype), model.astype(dtype), Schedule((1.0,), (0.5,), 0.5))
        np.testing.assert_allclose(damped.s, [[0.25]], rtol=1e-6)


def test_only_a_step_beyond_one_turns_a_sign():
    # clipped, then damped: ŝ becomes (1 - η (1 + ρ)) ŝ, which keeps its sign for η (1 + ρ) < 1; hence the .7 at the start
    model = SpikeSlab(np.eye(1), np.ones(1), np.ones(1), np.full(1, 5.0), np.full(1, 50.0))
    rows = np.array([[-3.0]])
    kept = infer(rows, model, Schedule.constant(0.6, 200))
    turned = infer(rows, model, Schedule((0.6,) * 200, (0.7,) + (0.6,) * 199))
    assert 0 <= kept.s[0, 0] < 1e-6
    np.testing.assert_allclose(turned.s, [[(1 - 150) / 51]])


def test_unclipped_parallel_updates_grow_without_bound():
    # twins that inhibit each other: the failure that section 4 describes
    atoms = np.repeat(np.eye(2)[:1], 8, axis=0)
    model = SpikeSlab(atoms, np.full(8, 0.1), np.full(8, 0.1), np.full(8, 6.0), np.full(2, 20.0))
    rows = np.array([[1.0, 0.0]])
    clipped = infer(rows, model, Schedule.constant(0.9, 30, 0.5))
    wild = [np.abs(found.s).max() for found in iterate(rows, model, Schedule.constant(0.9, 30, 1.0))]
    assert np.abs(clipped.s).max() < 10
    assert max(wild) >= np.abs(clipped.s).max() * 0.5


def test_what_cannot_be_a_schedule_or_rows():
    with pytest.raises(ConfigurationError, match="damping of h has 1 steps and that of s 2"):
        Schedule((0.1,), (0.1, 0.2))
    with pytest.raises(ConfigurationError, match="above 0 and up to 1"):
        Schedule((0.0,), (0.1,))
    with pytest.raises(ConfigurationError, match="block has -1 units"):
        Schedule(block=-1)
    with pytest.raises(DataError, match=r"the model takes \(rows, 4\)"):
        infer(np.zeros((2, 3)), model_of(0, 2, 4))


def test_rescaling_leaves_the_likelihood():
    model = model_of(15, 5, 4)
    loose = SpikeSlab(
        model.atoms * np.array([0.2, 1, 3, 5, 0.7])[:, None], model.mu, model.alpha, model.bias, model.beta
    )
    rows = rows_of(16, model, 6)
    unit = loose.rescaled()
    np.testing.assert_allclose(np.linalg.norm(unit.atoms, axis=1), 1)
    np.testing.assert_allclose(log_likelihood(rows, unit), log_likelihood(rows, loose), rtol=1e-11)
