"""The unit disc (SMT 2018, figure 2): what it must show, and its pieces against the equations written another way."""

import json

import numpy as np
import pytest
import reference
from executors import engine
from scipy.optimize import nnls
from scipy.special import eval_jacobi

from examples.unit_disc import (
    Triangulated,
    angular_energy,
    disc_landmarks,
    fit_disc,
    judged,
    main,
    moving_points,
    principal_cosines,
    spacing,
    zernike,
)
from smtdist.models.functional.inference import recover_codes


@pytest.fixture(scope="module", params=[0, 1])
def fitted(request):
    landmarks = disc_landmarks(300, request.param)
    model, record = fit_disc(moving_points(6000, request.param), landmarks, engine())
    return landmarks, model, record


def test_functionals_are_zernike_polynomials_and_pure_in_angle(fitted):
    landmarks, model, _ = fitted
    components = model.embedding.components
    assert components.shape == (21, 300)
    assert principal_cosines(components[:10], zernike(landmarks, 3)).min() >= 0.95
    frequency, share = angular_energy(components, landmarks)
    assert share[10:].min() >= 0.9
    # the constant, two ramps, then a free plate's modes: pairs but for rotational symmetry
    assert frequency[0] == 0
    assert frequency[1:3].tolist() == [1, 1]
    assert sorted(frequency[3:10].tolist()) == [0, 1, 1, 2, 2, 3, 3]


def test_straight_lines_are_free_of_charge_and_the_constant_is_constant(fitted):
    landmarks, model, _ = fitted
    components, values = model.embedding.components, model.embedding.eigenvalues
    assert np.ptp(components[0]) < 1e-3 * np.abs(components[0]).max()
    # linear functionals of a point within the hull have no second difference, only what the rim bends
    assert values[2] < 0.02 * values[3]
    fit, *_ = np.linalg.lstsq(np.c_[landmarks, np.ones(300)], components[1:3].T, rcond=None)
    rest = components[1:3].T - np.c_[landmarks, np.ones(300)] @ fit
    assert (rest**2).sum() < 0.01 * (components[1:3] ** 2).sum()


def test_sparse_functions_are_recovered(fitted):
    landmarks, model, _ = fitted
    result = judged(model.embedding.components, landmarks, functions=20, seed=3)
    gap = spacing(300)
    assert result["functionals"] == list(range(3, 22))
    assert result["four_sparse"][-1] < gap
    assert result["one_sparse"][-1] < 0.5 * gap
    # three functionals hold one point, not four
    assert result["one_sparse"][0] < gap < result["four_sparse"][0]
    assert result["four_sparse"][-1] < 0.5 * result["four_sparse"][0]


def test_the_fit_is_the_minimum_of_the_second_difference(fitted):
    """The objective, summed by hand over paths, is the sum of eigenvalues; no V-orthonormal neighbour has a smaller one."""
    landmarks = fitted[0]
    paths = moving_points(400, 9)
    small, _ = fit_disc(paths, landmarks[::6], engine(), 5)
    codes = Triangulated(landmarks[::6])(paths.reshape(-1, 2)).reshape(*paths.shape[:2], -1)
    P = small.embedding.components
    beta = codes @ P.T
    bent = beta[:, 1:-1] - (beta[:, :-2] + beta[:, 2:]) / 2
    count = codes.shape[0] * codes.shape[1]
    assert (bent**2).sum() / count == pytest.approx(small.embedding.eigenvalues.sum(), rel=1e-4)
    np.testing.assert_allclose(np.einsum("ijk,ijl->kl", beta, beta) / count, np.eye(5), atol=1e-4)


