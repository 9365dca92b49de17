"""Kernels where offsets pass 2^32, as with 65,536 atoms or long batches: arrays of which few pages are ever touched."""

import math
import mmap

import numpy as np
import pytest

from smtdist.kernels.gpu import source
from smtdist.kernels.gpu.codes import BLOCK_WORDS, halves_of
from smtdist.kernels.gpu.marks import ROW_WORDS
from smtdist.kernels.gpu.tensor import spread

pytestmark = pytest.mark.usefixtures("emulated")
NO_RESERVE = 0x4000  # of Linux: addresses without memory behind them
MOST_ATOMS = 2**16
DRAW = np.random.default_rng(0)


def sparse(dtype, *shape):
    """Return zeros, which take memory where they are written to."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
    return np.frombuffer(mmap.mmap(-1, size, flags), dtype).reshape(shape)


@pytest.mark.parametrize("kind", ["bits", "bytes"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_products_are_added_far_down(kind, dtype):
    """The last of so many rows of sums; those of all 65,536 atoms are as many."""
    atoms, stride = 130, 2**32 // 129 + 1
    rows = DRAW.integers(0, 2**32, (atoms, ROW_WORDS), dtype=np.uint32)
    numbers = np.unpackbits(rows.view(np.uint8), axis=1) if kind == "bits" else rows.view(np.int8)
    out = sparse(dtype, atoms, stride)
    name = f"add_{kind}_{8 * out.dtype.itemsize}"
    source.launch_blocks(name, 32, 128, out, atoms, stride, rows, rows, atoms, ROW_WORDS, 1)
    whole = numbers.astype(np.int64)
    np.testing.assert_array_equal(out[:, :atoms], np.triu(whole @ whole.T))


@pytest.mark.parametrize("name", ["mark_bits", "mark_dots"])
def test_patches_are_marked_at_the_end_of_a_long_batch(name):
    """Words and patches of one image: its last patches have numbers beyond 2^31, their words in later rows beyond 2^32."""
    atoms, pixels, last = 66, 12, 100
    n, first = 2**31 + last, 2**31 // 32
    width = -(-n // 32) + -(-n // 32) % -ROW_WORDS % ROW_WORDS
    bits, constant, counts = sparse(np.uint32, atoms, width), sparse(bool, n), sparse(np.int64, n)
    constant[-7] = True
    patches, rows = (DRAW.integers(-99, 99, (count, pixels)).astype(np.float32) for count in (last, atoms))
    dots = rows @ patches.T
    reached = dots >= 500
    reached[:, -7] = False
    if name == "mark_bits":
        halves = [halves_of(np.ascontiguousarray(one.T)) for one in (patches, rows)]
        source.launch_blocks(
            name, 1, 32 * BLOCK_WORDS, halves[0], 2**31, 1, n, halves[1], atoms, halves[0].shape[2],
            np.int32(500), constant, bits, width, first, counts,
        )  # fmt: skip
        np.testing.assert_array_equal(counts[2**31 :], reached.sum(axis=0))
    else:
        source.launch(
            name, atoms * 4, dots, 2**31, last, 1, n, atoms, np.float32(500), constant, bits, width, first, 4
        )  # fmt: skip
    found = spread(bits, first, 4)
    np.testing.assert_array_equal(found[:, :last], reached)


def test_pixels_of_a_long_batch_are_halved():
    numbers, start = sparse(np.float32, 3, 2**31 + 40), 2**31 + 3
    numbers[:, start:] = DRAW.integers(-4096, 4097, (3, 37))
    found = halves_of(numbers, start, 2**31 + 40).astype(int)
    np.testing.assert_array_equal((128 * found[:, 0] + found[:, 1])[:, :3], numbers[:, start:].T)


def test_lists_name_the_last_of_all_atoms():
    """Bits, counts and an embedding of the last atom, each beyond 2^32 bytes and numbers."""
    last, n = MOST_ATOMS - 1, 2**16 + 2
    ends, lists = np.zeros(n + 1, np.int64), np.array([last], np.uint16)
    ends[-1] = 1  # the last patch has the last atom
    width = 2**17
    bits = sparse(np.uint32, MOST_ATOMS, width)
    source.launch("mark_lists", 2, np.array([0, 0, 1]), lists, 2, bits, width)
    assert bits[last, 0] == 2
    for size in (32, 64):
        counts = sparse(f"int{size}", n, MOST_ATOMS)
        source.launch(f"add_counts_{size}", n, counts, MOST_ATOMS, ends, lists, n, 1)
        assert counts[-1, last] == 1
    components, out = (
        sparse(np.float32, MOST_ATOMS, MOST_ATOMS + 2),
        np.empty((1, MOST_ATOMS + 2), np.float32),
    )
    components[last, -1] = 3
    source.launch("embed_lists", 1, np.array([0, 1]), lists, components, 0, MOST_ATOMS + 2, 1, out)
    assert (out[0, -1], np.count_nonzero(out)) == (1, 1)
