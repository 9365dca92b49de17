"""The CUDA source without a card: its kernels run on the CPU, and NVRTC compiles it."""

import emulated_cuda
import numpy as np
import pytest
from kernel_codes import random_codes
from nvrtc import compile_cuda

from smtdist.kernels.cpu import scatter as cpu
from smtdist.kernels.gpu import source


@pytest.mark.parametrize("emulated", [1, 2], indirect=True)
@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("rows", [1, 50, 97])
def test_pairs(dtype, rows):
    codes = random_codes(0, 300, 97, 0.1)
    expected = np.random.default_rng(1).integers(0, 99, (rows, 97)).astype(dtype)
    found = expected.copy()
    cpu.add_second_moment(expected, codes)
    size = 8 * found.itemsize
    source.launch(f"add_pairs_{size}", 300, found, rows, 97, codes.indptr, codes.indices, codes.n_patches)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90"])
def test_nvrtc_compiles_the_source(architecture):
    """For the oldest cards with products of int8 on tensor cores, and those of today."""
    options = (*source.OPTIONS, f"--gpu-architecture={architecture}")
    binary, log = compile_cuda(source.text(), options)
    assert log == ""
    assert binary[:4] == b"\x7fELF"
    for name, _ in emulated_cuda.signatures(source.text()):
        assert name.encode() in binary, "a kernel is missing"


def test_nvrtc_refuses_what_is_no_source():
    with pytest.raises(AssertionError, match="undefined"):
        compile_cuda(source.text().replace("int64 stride", "int64 step", 1), source.OPTIONS)
