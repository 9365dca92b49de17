"""Dictionary learning end to end: sums against the equations, the same bits anywhere, what is learned, files, bad input."""

import numpy as np
import pytest
from coding import IMAGES
from drawing import unit_columns
from executors import engine
from sparse_coding.oracle_sparse import objective

from replication.sparse.gabor import gabor_fits
from smtdist.codes.l1 import Learned, SparseCoder, SparseSettings, gradient_step, learned
from smtdist.data.array import ArraySource
from smtdist.errors import ConfigurationError, ModelError
from smtdist.kernels.l1 import sparse_codes
from smtdist.models.coders.fit import fit_coder
from smtdist.statistics.l1_codes import L1Sums
from smtdist.statistics.patch_rows import PatchRows

SMALL = SparseSettings(units=24, patch=4, images=300, patches=3, rounds=3, pooling=(1, 2), penalty=0.5)


def planted(rng, inputs, size, rows, active=2):
    dictionary = unit_columns(rng, inputs, size)
    codes = np.zeros((rows, size))
    for row in codes:
        row[rng.choice(size, active, replace=False)] = rng.uniform(1, 2, active)
    return dictionary, codes @ dictionary.T


def sums_of(atoms, x, penalty, second):
    """Sums of rows that are there already."""
    statistic = L1Sums(
        PatchRows((9, 9, 1), 3, 2, 0.0, 0),
        np.asarray(atoms, np.float32),
        penalty,
        True,
        "coordinate",
        1e-5,
        0,
        second,
    )
    state = statistic.zero()
    rows = np.asarray(x, np.float32)
    statistic._add(state, rows, sparse_codes(statistic.atoms.T, rows, penalty, gap=1e-5)[0])
    state["n"] += len(x)
    return state


def test_sums_are_those_of_the_equations():
    rng = np.random.default_rng(1)
    dictionary, x = planted(rng, 9, 15, 50)
    codes = sparse_codes(dictionary.astype(np.float32), x.astype(np.float32), 0.1, gap=1e-5)[0].astype(
        np.float64
    )
    closed, open_ = sums_of(dictionary.T, x, 0.1, True), sums_of(dictionary.T, x, 0.1, False)
    np.testing.assert_allclose(closed["second"], codes.T @ codes, atol=1e-4)
    np.testing.assert_allclose(closed["cross"], codes.T @ x, atol=1e-4)
    np.testing.assert_allclose(open_["square"], (codes**2).sum(axis=0), atol=1e-4)
    np.testing.assert_allclose(open_["pull"], codes.T @ (x - codes @ dictionary.T), atol=1e-4)
    wanted = sum(objective(dictionary, row, code, 0.1) for row, code in zip(x, codes, strict=True))
    for sums in (closed, open_):
        np.testing.assert_allclose(sums["loss"], wanted, rtol=1e-5)
        np.testing.assert_array_equal(sums["uses"], (codes > 0).sum(axis=0))


def test_a_gradient_step_is_newton_on_the_diagonal():
    rng = np.random.default_rng(2)
    atoms, codes, x = rng.standard_normal((6, 4)), rng.random((40, 6)), rng.standard_normal((40, 4))
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)

    def loss(moved):
        return 0.5 * ((x - codes @ moved) ** 2).sum() / 40

    pull, square = codes.T @ (x - codes @ atoms) / 40, (codes**2).mean(axis=0)
    step = 1e-6
    for at in ((0, 0), (3, 2)):
        up, down = atoms.copy(), atoms.copy()
        up[at] += step
        down[at] -= step
        assert (loss(up) - loss(down)) / (2 * step) == pytest.approx(-pull[at], rel=1e-5)
        curvature = (loss(up) - 2 * loss(atoms) + loss(down)) / step**2
        assert curvature == pytest.approx(square[at[0]], rel=1e-2)
    found = gradient_step(atoms, pull, square, 0.1)
    wanted = atoms + 0.1 * pull / square[:, None]
    np.testing.assert_allclose(found, wanted / np.linalg.norm(wanted, axis=1, keepdims=True))


