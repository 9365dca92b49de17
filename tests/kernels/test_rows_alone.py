"""A row has the same code whatever rows come with it: sums of codes are exact only then."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smtdist.kernels import features
from smtdist.kernels.contrast import whitened
from smtdist.kernels.l1 import METHODS, sparse_codes
from smtdist.kernels.products import Ordered
from smtdist.kernels.sparse_codes import linear_features, omp1, omp_codes, soft_threshold
from smtdist.kernels.spike_slab import Schedule, SpikeSlab, infer


def spike_slab(rows, atoms, schedule):
    """Return ĥ and ŝ side by side, of a model with these atoms."""
    draw = np.random.default_rng(len(atoms))
    units = [draw.uniform(low, high, len(atoms)) for low, high in ((-1, 1), (0.5, 4), (-4, 0))]
    model = SpikeSlab(atoms, *units, draw.uniform(1, 4, atoms.shape[1])).astype(rows.dtype)
    return np.concatenate(infer(rows, model, schedule), axis=1)


CODES = {
    "product": lambda rows, atoms: Ordered(atoms.T)(rows),
    "omp1": lambda rows, atoms: np.stack([a.astype(np.float64) for a in omp1(rows, atoms)], axis=1),
    "omp": lambda rows, atoms: omp_codes(atoms.T, rows, min(3, *atoms.shape)),
    "soft threshold": lambda rows, atoms: soft_threshold(rows, atoms, 0.1),
    "linear": lambda rows, atoms: linear_features(atoms.T, rows, 0.1),
    "whitening": lambda rows, atoms: whitened(rows, atoms[0], np.eye(rows.shape[1]) + 0.1),
    "spike and slab": lambda rows, atoms: spike_slab(rows, atoms, Schedule.constant(0.7, 5)),
    "spike and slab in blocks": lambda rows, atoms: spike_slab(rows, atoms, Schedule.in_blocks(3)),
    "positive codes": lambda rows, atoms: features.PositiveCodes(atoms, 0.3)(rows),
    "threshold": lambda rows, atoms: features.Threshold(atoms, 0.1)(rows),
    "interpolation": lambda rows, atoms: features.Interpolation(atoms, min(4, len(atoms)))(rows),
    "radial": lambda rows, atoms: features.RadialBasis(atoms, 2.0)(rows),
    "fourier": lambda rows, atoms: features.RandomFourier(rows.shape[1], len(atoms), 2.0)(rows),
    **{
        method: lambda rows, atoms, method=method: sparse_codes(
            atoms.T, rows, 0.3, method=method, max_iterations=40
        )[0]
        for method in METHODS
    },
}


@pytest.mark.parametrize("name", CODES)
@settings(max_examples=settings().max_examples // 16)
@given(
    seed=st.integers(0, 999),
    count=st.integers(1, 700),
    inputs=st.integers(1, 330),
    atoms=st.integers(1, 330),
    dtype=st.sampled_from([np.float32, np.float64]),
    kind=st.sampled_from(["unit", "alike", "any length"]),
    order=st.sampled_from("CF"),
)
def test_rows_may_come_in_any_company(name, seed, count, inputs, atoms, dtype, kind, order):
    draw = np.random.default_rng(seed)
    dictionary = draw.normal(size=(atoms, inputs))
    if kind == "alike":
        dictionary = 0.1 * dictionary + dictionary[0]
    if kind != "any length" or name.startswith(("omp", "spike", "whitening")):
        dictionary /= np.linalg.norm(dictionary, axis=1, keepdims=True)
    rows = np.asarray(draw.normal(size=(count, inputs)), dtype, order=order)
    dictionary = np.asarray(dictionary, dtype, order=order)
    code = CODES[name]
    whole = code(rows, dictionary)
    assert len(whole) == count
    first, last = sorted(draw.integers(0, count + 1, 2))
    for part in (
        slice(first, last + 1),
        slice(count - 1, None),
        slice(0, 1),
        draw.permutation(count),
        draw.integers(0, count, 256),
    ):
        np.testing.assert_array_equal(code(rows[part], dictionary), whole[part])


@given(
    st.integers(0, 999), st.integers(1, 40), st.integers(0, 600), st.integers(1, 70),
    st.sampled_from([np.float32, np.float64]),
)  # fmt: skip
def test_products_are_summed_in_the_order_that_is_stated(seed, rows, features, columns, dtype):
    """By fused multiply-adds in runs of 256: in float32 a product and a sum of float64, rounded, are nearly always one."""
    draw = np.random.default_rng(seed)
    left, right = (
        draw.normal(size=shape).astype(dtype) for shape in ((rows, features), (features, columns))
    )
    found = Ordered(right)(left)
    assert found.dtype == dtype
    np.testing.assert_array_equal(Ordered(right)(left.reshape(rows, 1, features))[:, 0], found)
    wanted = np.zeros((rows, columns), dtype)
    for begin in range(0, features, 256):
        total = np.zeros((rows, columns), dtype)
        for k in range(begin, min(begin + 256, features)):
            exact = left[:, k, None].astype(np.longdouble) * right[k]
            total = (total + exact).astype(dtype)
        wanted += total
    if dtype == np.float32:
        np.testing.assert_array_equal(found, wanted)
    np.testing.assert_allclose(found, wanted, rtol=1e-12 if dtype == np.float64 else 1e-5, atol=1e-12)
