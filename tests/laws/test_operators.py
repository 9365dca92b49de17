"""Sums of valued codes by every operator, against D written out as a matrix, exactly."""

from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import reference as oracle
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from toys import AsTheyAre, sum_of

from smtdist.errors import ConfigurationError
from smtdist.models.coders.contexts import OURS
from smtdist.statistics.limbs import exact
from smtdist.statistics.operators import Temporal, Window
from smtdist.statistics.sites import Group
from smtdist.statistics.values import GRID, ValueSums

law = settings(deadline=None, max_examples=30)


@dataclass(frozen=True)
class Given:
    """Samples (1, sites, K) at given places of a lattice."""

    places: np.ndarray

    def groups(self, images, numbers):
        for start in range(0, len(images), 2):
            part = images[start : start + 2, 0]
            rows = part.reshape(-1, part.shape[2])
            yield Group(rows, part.shape[1], places=self.places[start : start + 2])

    def group_bytes(self, numbers):
        return 0


def drawn_samples(rng, samples, rows, columns, sites, size):
    """Codes of which some are zero, and where they lie."""
    places = np.array([np.sort(rng.permutation(rows * columns)[:sites]) for _ in range(samples)])
    codes = rng.standard_normal((samples, 1, sites, size)) * (
        rng.uniform(size=(samples, 1, sites, size)) < 0.5
    )
    return codes * (rng.uniform(size=(samples, 1, sites, 1)) < 0.8), places


NEAR = {reach: partial(oracle.neighbours, d=reach or "whole") for reach in (1, 2, None, "whole")}
"""Of windows by their reach, and of contexts by name: what returns a list of neighbours for each of the rows x columns sites of
a lattice, of those that are `kept` because they have a code. The matrix D follows from it."""


def expected(codes, places, rows, columns, reach, order):
    """V, A D Dᵀ Aᵀ and positions by the definition: one column of D after another, in whole steps."""
    size = codes.shape[3]
    second, scatter, count = np.zeros((size, size), object), np.zeros((size, size), object), 0
    for sample, where in zip(codes[:, 0], places, strict=True):
        A = np.zeros((size, rows * columns), object)
        A[:, where] = np.rint(sample * GRID).astype(np.int64).astype(object).T
        kept = [bool(A[:, at].any()) for at in range(rows * columns)]
        count += sum(kept)
        second += A @ A.T
        near = NEAR[reach](rows, columns, kept=kept)
        D = oracle.first_order(near).astype(object) if order == 1 else oracle.second_order(near)
        AD = A @ D if D.shape[1] else np.zeros((size, 0), object)
        if order == 2:  # a column is rounded to the grid: the mean of the neighbours, not the site
            own = [i for i, js in enumerate(near) if js]
            for k, i in enumerate(own):
                AD[:, k] = [
                    a - round(Fraction(a) - Fraction(c)) for a, c in zip(A[:, i], AD[:, k], strict=True)
                ]
        scatter += AD @ AD.T
    return second, scatter, count


@pytest.mark.parametrize("reach", {**NEAR, **OURS})
@law
@given(
    seed=st.integers(0, 2**40),
    rows=st.integers(1, 4),
    columns=st.integers(1, 4),
    share=st.floats(0.2, 1),
    order=st.sampled_from([1, 2]),
    sparse=st.booleans(),
)
def test_a_lattice_sums_what_d_says(seed, rows, columns, share, reach, order, sparse):
    assert reach in NEAR, f"add the neighbours of {reach} to NEAR of tests/laws/test_operators.py"
    rng = np.random.default_rng(seed)
    sites = max(1, int(share * rows * columns))
    codes, places = drawn_samples(rng, 3, rows, columns, sites, 4)
    try:
        operator = (
            OURS[reach](sites, columns, order) if reach in OURS else Window(sites, columns, reach, order)
        )
    except ConfigurationError:  # it has no second order
        reject()
    second, scatter, count = expected(codes, places, rows, columns, reach, order)
    state = sum_of(ValueSums(Given(places), AsTheyAre(4, sparse), operator), codes)
    for name, found in (("second_moment", second), ("context_scatter", scatter)):
        sums = exact(state[f"{name}_high"], state[f"{name}_low"])
        np.testing.assert_array_equal(sums, found, err_msg=f"{name}, {operator}")
    assert int(state["n_positions"]) == count


def test_other_orders_are_refused():
    for operator in (Temporal, lambda order: Window(4, 2, 1, order)):
        with pytest.raises(ConfigurationError, match="order is 3"):
            operator(3)
