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