@pytest.mark.parametrize("learning", ["gradient", "sums"])
def test_planted_atoms_are_learned(learning):
    rng = np.random.default_rng(3)
    dictionary, x = planted(rng, 16, 24, 3000)
    wanted = SparseSettings(
        units=24, learning=learning, rate=0.5, decay=0, penalty=0.05, idle=3, memory=0.5, sweeps=2
    )
    spares = x[:200] / np.linalg.norm(x[:200], axis=1, keepdims=True)
    state = Learned(spares[100:124].copy(), np.zeros(24, np.int64))
    for number in range(1, 121):
        batch = x[rng.choice(len(x), 500, replace=False)]
        state = learned(
            state, sums_of(state.atoms, batch, 0.05, learning == "sums"), wanted, number, spares
        )
    found = (state.atoms @ dictionary).max(axis=0)
    assert (found > 0.97).mean() > 0.9
    assert state.trace[-1] < 0.3 * state.trace[0]
    np.testing.assert_allclose(np.linalg.norm(state.atoms, axis=1), 1)


@pytest.mark.parametrize("learning", ["gradient", "sums"])
def test_atoms_that_are_never_used_are_replaced_after_a_while(learning):
    rng = np.random.default_rng(4)
    _, x = planted(rng, 9, 12, 200)
    settings = SparseSettings(units=3, learning=learning, idle=2, penalty=0.1)
    # the second atom points away from all patches
    away = -x.mean(axis=0) / np.linalg.norm(x.mean(axis=0))
    spares = x[:5] / np.linalg.norm(x[:5], axis=1, keepdims=True)
    state = Learned(np.stack([spares[2], away, spares[3]]), np.zeros(3, np.int64))
    x = np.abs(x @ away)[:, None] * -away + 0.01 * x
    state = learned(state, sums_of(state.atoms, x, 0.1, learning == "sums"), settings, 1, spares)
    assert state.idle.tolist()[1] == 1
    np.testing.assert_allclose(state.atoms[1], away)
    state = learned(state, sums_of(state.atoms, x, 0.1, learning == "sums"), settings, 2, spares)
    assert state.taken >= 1
    assert any(np.array_equal(state.atoms[1], spare) for spare in spares)
    assert state.idle[1] == 0


def test_learning_lowers_the_objective(stored):
    for learning in ("gradient", "sums"):
        coder, _ = fit_coder(
            SparseCoder,
            stored,
            SMALL.replace(learning=learning, rounds=15, images=0),
            engine(),
        )
        assert np.mean(coder.trace[-3:]) < 0.95 * coder.trace[0], learning
        assert coder.summary()["objective"] < coder.summary()["objective_first"]


@pytest.mark.parametrize(
    ("changes", "width"),
    [({}, 24), ({"positive": False}, 48), ({"feature": "omp", "k": 2}, 48), ({"feature": "linear"}, 24)],
)
def test_features_are_pooled_codes(stored, changes, width):
    coder, _ = fit_coder(SparseCoder, stored, SMALL.replace(rounds=0, **changes), engine())
    assert coder.trace == ()
    z = coder.represent(IMAGES[:4])
    assert z.shape == (4, 5, width)
    assert (z >= 0).all()
    assert z.any()
    codes = coder.code(coder.rows(IMAGES[:1]))
    np.testing.assert_allclose(z[0, 0], codes.mean(axis=0), rtol=1e-4, atol=1e-5)


def test_gabor_functions_are_told_from_noise():
    rng = np.random.default_rng(5)
    v, u = np.mgrid[:12, :12].astype(float)
    made = []
    for angle in (0.3, 1.2, 2.5):
        along = np.cos(angle) * (u - 5) + np.sin(angle) * (v - 6)
        across = np.cos(angle) * (v - 6) - np.sin(angle) * (u - 5)
        made.append(np.exp(-(along**2) / 8 - across**2 / 20) * np.cos(2 * np.pi * 0.18 * along + 0.7))
    found, parameters = gabor_fits(np.array(made))
    assert (found > 0.99).all()
    np.testing.assert_allclose(np.mod(parameters[:, 4] - [0.3, 1.2, 2.5] + 0.5, np.pi), 0.5, atol=0.05)
    np.testing.assert_allclose(parameters[:, 5], 0.18, atol=0.02)
    noise, _ = gabor_fits(rng.standard_normal((5, 12, 12)))
    assert (noise < 0.5).all()
    assert gabor_fits(np.ones((1, 5, 5)))[0].tolist() == [0.0]


def test_what_cannot_be_coded(stored):
    with pytest.raises(ConfigurationError, match="patch_size is 11, but"):
        fit_coder(SparseCoder, stored, SMALL.replace(patch=11), engine())
    coder, _ = fit_coder(SparseCoder, ArraySource(IMAGES), SMALL.replace(rounds=0), engine())
    with pytest.raises(ModelError, match=r"takes images of \(height, width, channels\) = \(12, 10, 1\)"):
        coder.represent(IMAGES[:, :8])
