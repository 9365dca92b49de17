"""Accuracies and intervals against known values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix as peer_confusion

from smtdist.errors import DataError
from smtdist.evaluate.metrics import checked_labels, confusion_matrix, hits, label_array, wilson


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        (0, 10, 0.0, 0.2775),
        (1, 10, 0.0179, 0.4042),
        (5, 10, 0.2366, 0.7634),
        (10, 10, 0.7225, 1.0),
        (81, 263, 0.2553, 0.3662),  # Newcombe 1998, table I
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_has_the_published_values(successes: int, trials: int, low: float, high: float) -> None:
    assert wilson(successes, trials) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(1, 10**9), st.floats(0, 1))
def test_wilson_holds_the_share_and_is_symmetric(trials: int, share: float) -> None:
    successes = round(share * trials)
    low, high = wilson(successes, trials)
    assert 0 <= low <= successes / trials <= high <= 1
    mirrored = wilson(trials - successes, trials)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-12)


@pytest.mark.parametrize("counts", [(1, 0), (-1, 3), (4, 3)])
def test_wilson_refuses_what_is_no_share(counts: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="are not possible"):
        wilson(*counts)


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 6))
def test_hits_follow_a_stable_order(seed: int, classes: int, first: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 4, (30, classes)) / 2
    labels = rng.integers(0, classes, 30)
    best = np.argsort(-scores, axis=1, kind="stable")[:, :first]
    np.testing.assert_array_equal(hits(scores, labels, first), (best == labels[:, None]).any(axis=1))
    top1 = hits(scores, labels, 1).mean()
    assert top1 == (scores.argmax(axis=1) == labels).mean()
    assert hits(scores, labels, 5).mean() >= top1
    assert classes > 5 or hits(scores, labels, 5).all()


def test_confusion_agrees_with_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    labels, predicted = rng.integers(0, 5, (2, 200))
    expected = peer_confusion(labels, predicted, labels=range(7))
    np.testing.assert_array_equal(confusion_matrix(predicted, labels, 7), expected)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0.0, 1.0], "must be whole numbers"),
        ([0, 1, 2], r"int64 \(3,\)"),
        ([0, -1], "Entry 1 of the labels is -1"),
        ([9999, 0], "Entry 0 of the labels is 9999.*from 0 to 4095"),
    ],
)
def test_labels_must_number_classes(labels: list[float], message: str) -> None:
    with pytest.raises(DataError, match=message):
        checked_labels(labels, 2, "labels")


def test_labels_that_are_in_no_utf8_stay_apart() -> None:
    assert label_array(np.array([b"B\xe4r", b"B\xf6r"])).tolist() == [r"B\xe4r", r"B\xf6r"]
