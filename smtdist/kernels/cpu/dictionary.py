"""The one place where patches meet atoms: which atoms reach a cut, and which is the nearest, by the body for this processor.

Patches and atoms are whole numbers of length at most 4,096. So every sum of products is below 2^24 and exact both in
float32 (tiles of BLAS products, any machine) and in int32 (pairs of int16, x86-64 with AVX2 or AVX-512): the bits do
not depend on the body. What is no whole number, or longer, is left to float32.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np
from numba.core.registry import cpu_target

from smtdist.errors import ConfigurationError
from smtdist.kernels.cpu import byte_tiles
from smtdist.kernels.cpu import integer_products as integer
from smtdist.kernels.cpu.jit import compiled, reach_mask, score_block
from smtdist.kernels.device import PRODUCTS_VARIABLE
from smtdist.kernels.generic.codes import square_norms
from smtdist.kernels.threads import even_ranges
from smtdist.kernels.types import Array

BODIES = {"int8-amx": "amx-int8", "int16-avx512": "avx512bw", "int16-avx2": "avx2", "float32": ""}
"""Bodies, the fastest first, and the flag of the processor that each needs."""
PACKED: dict[str, type[Any]] = {
    "int8-amx": integer.Atoms512,
    "int16-avx512": integer.Atoms512,
    "int16-avx2": integer.Atoms256,
}
"""How the bodies in int16 take atoms; that of AMX, too, for all but patches at a cut."""
SHOWN_FLAGS = ("avx2", "avxvnni", "avx512bw", "avx512vnni", "avx512vbmi2", "amx-int8", "neon")
TILED_PIXELS = 48
"""Patches of fewer pixels would leave too much of a tile empty."""

TILE_PATCHES = 768
TILE_ATOMS = 256
"""A tile of 0.75 MiB: larger than leaves room in a cache of 1 MiB, but BLAS packs the atoms less often; 5 % faster than 512."""
LARGEST = 1 << 24
"""No product of a patch and an atom is larger."""
FAR = 1 << 30
"""Norm of the atoms that pad a tile: their score is below every other."""


@functools.cache
def processor_flags() -> list[str]:
    """Return which of the flags that kernels ask for this processor has, as Numba compiles for it."""
    features = cpu_target.target_context.codegen().magic_tuple()[2].split(",")
    return [flag for flag in SHOWN_FLAGS if f"+{flag}" in features]


def body() -> str:
    """Return the name of the body in use: what SMTDIST_PRODUCTS names, or the fastest that this processor has.

    Raises ConfigurationError where the variable names none, or one that this processor cannot run.
    """
    flags = ["", *processor_flags()]
    able = [name for name, flag in BODIES.items() if flag in flags]
    if able[0] == "int8-amx" and not byte_tiles.allowed():
        del able[0]
    asked = os.environ.get(PRODUCTS_VARIABLE) or able[0]
    if asked not in able:
        raise ConfigurationError(
            f"{PRODUCTS_VARIABLE} is {asked!r}; this processor can use {', '.join(able)}. Name one of them, or unset it."
        )
    return asked


def has_bytes() -> bool:
    """Tell whether products of bytes can be used beside the body in use: AVX-512 with VNNI."""
    return PACKED.get(body()) is integer.Atoms512 and "avx512vnni" in processor_flags()


def in_use() -> dict[str, Any]:
    """Return what plans, `info` and records of benchmarks say of it: `products`, the body, and `cpu_flags`."""
    return {"products": body(), "cpu_flags": processor_flags()}


class Dictionary(NamedTuple):
    """Atoms float32 (K, p) on the grid: packed as pairs, or else column by column, which BLAS takes faster.

    tiles : the same in bytes, where AMX tells which of them reach a cut.
    """

    atoms: Array
    packed: integer.PackedAtoms | None
    tiles: Array | None = None

    def first(self, n_atoms: int) -> Self:
        """Return the dictionary of the first atoms, a view."""
        if self.packed is None:
            return self._replace(atoms=self.atoms[:n_atoms])
        panels = -(-n_atoms // self.packed.pairs.shape[2])
        packed = self.packed._replace(pairs=self.packed.pairs[:panels])
        # tiles are for all atoms: the longest dictionary alone is compared
        tiles = self.tiles if n_atoms == len(self.atoms) else None
        return self._replace(atoms=self.atoms[:n_atoms], packed=packed, tiles=tiles)


def dictionary_of(atoms: Array, at_cut: bool = False) -> Dictionary:
    """Return atoms (K, p) made ready for the body in use; `at_cut` says that it will be asked which reach a cut.

    Memory: 2 K p bytes, and for AMX 3 K p in whole tiles; or 4 K p for float32.
    """
    kind = PACKED.get(body())
    whole = np.array_equal(np.trunc(atoms), atoms) and int(square_norms(atoms).max()) <= LARGEST
    if kind is None or not whole:
        return Dictionary(np.asfortranarray(atoms), None)
    tiled = at_cut and body() == "int8-amx" and atoms.shape[1] >= TILED_PIXELS
    tiles = byte_tiles.packed_atoms(atoms) if tiled else None
    return Dictionary(atoms, kind(integer.pack_atoms(atoms, integer.FORMS[kind].panel)), tiles)


def packed_patches(grid: Array, factor: int) -> Array | None:
    """Return patches (p, N) times a factor as pairs, or None where int32 need not hold their products exactly.

    Memory: 2 p bytes a patch.
    """
    pixels, count = grid.shape
    width = integer.BLOCK_PATCHES
    pairs = np.empty((-(-count // width), -(-pixels // 2), width), np.int32)
    room = np.empty(width, np.float32), np.empty(width, np.float32)
    return pairs if integer.pack_patches(np.ascontiguousarray(grid), factor, room, pairs) else None


def mark_reaching(grid: Array, dictionary: Dictionary, cuts: list[int], bits: Array, first: int) -> None:
    """Write which atoms reach each cut to bits (cuts, blocks, rows, words), patch 0 in row `first` of every block.

    Bits behind the last atom, up to the end of its word, are left undefined. Memory: `packed_patches`, or a
    tile of 0.75 MiB.
    """
    bounds = np.clip(cuts, -(2**31), 2**31 - 1).astype(np.int32)
    tiles = None if dictionary.tiles is None else byte_tiles.packed_patches(grid)
    if tiles is not None:
        byte_tiles.mark_reaching(grid.shape, tiles, dictionary.tiles, bounds, bits, first)
        return
    pairs = None if dictionary.packed is None else packed_patches(grid, 1)
    if pairs is not None:
        integer.mark_panels(dictionary.packed, pairs, grid.shape[1], bounds, bits, first)
        return
    tile = new_tile(len(dictionary.atoms))
    for start, stop, low, high in product_tiles(grid, dictionary.atoms, tile):
        block, word = divmod(low // 64, bits.shape[3])
        for cut, marked in zip(cuts, bits, strict=True):
            bound = np.float32(cut if cut <= LARGEST else np.inf)  # the next integer is none in float32
            scan_tile(tile, high - low, bound, marked[block, first + start : first + stop], word)


def scoring_norms(atoms: Array, euclidean: bool) -> Array:
    """Return what `best_atoms` takes off twice a dot product, int32, padded with `FAR`."""
    norms = np.full(-(-len(atoms) // TILE_ATOMS) * TILE_ATOMS, FAR, np.int32)
    norms[: len(atoms)] = square_norms(atoms) if euclidean else 0
    return norms


def best_atoms(grid: Array, dictionary: Dictionary, norms: Array) -> tuple[Array, Array]:
    """Return the first atom of the largest 2 x dot - norm, int32 (N,), and its dot float32 (N,), on the calling thread.

    norms : of `scoring_norms`. Memory: as `mark_reaching`.
    """
    n = grid.shape[1]
    labels, scores = np.zeros(n, np.int32), np.full(n, -(2**31), np.int32)
    pairs = None if dictionary.packed is None else packed_patches(grid, 2)
    if pairs is not None:
        integer.best_in_panels(dictionary.packed, pairs, n, -norms, labels, scores)
        return labels, ((scores + norms[labels]) >> 1).astype(np.float32)
    dots = np.zeros(n, np.float32)
    tile = new_tile(len(dictionary.atoms))
    for start, stop, low, _ in product_tiles(grid, dictionary.atoms, tile):
        scan_scores(tile, norms, low, scores[start:stop], labels[start:stop], dots[start:stop])
    return labels, dots


@compiled
def scan_tile(tile: Array, width: int, cut: np.float32, bits: Array, word: int) -> None:
    """Set bits[i, word:] where the tile reaches `cut`."""
    flat = tile.reshape(-1)
    stride = tile.shape[1]
    for patch in range(bits.shape[0]):
        for part in range((width + 63) // 64):
            bits[patch, word + part] = reach_mask(flat, patch * stride + 64 * part, cut)


@compiled
def scan_scores(tile: Array, norms: Array, first: int, scores: Array, labels: Array, dots: Array) -> None:
    """Keep the best score 2 x dot - norm of every patch, its lowest atom and its dot product."""
    flat = tile.reshape(-1)
    stride = tile.shape[1]
    lanes = np.empty(16, np.int32)
    for patch in range(len(scores)):
        lanes[:] = np.int32(-(2**31))
        for part in range(stride // 64):
            score_block(flat, patch * stride + 64 * part, norms, first + 64 * part, lanes)
        best = lanes.max()
        if best > scores[patch]:
            scores[patch] = best
            atom = 0
            while 2 * np.int32(tile[patch, atom]) - norms[first + atom] != best:
                atom += 1
            labels[patch] = first + atom
            dots[patch] = tile[patch, atom]


def product_tiles(grid: Array, atoms: Array, tile: Array) -> Iterator[tuple[int, int, int, int]]:
    """Fill `tile` with the dot products of one block after another; yield its patches and atoms (start, stop)."""
    for start, stop in even_ranges(grid.shape[1], TILE_PATCHES):
        patches = grid[:, start:stop].T
        for low, high in even_ranges(len(atoms), TILE_ATOMS):
            np.matmul(patches, atoms[low:high].T, out=tile[: stop - start, : high - low])
            yield start, stop, low, high


def new_tile(n_atoms: int) -> Array:
    """Return an empty tile, narrow where there are few atoms; a multiple of 64 wide."""
    return np.zeros((TILE_PATCHES, min(TILE_ATOMS, -(-n_atoms // 64) * 64)), np.float32)