def test_triangulated_codes_rebuild_points_with_few_landmarks_around_them():
    landmarks = disc_landmarks(60, 4)
    points = moving_points(200, 5).reshape(-1, 2)
    codes = Triangulated(landmarks)(points)
    assert codes.min() >= 0
    np.testing.assert_allclose(codes.sum(axis=1), 1, atol=1e-12)
    assert (codes > 0).sum(axis=1).max() <= 3
    rebuilt = codes @ landmarks
    inside = np.linalg.norm(points, axis=1) < 0.8
    np.testing.assert_allclose(rebuilt[inside], points[inside], atol=1e-9)
    # beyond the rim the code is that of the nearest point of the hull
    for point, near in zip(points[~inside][:20], rebuilt[~inside][:20], strict=True):
        weights, _ = nnls(np.r_[landmarks.T, 1e6 * np.ones((1, 60))], np.r_[point, 1e6])
        np.testing.assert_allclose(near, weights @ landmarks, atol=1e-5)


def test_zernike_polynomials_are_jacobi_polynomials():
    points = moving_points(50, 6).reshape(-1, 2)
    r, angle = np.hypot(*points.T), np.arctan2(points[:, 1], points[:, 0])
    found, at = zernike(points, 5), 0
    for n in range(6):
        for m in range(-n, n + 1, 2):
            k = (n - abs(m)) // 2
            radial = (-1) ** k * r ** abs(m) * eval_jacobi(k, abs(m), 0, 1 - 2 * r**2)
            wave = np.cos(m * angle) if m >= 0 else np.sin(-m * angle)
            np.testing.assert_allclose(found[at], radial * wave, atol=1e-12)
            at += 1


def test_angular_energy_names_the_frequency_of_a_wave_and_halves_a_mixture():
    landmarks = disc_landmarks(400, 0)
    r, angle = np.hypot(*landmarks.T), np.arctan2(landmarks[:, 1], landmarks[:, 0])
    rows = np.array(
        [r**3 * np.cos(3 * angle + 1), np.ones(400), r**2 * (np.cos(2 * angle) + np.cos(4 * angle))]
    )
    frequency, share = angular_energy(rows, landmarks)
    assert frequency[:2].tolist() == [3, 0]
    assert share[:2].min() > 0.97
    assert 0.4 < share[2] < 0.6


def test_recovery_solves_equation_6():
    """Against projected gradient descent of the printed objective, which knows no rescaling."""
    draw = np.random.default_rng(0)
    P, truth = draw.standard_normal((8, 20)) * draw.uniform(0.2, 3, 20), np.zeros((3, 20))
    P[:, 7] = 0
    truth[np.arange(3), [2, 5, 11]] = 1.5
    beta, penalty = truth @ P.T + 0.05 * draw.standard_normal((3, 8)), 0.3
    found = recover_codes(P, beta, penalty, gap=1e-12)
    z, step = np.linalg.norm(P, axis=0), 0.5 / np.linalg.norm(P, 2) ** 2
    a = np.zeros((3, 20))
    for _ in range(60_000):
        a = np.maximum(a - step * (2 * (a @ P.T - beta) @ P + penalty * z), 0)
    for row, code, slow in zip(beta, found, a, strict=True):
        lowest = reference.inverse_objective(P, row, slow, penalty)
        assert reference.inverse_objective(P, row, code, penalty) == pytest.approx(lowest, rel=1e-6)
        assert reference.inverse_gap(P, row, code, penalty) < 1e-9
        assert reference.inverse_gap(P, row, 0.9 * code, penalty) > 1e-3
    assert found[:, 7].tolist() == [0, 0, 0]
    assert np.argmax(found * z, axis=1).tolist() == [2, 5, 11]


def test_the_script_draws_and_prints(tmp_path, capsys):
    small = ["--landmarks", "60", "--sequences", "300", "--functions", "2", "--functionals", "12"]
    result = main([*small, "--out", str(tmp_path / "disc.png")])
    assert json.loads(capsys.readouterr().out) == result
    assert (tmp_path / "disc.png").read_bytes().startswith(b"\x89PNG")
    assert len(result["one_sparse"]) == len(result["functionals"]) == 10
