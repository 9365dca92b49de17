"""A row has the same code whatever rows come with it: sums of codes are exact only then."""

import numpy as np
import pytest

from smtdist.kernels.contrast import whitened
from smtdist.kernels.l1 import sparse_codes
from smtdist.kernels.sparse_codes import omp1, soft_threshold


def codes_of(name):
    return {
        "omp1": lambda rows, atoms: np.stack([a.astype(np.float64) for a in omp1(rows, atoms)], axis=1),
        "l1": lambda rows, atoms: sparse_codes(atoms.T, rows, 0.3)[0],
        "whitening": lambda rows, atoms: whitened(rows, atoms[0], np.eye(rows.shape[1]) + 0.1),
        "soft threshold": lambda rows, atoms: soft_threshold(rows, atoms, 0.1),
    }[name]


@pytest.mark.parametrize("name", ["omp1", "soft threshold", "l1", "whitening"])
@pytest.mark.parametrize(("inputs", "atoms"), [(75, 48), (27, 64), (108, 300)])
def test_rows_may_come_in_any_company(name, inputs, atoms):
    rng = np.random.default_rng(atoms)
    rows = rng.normal(size=(5000, inputs)).astype(np.float32)
    dictionary = rng.normal(size=(atoms, inputs)).astype(np.float32)
    dictionary /= np.linalg.norm(dictionary, axis=1, keepdims=True)
    if name == "whitening":
        dictionary[:] = dictionary.mean(axis=0)
    code = codes_of(name)
    whole = code(rows, dictionary)
    for count in (1, 7, 255, 257, 3600):
        assert (code(rows[:count], dictionary) == whole[:count]).all()
        assert (code(np.ascontiguousarray(rows[3 : 3 + count]), dictionary) == whole[3 : 3 + count]).all()
