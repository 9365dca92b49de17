"""The M-step: derivatives against differences, the closed form as their root, EM that climbs, planted parameters."""

import numpy as np
import pytest
import reference as oracle
from drawing import unit_rows
from s3c.test_inference import model_of, parts, rows_of
from scipy.optimize import linear_sum_assignment

from replication.s3c.steps import log_likelihood, sequential
from smtdist.codes.s3c import S3CSettings
from smtdist.codes.s3c_steps import closed_form, gradient_step, gradients
from smtdist.errors import DataError
from smtdist.kernels.spike_slab import PARAMETERS, Posterior, Schedule, SpikeSlab, energy, infer
from smtdist.statistics.l1_codes import SpikeSlabSums
from smtdist.statistics.patch_rows import PatchRows


def sums_of(rows, model, schedule=None, second=True):
    patches = PatchRows((1, 1, model.n_inputs), 1, None, 0.0, 0)
    statistic = SpikeSlabSums(patches, model, schedule or Schedule.in_blocks(), 0, second)
    state = statistic.zero()
    statistic.add(state, rows)
    return state


def expected(rows, found, model, old):
    """E_Q log p(v, h, s) of all rows by its definition, slabs where the spike is on; Q's variances are those of `old`."""
    h, s = found
    gains = np.einsum("id,d,id->i", old.atoms, old.beta, old.atoms)
    on = 1 / (old.alpha + gains)
    x = h * s
    variances = h * (s**2 + on) - x**2
    error = (rows - x @ model.atoms) ** 2 + variances @ (model.atoms**2)
    total = 0.5 * (np.log(model.beta / (2 * np.pi)) - model.beta * error).sum()
    slab = np.log(model.alpha / (2 * np.pi)) - model.alpha * ((s - model.mu) ** 2 + on)
    total += 0.5 * (h * slab).sum()
    return total + (h * model.bias - np.logaddexp(0, model.bias)).sum()


def with_one(model, name, value):
    return SpikeSlab(**{key: value if key == name else getattr(model, key) for key in PARAMETERS})


