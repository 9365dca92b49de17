"""How much of a kernel is not noise."""

import numpy as np
import pytest
from data_sets import embedded, independent
from executors import engine

from smtdist.concepts import scores as module
from smtdist.concepts.scores import prepare, reliability
from smtdist.concepts.settings import ConceptSettings
from smtdist.errors import ConfigurationError


def of(X):
    return reliability(prepare(X, engine()))


def test_noise_alone_is_not_reliable_and_repeated_features_are():
    rng = np.random.default_rng(0)
    assert of(rng.normal(size=(200, 60))) < 0.1
    # no half of sixty features lacks what four say
    signal = rng.normal(size=(200, 4)) @ rng.normal(size=(4, 60))
    assert of(signal) > 0.9


def test_reliability_falls_with_noise():
    levels = []
    for snr in (0, 5, 10, 20):
        rng = np.random.default_rng(1)
        levels.append(of(embedded(rng, independent(rng, 64, 11), 64, snr)))
    assert levels == sorted(levels)
    assert levels[-1] > levels[0] + 0.2


def test_of_many_points_some_are_looked_at(monkeypatch):
    rng = np.random.default_rng(2)
    X = embedded(rng, independent(rng, 600, 8), 30, 5)
    whole = of(X)
    monkeypatch.setattr(module, "POINTS", 320)
    assert of(X) == pytest.approx(whole, abs=0.1)


def test_too_little_to_split_is_not_reliable():
    assert of(np.arange(6.0)[:, None]) == 0
    assert of(np.eye(3)) == 0
    assert 0 <= of(np.array([[0.0, 1], [1, 0], [2, 5], [3, 1]])) <= 1


def test_the_last_penalty_follows_the_share_of_noise():
    settings = ConceptSettings(penalty=0.02, refine=10, weights="scale")
    clean, noisy = settings.refining(1.0), settings.refining(0.25)
    assert clean.penalty == 0
    assert noisy.penalty == pytest.approx(0.02 * 0.75)
    assert noisy.weights == "scale"


def test_the_last_descent_starts_as_warm_as_is_asked_and_ends_cold():
    mild = ConceptSettings(refine=10, mild=0.015).refining(0.5)
    assert (mild.heat(0), mild.heat(8)) == (0.015, pytest.approx(0.01))
    assert ConceptSettings(refine=10, mild=0.005).refining(0.5).cooling == 1  # never warmer than it began
    assert ConceptSettings(refine=10, mild=0.0).refining(0.5).heat(0) == 0
    with pytest.raises(ConfigurationError, match="refine_start_temperature is -1"):
        ConceptSettings(mild=-1)
