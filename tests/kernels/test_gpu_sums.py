"""Sums on devices, with NumPy in the place of CuPy: the kernels of the source run on the CPU."""

import numpy as np
import pytest
from fake_cupy import install
from kernel_codes import WAYS, check_other_sums, check_ways_to_count, placed, random_codes

from smtdist.kernels import scatter
from smtdist.kernels.gpu import proof, tensor
from smtdist.kernels.gpu import scatter as gpu
from smtdist.kernels.gpu.marks import ROW_WORDS, Marks
from smtdist.kernels.types import Codes


@pytest.mark.parametrize(("atoms", "rows"), [(97, 97), (97, 50), (150, 1), (150, 150)])
@pytest.mark.parametrize("share", [0.01, 0.9])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_second_moment(fake_cupy, monkeypatch, share, atoms, rows, dtype):
    """Two steps of 512 patches, one and two tiles of 128 atoms, pieces of rows and panels."""
    monkeypatch.setattr(tensor, "PANEL", 32)
    monkeypatch.setattr(tensor, "BYTES_WORDS", ROW_WORDS)
    monkeypatch.setattr(tensor, "FLOAT_WORDS", ROW_WORDS)
    codes = random_codes(0, 700, atoms, share)
    start = np.random.default_rng(1).integers(0, 99, (rows, atoms)).astype(dtype)
    check_ways_to_count(codes, start, fake_cupy.asarray, fake_cupy.asnumpy)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_the_other_sums(fake_cupy, monkeypatch, way, dtype):
    monkeypatch.setattr(tensor, "capability", lambda _: WAYS[way])
    codes, images = random_codes(3, 300, 97, 0.1), 2
    rng = np.random.default_rng(4)
    weights = rng.integers(-3, 9, 300) * (rng.random(300) < 0.5)
    check_other_sums(codes, weights, images, dtype, fake_cupy.asarray, fake_cupy.asnumpy)


@pytest.mark.parametrize("most", [1, 127, 128, 2**14, 2**21 - 1])
def test_counts_of_up_to_three_digits(fake_cupy, monkeypatch, most):
    """The largest counts, and more images than one product takes."""
    monkeypatch.setattr(gpu, "MOST_IMAGES", 3)
    counts = np.random.default_rng(most).integers(0, most + 1, (5, 40)).astype(np.int32)
    counts[:, 0] = most
    found, expected = fake_cupy.zeros((40, 40), np.int64), np.triu(counts.T.astype(np.int64) @ counts)
    scatter.add_outer_of(found, fake_cupy.asarray(counts), most=most)
    np.testing.assert_array_equal(fake_cupy.asnumpy(found), expected)
    assert gpu.MOST_IMAGES * 127**2 < 2**31


def test_codes_without_patches(fake_cupy):
    empty = placed(Codes(np.zeros(1, np.int64), np.zeros(0, np.uint16), 5), fake_cupy.asarray)
    out, activity = fake_cupy.zeros((5, 5), np.int32), fake_cupy.zeros(5, np.int64)
    scatter.add_second_moment(out, empty)
    scatter.add_weighted_moment(out, empty, np.zeros(0, np.int64))
    scatter.add_activity(activity, empty)
    assert not out.any()
    assert not activity.any()


@pytest.mark.parametrize(("images", "per_image"), [(1, 70), (3, 1), (3, 33), (2, 300)])
def test_bits_tell_what_lists_tell(fake_cupy, images, per_image):
    """From bits of images: lists, counts, and parts of whole images; an image begins with a word of its own."""
    codes = random_codes(7, images * per_image, 45, 0.2)
    dense = np.zeros((images, 45, -(-per_image // 32) * 32), np.uint8)
    patch = np.repeat(np.arange(codes.n_patches), np.diff(codes.indptr))
    dense[patch // per_image, codes.indices, patch % per_image] = 1
    rows = np.packbits(dense, axis=2, bitorder="little").swapaxes(0, 1).reshape(45, -1)
    words = np.zeros((45, 4 * ROW_WORDS * -(-rows.shape[1] // (4 * ROW_WORDS))), np.uint8)
    words[:, : rows.shape[1]] = rows
    marks = Marks(fake_cupy.asarray(words.view(np.uint32)), images, per_image)
    found = Codes(None, None, 45, marks)
    np.testing.assert_array_equal(fake_cupy.asnumpy(found.indptr), codes.indptr)
    np.testing.assert_array_equal(fake_cupy.asnumpy(found.indices), codes.indices)
    np.testing.assert_array_equal(
        fake_cupy.asnumpy(marks.image_counts()), scatter.image_counts(codes, images)
    )
    last = marks.part((images - 1) * per_image, images * per_image)
    ends = codes.indptr[(images - 1) * per_image :]
    np.testing.assert_array_equal(fake_cupy.asnumpy(last.indptr()), ends - ends[0])
    np.testing.assert_array_equal(fake_cupy.asnumpy(last.lists(last.indptr())), codes.indices[ends[0] :])


@pytest.mark.parametrize("way", ["bits", "bytes"])
def test_a_device_that_does_not_add_up_counts_in_float32(fake_cupy, monkeypatch, caplog, way):
    monkeypatch.setattr(tensor, "capability", lambda _: WAYS[way])
    monkeypatch.setattr(proof, "_found", {})
    right, asked = tensor._launch, []

    def wrong(kind, out, left, *rest):
        asked.append(kind)
        right(kind, out, left, *rest)
        out[0, 0] += 1

    monkeypatch.setattr(tensor, "_launch", wrong)
    codes, found = random_codes(5, 60, 20, 0.3), fake_cupy.zeros((20, 20), np.int64)
    expected = np.zeros((20, 20), np.int64)
    scatter.add_second_moment(expected, codes)
    scatter.add_second_moment(found, placed(codes, fake_cupy.asarray))
    np.testing.assert_array_equal(fake_cupy.asnumpy(found), expected)
    assert asked == [way]
    assert "pairs of atoms are counted in float32" in caplog.text


def test_older_cards_multiply_in_float32(monkeypatch, emulated):
    cupy = install(monkeypatch, capability="75")
    assert proof.capability(cupy) == 75
    assert proof.capability(np) == 0
    monkeypatch.setattr(tensor, "_launch", None)  # kernels that these cards lack
    codes, found = random_codes(5, 60, 20, 0.3), cupy.zeros((20, 20), np.int64)
    expected = np.zeros((20, 20), np.int64)
    scatter.add_second_moment(expected, codes)
    scatter.add_second_moment(found, placed(codes, cupy.asarray))
    np.testing.assert_array_equal(cupy.asnumpy(found), expected)


def test_float32_holds_the_sums_of_a_piece():
    whole = np.float32(2**24)
    assert whole > 32 * tensor.FLOAT_WORDS
    assert whole - np.float32(1) != whole
    assert whole + np.float32(1) == whole, "the next count would be lost"