def test_gradients_are_differences_of_the_objective():
    model = model_of(0, 4, 3)
    rows = rows_of(1, model, 7)
    found = infer(rows, model)
    slopes = gradients(model, sums_of(rows, model, second=False))
    for name, slope in slopes.items():
        value = getattr(model, name)
        for at in np.ndindex(value.shape):
            moved = []
            for sign in (1, -1):
                changed = value.copy()
                changed[at] += sign * 1e-6
                moved.append(expected(rows, found, with_one(model, name, changed), model))
            np.testing.assert_allclose(slope[at], (moved[0] - moved[1]) / 2e-6 / 7, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scalar", [False, True])
def test_the_closed_form_is_a_maximum(scalar):
    model = model_of(2, 4, 3, scalar=scalar)
    rows = rows_of(3, model, 200)
    found = infer(rows, model)
    best = closed_form(model, sums_of(rows, model), S3CSettings(beta="scalar" if scalar else "diagonal"))
    # what the expectation is at unit atoms: Q moves with the scale of the slabs
    top = climbed(rows, found, best, model)
    rng = np.random.default_rng(4)
    for name in PARAMETERS:
        for _ in range(5):
            change = rng.standard_normal(getattr(best, name).shape) * 1e-3
            if name == "beta" and scalar:
                change = np.full_like(change, change[0])
            other = with_one(best, name, getattr(best, name) + change)
            assert climbed(rows, found, other, model) <= top
    np.testing.assert_allclose(np.linalg.norm(best.atoms, axis=1), 1)


def climbed(rows, found, model, old):
    """E_Q log p with atoms of the scale that `closed_form` found before it brought them to unit length."""
    sums = sums_of(rows, old)
    spread = sums["square"] + sums["h"] / old.gamma - sums["cross"]
    loose = np.linalg.solve(sums["xx"] + np.diag(spread), sums["rx"] + sums["xx"] @ old.atoms)
    scale = np.linalg.norm(loose, axis=1)
    undone = SpikeSlab(
        model.atoms * scale[:, None], model.mu / scale, model.alpha * scale**2, model.bias, model.beta
    )
    return expected(rows, found, undone, old)


def test_exact_em_never_lowers_the_bound():
    model = model_of(5, 6, 5)
    rows = rows_of(6, model_of(7, 6, 5), 150)
    values = []
    for _ in range(15):
        found = sequential(rows, model, 60)
        values.append(energy(rows, found, model).mean())
        state = sums_of(rows, model)
        # the statistic runs the parallel E-step; here its sums are those of the sequential one
        for name in state:
            state[name] = np.zeros_like(state[name])
        patches = PatchRows((1, 1, 5), 1, None, 0.0, 0)
        SpikeSlabSums(patches, model, Schedule.in_blocks(), 0, True)._add(state, rows, found)
        state["n"] += len(rows)
        model = closed_form(model, state, S3CSettings())
    assert (np.diff(values) > -1e-7).all(), np.diff(values)
    assert values[-1] > values[0] + 0.1
    assert log_likelihood(rows, model).mean() >= values[-1] - 1e-9


def test_small_steps_climb():
    model = model_of(8, 6, 5)
    rows = rows_of(9, model_of(10, 6, 5), 400)
    for newton in (True, False):
        here, values = model, []
        for _ in range(30):
            state = sums_of(rows, here, second=False)
            values.append(float(state["energy"]) / len(rows))
            here = gradient_step(here, state, S3CSettings(rate=0.05, newton=newton))
        assert values[-1] > values[0] + 0.1
        np.testing.assert_allclose(np.linalg.norm(here.atoms, axis=1), 1)


def test_a_plain_step_moves_atoms_along_the_sphere():
    model = model_of(8, 6, 5)
    state = sums_of(rows_of(9, model_of(10, 6, 5), 400), model, second=False)
    asked = S3CSettings(rate=1e-4, rate_mu=0, rate_alpha=0, newton=False)
    moved = gradient_step(model, state, asked)
    change = moved.atoms - model.atoms
    assert np.linalg.norm(change) > 1e-5
    assert np.abs((change * model.atoms).sum(axis=1)).max() < 1e-3 * np.linalg.norm(change)
    np.testing.assert_allclose(moved.mu, model.mu, rtol=1e-6)
    np.testing.assert_allclose(moved.alpha, model.alpha, rtol=1e-6)


def planted(seed=11, n_units=6, n_inputs=10, n=4000):
    rng = np.random.default_rng(seed)
    atoms = unit_rows(rng, n_units, n_inputs)
    truth = SpikeSlab(
        atoms,
        rng.uniform(2, 4, n_units),
        rng.uniform(2, 5, n_units),
        rng.uniform(-2.5, -1.8, n_units),
        np.full(n_inputs, 40.0),
    )
    rows, spikes, slabs = oracle.draw_spike_slab(rng, n, *parts(truth))
    return truth, rows, spikes, slabs


def climbed_from(rows, seed):
    """EM from rows as atoms, no two of them alike: the energy functional it ends at, and the model."""
    lengths = np.linalg.norm(rows, axis=1)
    atoms = []
    for at in np.random.default_rng(seed).permutation(np.flatnonzero(lengths > np.median(lengths))):
        row = rows[at] / lengths[at]
        if all(abs(row @ other) < 0.7 for other in atoms):
            atoms.append(row)
        if len(atoms) == 6:
            break
    model = SpikeSlab(np.array(atoms), np.full(6, 2.0), np.ones(6), np.full(6, -1.5), np.full(10, 4.0))
    return improved(rows, model, 20)


def improved(rows, model, steps):
    """Run EM in closed form; return the energy functional it came to, and the model."""
    for _ in range(steps):
        state = sums_of(rows, model)
        model = closed_form(model, state, S3CSettings(beta="scalar"))
    return float(state["energy"]), model


def test_planted_parameters_are_found():
    truth, rows, spikes, slabs = planted()
    ends = [climbed_from(rows, seed) for seed in range(4)]
    _, model = improved(rows, max(ends, key=lambda end: end[0])[1], 70)
    cosines = np.abs(model.atoms @ truth.atoms.T)
    mine, its = linear_sum_assignment(-cosines)
    sign = np.sign((model.atoms @ truth.atoms.T)[mine, its])
    assert cosines[mine, its].min() > 0.995, cosines[mine, its]
    active = [slabs[spikes[:, i], i] for i in its]
    np.testing.assert_allclose(sign * model.mu[mine], [one.mean() for one in active], rtol=0.05)
    np.testing.assert_allclose(model.alpha[mine], [1 / one.var() for one in active], rtol=0.2)
    share = spikes.mean(axis=0)[its]
    np.testing.assert_allclose(1 / (1 + np.exp(-model.bias[mine])), share, rtol=0.08)
    np.testing.assert_allclose(model.beta, 40, rtol=0.2)
    # hardly worse than the truth: what is left is the bound, which is not the likelihood
    assert log_likelihood(rows[:500], model).mean() > log_likelihood(rows[:500], truth).mean() - 0.1


def test_units_that_are_never_active_stay_where_they_are():
    model = model_of(13, 4, 3)
    model = with_one(model, "bias", np.array([-1.0, -800, -1, -1]))
    state = sums_of(np.random.default_rng(14).standard_normal((50, 3)), model)
    found = closed_form(model, state, S3CSettings())
    np.testing.assert_allclose(found.atoms[1], model.atoms[1])
    assert all(np.isfinite(getattr(found, name)).all() for name in PARAMETERS)
    assert found.bias[1] == S3CSettings().bias_bounds[0] or found.bias[1] < -20
    stepped = gradient_step(model, state, S3CSettings())
    np.testing.assert_allclose(stepped.atoms[1], model.atoms[1])


def test_bounds_and_penalties():
    model = model_of(15, 3, 3)
    state = sums_of(rows_of(16, model, 60), model)
    bounds = {"alpha": (0.9, 1.1), "beta": (2.0, 2.1), "bias": (-0.2, 0.2), "mu": (-0.1, 0.1)}
    found = closed_form(
        model, state, S3CSettings(**{f"{name}_bounds": two for name, two in bounds.items()})
    )
    for name, (low, high) in bounds.items():
        assert ((getattr(found, name) >= low) & (getattr(found, name) <= high)).all()
    free = gradient_step(model, state, S3CSettings())
    for name in ("alpha", "beta"):
        held = gradient_step(model, state, S3CSettings(**{f"penalty_{name}": 5.0}))
        assert (getattr(held, name) < getattr(free, name)).all()


def test_sums_that_are_not_finite_are_refused():
    model = model_of(17, 3, 3)
    state = sums_of(rows_of(18, model, 5), model)
    state["rx"][0, 0] = np.nan
    with pytest.raises(DataError, match="empty or not finite; lower the learning rate"):
        gradient_step(model, state, S3CSettings(beta="scalar"))
    with pytest.raises(DataError, match="empty or not finite"):
        closed_form(
            model,
            SpikeSlabSums(PatchRows((1, 1, 3), 1, None, 0.0, 0), model, Schedule(), 0, True).zero(),
            S3CSettings(beta="scalar"),
        )


def test_the_posterior_of_planted_rows_names_the_active_units():
    truth, rows, spikes, _ = planted(n=500)
    found: Posterior = infer(rows, truth)
    assert ((found.h > 0.5) == spikes).mean() > 0.97
