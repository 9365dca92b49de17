"""The compiled CPU bodies return what the plain bodies return, with one thread and with two."""

import pickle

import numpy as np
import plain_bodies
import pytest
from coded import encode, random_codes, same_sums, whole_second_order

from smtdist.errors import ConfigurationError
from smtdist.kernels import codes, memory, patches, pixels, representation, scatter, whitening
from smtdist.kernels.context import add_second_order, add_window_cooccurrence, kept_mask
from smtdist.kernels.cpu.table import columns_of, table_of
from smtdist.kernels.generic import codes as plain_codes
from smtdist.kernels.generic import context as plain_context
from smtdist.kernels.generic import scatter as plain_scatter
from smtdist.kernels.types import Codes, Encoder, Geometry, Whitener

SCALE = pixels.pixel_scale(np.uint8, None)
POLICIES = ("keep", "leave_out", "activate_best")


pytestmark = pytest.mark.usefixtures("thread_count")


def same_codes(left, right):
    assert left.indices.dtype == np.uint16
    assert left.indptr.dtype == np.int64
    np.testing.assert_array_equal(left.indptr, right.indptr)
    np.testing.assert_array_equal(left.indices, right.indices)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("mean", "reach"),
    [("context", 1), ("context", 3), ("context", "whole"), ("patch", 1), ("channel", 1), ("global", 1)],
)
def test_patches(channels, mean, reach):
    geometry = Geometry(11, 9, channels, 4)
    images = np.random.default_rng(0).integers(0, 256, (3, 11, 9, channels), dtype=np.uint8)
    grid = pixels.pixel_grid(images, SCALE, False)
    offset = np.arange(geometry.pixels) if mean == "global" else None
    for view in (grid, pixels.mirrored(grid)):
        fast = patches.centred_patches(view, geometry, mean, reach, offset)
        plain = plain_bodies.centred_patches(
            view, geometry, mean, 99 if reach == "whole" else reach, offset
        )
        np.testing.assert_array_equal(fast, plain)


@pytest.mark.parametrize("whiten", [True, False])
def test_unit_grid(whiten):
    rng = np.random.default_rng(0)
    centred = rng.integers(-60000, 60000, (27, 1100)).astype(float)
    centred[:, 5] = 0
    centred[:, 6] = 1
    matrix = None
    if whiten:
        matrix = whitening.integer_whitening(whitening.whitening_matrices(np.cov(centred), 1.0)[0])
    fast, flat = whitening.unit_grid(centred, matrix, 100.0)
    plain, plain_flat = plain_bodies.unit_grid(centred, matrix, 100.0, whitening.grid_scale(27))
    assert fast.tobytes() == plain.tobytes()
    np.testing.assert_array_equal(flat, plain_flat)
    assert flat[5]
    assert flat[6]
    assert (fast.astype(float) ** 2).sum(axis=0).max() <= 2**24


def unit_vectors(rng, n, p):
    return whitening.atoms_to_grid(rng.standard_normal((n, p)))


