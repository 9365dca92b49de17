"""Losses of rounds that vary: settled ones are taken for converged, and falling ones hardly ever."""

import numpy as np
import pytest

from smtdist.kernels.convergence import of_rounds


def share_converged(rounds, left, noise):
    """Of 200 draws; `left` is what the loss still has to fall, as a share of it."""
    rng, time = np.random.default_rng(rounds), np.arange(rounds)
    tail = np.exp(-2 * time / rounds)
    loss = 1 + (tail / tail[-1]) * left
    drawn = loss * (1 + noise * rng.normal(size=(200, rounds)))
    return np.mean([of_rounds(one.tolist()).converged for one in drawn])


@pytest.mark.parametrize("rounds", [10, 20, 100])
@pytest.mark.parametrize("noise", [0.02, 0.1])
def test_rounds_that_vary_around_one_loss_have_converged(rounds, noise):
    assert share_converged(rounds, 0, noise) > 0.9


@pytest.mark.parametrize(("rounds", "noise"), [(6, 0.1), (10, 0.02), (10, 0.1), (20, 0.02), (100, 0.1)])
def test_rounds_that_still_fall_have_not(rounds, noise):
    assert share_converged(rounds, 0.15, noise) < 0.3


def test_one_small_step_does_not_settle_few_rounds():
    assert not of_rounds([-200.0, -150.0, -120.0, -100.0, -99.93]).converged
    assert of_rounds([-200.0, -150.0, -101.0, -100.5, -100.0]).converged


def test_great_noise_hides_a_fall_and_is_not_taken_for_rest():
    assert not of_rounds([9.0, 3.0, 8.0, 9.0, 3.0, 2.0, 7.0, 2.0, 1.0, 4.0]).converged
