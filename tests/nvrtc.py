"""NVIDIA's run-time compiler by ctypes; it needs no card."""

import ctypes
import ctypes.util
import importlib.util
import struct
from collections import Counter
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


OPCODES = {0x237: "IMMA", 0x23D: "BMMA", 0x225: "IMAD.WIDE", 0x22B: "DFMA", 0x983: "LDL", 0x387: "STL"}
"""The low 12 bits of instructions of 16 bytes: products of bytes, bits, integers and float64, and what goes to local memory."""
REGISTERS = 0x2F04
"""How an entry begins that has the registers of a kernel (EIATTR_REGCOUNT, a value with its size)."""


def kernels_of(binary):
    """Return (registers, how often each of `OPCODES` occurs) of each kernel of an ELF file of CUDA, by name."""
    (start,) = struct.unpack_from("<Q", binary, 40)
    size, count, names = struct.unpack_from("<HHH", binary, 58)
    heads = [struct.unpack_from("<IIQQQQII", binary, start + i * size) for i in range(count)]

    def text(table, at):
        return binary[table + at : binary.index(b"\0", table + at)].decode()

    sections = {text(heads[names][4], head[0]): head for head in heads}
    symbols, strings = sections[".symtab"][4], sections[".strtab"][4]
    info = binary[sections[".nv.info"][4] :][: sections[".nv.info"][5]]
    registers = {}
    for at in range(0, len(info) - 11, 4):
        kind, _, symbol, value = struct.unpack_from("<HHII", info, at)
        if kind == REGISTERS:
            registers[text(strings, struct.unpack_from("<I", binary, symbols + 24 * symbol)[0])] = value
    found = {}
    for name, head in sections.items():
        if name.startswith(".text."):
            code = binary[head[4] : head[4] + head[5]]
            low = (struct.unpack_from("<Q", code, at)[0] & 0xFFF for at in range(0, len(code), 16))
            counts = Counter(OPCODES[one] for one in low if one in OPCODES)
            found[name.removeprefix(".text.")] = (registers[name.removeprefix(".text.")], counts)
    return found
