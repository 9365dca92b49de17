"""The embedding of sequences against the eigenproblem written out, and against points with their neighbours in time."""

import numpy as np
import pytest
import scipy.linalg
from drawing import unit_columns
from executors import engine
from scipy.optimize import nnls

from examples.point_fits import fit_points
from examples.unit_disc import Triangulated, disc_landmarks, fit_sequences, moving_points
from smtdist.data.array import ArraySamples
from smtdist.data.table import as_table
from smtdist.errors import ConfigurationError, DataError
from smtdist.kernels.features import RadialBasis
from smtdist.models.functional.fit import SparseCoder, Whitening, fit_whitening, learn_dictionary
from smtdist.models.functional.settings import FunctionalSettings
from smtdist.models.points.contexts import temporal_context
from smtdist.models.points.table import in_context
from smtdist.statistics.sequences import DictionarySums


def walks(count=300, length=5, seed=0):
    draw = np.random.default_rng(seed)
    return np.cumsum(draw.standard_normal((count, length, 2)) * 0.3, axis=1) + draw.standard_normal(
        (count, 1, 2)
    )


@pytest.mark.parametrize("order", [1, 2])
def test_components_are_scipys(order):
    features = RadialBasis(np.random.default_rng(2).standard_normal((9, 2)), 0.7)
    sequences = walks()
    model, _ = fit_sequences(ArraySamples(sequences), features, engine(), order=order, n_components=3)
    codes = np.exp(-((sequences[..., None, :] - features.points) ** 2).sum(axis=-1) / (2 * 0.7**2))
    bent = np.diff(codes, axis=1) if order == 1 else np.diff(codes, 2, axis=1) / 2
    n = codes.shape[0] * codes.shape[1]
    V = np.cov(codes.reshape(n, 9).T, bias=True)
    C = np.einsum("ijk,ijl->kl", bent, bent) / n
    values = scipy.linalg.eigh(C, V, eigvals_only=True)[:3]
    np.testing.assert_allclose(model.embedding.eigenvalues, values, rtol=1e-3)
    beta = codes @ model.embedding.components.T
    np.testing.assert_allclose(np.cov(beta.reshape(n, 3).T, bias=True), np.eye(3), atol=2e-3)


def test_points_with_neighbours_in_time_have_the_same_sums():
    landmarks, paths = disc_landmarks(40), moving_points(200, 0)
    sequences, _ = fit_sequences(
        ArraySamples(paths), Triangulated(landmarks), engine(), n_components=4, moment="second"
    )
    context = temporal_context([4] * 200, order=2)
    points, _ = fit_points(
        in_context(as_table(paths.reshape(-1, 2)), context),
        Triangulated(landmarks),
        engine(),
        order=2,
        n_components=4,
    )
    np.testing.assert_allclose(sequences.means.scatter, points.means.scatter, atol=1e-5)
    np.testing.assert_allclose(sequences.means.moment, points.means.moment, atol=1e-5)


def test_zca_whitens_and_comes_back():
    draw = np.random.default_rng(3)
    rows = draw.standard_normal((200, 4, 6)) @ draw.standard_normal((6, 6)) + 2
    whitening, covariance, _ = fit_whitening(ArraySamples(rows), engine(), ridge=1e-9)
    flat = rows.reshape(-1, 6)
    np.testing.assert_allclose(covariance, np.cov(flat.T, bias=True), atol=1e-10)
    white = whitening(flat)
    np.testing.assert_allclose(white.T @ white / len(flat), np.eye(6), atol=1e-6)
    np.testing.assert_allclose(
        whitening.whiten, scipy.linalg.inv(scipy.linalg.sqrtm(np.cov(flat.T, bias=True))), rtol=1e-5
    )
    np.testing.assert_allclose(whitening.back(white), flat, atol=1e-6)
    scaled, _, _ = fit_whitening(ArraySamples(rows), engine(), "scale")
    assert np.var(scaled(flat), axis=0).mean() == pytest.approx(1)
    with pytest.raises(ConfigurationError, match="zca or scale"):
        fit_whitening(ArraySamples(rows), engine(), "pca")
    with pytest.raises(DataError, match="variance"):
        fit_whitening(ArraySamples(np.ones((5, 3, 2))), engine())


