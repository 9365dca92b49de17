"""Every encoder with every context and order, against D written out as a matrix: codes, exact sums, eigenspaces."""

from fractions import Fraction

import numpy as np
import pytest
import reference as oracle

from smtdist.codes.s3c import PatchCoder, S3CSettings
from smtdist.kernels.features import Landmarks, PositiveCodes, Pursuit, Threshold, directions
from smtdist.kernels.spike_slab import SpikeSlab
from smtdist.solve.generalized import smallest_components
from smtdist.statistics.limbs import exact
from smtdist.statistics.operators import Listed, Temporal, Whole, Window
from smtdist.statistics.sites import Group
from smtdist.statistics.values import GRID, ValueSums, finish

INPUTS, ATOMS, SITES, SAMPLES, COMPONENTS = 5, 7, 12, 30, 3
DRAW = np.random.default_rng(11)
POINTS = DRAW.normal(size=(ATOMS, INPUTS))
UNIT = directions(POINTS)
ROWS = DRAW.normal(size=(SAMPLES, SITES, INPUTS))
WEIGHTS = np.where(
    DRAW.random((SAMPLES, SITES - 1)) < 0.7, DRAW.integers(1, 9, (SAMPLES, SITES - 1)) / 16, 0
)
LATTICE = (3, 4)

# S3C's code is judged by the posterior itself in tests/s3c; here it must be the same alone as beside others
ENCODERS = {
    "threshold": (Threshold(POINTS, 0.2), lambda x: oracle.threshold_code(x, POINTS, 0.2)),
    "nearest": (Landmarks(POINTS), lambda x: oracle.nearest_code(x, POINTS)),
    "l1": (PositiveCodes(POINTS, 0.3), lambda x: oracle.positive_code(x, UNIT, 0.3)),
    "omp": (Pursuit(POINTS, 2), lambda x: oracle.pursuit_code(x, UNIT, 2)),
    "s3c": (
        PatchCoder(
            S3CSettings(units=ATOMS, patch=1),
            (1, 1, INPUTS),
            np.zeros(INPUTS),
            np.eye(INPUTS),
            np.eye(INPUTS),
            SpikeSlab(
                UNIT, np.ones(ATOMS), np.full(ATOMS, 2.0), np.full(ATOMS, -1.0), np.full(INPUTS, 5.0)
            ),
        ),
        None,
    ),
}


def lattice(reach):
    def matrix(sample, order, kept):
        near = oracle.neighbours(*LATTICE, reach, kept)
        return oracle.first_order(near).astype(object) if order == 1 else oracle.second_order(near)

    return matrix


CONTEXTS = {
    "whole": (
        lambda order: Whole() if order == 1 else Window(SITES, LATTICE[1], None, 2),
        lattice("whole"),
        "kept",
    ),
    "window": (lambda order: Window(SITES, LATTICE[1], 1, order), lattice(1), "kept"),
    "time": (Temporal, lambda sample, order, kept: oracle.in_time(SITES, order), "all"),
    "neighbours": (Listed, lambda sample, order, kept: oracle.of_listed(WEIGHTS[sample], order), "first"),
    "pairs": (
        lambda order: Listed(order, True),
        lambda sample, order, kept: oracle.of_listed(WEIGHTS[sample], order),
        "all",
    ),
}


class Given:
    """The rows above from sample `first` on, on a lattice and with weights."""

    def __init__(self, first=0):
        self.first = first

    def groups(self, images, numbers):
        for start in range(0, len(images), 4):
            part = images[start : start + 4]
            weights = WEIGHTS[self.first + start : self.first + start + len(part)]
            yield Group(part.reshape(-1, INPUTS), SITES, weights, np.tile(np.arange(SITES), (len(part), 1)))

    def group_bytes(self, numbers):
        return 0


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("name", ENCODERS)
def test_a_cell(name, context, order):
    encoder, definition = ENCODERS[name]
    operator, matrix, counted = CONTEXTS[context]
    alone = np.array([[np.asarray(encoder(row[None]))[0] for row in sample] for sample in ROWS])
    if definition is not None:
        for row, code in zip(ROWS[0], alone[0], strict=True):
            np.testing.assert_allclose(code, definition(row), atol=2e-3)

    V, C, n = np.zeros((ATOMS, ATOMS), object), np.zeros((ATOMS, ATOMS), object), 0
    for number, codes in enumerate(
        np.rint(alone.astype(np.float64) * GRID).astype(np.int64).astype(object)
    ):
        A = codes.T
        kept = [bool(A[:, at].any()) for at in range(SITES)]
        own = {"kept": A[:, kept], "all": A, "first": A[:, :1]}[counted]
        V, n = V + own @ own.T, n + own.shape[1]
        D = matrix(number, order, kept)
        scale = 2 if context == "time" and order == 2 else 1  # D is written as twice the second difference
        for column in D.T:
            # what is rounded is the sum over neighbours, not the site itself
            site = [a if d == 1 else 0 for a, d in zip(A.T, column, strict=True)]
            AD = A @ column
            if any(isinstance(one, Fraction) for one in column):
                own_code = np.sum([one for one in site if not isinstance(one, int)], axis=0)
                AD = np.array(
                    [a - round(Fraction(a) - Fraction(c)) for a, c in zip(own_code, AD, strict=True)]
                )
            C = C + np.outer(AD, AD)

    states = []
    for first, last in ((0, 13), (13, SAMPLES)):
        statistic = ValueSums(Given(first), encoder, operator(order))
        states.append(statistic.zero())
        statistic.update(states[-1], ROWS[first:last], first)
    found = finish(statistic.merge(*states), statistic)
    assert found.n_positions == n
    np.testing.assert_array_equal(exact(*found.second_moment), V)
    np.testing.assert_array_equal(exact(*found.context_scatter), C)

    means = found.means()
    V, C = (np.array(one / (GRID**2 * n), float) for one in (V, C))
    np.testing.assert_allclose(means.moment, V, rtol=1e-12)
    np.testing.assert_allclose(means.scatter, C / scale**2, rtol=1e-12, atol=1e-15)
    P = smallest_components(means.scatter, means.moment, COMPONENTS).components
    assert oracle.largest_angle(P, V, C / scale**2) < 1e-4


def test_there_are_fifty():
    assert 2 * len(ENCODERS) * len(CONTEXTS) == 50
