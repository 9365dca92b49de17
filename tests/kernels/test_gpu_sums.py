"""Bodies for devices, with NumPy in the place of CuPy: kernels run on the CPU, products go through cuBLAS's conventions."""

import numpy as np
import pytest
from kernel_codes import random_codes

from smtdist.kernels import scatter
from smtdist.kernels.gpu import scatter as gpu
from smtdist.kernels.gpu import tensor
from smtdist.kernels.types import Codes


def placed(cupy, codes):
    return Codes(cupy.asarray(codes.indptr), cupy.asarray(codes.indices), codes.n_atoms)


@pytest.mark.parametrize("share", [0.01, 0.2, 0.9])
@pytest.mark.parametrize("rows", [1, 50, 97])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_second_moment(fake_cupy, share, rows, dtype):
    codes = random_codes(0, 300, 97, share)
    expected = np.random.default_rng(1).integers(0, 99, (rows, 97)).astype(dtype)
    start = expected.copy()
    scatter.add_second_moment(expected, codes)
    for body in (scatter.add_second_moment, gpu.add_pairs, tensor.add_products):
        found = fake_cupy.asarray(start)
        body(found, placed(fake_cupy, codes))
        np.testing.assert_array_equal(fake_cupy.asnumpy(found), expected)
