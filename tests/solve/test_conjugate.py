"""Conjugate gradients with a random Nyström preconditioner, against dense solutions."""

import numpy as np
import pytest

from smtdist.solve.conjugate import nystrom, solve


@pytest.fixture(scope="module")
def matrix():
    """A positive semidefinite matrix whose eigenvalues fall over eight decades."""
    rng = np.random.default_rng(3)
    basis = np.linalg.qr(rng.normal(size=(300, 300)))[0]
    return (basis * 10.0 ** np.linspace(2, -6, 300)) @ basis.T


def test_it_solves_for_every_shift(matrix):
    targets = np.random.default_rng(4).normal(size=(300, 4))
    before = nystrom(lambda x: matrix @ x, 300, 60, 0)
    for shift in (1.0, 1e-2):
        found = solve(lambda x: matrix @ x, targets, shift, before, tolerance=1e-6)
        assert found.residuals.max() <= 1e-6
        expected = np.linalg.solve(matrix + shift * np.eye(300), targets)
        np.testing.assert_allclose(found.rows, expected, atol=1e-3 * np.abs(expected).max())


def test_the_preconditioner_saves_most_steps(matrix):
    targets = np.random.default_rng(4).normal(size=(300, 4))
    steps = [
        solve(lambda x: matrix @ x, targets, 0.1, nystrom(lambda x: matrix @ x, 300, rank, 0)).steps
        for rank in (1, 130)
    ]
    assert steps[1] * 4 < steps[0]


def test_it_goes_on_from_a_start(matrix):
    targets = np.random.default_rng(4).normal(size=(300, 2))
    before = nystrom(lambda x: matrix @ x, 300, 40, 0)
    first = solve(lambda x: matrix @ x, targets, 0.1, before, tolerance=1e-5)
    again = solve(lambda x: matrix @ x, targets, 0.1, before, start=first.rows, tolerance=1e-5)
    assert again.steps <= 1
    assert solve(lambda x: matrix @ x, targets, 0.1, before, tolerance=1e-5, most=2).steps == 2


def test_the_approximation_is_close_and_below(matrix):
    found = nystrom(lambda x: matrix @ x, 300, 80, 0)
    rough = (found.vectors * found.values) @ found.vectors.T
    assert np.linalg.norm(matrix - rough, 2) < 5 * np.linalg.eigvalsh(matrix)[-70]
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(len(found.values)), atol=1e-4)


def test_columns_may_have_shifts_of_their_own_and_stop_when_they_are_done():
    rng = np.random.default_rng(2)
    root = rng.standard_normal((60, 60)) / np.arange(1, 61)
    matrix, targets, widths = root @ root.T, rng.standard_normal((60, 3)), []

    def product(rows):
        widths.append(rows.shape[1])
        return matrix @ rows

    before = nystrom(product, 60, 10, 0)
    widths.clear()
    shifts = np.array([1.0, 0.1, 0.003])
    found = solve(product, targets, shifts, before, tolerance=1e-5)
    for column, shift in enumerate(shifts):
        exact = np.linalg.solve(matrix + shift * np.eye(60), targets[:, column])
        np.testing.assert_allclose(found.rows[:, column], exact, atol=1e-4 * np.abs(exact).max())
    assert (found.residuals <= 1e-5).all()
    assert widths == sorted(widths, reverse=True)
    assert (widths[0], widths[-1]) == (3, 1)
