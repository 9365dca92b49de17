"""Lists by atom from transposed bits are those of a counting sort, and both lead to the same second moments."""

import numpy as np
import plain_bodies
import pytest
from coded import codes_of

from smtdist.kernels import scatter, threads
from smtdist.kernels.cpu import bits, jit, marked, moment
from smtdist.kernels.types import Codes

pytestmark = pytest.mark.usefixtures("thread_count")


def drawn_codes(n, k, share, seed=0):
    return codes_of(np.random.default_rng(seed).random((n, k)) < share)


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
    bounds = threads.even_ranges(n, 150)
    rows = marked.bit_rows(codes)
    starts, counts, offsets = bits.rows_from_bits(rows, k, bounds, codes.entries)
    cuts, members = moment.by_atom_and_part(codes, 150)
    np.testing.assert_array_equal(counts, np.diff(cuts, axis=0))
    for part in range(len(bounds)):
        for atom in range(k):
            there = slice(starts[part, atom], starts[part, atom] + counts[part, atom])
            np.testing.assert_array_equal(offsets[there], members[cuts[part, atom] : cuts[part + 1, atom]])


@pytest.mark.parametrize("share", [0.0005, 0.004, 0.01, 0.3])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_second_moment_by_either_way(share, dtype, monkeypatch):
    """Densities on both sides of where the way changes; runs and parts that do not divide the patches."""
    monkeypatch.setattr(moment, "RUN_PATCHES", 700)
    monkeypatch.setattr(moment, "PART_PATCHES", 130)
    codes = drawn_codes(1500, 700, share, seed=3)
    kept_as_bits = Codes(codes.indptr, None, 700, marked.bit_rows(codes))
    slow = np.ones((700, 700), dtype)
    plain_bodies.add_second_moment(slow, codes)
    for one in (codes, kept_as_bits):
        fast = np.ones((700, 700), dtype)
        scatter.add_second_moment(fast, one)
        np.testing.assert_array_equal(fast, slow)


@pytest.mark.parametrize("share", [0.0, 0.004, 0.3, 1.0])
@pytest.mark.parametrize("k", [1, 64, 513])
def test_codes_kept_as_bits_are_the_codes(k, share):
    """Their lists, parts, activity and counts by image, whatever lies around a part."""
    codes = drawn_codes(900, k, share, seed=1)
    kept = Codes(codes.indptr, None, k, marked.bit_rows(codes))
    for start, stop in ((0, 900), (300, 600), (899, 900)):
        part, of_lists = marked.part_of(kept, start, stop), marked.part_of(codes, start, stop)
        assert part.bits is not None
        images = 3 if stop - start > 3 else 1
        np.testing.assert_array_equal(
            scatter.image_counts(part, images), plain_bodies.image_counts(of_lists, images)
        )
        activity = np.zeros(k, np.int64)
        scatter.add_activity(activity, part)
        np.testing.assert_array_equal(activity, np.bincount(of_lists.indices, minlength=k))
        np.testing.assert_array_equal(part.indptr, of_lists.indptr)
        np.testing.assert_array_equal(part.indices, of_lists.indices)
        assert part.entries == len(of_lists.indices)


def test_set_bits_are_written_in_order_with_and_without_packing():
    rng = np.random.default_rng(0)
    for word in (0, 1, 1 << 63, 2**64 - 1, *(int(one) for one in rng.integers(0, 2**63, 50))):
        expected = [1000 + 8 * bit for bit in range(64) if word >> bit & 1]
        for write in (jit.write_set_bits, jit.write_one_by_one):
            out = np.zeros(200, np.uint16)
            write(out, 5, np.uint64(word), 1000, 8)
            assert out[5 : 5 + len(expected)].tolist() == expected
            assert not out[:5].any()
            assert not out[69:].any()


def test_bit_rows_begin_with_a_line_of_the_cache():
    for count in (8, 4096, 70_000):
        words = jit.on_a_line(count, np.uint64)
        assert (words.ctypes.data % 64, len(words), words.any()) == (0, count, False)


def test_activity_on_threads():
    codes = drawn_codes(5000, 70, 0.2)
    out = np.ones(70, np.int64)
    scatter.add_activity(out, codes)
    np.testing.assert_array_equal(out, 1 + np.bincount(codes.indices, minlength=70))