def test_codes_are_those_of_equation_10():
    draw = np.random.default_rng(4)
    dictionary = unit_columns(draw, 8, 20)
    rows, penalty = draw.standard_normal((5, 8)), 0.2
    found = SparseCoder(dictionary, penalty, gap=1e-7)(rows)
    # ½ ‖x - Φ a‖² + λ 1ᵀa as non-negative least squares: complete the square in the range of Φᵀ
    for row, code in zip(rows, found, strict=True):
        stacked = np.r_[dictionary, 1e4 * np.ones((1, 20))]
        target = np.r_[row, 1e4 * code.sum()]
        best, _ = nnls(stacked, target)  # the best of all codes with the same sum
        objective = [((row - dictionary @ a) ** 2).sum() / 2 + penalty * a.sum() for a in (code, best)]
        assert objective[0] <= objective[1] + 1e-4
        slope = dictionary.T @ (row - dictionary @ code) - penalty
        assert slope.max() < 1e-2
        assert np.abs(slope[code > 1e-3]).max() < 1e-2


def test_sequences_too_short_are_refused():
    with pytest.raises(DataError, match="longer"):
        fit_sequences(
            ArraySamples(walks(5, 2)), RadialBasis(np.zeros((3, 2)), 1.0), engine(), n_components=1
        )
    with pytest.raises(ConfigurationError, match="moment"):
        fit_sequences(
            ArraySamples(walks(5)), RadialBasis(np.zeros((3, 2)), 1.0), engine(), n_components=1, moment="x"
        )


def test_dictionary_sums_are_those_of_the_rows_that_are_coded():
    draw = np.random.default_rng(5)
    sequences = draw.standard_normal((30, 6, 8)).astype(np.float32)
    dictionary = unit_columns(draw, 8, 15)
    coder = SparseCoder(dictionary, 0.3, gap=1e-6)
    partial, _ = engine().reduce("dictionary", DictionarySums(coder), ArraySamples(sequences))
    rows = sequences[:, [0, 3]].reshape(-1, 8).astype(np.float64)
    codes = coder(rows)
    state = partial.state
    assert state["n"] == 60
    np.testing.assert_allclose(state["second"], codes.T @ codes, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(state["cross"], codes.T @ rows, rtol=1e-4, atol=1e-4)
    loss = 0.5 * ((rows - codes @ dictionary.T) ** 2).sum() + 0.3 * codes.sum()
    assert state["loss"] == pytest.approx(loss, rel=1e-5)


def test_a_learned_dictionary_finds_what_patches_are_made_of():
    draw = np.random.default_rng(6)
    truth = unit_columns(draw, 24, 16)
    codes = np.where(draw.uniform(size=(1500, 16)) < 0.07, draw.uniform(1, 3, (1500, 16)), 0.0)
    still = (codes @ truth.T)[:, None].repeat(3, axis=1) + 0.01 * draw.standard_normal((1500, 3, 24))
    plain = Whitening(np.zeros(24), np.eye(24), np.eye(24))
    settings = FunctionalSettings(
        n_components=1, n_atoms=16, penalty=0.2, max_iter=30, batch=768, random_state=2
    )
    found, trace, _ = learn_dictionary(ArraySamples(still), plain, engine(), settings)
    np.testing.assert_allclose(np.linalg.norm(found, axis=0), 1)
    assert trace[-1] < 0.8 * trace[0]
    cosines = (truth.T @ found).max(axis=1)
    assert (cosines > 0.97).sum() >= 13
    with pytest.raises(DataError, match="fewer"):
        learn_dictionary(ArraySamples(still[:10]), plain, engine(), settings.replace(n_atoms=40))