@pytest.mark.parametrize(("n", "k"), [(1, 1), (63, 64), (65, 63), (700, 300), (1030, 1025)])
@pytest.mark.parametrize("cosine", [0.1, 0.5, 0.99])
def test_gq(n, k, cosine):
    rng = np.random.default_rng(n)
    grid = np.ascontiguousarray(unit_vectors(rng, n, 12).T)
    constant = rng.random(n) < 0.1
    grid[:, constant] = 0
    atoms = unit_vectors(rng, k, 12)
    atoms[k // 2] = atoms[0]
    cut = whitening.threshold_cut(cosine, 12)
    for constant_patch in POLICIES:
        for zero_code in POLICIES:
            fast = codes.gq_codes(grid, atoms, cut, constant, constant_patch, zero_code)
            best = constant_patch == "activate_best", zero_code == "activate_best"
            same_codes(fast, plain_bodies.gq_codes(grid, atoms, cut, constant, best))


@pytest.mark.parametrize("euclidean", [False, True])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (63, 64), (600, 1025)])
def test_nearest(n, k, euclidean):
    rng = np.random.default_rng(k)
    grid = np.ascontiguousarray(unit_vectors(rng, n, 3).T)
    grid[:, 0] = 0
    atoms = np.rint(unit_vectors(rng, k, 3) * rng.uniform(0.2, 1, (k, 1))).astype(np.float32)
    atoms[k // 2 :: 7] = atoms[0]  # ties
    for fast, plain in zip(
        codes.nearest_atoms(grid, atoms, euclidean),
        plain_codes.nearest_atoms(grid, atoms, euclidean),
        strict=True,
    ):
        assert fast.dtype == plain.dtype
        np.testing.assert_array_equal(fast, plain)
    constant = np.arange(n) == 0
    left_out = codes.vq_codes(grid, atoms, euclidean, constant, "leave_out")
    assert np.diff(left_out.indptr).tolist() == (~constant).astype(int).tolist()


@pytest.mark.parametrize("feature", ["gq", "vq"])
def test_encode_pieces(feature):
    rng = np.random.default_rng(3)
    geometry = Geometry(9, 8, 3, 3)
    images = rng.integers(0, 256, (7, 9, 8, 3), dtype=np.uint8)
    images[2] = 9
    whitener = Whitener(geometry, SCALE, False, "context", "whole", None, 1.0, None)
    atoms = unit_vectors(rng, 70, 27)
    cut = whitening.threshold_cut(0.05, 27)
    encoder = Encoder(whitener, atoms, feature, cut, False, "leave_out", "leave_out")
    whole = encode(images, encoder, False)
    same_codes(whole, encode(images[:, :, ::-1], encoder, True))
    capacity = geometry.positions * (70 if feature == "gq" else 1)
    pieces = list(codes.encode_pieces(images, encoder, False, capacity))
    assert len(pieces) > 1
    assert [first for first, _, _ in pieces] == np.cumsum([0] + [n for _, n, _ in pieces])[:-1].tolist()
    assert max(len(piece.indices) for _, _, piece in pieces) <= capacity
    np.testing.assert_array_equal(np.concatenate([piece.indices for _, _, piece in pieces]), whole.indices)


CASES = [
    ((3, 5, 4), 37, 0.1),
    ((17, 8, 8), 530, 0.05),
    ((7, 9, 8), 1030, 0),
    ((2, 3, 3), 10, 0),
    ((40, 3, 3), 5, 0.6),
    ((1, 1, 1), 3, 0.5),
]


@pytest.mark.parametrize(("shape", "k", "share"), CASES)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_sums(shape, k, share, dtype):
    rng = np.random.default_rng(k)
    n, images = int(np.prod(shape)), shape[0]
    sparse = random_codes(rng, n, k, share)
    kept = kept_mask(sparse, shape)
    weights = rng.integers(-3, 4, n) * (rng.random(n) < 0.3)
    factors = rng.integers(-5, 6, images)
    pairs = [
        (
            lambda o: scatter.add_second_moment(o, sparse),
            lambda o: plain_bodies.add_second_moment(o, sparse),
        ),
        (
            lambda o: scatter.add_weighted_moment(o, sparse, weights),
            lambda o: plain_bodies.add_weighted_moment(o, sparse, weights),
        ),
        (
            lambda o: scatter.add_outer_of(o, scatter.image_counts(sparse, images)),
            lambda o: plain_scatter.add_outer_of(o, plain_bodies.image_counts(sparse, images), None),
        ),
        (
            lambda o: scatter.add_outer_of(o, scatter.image_counts(sparse, images), factors),
            lambda o: plain_scatter.add_outer_of(o, plain_bodies.image_counts(sparse, images), factors),
        ),
        (
            lambda o: add_window_cooccurrence(o, sparse, kept, 2),
            lambda o: plain_context.add_window_cooccurrence(o, sparse, kept, min(2, max(shape[1:]))),
        ),
    ]
    for fast, plain in pairs:
        same_sums(fast, plain, k, dtype)
    if dtype == np.int64:
        same_sums(
            lambda o: add_second_order(o, sparse, kept, 1),
            lambda o: plain_context.add_second_order(o, sparse, kept, 1),
            k,
        )
    counts = scatter.image_counts(sparse, images)
    np.testing.assert_array_equal(counts, plain_bodies.image_counts(sparse, images))
    activity = np.zeros(k, np.int64)
    scatter.add_activity(activity, sparse)
    np.testing.assert_array_equal(activity, counts.sum(axis=0))


def test_second_moment_over_several_runs(monkeypatch):
    from smtdist.kernels.cpu import moment

    monkeypatch.setattr(moment, "RUN_PATCHES", 150)
    monkeypatch.setattr(moment, "PART_PATCHES", 40)
    sparse = random_codes(np.random.default_rng(0), 1001, 600, 0.1)
    same_sums(
        lambda o: scatter.add_second_moment(o, sparse),
        lambda o: plain_bodies.add_second_moment(o, sparse),
        600,
    )


@pytest.mark.parametrize("lowest", [1, -2])
def test_moments_of_many_weights(lowest, monkeypatch):
    """Dense codes are summed by the bits of their weights; a negative weight has none."""
    from smtdist.kernels.cpu import scatter as cpu

    rng, listed = np.random.default_rng(0), []
    original = cpu.add_listed
    monkeypatch.setattr(cpu, "add_listed", lambda *a: (listed.append(1), original(*a)))
    sparse, weights = random_codes(rng, 3000, 40, 0.5), rng.integers(lowest, 80, 3000)
    for dtype in (np.int32, np.int64):
        same_sums(
            lambda o: scatter.add_weighted_moment(o, sparse, weights),
            lambda o: plain_bodies.add_weighted_moment(o, sparse, weights),
            40,
            dtype,
        )
    assert bool(listed) == (lowest < 0)


def test_no_codes_at_all():
    empty = Codes(np.zeros(10, np.int64), np.zeros(0, np.uint16), 70)
    kept = kept_mask(empty, (1, 3, 3))
    assert not kept.any()
    out = np.zeros((70, 70), np.int64)
    scatter.add_second_moment(out, empty)
    scatter.add_weighted_moment(out, empty, np.ones(9, np.int64))
    scatter.add_outer_of(out, scatter.image_counts(empty, 1))
    add_window_cooccurrence(out, empty, kept, 1)
    add_second_order(out, empty, kept, 1)
    assert not whole_second_order(empty, kept).any()
    assert not out.any()


@pytest.mark.parametrize("length", [5, 33, 64, 149])
@pytest.mark.parametrize("half", [90, 45])
def test_embedding(half, length):
    rng = np.random.default_rng(0)
    sparse = random_codes(rng, 5 * 36, 90, 0.2)
    components = rng.standard_normal((90, length)).astype(np.float32)
    fast = representation.embed(sparse, components, half)
    assert fast.tobytes() == plain_bodies.embed(sparse, components, half).tobytes()
    pooled = representation.pool(fast, 5, 6, 6, 3, 2)
    assert pooled.tobytes() == plain_bodies.pool(fast.reshape(5, 6, 6, length), (2, 2), 3, 2).tobytes()
    assert pooled.shape == (5, 2, 2, length)
    np.testing.assert_allclose((pooled**2).sum(axis=-1), 1, rtol=1e-5)


def test_tables_of_components_lie_on_lines_of_the_cache():
    columns = np.arange(7 * 150, dtype=np.float32).reshape(7, 150)
    table = table_of(columns)
    for one in (table, *(pickle.loads(pickle.dumps(table, protocol)) for protocol in (2, 5))):
        assert one.values.ctypes.data % 64 == 0
        np.testing.assert_array_equal(columns_of(one), columns)


def test_images_are_represented_one_by_one():
    rng = np.random.default_rng(1)
    images, rows, columns = 400, 7, 5  # more than a thread takes at a time
    sparse = random_codes(rng, images * rows * columns, 70, 0.1)
    components = rng.standard_normal((70, 9)).astype(np.float32)
    whole = representation.represent(sparse, table_of(components), images, rows, columns, 3, 1)
    parts = representation.pool(representation.embed(sparse, components), images, rows, columns, 3, 1)
    assert whole.tobytes() == parts.tobytes()
    with pytest.raises(ConfigurationError, match="do not fill"):
        representation.represent(sparse, components, images + 1, rows, columns, 3, 1)


def test_capacity_holds_one_image():
    geometry = Geometry(28, 28, 1, 6)
    assert memory.code_capacity(geometry, 4096, "bits", 1) >= geometry.positions * 4096


@pytest.mark.parametrize(
    ("images", "side", "reach", "share"),
    [(11, 27, 12, 0.6), (3, 27, 24, 0.2), (2, 40, 39, 0.1), (1, 40, 17, 1.0)],
)
def test_neighbours_of_frequent_atoms_and_in_wide_windows(images, side, reach, share):
    """Counters have room for the sums of all patches of a run, and windows may be as wide as the image."""
    shape = images, side, side
    sparse = random_codes(np.random.default_rng(3), images * side * side, 20, share)
    kept = kept_mask(sparse, shape)
    same_sums(
        lambda o: add_window_cooccurrence(o, sparse, kept, reach),
        lambda o: plain_context.add_window_cooccurrence(o, sparse, kept, reach),
        20,
    )
