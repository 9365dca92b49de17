"""What points are embedded as: spirals unrolled, slow features, locally linear embeddings, against other solutions."""

import json

import numpy as np
import pytest
import scipy.linalg
from executors import engine
from sklearn.datasets import make_swiss_roll
from sklearn.manifold import LocallyLinearEmbedding

from examples.point_fits import fit_points
from examples.spirals import fit_spirals, judged, main, two_spirals
from smtdist import PointSMT
from smtdist.data.table import NoisePairs, as_table
from smtdist.kernels.features import Interpolation, Landmarks, Quadratic, RandomFourier, barycentric_weights
from smtdist.models.points.contexts import (
    locally_linear_context,
    nearest_neighbours,
    spread_points,
    temporal_context,
)
from smtdist.models.points.table import in_context


def angle(left, right):
    """The largest principal angle between the spans of columns, in radians."""
    return float(scipy.linalg.subspace_angles(left, right).max())


@pytest.mark.parametrize("seed", range(3))
def test_two_spirals_come_apart(seed):
    spirals = two_spirals(4000, seed)
    model, _ = fit_spirals(spirals, engine(), seed=seed)
    found = judged(model, spirals)
    assert found["separation"] == 1.0
    assert found["monotone"] >= 0.99
    assert found["stays"] == 1.0
    assert found["stayed"] < 0.999
    # two null components, the constants on each spiral, then a gap
    assert abs(found["eigenvalues"][1]) < 1e-12 < 1e-5 < found["eigenvalues"][2]


def signals(n):
    t = np.linspace(0, 2 * np.pi, n)
    return np.stack([np.sin(t) + np.cos(11 * t) ** 2, np.cos(11 * t)], axis=1)


def test_quadratic_features_in_time_are_slow_feature_analysis():
    x = signals(3000)
    model, _ = fit_points(
        in_context(x, temporal_context([len(x)])), Quadratic(2), engine(), n_components=3, moment="centred"
    )
    # closed form: whiten the centred expansion, then the directions in which its differences vary least
    h = np.concatenate([x, x[:, :1] ** 2, x[:, :1] * x[:, 1:], x[:, 1:] ** 2], axis=1)
    h -= h.mean(axis=0)
    values, vectors = scipy.linalg.eigh(
        np.diff(h, axis=0).T @ np.diff(h, axis=0) / len(h), h.T @ h / len(h)
    )
    y = model.transform(x)
    y -= y.mean(axis=0)
    for count in (1, 3):
        assert angle(y[:, :count], h @ vectors[:, :count]) < 1e-4
    np.testing.assert_allclose(model.embedding.eigenvalues, values[:3], rtol=1e-4)
    # the textbook's example: the slowest feature is x1 - x2², a pure sine
    slow = np.sin(np.linspace(0, 2 * np.pi, len(x)))
    assert abs(np.corrcoef(y[:, 0], slow)[0, 1]) > 0.9999


def roll(n):
    return make_swiss_roll(n, noise=0.0, random_state=0)[0] / 10


def from_theirs(model, points):
    """The angle between an embedding without its constant and scikit-learn's."""
    theirs = LocallyLinearEmbedding(n_neighbors=12, n_components=2, eigen_solver="dense")
    mine = model.transform(points)[:, 1:]
    return angle(mine - mine.mean(axis=0), theirs.fit_transform(points))


def test_every_point_a_landmark_is_locally_linear_embedding():
    points = roll(600)
    context = locally_linear_context(points, nearest_neighbours(points, 12))
    model, _ = fit_points(in_context(points, context), Landmarks(points), engine(), order=2, n_components=3)
    constant = model.embedding.components[:1].T
    assert angle(constant, np.ones((600, 1))) < 1e-2  # of weights that sum to 1
    assert from_theirs(model, points) < 1e-3


def test_all_points_as_landmarks_make_locally_linear_landmarks_locally_linear_embedding():
    points = roll(600)
    context = locally_linear_context(points, nearest_neighbours(points, 12))
    codes = Interpolation(points, 4)
    model, _ = fit_points(in_context(points, context), codes, engine(), order=2, n_components=3)
    assert from_theirs(model, points) < 1e-3


def test_codes_that_interpolate_landmarks_are_locally_linear_landmarks():
    points = roll(600)
    landmarks = spread_points(points, 150)
    codes = Interpolation(landmarks, 4)
    context = locally_linear_context(points, nearest_neighbours(points, 12))
    model, _ = fit_points(in_context(points, context), codes, engine(), order=2, n_components=3)
    # closed form: min tr(Y Z (I - W)ᵀ(I - W) Zᵀ Yᵀ) with Y Z Zᵀ Yᵀ = N I over the landmarks' Y
    W = np.zeros((600, 600))
    np.put_along_axis(W, context.numbers, context.weights, axis=1)
    Z = codes(points)
    R = (np.eye(600) - W) @ Z
    values, vectors = scipy.linalg.eigh(R.T @ R / 600, Z.T @ Z / 600)
    assert angle(model.transform(points), Z @ vectors[:, :3]) < 0.02
    np.testing.assert_allclose(model.embedding.eigenvalues[1:], values[1:3], rtol=0.01, atol=1e-10)
    assert from_theirs(model, points) < 0.7  # landmarks approximate the embedding of all points


def test_interpolation_rebuilds_points_and_keeps_landmarks():
    points = roll(50)
    codes = Interpolation(points[:20], 4, 1e-9)
    np.testing.assert_allclose(codes(points).sum(axis=1), 1)
    np.testing.assert_array_equal(codes(points[:20]), np.eye(20))
    plane = np.random.default_rng(0).uniform(size=(30, 2))
    found = Interpolation(plane[:10], 3, 1e-12)(plane)
    np.testing.assert_allclose(found @ plane[:10], plane, atol=1e-6)
    weights = barycentric_weights(plane[:1], plane[None, 1:4], 1e-3)
    offset = plane[1:4] - plane[:1]
    gram = offset @ offset.T
    solved = np.linalg.solve(gram + 1e-3 * np.trace(gram) * np.eye(3), np.ones(3))
    np.testing.assert_allclose(weights[0], solved / solved.sum())


def test_features_approach_their_kernel_and_rows_that_none_reaches_are_told():
    points = np.random.default_rng(1).uniform(size=(20, 3))
    codes = RandomFourier(3, 20_000, 0.7)(points)
    distance = ((points[:, None] - points) ** 2).sum(axis=-1)
    np.testing.assert_allclose(codes @ codes.T, np.exp(-distance / (2 * 0.7**2)), atol=0.03)
    with pytest.warns(UserWarning, match="Embedded as zeros: 3 of 3 rows of array. No feature"):
        PointSMT(feature_map="rbf", n_atoms=20).fit(roll(60)).transform(1e4 * (1 + roll(3)))


def test_noise_that_is_drawn_anew_gives_nearly_the_same_components():
    spirals = two_spirals(3000)
    features = Landmarks(spread_points(spirals.points, 60))
    P = [
        fit_points(NoisePairs(as_table(spirals.points), 0.08, seed), features, engine(), n_components=2)[0]
        for seed in (0, 1)
    ]
    assert angle(P[0].embedding.components.T, P[1].embedding.components.T) < 0.2


def test_spirals_are_drawn_and_measured_by_a_script(tmp_path, capsys):
    small = ["--points", "3000", "--landmarks", "200", "--noise", "0.035"]
    result = main([*small, "--out", str(tmp_path / "spirals.png")])
    assert json.loads(capsys.readouterr().out) == result
    assert result["separation"] == 1.0
    assert (tmp_path / "spirals.png").read_bytes().startswith(b"\x89PNG")
