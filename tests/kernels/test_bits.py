"""Lists by atom from transposed bits are those of a counting sort, and both lead to the same second moments."""

import numpy as np
import pytest

from smtdist.kernels import scatter, threads
from smtdist.kernels.cpu import bits, jit, moment
from smtdist.kernels.generic import scatter as plain_scatter
from smtdist.kernels.types import Codes


@pytest.fixture(params=[1, 2], autouse=True)
def thread_count(request):
    before = threads.threads()
    threads.set_threads(request.param)
    yield request.param
    threads.set_threads(before)


def drawn_codes(n, k, share, seed=0):
    active = np.random.default_rng(seed).random((n, k)) < share
    indptr = np.concatenate([[0], np.cumsum(active.sum(axis=1))]).astype(np.int64)
    return Codes(indptr, np.nonzero(active)[1].astype(np.uint16), k)


def test_transposes_eight_matrices():
    rows = np.random.default_rng(0).integers(0, 2, (8, 64, 64), dtype=np.uint8)

    def packed(matrices):
        words = np.packbits(matrices, axis=2, bitorder="little").view("<u8")[..., 0]
        return np.ascontiguousarray(words.T).reshape(-1)

    tile = packed(rows)
    bits.transpose_tiles(tile)
    np.testing.assert_array_equal(tile, packed(rows.swapaxes(1, 2)))


@pytest.mark.parametrize("share", [0.003, 0.1, 0.6, 1.0])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (63, 64), (65, 513), (333, 600), (700, 1030)])
def test_lists_from_bits_are_those_of_a_counting_sort(n, k, share):
    codes = drawn_codes(n, k, share)
    words, n_rows = moment.bit_rows(codes)
    bounds = threads.even_ranges(n, 150)
    starts, counts, offsets = bits.rows_from_bits(words, n_rows, k, bounds, len(codes.indices))
    cuts, members = moment.by_atom_and_part(codes, 150)
    np.testing.assert_array_equal(counts, np.diff(cuts, axis=0))
    for part in range(len(bounds)):
        for atom in range(k):
            there = slice(starts[part, atom], starts[part, atom] + counts[part, atom])
            expected = members[cuts[part, atom] : cuts[part + 1, atom]] * jit.BLOCK_WORDS
            np.testing.assert_array_equal(offsets[there], expected)


@pytest.mark.parametrize("share", [0.0005, 0.004, 0.01, 0.3])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_second_moment_by_either_way(share, dtype, monkeypatch):
    """Densities on both sides of where the way changes; runs and parts that do not divide the patches."""
    monkeypatch.setattr(moment, "RUN_PATCHES", 700)
    monkeypatch.setattr(moment, "PART_PATCHES", 130)
    codes = drawn_codes(1500, 700, share, seed=3)
    fast, slow = np.ones((700, 700), dtype), np.ones((700, 700), dtype)
    scatter.add_second_moment(fast, codes)
    plain_scatter.add_second_moment(slow, codes)
    np.testing.assert_array_equal(fast, slow)


def test_bit_rows_begin_with_a_line_of_the_cache():
    for count in (8, 4096, 70_000):
        words = moment.zero_words(count)
        assert (words.ctypes.data % 64, len(words), words.any()) == (0, count, False)


def test_activity_on_threads():
    codes = drawn_codes(5000, 70, 0.2)
    out = np.ones(70, np.int64)
    scatter.add_activity(out, codes)
    np.testing.assert_array_equal(out, 1 + np.bincount(codes.indices, minlength=70))
