"""Needles of planted Gabors, neighbours in embeddings, the comparison of figure 4B, and PCA pooling."""

import numpy as np
import pytest

from examples.video_dictionary import affinity_groups, figure_4b, needles
from smtdist.errors import ConfigurationError
from smtdist.models.functional.video_judge import pooling


def gabors(orientations, centres, lengths, side=20, wave=5.0, width=1.8, phase=0.4):
    """Stripes along `orientation`, under a Gaussian that is `length` long along the stripes."""
    row, column = np.mgrid[:side, :side].astype(float)
    atoms = []
    for angle, (r, c), length in zip(orientations, centres, lengths, strict=True):
        along = (column - c) * np.cos(angle) + (row - r) * np.sin(angle)
        across = -(column - c) * np.sin(angle) + (row - r) * np.cos(angle)
        envelope = np.exp(-(along**2) / (2 * length**2) - across**2 / (2 * width**2))
        atoms.append((envelope * np.cos(2 * np.pi * across / wave + phase)).ravel())
    return np.array(atoms)


def test_needles_find_place_orientation_length_and_frequency():
    orientations = np.array([0.0, 0.4, 0.9, np.pi / 2, 2.2, 3.0])
    centres = np.array([[9, 10], [8, 11], [10, 9], [9.5, 9.5], [11, 8], [10, 10]], float)
    lengths = np.array([2.2, 2.6, 3.0, 2.4, 2.8, 3.2])
    found = needles(gabors(orientations, centres, lengths))
    np.testing.assert_allclose(found.centre, centres, atol=0.5)
    turn = np.abs(found.orientation - orientations)
    assert np.minimum(turn, np.pi - turn).max() < np.radians(4)
    np.testing.assert_allclose(found.length, lengths, rtol=0.2)
    np.testing.assert_allclose(found.frequency, 0.2, atol=0.02)
    assert found.fit.min() > 0.9


def test_groups_are_the_largest_cosines():
    P = np.random.default_rng(1).standard_normal((5, 40))
    P[:, 7] = 0
    groups, cosines = affinity_groups(P, 4)
    for atom in range(40):
        by_hand = sorted(
            (
                -(P[:, atom] @ P[:, other])
                / (np.linalg.norm(P[:, other]) * (np.linalg.norm(P[:, atom]) or 1)),
                other,
            )
            for other in range(40)
            if other not in (atom, 7)
        )
        assert 7 not in groups[atom]
        np.testing.assert_allclose(cosines[atom], [-value for value, _ in by_hand[:4]], atol=1e-12)
    with pytest.raises(ConfigurationError, match="fewer"):
        affinity_groups(P, 39)


def test_an_embedding_by_orientation_groups_better_than_pixels():
    draw = np.random.default_rng(2)
    orientations = draw.uniform(0, np.pi, 150)
    lengths = 2 + np.sin(orientations) ** 2
    atoms = gabors(orientations, draw.uniform(6, 14, (150, 2)), lengths)
    # double angles: orientation is a circle, whatever the place
    P = np.stack([np.cos(2 * orientations), np.sin(2 * orientations)])
    found = figure_4b(atoms.T, P, best=120)
    assert found["atoms"] == 120
    assert found["embedding"]["angle"] < 0.5 * found["pixels"]["angle"]
    assert found["embedding"]["angle"] < 0.3 * found["chance"]["angle"]
    assert found["chance"]["angle"] == pytest.approx(45, abs=8)


def test_pooling_is_the_leading_subspace():
    draw = np.random.default_rng(3)
    root = draw.standard_normal((12, 12))
    covariance = root @ root.T
    P = pooling(covariance, 4)
    np.testing.assert_allclose(P @ covariance @ P.T, np.eye(4), atol=1e-10)
    values, _ = np.linalg.eigh(covariance)
    unit = P / np.linalg.norm(P, axis=1, keepdims=True)
    np.testing.assert_allclose(np.einsum("ij,jk,ik->i", unit, covariance, unit), values[::-1][:4])
    with pytest.raises(ConfigurationError, match="fewer"):
        pooling(np.diag([1.0, 0.0, 0.0]), 2)
