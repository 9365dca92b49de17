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
    for name in source.signatures(source.text()):
        assert name.encode() in binary, "a kernel is missing"


def test_nvrtc_refuses_what_is_no_source():
    with pytest.raises(AssertionError, match="undefined"):
        compile_cuda(source.text().replace("int64 stride", "int64 step", 1), source.OPTIONS)


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize(
    "spoil",
    [
        lambda given: (given[0].astype(np.int16), *given[1:]),
        lambda given: (given[0][:, ::2], *given[1:]),
        lambda given: (*given[:4], given[4].astype(np.int64), given[5]),
        lambda given: (*given[:5], np.int32(given[5])),
        lambda given: (*given[:1], np.array([1, 2]), *given[2:]),
    ],
)
def test_kernels_get_what_they_declare(spoil):
    codes = random_codes(0, 9, 12, 0.1)
    given = (np.zeros((12, 12), np.int32), 12, 12, codes.indptr, codes.indices, 9)
    source.launch("add_pairs_32", 9, *given)
    with pytest.raises(TypeError, match="add_pairs_32"):
        source.launch("add_pairs_32", 9, *spoil(given))


APART = """
extern "C" __global__ void apart(int *out)
{
    if (threadIdx.x != 5)
        out[threadIdx.x] = __ballot_sync(0xffffffffu, 1);
}
extern "C" __global__ void turned(int *out)
{
    __shared__ int shown[64];
    shown[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = shown[63 - threadIdx.x];
}
extern "C" __global__ void turned_too_early(int *out)
{
    __shared__ int shown[64];
    shown[threadIdx.x] = -1;
    shown[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = shown[63 - threadIdx.x];
}
"""


class TestEmulation:
    """Threads that run here meet where they should, and those that do not are noticed."""

    def run(self, name, threads=64):
        out = np.zeros(64, np.int32)
        emulated_cuda.Kernel(name, APART, 1)((1,), (threads,), (out,))
        return out.tolist()

    def test_barriers(self):
        assert self.run("turned") == list(range(64))[::-1]
        assert self.run("turned_too_early") != list(range(64))[::-1]

    def test_lanes_that_wait_for_ever(self):
        with pytest.raises(AssertionError, match="never come"):
            self.run("apart")

    def test_incomplete_warps(self):
        with pytest.raises(AssertionError, match="incomplete"):
            self.run("turned", 33)
