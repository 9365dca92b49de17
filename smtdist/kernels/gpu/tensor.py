"""Products of rows of bits, Σ a_i a_iᵀ among them: binary or int8 ones on tensor cores, else float32 in panels.

All are exact: sums of tensor cores are int32, and a row of bits is far shorter than 2^31; float32 takes so few patches at a
time that no sum can pass 2^24.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from smtdist.kernels.device import array_module, to_host
from smtdist.kernels.gpu.marks import ROW_WORDS
from smtdist.kernels.gpu.proof import capability, gives
from smtdist.kernels.gpu.source import WARP, launch, launch_blocks
from smtdist.kernels.types import Array

TILE: Final = 128
BAND: Final = 16
THREADS: Final = 128
"""Rows of a block's tile, tile rows of a band, and threads of a block, as the kernel has them."""
BITS: Final = range(80, 100)
"""Compute capabilities that multiply bits in one instruction; later ones have int8 alone."""
BYTES_WORDS: Final = 1 << 10
"""Words of a row that become bytes at a time, 32,768 patches."""
PANEL: Final = 1024
"""Rows of a panel in float32."""
FLOAT_WORDS: Final = 1 << 7
"""Words of a row that become float32 at a time, 4,096 patches: far fewer than 2^24."""


def add_products(out: Array, left: Array, right: Array, factor: int = 1) -> None:
    """Add factor x Σ l rᵀ to the upper triangle of `out` (rows, K), over the bits of rows (K, words) uint32.

    out : int32 or int64; `words` a multiple of `ROW_WORDS`. Memory: none; 32 KiB an atom and side where bits become bytes,
    20 KiB and panels of 16 KiB an atom where they become float32.
    """
    xp, words = array_module(out), left.shape[1]
    able = capability(xp)
    if able >= BITS.start and gives(xp, _adds_up, "pairs of atoms are counted in float32"):
        if able in BITS:
            _launch("bits", out, left, right, factor)
            return
        for first in range(0, words, BYTES_WORDS):
            some = min(BYTES_WORDS, words - first)
            rows = spread(left, first, some)
            other = rows if left is right else spread(right, first, some)
            add_bytes(out, rows, other, factor)
        return
    for first in range(0, words, FLOAT_WORDS):
        some = min(FLOAT_WORDS, words - first)
        rows, other = (spread(each, first, some).astype(xp.float32) for each in (left, right))
        for start in range(0, len(out), PANEL):
            stop = min(start + PANEL, len(out))
            counts = xp.triu((rows[start:stop] @ other[start:].T).astype(out.dtype))
            out[start:stop, start:] += counts if factor == 1 else factor * counts


def add_bytes(out: Array, left: Array, right: Array, factor: int) -> None:
    """Add factor x Σ l rᵀ over rows of int8 (K, n), n a multiple of 64; a sum over a row must stay below 2^31."""
    xp = array_module(out)
    _launch("bytes", out, left.view(xp.uint32), right.view(xp.uint32), factor)


def _launch(kind: str, out: Array, left: Array, right: Array, factor: int) -> None:
    (rows, stride), (n_atoms, words) = out.shape, left.shape
    if words:
        tiles = -(-n_atoms // TILE)
        blocks = sum(BAND * (tiles - band) for band in range(0, tiles, BAND))
        name = f"add_{kind}_{8 * out.dtype.itemsize}"
        launch_blocks(name, blocks, THREADS, out, rows, stride, left, right, n_atoms, words, factor)


def spread(bits: Array, first: int, some: int) -> Array:
    """Return some words of rows of bits as int8 zeros and ones (K, 32 some)."""
    found = array_module(bits).empty((len(bits), some * WARP), dtype="int8")
    launch("spread_bits", len(bits) * some, bits, *bits.shape, first, some, found, found.shape[1])
    return found


def _adds_up(xp: Any, draw: np.random.Generator) -> bool:
    """Tell whether the kernels add known products, of two steps and two tiles, of bits and of bytes."""
    n_atoms, words = TILE + 22, 2 * ROW_WORDS
    kinds = {
        "bits": draw.integers(0, 2**32, (n_atoms, words), dtype=np.uint32),
        "bytes": draw.integers(-128, 128, (n_atoms, 4 * words), dtype=np.int8).view(np.uint32),
    }
    if capability(xp) not in BITS:
        del kinds["bits"]
    for kind, rows in kinds.items():
        numbers = np.unpackbits(rows.view(np.uint8), axis=1) if kind == "bits" else rows.view(np.int8)
        wanted = np.triu(numbers.astype(np.int64) @ numbers.T.astype(np.int64))
        placed, found = xp.asarray(rows), xp.zeros((n_atoms, n_atoms), dtype=xp.int64)
        _launch(kind, found, placed, placed, 1)
        if not np.array_equal(to_host(found), wanted):
            return False
    return True
