"""NVIDIA's run-time compiler by ctypes; it needs no card."""

import ctypes
import ctypes.util
import importlib.util
from pathlib import Path

import pytest


def library():
    """Load NVRTC from the wheel (`smtdist[nvrtc]`) or the system; skip where there is none."""
    names = []
    spec = importlib.util.find_spec("nvidia") if importlib.util.find_spec("nvidia") else None
    for folder in spec.submodule_search_locations or () if spec else ():
        # wheels for CUDA 12 have a folder a library, those for 13 one for all
        names += sorted(map(str, Path(folder).glob("*/lib/libnvrtc.so.*")))
    for name in filter(None, [*names, ctypes.util.find_library("nvrtc")]):
        return ctypes.CDLL(name)
    pytest.skip("no NVRTC; pip install 'smtdist[nvrtc]'")


def compile_cuda(text, options, name="kernels.cu"):
    """Return (machine code, what the compiler said) for a source; compile errors fail with its log."""
    nvrtc, program, size = library(), ctypes.c_void_p(), ctypes.c_size_t()
    nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p

    def check(status):
        assert status == 0, nvrtc.nvrtcGetErrorString(status).decode()

    def text_of(kind):
        check(getattr(nvrtc, f"nvrtcGet{kind}Size")(program, ctypes.byref(size)))
        found = ctypes.create_string_buffer(size.value)
        check(getattr(nvrtc, f"nvrtcGet{kind}")(program, found))
        return found.raw

    check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), name.encode(), 0, None, None))
    try:
        given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        status = nvrtc.nvrtcCompileProgram(program, len(options), given)
        log = text_of("ProgramLog").rstrip(b"\0").decode().strip()
        assert status == 0, log
        return text_of("CUBIN"), log
    finally:
        check(nvrtc.nvrtcDestroyProgram(ctypes.byref(program)))
