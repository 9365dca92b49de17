"""Inference with the embedding in view (SMT 2018, eq. 11), against the printed problem solved another way."""

import numpy as np
import pytest
from drawing import unit_columns
from scipy.optimize import minimize

from smtdist.errors import ConfigurationError
from smtdist.models.functional.inference import regularised_codes
from smtdist.models.functional.video_judge import straightness

DRAW = np.random.default_rng(0)
DICTIONARY = unit_columns(DRAW, 6, 12)
P = DRAW.standard_normal((3, 12))


def sequences(count=4, length=5, seed=1):
    draw = np.random.default_rng(seed)
    start, end = draw.standard_normal((2, count, 1, 6))
    time = np.linspace(0, 1, length)[None, :, None]
    return (1 - time) * start + time * end + 0.1 * draw.standard_normal((count, length, 6))


def printed(x, alpha, penalty, strength, ahead):
    """Equation 11 as printed, λ and γ₀ in its own scale, without the halves of equation 10."""
    beyond = 0.0 if ahead is None else strength * ((P @ (alpha - ahead)) ** 2).sum()
    return ((x - DICTIONARY @ alpha) ** 2).sum() + 2 * penalty * alpha.sum() + beyond


def test_every_frame_solves_the_printed_problem():
    rows, penalty, strength = sequences(), 0.1, 0.7
    found = regularised_codes(DICTIONARY, P, rows, penalty, strength, gap=1e-6)
    assert found.min() >= 0
    for sequence, codes in zip(rows, found, strict=True):
        for t in range(5):
            ahead = None if t < 2 else 2 * codes[t - 1] - codes[t - 2]
            best = minimize(
                lambda a, x=sequence[t], ahead=ahead: printed(x, a, penalty, strength, ahead),
                np.full(12, 0.1), bounds=[(0, None)] * 12, method="L-BFGS-B", options={"ftol": 1e-14, "gtol": 1e-10},
            )  # fmt: skip
            assert printed(sequence[t], codes[t], penalty, strength, ahead) <= best.fun * (1 + 1e-4)


def test_without_strength_it_is_equation_10_and_with_more_it_is_straighter():
    rows = sequences(30, 8)
    embedded = [regularised_codes(DICTIONARY, P, rows, 0.05, s, gap=1e-5) @ P.T for s in (0.0, 0.3, 3.0)]
    bent = [straightness(one).second_difference for one in embedded]
    assert bent[2] < bent[1] < bent[0]
    alone = regularised_codes(DICTIONARY, P, rows[:, 4:5], 0.05, 3.0, gap=1e-5)
    np.testing.assert_allclose(alone[:, 0] @ P.T, embedded[0][:, 4], atol=1e-2)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ConfigurationError, match="shape"):
        regularised_codes(DICTIONARY, P[:, :5], sequences(), 0.1, 1.0)
    with pytest.raises(ConfigurationError, match="strength"):
        regularised_codes(DICTIONARY, P, sequences(), 0.1, -1.0)
