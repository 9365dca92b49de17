"""A row has the same code whatever rows come with it: sums of codes are exact only then."""

import os
import subprocess
import sys

import numpy as np
import pytest

from smtdist.kernels.contrast import whitened
from smtdist.kernels.cpu.dictionary import in_use
from smtdist.kernels.l1 import sparse_codes
from smtdist.kernels.products import filled, row_products
from smtdist.kernels.sparse_codes import omp1, soft_threshold


def codes_of(name):
    return {
        "omp1": lambda rows, atoms: np.stack([a.astype(np.float64) for a in omp1(rows, atoms)], axis=1),
        "l1": lambda rows, atoms: sparse_codes(atoms.T, rows, 0.3)[0],
        "fista": lambda rows, atoms: sparse_codes(atoms.T, rows, 0.3, method="fista", max_iterations=30)[0],
        "tiles": lambda rows, atoms: np.concatenate(
            [
                row_products(filled(tile, 256), atoms)[: len(tile)]
                for tile in np.split(rows, range(256, len(rows), 256))
            ]
        ),
        "whitening": lambda rows, atoms: whitened(rows, atoms[0], np.eye(rows.shape[1]) + 0.1),
        "soft threshold": lambda rows, atoms: soft_threshold(rows, atoms, 0.1),
    }[name]


@pytest.mark.parametrize("name", ["omp1", "soft threshold", "l1", "fista", "tiles", "whitening"])
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


@pytest.mark.skipif("avx2" not in in_use()["cpu_flags"], reason="the processor has no AVX2")
def test_the_same_with_other_products():
    """OpenBLAS's float32 products for processors without AVX-512 do not see to it."""
    if os.environ.get("OPENBLAS_CORETYPE") == "Haswell":
        pytest.skip("This is that run.")
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-n",
            "0",
            "-k",
            "75-48",
            __file__,
        ],
        env={**os.environ, "OPENBLAS_CORETYPE": "Haswell"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout
