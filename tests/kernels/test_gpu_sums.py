"""Bodies for devices, with NumPy in the place of CuPy: kernels run on the CPU, products go through cuBLAS's conventions."""

import numpy as np
import pytest
from fake_cupy import install
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_codes import check_other_sums, check_ways_to_count, placed, random_codes

from smtdist.kernels import scatter
from smtdist.kernels.gpu import choice, tensor
from smtdist.kernels.gpu import scatter as gpu
from smtdist.kernels.types import Codes


@pytest.mark.parametrize("share", [0.01, 0.2, 0.9])
@pytest.mark.parametrize("rows", [1, 50, 97])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_second_moment(fake_cupy, monkeypatch, share, rows, dtype):
    monkeypatch.setattr(tensor, "PANEL", 32)
    monkeypatch.setattr(tensor, "DENSE_BYTES", 112 * 128)
    codes = random_codes(0, 300, 97, share)
    start = np.random.default_rng(1).integers(0, 99, (rows, 97)).astype(dtype)
    check_ways_to_count(codes, start, fake_cupy.asarray, fake_cupy.asnumpy)
    products = [what for _, what in fake_cupy.log].count("gemmEx")
    assert products in (n * 3 * -(-rows // 32) for n in (1, 2)), "blocks of 128 patches, panels of 32 rows"


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_the_other_sums(fake_cupy, monkeypatch, sparse, dtype):
    monkeypatch.setattr(choice, "sparse_is_cheaper", lambda *_: sparse)
    codes, images = random_codes(3, 300, 97, 0.1), 6
    rng = np.random.default_rng(4)
    weights = rng.integers(-3, 9, 300) * (rng.random(300) < 0.5)
    check_other_sums(codes, weights, images, dtype, fake_cupy.asarray, fake_cupy.asnumpy)


def test_codes_without_patches(fake_cupy):
    empty = placed(Codes(np.zeros(1, np.int64), np.zeros(0, np.uint16), 5), fake_cupy.asarray)
    out, activity = fake_cupy.zeros((5, 5), np.int32), fake_cupy.zeros(5, np.int64)
    scatter.add_second_moment(out, empty)
    tensor.add_products(out, empty)
    scatter.add_activity(activity, empty)
    assert not out.any()
    assert not activity.any()


def test_older_cards_multiply_in_float32(monkeypatch, emulated):
    cupy = install(monkeypatch, capability="70")
    codes, found = random_codes(5, 60, 20, 0.3), cupy.zeros((20, 20), np.int64)
    expected = np.zeros((20, 20), np.int64)
    scatter.add_second_moment(expected, codes)
    tensor.add_products(found, placed(codes, cupy.asarray))
    np.testing.assert_array_equal(cupy.asnumpy(found), expected)
    assert "gemmEx" not in [what for _, what in cupy.log]


@given(st.integers(1, 10**9), st.integers(1, 65536), st.integers(1, 2**31), st.integers(1, 2**33))
def test_no_sum_of_a_block_passes_its_accumulator(n_patches, n_atoms, limit, size):
    """A count of a block is at most its patches, so these may not pass the limit; nor may its bytes, down to one step."""
    block = tensor.block_patches(n_patches, n_atoms, limit, size)
    assert 1 <= block <= min(n_patches, limit)
    taken = tensor.aligned(block) * tensor.aligned(n_atoms)
    assert taken <= max(size, tensor.ALIGNED * tensor.aligned(n_atoms))


@given(st.integers(0, 3000), st.integers(1, 400))
def test_blocks_are_all_patches_once_in_order(n_patches, block):
    found = list(tensor.blocks(n_patches, block))
    assert [i for start, stop in found for i in range(start, stop)] == list(range(n_patches))
    assert all(stop - start <= block for start, stop in found)


@given(st.integers(1, 60), st.integers(0, 60), st.integers(1, 70))
def test_panels_hold_each_pair_of_the_upper_triangle(rows, more, panel):
    columns = rows + more
    covered = np.zeros((rows, columns), int)
    for first, last in tensor.panels(rows, panel):
        covered[first:last, first:] += 1
    assert (covered[np.triu_indices(rows, m=columns)] == 1).all()
    assert covered.max() == 1
    assert choice.area(columns, rows, panel) == covered.sum()


@settings(deadline=None)
@given(
    st.integers(0, 2**32), st.integers(1, 90), st.integers(1, 40), st.integers(1, 40),
    st.sampled_from([1, 3, 7]), st.integers(1, 20), st.sampled_from([np.int32, np.int64]),
)  # fmt: skip
def test_the_guard_holds_for_accumulators_of_few_bits(seed, n, n_atoms, rows, bits, panel, dtype):
    """An accumulator that wraps beyond what it holds gives the right sums, as all products end before that."""
    codes, limit = random_codes(seed, n, n_atoms, 0.6), 2**bits - 1
    narrow = tensor.Product(_wrapping(limit), limit, 1.0, 1)
    rows = min(rows, n_atoms)
    found, expected = np.full((rows, n_atoms), 4, dtype), np.full((rows, n_atoms), 4, dtype)
    scatter.add_second_moment(expected, codes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensor, "PANEL", panel)
        tensor.add_products(found, codes, narrow)
    np.testing.assert_array_equal(found, expected)


def _wrapping(limit):
    """Return a product whose sums keep the bits of `limit` alone."""
    return lambda left, right: (left.astype(np.int32) @ right.astype(np.int32).T) & limit


@pytest.mark.parametrize("limit", [1, 7, 127])
def test_sums_would_be_wrong_without_the_guard(limit):
    n = 2 * limit  # patches, each with every atom: all counts are n
    codes = Codes(5 * np.arange(n + 1, dtype=np.int64), np.tile(np.arange(5, dtype=np.uint16), n), 5)
    found, wrong = np.zeros((5, 5), np.int64), np.zeros((5, 5), np.int64)
    tensor.add_products(found, codes, tensor.Product(_wrapping(limit), limit, 1.0, 1))
    assert (found[np.triu_indices(5)] == n).all()
    tensor.add_products(wrong, codes, tensor.Product(_wrapping(limit), n, 1.0, 1))
    assert (wrong[np.triu_indices(5)] == n & limit).all()


def test_limits_are_what_accumulators_hold(monkeypatch):
    cupy = install(monkeypatch)
    assert tensor.product_of(cupy).limit == np.iinfo(np.int32).max
    whole = np.float32(tensor.product_of(np).limit)
    assert whole - np.float32(1) != whole
    assert whole + np.float32(1) == whole, "the next count would be lost"


class TestChoice:
    """The cost model: arithmetic on the density, never on results."""

    def work(self, active, atoms=8192, patches=32768, rows=None):
        pairs = patches * active * (active + 1) // 2
        return choice.Work(patches, atoms, rows or atoms, pairs)

    def sparse(self, work):
        block = tensor.block_patches(work.patches, work.atoms, 2**31 - 1)
        return choice.sparse_is_cheaper(work, choice.INT8_OPERATIONS, block, tensor.PANEL)

    @given(st.integers(1, 65536), st.integers(1, 10**6), st.integers(0, 400), st.integers(1, 400))
    def test_denser_codes_never_turn_to_additions(self, atoms, patches, active, more):
        few, many = (self.work(min(n, atoms), atoms, patches) for n in (active, active + more))
        assert self.sparse(few) or not self.sparse(many)

    def test_by_density(self):
        assert self.sparse(self.work(0))
        assert self.sparse(self.work(20))
        assert not self.sparse(self.work(208)), "CIFAR-10 at t = 0.3"
        assert not self.sparse(self.work(65536, 65536, 100))

    def test_costs_are_what_is_counted(self):
        work = self.work(10, 4, 2)
        assert choice.sparse_seconds(work) == 2 * 55 / choice.ATOMICS_NEAR
        large = self.work(10)
        assert choice.sparse_seconds(large) == large.pairs / choice.ATOMICS_FAR
        moved = 2 * 4 + 24 * 2 * 16
        assert choice.dense_seconds(work, 1e9, 1, 4) == 2 * 2 * 16 / 1e9 + moved / choice.BYTES

    def test_patches_without_weight_cost_nothing(self):
        codes = random_codes(0, 50, 20, 0.5)
        weights = np.zeros(50, np.int64)
        out = np.zeros((20, 20), np.int64)
        assert gpu.counted_work(out, codes, weights) == choice.Work(50, 20, 20, 0, 8)
        lengths = np.diff(codes.indptr)
        assert gpu.counted_work(out, codes).pairs == (lengths * (lengths + 1) // 2).sum()

    def test_either_way_is_taken_by_cost(self, fake_cupy, monkeypatch):
        asked = []
        monkeypatch.setattr(gpu, "launch", lambda name, *_: asked.append(name))
        monkeypatch.setattr(gpu.tensor, "add_products", lambda *_: asked.append("products"))
        out = fake_cupy.zeros((50, 50), np.int32)
        for share in (0.01, 0.9):
            scatter.add_second_moment(out, placed(random_codes(0, 3000, 50, share), fake_cupy.asarray))
        assert asked == ["add_pairs_32", "products"]
