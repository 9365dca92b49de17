"""The CUDA source without a card: its kernels run on the CPU, and NVRTC compiles it."""

import emulated_cuda
import numpy as np
import pytest
from kernel_codes import random_codes
from nvrtc import compile_cuda, kernels_of

from smtdist.kernels.cpu import scatter as cpu
from smtdist.kernels.gpu import scatter as gpu
from smtdist.kernels.gpu import source, tensor


@pytest.mark.parametrize("emulated", [1, 2], indirect=True)
@pytest.mark.usefixtures("emulated")
def test_products_whatever_the_turns_of_threads():
    codes, found, expected = random_codes(0, 600, 140, 0.1), *np.zeros((2, 140, 140), np.int64)
    cpu.add_second_moment(expected, codes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensor, "capability", lambda _: 90)
        gpu.add_second_moment(found, codes)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90"])
def test_nvrtc_compiles_the_source(architecture):
    """For the oldest cards and those of today: nothing spills, and products are single instructions of tensor cores."""
    binary, log = compile_cuda(source.text(), (*source.OPTIONS, f"--gpu-architecture={architecture}"))
    assert log == ""
    found = kernels_of(binary)
    assert set(found) == set(source.signatures(source.text()))
    for name, (_, counts) in found.items():
        assert not counts.keys() & {"LDL", "STL"}, f"{name} spills"
    for name in ("add_moments", "whiten_patches"):  # as fast where float64 is slow
        registers, counts = found[name]
        assert counts["IMAD.WIDE"] >= 16
        assert "DFMA" not in counts
        assert registers <= 80, "three blocks fit a processor"
    assert found["image_roots"][1]["DFMA"] >= 16
    if architecture == "sm_75":  # which multiplies in float32
        return
    for kind, opcode in (("bits", "BMMA"), ("bytes", "IMMA")):
        for size in (32, 64):
            registers, counts = found[f"add_{kind}_{size}"]
            assert counts[opcode] == 64
            assert registers <= 255
    registers, counts = found["mark_bits"]
    assert counts["IMMA"] >= 16
    assert registers <= 128, "four blocks fit a processor, as many as its shared memory holds"


def test_nvrtc_refuses_what_is_no_source():
    with pytest.raises(AssertionError, match="undefined"):
        compile_cuda(source.text().replace("int64 stride", "int64 steps", 1), source.OPTIONS)


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize(
    "spoil",
    [
        lambda given: (given[0].astype(np.int16), *given[1:]),
        lambda given: (given[0][::2], *given[1:]),
        lambda given: (*given[:3], given[3].astype(np.int64), *given[4:]),
        lambda given: (*given[:4], np.int32(given[4]), given[5]),
        lambda given: (given[0], np.array([1, 2]), *given[2:]),
    ],
)
def test_kernels_get_what_they_declare(spoil):
    codes = random_codes(0, 9, 12, 0.1)
    given = (np.zeros(12, np.int32), 12, codes.indptr, codes.indices, 9, 9)
    source.launch("add_counts_32", 9, *given)
    with pytest.raises(TypeError, match="add_counts_32"):
        source.launch("add_counts_32", 9, *spoil(given))


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
