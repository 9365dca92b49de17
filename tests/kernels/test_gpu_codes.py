"""Codes by the kernels of the source, which run on the CPU, against the compiled bodies and the oracle."""

import numpy as np
import pytest

from smtdist.kernels import codes, context, whitening
from smtdist.kernels.gpu import codes as gpu

POLICIES = ("keep", "leave_out", "activate_best")


@pytest.mark.parametrize(("n", "k"), [(1, 1), (9, 31), (33, 32), (40, 33), (70, 1100)])
@pytest.mark.parametrize("cosine", [0.1, 0.5, 0.99])
def test_codes_are_those_of_the_cpu(fake_cupy, monkeypatch, n, k, cosine):
    monkeypatch.setattr(gpu, "SLICE_BYTES", 16 * 4 * k)
    rng = np.random.default_rng(n)
    grid = np.ascontiguousarray(whitening.atoms_to_grid(rng.standard_normal((n, 12))).T)
    constant = rng.random(n) < 0.2
    grid[:, constant] = 0
    atoms = whitening.atoms_to_grid(rng.standard_normal((k, 12)))
    atoms[k // 2 :: 3] = atoms[0]  # ties
    cut = whitening.threshold_cut(cosine, 12)
    placed = [fake_cupy.asarray(x) for x in (grid, atoms, constant)]
    for constant_patch in POLICIES:
        for zero_code in POLICIES:
            wanted = codes.gq_codes(grid, atoms, cut, constant, constant_patch, zero_code)
            found = codes.gq_codes(placed[0], placed[1], cut, placed[2], constant_patch, zero_code)
            assert isinstance(found.indices, fake_cupy.ndarray)
            for name in ("indptr", "indices"):
                assert getattr(found, name).dtype == getattr(wanted, name).dtype
                np.testing.assert_array_equal(
                    fake_cupy.asnumpy(getattr(found, name)), getattr(wanted, name)
                )
            sites = fake_cupy.asnumpy(context.kept_mask(found, (1, 1, n)))
            np.testing.assert_array_equal(sites, context.kept_mask(wanted, (1, 1, n)))


def test_atoms_whose_products_are_all_negative_are_the_best_too(fake_cupy):
    """A lane whose best is below zero must not lose to lanes that hold no atom."""
    grid = np.full((2, 3), 3, np.float32)
    atoms = np.array([[-9, -9], [-1, -1], [-2, -2]], np.float32)
    constant = np.zeros(3, bool)
    placed = [fake_cupy.asarray(x) for x in (grid, atoms, constant)]
    found = codes.gq_codes(placed[0], placed[1], 100, placed[2], "leave_out", "activate_best")
    assert fake_cupy.asnumpy(found.indices).tolist() == [1, 1, 1]
