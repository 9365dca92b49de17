"""Constant patches, looked up once, have the nearest atom and the dot product that a search gives them."""

import numpy as np
import pytest

from smtdist.kernels import codes, whitening

pytestmark = pytest.mark.usefixtures("thread_count")


@pytest.mark.parametrize("euclidean", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_as_a_search_finds_them(euclidean, share):
    rng = np.random.default_rng(0)
    grid = np.ascontiguousarray(whitening.atoms_to_grid(rng.standard_normal((5000, 6))).T)
    constant = rng.random(5000) < share
    grid[:, constant] = 0
    atoms = np.rint(whitening.atoms_to_grid(rng.standard_normal((90, 6))) * rng.uniform(0.1, 1, (90, 1)))
    atoms = atoms.astype(np.float32)
    plain = codes.nearest_atoms(grid, atoms, euclidean)
    for found, expected in zip(codes.nearest_atoms(grid, atoms, euclidean, constant), plain, strict=True):
        np.testing.assert_array_equal(found, expected)
