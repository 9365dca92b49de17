"""The CUDA source, compiled as C++ by the system's compiler: kernels that take NumPy arrays and run on the CPU."""

import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

from smtdist.kernels.gpu import source

HEADER = Path(__file__).with_name("simt.hpp")
COMPILERS = ("c++", "g++", "clang++")


def launchers(text):
    """C++ that starts each kernel on the CPU."""
    for name, parameters in source.signatures(text).items():
        declared = ", ".join(f"{kind} {'*' * star}{parameter}" for kind, star, parameter in parameters)
        handed = ", ".join(parameter for _, _, parameter in parameters)
        yield f'extern "C" int run_{name}(unsigned blocks, unsigned threads, unsigned seed, {declared})'
        yield f"{{ return simt::run(blocks, threads, seed, [=] {{ {name}({handed}); }}); }}"


def compiler_here():
    """Return the system's C++ compiler, if it has one."""
    return next(filter(None, map(shutil.which, COMPILERS)), None)


@functools.cache
def library(text):
    """Compile a source and load it; skip where there is no compiler."""
    compiler = compiler_here()
    if compiler is None:
        pytest.skip("no C++ compiler")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.cpp"
        path.write_text("\n".join([f'#include "{HEADER}"', text, *launchers(text)]))
        made = path.with_suffix(".so")
        command = [
            compiler,
            "-std=c++17",
            "-O1",
            "-Wall",
            "-Wconversion",  # what has 64 bits stays so: numbers of atoms, patches and words, and all their products
            "-Werror",
            "-Wno-parentheses",
            "-Wno-sign-compare",
            "-Wno-sign-conversion",
        ]
        found = subprocess.run(
            [*command, "-shared", "-fPIC", str(path), "-o", str(made)], capture_output=True, text=True
        )
        assert found.returncode == 0, found.stderr
        return ctypes.CDLL(str(made))


class Kernel:
    """One kernel; called as CuPy's are."""

    def __init__(self, name, text, seed):
        self._run = getattr(library(text), f"run_{name}")
        self._parameters, self._seed = source.signatures(text)[name], seed

    def __call__(self, grid, block, arguments):
        (blocks,), (threads,) = grid, block
        assert len(arguments) == len(self._parameters)
        handed = []
        for value, (kind, star, name) in zip(arguments, self._parameters, strict=True):
            assert isinstance(value, np.ndarray if star else np.generic), name
            c_type = ctypes.c_void_p if star else np.ctypeslib.as_ctypes_type(source.TYPES[kind])
            handed.append(c_type(value.ctypes.data if star else value.item()))
        result = self._run(*(ctypes.c_uint(x) for x in (blocks, threads, self._seed)), *handed)
        assert result == 0, ("", "threads wait for others that never come", "incomplete warps")[result]


def emulate(patch, seed=1):
    """Let kernels run here; threads take turns in an order that the seed chooses."""
    library(source.text())
    patch.setattr(source, "kernel", lambda name: Kernel(name, source.text(), seed))


@pytest.fixture
def emulated(request, monkeypatch):
    """Let kernels run here; threads take turns in an order that the parameter chooses."""
    emulate(monkeypatch, getattr(request, "param", 1))
