"""Every body for products of patches and atoms returns the same bits, at the limits of the grid too."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smtdist.errors import ConfigurationError
from smtdist.kernels import codes, scatter
from smtdist.kernels.cpu import byte_tiles, dictionary, integer_products
from smtdist.kernels.device import PRODUCTS_VARIABLE
from smtdist.kernels.generic import codes as plain

LONGEST = 4096
HERE = [
    name for name, flag in dictionary.BODIES.items() if not flag or flag in dictionary.processor_flags()
]


@pytest.fixture(params=HERE)
def body(request, monkeypatch):
    monkeypatch.setenv(PRODUCTS_VARIABLE, request.param)
    return request.param


def vectors(draw, count, pixels):
    """Whole numbers of norm at most 4,096: short ones, single pixels of the greatest value, copies, zeros."""
    found = draw.standard_normal((count, pixels))
    found *= draw.uniform(0, LONGEST, (count, 1)) / np.linalg.norm(found, axis=1, keepdims=True)
    found = np.trunc(found)
    alone = np.zeros((count, pixels))
    alone[np.arange(count), draw.integers(0, pixels, count)] = draw.choice([-LONGEST, LONGEST], count)
    kind = draw.integers(0, 5, (count, 1))
    found = np.where(kind == 0, alone, np.where(kind == 1, 0, found))
    found[draw.random(count) < 0.2] = found[:1]
    return found.astype(np.float32)


SIZES = st.one_of(st.integers(1, 20), st.sampled_from([63, 64, 65, 191, 193, 300, 515]))
CASES = given(st.integers(0, 2**16), st.one_of(st.just(0), SIZES), SIZES, st.integers(1, 9))


def each_body(work):
    """Return what `work` returns with every body that this processor has."""
    with pytest.MonkeyPatch.context() as patch:
        for name in HERE:
            patch.setenv(PRODUCTS_VARIABLE, name)
            yield name, work()


@settings(deadline=None, max_examples=25)
@CASES
def test_atoms_that_reach_a_cut(seed, n, k, p):
    draw = np.random.default_rng(seed)
    grid, atoms = np.ascontiguousarray(vectors(draw, n, p).T), vectors(draw, k, p)
    dots = grid.T.astype(np.int64) @ atoms.T.astype(np.int64)
    score = int(draw.choice(dots.reshape(-1))) if n else 5
    cuts = [
        score,
        score + 1,
        -(2**24),
        2**24,
    ]  # a score itself, the next, all atoms, and those equal to a longest patch

    def marked():
        bits = np.zeros((len(cuts), -(-k // 512), n + 1, 8), np.uint64)
        dictionary.mark_reaching(grid, dictionary.dictionary_of(atoms), cuts, bits, 1)
        assert not bits[:, :, 0].any()
        return np.ascontiguousarray(bits[:, :, 1:].transpose(0, 2, 1, 3))

    for name, bits in each_body(marked):
        lists = np.unpackbits(
            bits.view(np.uint8).reshape(len(cuts), n, -(-k // 512) * 64), axis=-1, bitorder="little"
        )
        for cut, own in zip(cuts, lists, strict=True):
            np.testing.assert_array_equal(own[:, :k], dots >= cut, err_msg=name)


@settings(deadline=None, max_examples=25)
@CASES
def test_the_nearest_atom(seed, n, k, p):
    draw = np.random.default_rng(seed)
    grid, atoms = np.ascontiguousarray(vectors(draw, n, p).T), vectors(draw, k, p)
    for euclidean in (False, True):
        labels, dots = plain.nearest_atoms(grid, atoms, euclidean)
        for name, found in each_body(
            lambda euclidean=euclidean: codes.nearest_atoms(grid, atoms, euclidean)
        ):
            np.testing.assert_array_equal(found[0], labels, err_msg=name, strict=True)
            np.testing.assert_array_equal(found[1], dots, err_msg=name, strict=True)


def test_the_first_atoms_of_a_dictionary(body):
    draw = np.random.default_rng(0)
    atoms, grid = vectors(draw, 150, 5), np.ascontiguousarray(vectors(draw, 30, 5).T)
    for count in (1, 64, 70, 150):
        few = dictionary.dictionary_of(atoms).first(count)
        labels, _ = dictionary.best_atoms(grid, few, dictionary.scoring_norms(few.atoms, True))
        np.testing.assert_array_equal(labels, plain.nearest_atoms(grid, atoms[:count], True)[0])


@pytest.mark.parametrize("wrong", [0.5, 4097.0])
def test_what_int32_need_not_hold_is_left_to_float32(wrong):
    atoms, grid = np.eye(3, dtype=np.float32), np.eye(3, dtype=np.float32)
    grid[1, 2] = wrong
    assert dictionary.packed_patches(grid, 1) is None
    known = dictionary.dictionary_of(np.ascontiguousarray(grid.T))
    assert known.packed is None
    bits = np.zeros((1, 1, 3, 1), np.uint64)
    dictionary.mark_reaching(grid, dictionary.dictionary_of(atoms), [1], bits, 0)
    assert bits.reshape(-1).tolist() == [1, 2, 6 if wrong > 1 else 4]


def test_a_body_is_chosen_by_name(body):
    assert dictionary.body() == body
    packed = dictionary.dictionary_of(np.ones((3, 3), np.float32)).packed
    assert (packed is None) == (body == "float32")
    assert dictionary.in_use()["products"] == body


def test_the_fastest_is_used_and_names_that_there_are_not_are_refused(monkeypatch):
    monkeypatch.delenv(PRODUCTS_VARIABLE, raising=False)
    assert dictionary.body() == HERE[0]
    monkeypatch.setenv(PRODUCTS_VARIABLE, "int8")
    with pytest.raises(
        ConfigurationError, match=r"SMTDIST_PRODUCTS is 'int8'; this processor can use .*float32"
    ):
        dictionary.body()


@pytest.mark.parametrize("body", [name for name in HERE if name != "float32"])
@pytest.mark.parametrize(("rows", "n_atoms", "images"), [(64, 64, 1), (448, 448, 7), (100, 320, 250)])
def test_outer_products_of_counts_leave_the_lower_triangle_alone(rows, n_atoms, images, body, monkeypatch):
    monkeypatch.setenv(PRODUCTS_VARIABLE, body)
    rng = np.random.default_rng(rows)
    counts = rng.integers(0, 700, (images, n_atoms)).astype(np.int32)
    counts[0, :3] = 32767 if images == 1 else 900
    start = rng.integers(-50, 50, (rows, n_atoms)).astype(np.int32)
    out = start.copy()
    taken = []
    plain = integer_products.add_outer
    monkeypatch.setattr(integer_products, "add_outer", lambda *given: (taken.append(1), plain(*given)))
    scatter.add_outer_of(out, counts)
    wide = counts.astype(np.int64)
    assert np.array_equal(np.triu(out), np.triu(start + (wide.T @ wide)[:rows]))
    assert np.array_equal(np.tril(out, -1), np.tril(start, -1))
    assert taken
    taken.clear()
    counts[0, 0] = 32768  # beyond int16
    scatter.add_outer_of(start.astype(np.int64), counts)
    scatter.add_outer_of(start.copy(), counts)
    assert not taken


needs_amx = pytest.mark.skipif(
    "int8-amx" not in dictionary.BODIES
    or "amx-int8" not in dictionary.processor_flags()
    or not byte_tiles.allowed(),
    reason="needs AMX with int8",
)
PIXELS = st.sampled_from([1, 9, 48, 63, 64, 65, 108, 129])


def in_tiles(atoms):
    return dictionary.dictionary_of(atoms)._replace(tiles=byte_tiles.packed_atoms(atoms))


@needs_amx
@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**16), st.integers(1, 500), st.integers(1, 700), PIXELS)
def test_tiles_of_bytes_find_the_atoms_that_reach_a_cut(seed, n, k, p):
    draw = np.random.default_rng(seed)
    grid, atoms = np.ascontiguousarray(vectors(draw, n, p).T), vectors(draw, k, p)
    dots = grid.T.astype(np.int64) @ atoms.T.astype(np.int64)
    score = int(draw.choice(dots.reshape(-1)))
    cuts = [score, score + 1, 0, -(2**24), 2**24, 2**24 + 1, 2**33]
    for words in (8, -(-k // 64)):  # blocks of 512 atoms, and one block of all
        blocks = -(-k // (64 * words))
        bits = np.zeros((len(cuts), blocks, n + 2, words), np.uint64)
        dictionary.mark_reaching(grid, in_tiles(atoms), cuts, bits, 1)
        assert not bits[:, :, 0].any()
        assert not bits[:, :, n + 1].any()
        marked = np.unpackbits(bits[:, :, 1 : n + 1].view(np.uint8), axis=3, bitorder="little")
        marked = marked.transpose(0, 2, 1, 3).reshape(len(cuts), n, -1)[:, :, :k]
        np.testing.assert_array_equal(marked, dots >= np.array(cuts)[:, None, None])


@needs_amx
@pytest.mark.parametrize("wrong", [0.5, 4097.0])
def test_tiles_leave_what_is_no_whole_number_or_too_long_to_others(wrong):
    grid = np.zeros((50, 33), np.float32)
    grid[49, 32] = wrong
    assert byte_tiles.packed_patches(grid) is None
    atoms = np.eye(50, dtype=np.float32)
    bits = np.zeros((1, 1, 33, 8), np.uint64)
    dictionary.mark_reaching(grid, in_tiles(atoms), [int(np.ceil(wrong))], bits, 0)
    assert not bits[0, 0, :32].any()
    assert bool(bits[0, 0, 32, 0] >> np.uint64(49) & np.uint64(1)) == (wrong > 1)


@needs_amx
def test_patches_of_many_pixels_are_compared_in_tiles(monkeypatch):
    draw = np.random.default_rng(0)
    grid, atoms = np.ascontiguousarray(vectors(draw, 3000, 108).T), vectors(draw, 600, 108)
    constant = np.zeros(3000, bool)
    given = grid, atoms, 2**22, constant, "leave_out", "activate_best"
    called = []
    monkeypatch.setattr(
        byte_tiles,
        "mark_reaching",
        lambda *given, real=byte_tiles.mark_reaching: (called.append(1), real(*given)),
    )
    found = codes.gq_codes(*given)
    assert called
    monkeypatch.setenv(PRODUCTS_VARIABLE, "int16-avx512")
    called.clear()
    plain = codes.gq_codes(*given)
    assert not called
    for name in ("indptr", "indices"):
        np.testing.assert_array_equal(getattr(found, name), getattr(plain, name))
    assert dictionary.dictionary_of(atoms, at_cut=True).tiles is None
    monkeypatch.delenv(PRODUCTS_VARIABLE)
    assert dictionary.dictionary_of(atoms, at_cut=True).tiles is not None
    assert dictionary.dictionary_of(atoms).tiles is None
    assert dictionary.dictionary_of(atoms[:, :36].copy(), at_cut=True).tiles is None


@needs_amx
def test_tiles_of_no_patch_mark_nothing():
    bits = np.zeros((1, 1, 1, 8), np.uint64)
    dictionary.mark_reaching(
        np.zeros((108, 0), np.float32), in_tiles(np.ones((64, 108), np.float32)), [5], bits, 0
    )
    assert not bits.any()


@needs_amx
def test_a_process_that_may_not_use_tiles_does_without(monkeypatch):
    monkeypatch.setattr(byte_tiles, "allowed", lambda: False)
    assert dictionary.body() == "int16-avx512"
