"""Kernels of the CUDA source that run on the CPU, and a CuPy without a device."""

from emulated_cuda import emulated
from fake_cupy import fake_cupy

__all__ = ["emulated", "fake_cupy"]
