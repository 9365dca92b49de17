"""The kernels, all bodies of each, equal the oracle: integers exactly, floats to rounding."""

import math
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import plain_bodies
import pytest
import reference as oracle
from coded import encode, whole_second_order
from drawing import coded_images, small_images
from emulated_cuda import compiler_here, emulate
from hypothesis import example, given, settings
from hypothesis import strategies as st

from smtdist.kernels import codes, context, patches, pixels, representation, scatter, whitening
from smtdist.kernels.generic import codes as generic_codes
from smtdist.kernels.generic import scatter as generic_scatter
from smtdist.kernels.gpu import codes as gpu_codes
from smtdist.kernels.gpu import tensor
from smtdist.kernels.types import Codes, Encoder, Geometry, Whitener

check = settings(deadline=None, max_examples=40)
seeds = st.integers(0, 2**32)
policies = st.sampled_from(["keep", "leave_out", "activate_best"])
CAPABILITIES = {"gpu-float32": 0, "gpu-bits": 90, "gpu-bytes": 120}
ON_DEVICE = list(CAPABILITIES) if compiler_here() else []
bodies = st.sampled_from(["cpu", "generic", *ON_DEVICE])
contexts = st.sampled_from([1, 2, 3, "whole"])


def reach_of(context):
    return None if context == "whole" else context


def second_order(got, kept, d):
    """The sums of windows, or of whole images in as many bits as the oracle has."""
    if d == "whole":
        return whole_second_order(got, kept, bits=30 + kept[0].size.bit_length())
    return added(got.n_atoms, np.int64, lambda out: context.add_second_order(out, got, kept, d))


@contextmanager
def running(body, tiny_buffers=True):
    """Take the compiled bodies, those for any array module, or a device's, whose kernels run here; tiny buffers: many slices."""
    with pytest.MonkeyPatch.context() as patch:
        if body != "cpu":
            for module in (patches, whitening, codes, scatter, context, representation):
                patch.setattr(module, "is_host", lambda *_: False)
        if body == "generic":
            for module in (patches, whitening, codes, scatter, representation):
                patch.setattr(module, "gpu", plain_bodies)
        elif body in ON_DEVICE:
            emulate(patch)
            for module in (gpu_codes, tensor):
                patch.setattr(module, "capability", lambda _: CAPABILITIES[body])
        for name in ("SLICE_BYTES", "BLOCK_BYTES", "PANEL_BYTES") if tiny_buffers else ():
            for module in (plain_bodies, generic_codes, generic_scatter, gpu_codes):
                patch.setattr(module, name, 256, raising=False)
        for name in ("BYTES_WORDS", "FLOAT_WORDS") if tiny_buffers else ():
            patch.setattr(tensor, name, tensor.ROW_WORDS)
        yield


@dataclass
class Problem:
    """A few raw images, how they become patches, and what the oracle makes of them up to the unit grid."""

    images: Any
    geometry: Geometry
    pixel_range: tuple[float, float] | None
    grey: bool
    mirror: bool
    mean: str
    mean_context: int | str
    min_contrast: float

    @cached_property
    def units(self):
        return oracle.pixel_units(self.images, self.pixel_range, self.grey)

    @cached_property
    def seen(self):
        """The images of which the patches are taken."""
        return self.units[:, :, ::-1] if self.mirror else self.units

    @cached_property
    def global_mean(self):
        return oracle.global_mean(self.seen, self.geometry.patch) if self.mean == "global" else None

    @cached_property
    def removed(self):
        T = self.geometry.patch
        return oracle.mean_removed(self.seen, T, self.mean, self.mean_context, self.global_mean)

    @cached_property
    def whiten(self):
        whiten, _ = oracle.whitening(oracle.covariance(self.removed, self.is_float), 1e-3)
        return oracle.integer_whiten(whiten)

    @cached_property
    def _unit_grid(self):
        return oracle.unit_grid(self.removed, self.whiten, self.min_contrast, self.is_float)

    @property
    def grid(self):
        return self._unit_grid[0]

    @property
    def constant(self):
        return self._unit_grid[1]

    @property
    def is_float(self):
        return self.images.dtype != np.uint8

    @property
    def scale(self):
        return pixels.pixel_scale(self.images.dtype, self.pixel_range)

    @property
    def centred(self):
        """The oracle's mean-removed patches as the kernels hold them: float64 (p, N)."""
        return np.ascontiguousarray(self.removed.reshape(-1, self.geometry.pixels).T.astype(np.float64))

    @property
    def whitener(self):
        p, W = self, self.whiten.astype(np.float64)
        return Whitener(
            p.geometry, p.scale, p.grey, p.mean, p.mean_context, p.global_mean, p.min_contrast, W
        )  # fmt: skip


@st.composite
def problems(draw):
    """Draw a Problem: sizes, channels, pixel types and ranges, patch sizes and means."""
    T, rows, columns = draw(st.integers(1, 3)), draw(st.integers(1, 5)), draw(st.integers(1, 5))
    mean = draw(st.sampled_from(["context", "level", "patch", "channel", "global"]))
    if mean == "context" and rows * columns == 1:
        rows = 2
    colours, dtype = draw(st.integers(1, 4)), draw(st.sampled_from(["uint8", "float32", "float64"]))
    grey = colours == 3 and draw(st.booleans())
    height, width = rows + T - 1, columns + T - 1
    images = small_images(draw(seeds), draw(st.integers(1, 3)), height, width, colours, dtype)
    pixel_range = None
    if dtype != "uint8" and draw(st.booleans()):
        pixel_range = draw(st.sampled_from([(-1.0, 1.0), (0.0, 1.5), (-0.3, 2.7)]))
        share = 0.05 + 0.9 * images
        images = (pixel_range[0] + share * (pixel_range[1] - pixel_range[0])).astype(dtype)
    if colours == 1 and draw(st.booleans()):
        images = images[..., 0]
    geometry = Geometry(height, width, 1 if grey else colours, T)
    mirror, mean_context, min_contrast = (
        draw(st.booleans()),
        draw(contexts),
        draw(st.sampled_from([0.0, 1.0, 8.0])),
    )
    return Problem(images, geometry, pixel_range, grey, mirror, mean, mean_context, min_contrast)


def some_atoms(problem, seed, K):
    """Grid atoms: patches of the problem, the same disturbed, random directions; some twice, to make ties."""
    p, rng = problem.geometry.pixels, np.random.default_rng(seed)
    vectors = rng.normal(size=(K, p))
    alive = problem.grid[~problem.constant].astype(np.float64)
    for k in range(K):
        if len(alive) and rng.random() < 0.7:
            vectors[k] = alive[rng.integers(len(alive))] + rng.choice([0.0, 300.0]) * rng.normal(size=p)
    s = oracle.grid_scale(p)
    atoms = np.array([np.rint(s * oracle.l2(vector)) for vector in vectors], dtype=np.int64)
    return atoms[rng.integers(0, K, K)] if rng.random() < 0.5 else atoms


def halfway(rng, p):
    """Whole numbers (p,) whose squares add up to (2 s)²: an odd one lies between two grid points."""
    s = oracle.grid_scale(p)
    while True:
        head = np.rint(rng.normal(size=p - 2) * 2 * s / math.sqrt(p)).astype(int).tolist()
        left = 4 * s**2 - sum(v * v for v in head)
        for a in range(math.isqrt(max(left, 0))):
            b = math.isqrt(left - a * a)
            if a * a + b * b == left:
                return [*head, a, b]


def dense(found, images):
    """Codes -> A (K, n) of every image; checks what the type promises on the way."""
    assert found.indptr.dtype == np.int64
    assert found.indices.dtype == np.uint16
    assert found.indptr[0] == 0
    assert found.indptr[-1] == len(found.indices)
    A = np.zeros((found.n_atoms, found.n_patches), dtype=np.int64)
    for i in range(found.n_patches):
        active = found.indices[found.indptr[i] : found.indptr[i + 1]].astype(np.int64)
        assert np.all(np.diff(active) > 0)
        A[active, i] = 1
    return np.split(A, images, axis=1)


class TestPatches:
    """Pixels, patches and means."""

    @check
    @given(problems())
    def test_pixel_grid(self, problem):
        got = pixels.pixel_grid(problem.images, problem.scale, problem.grey)
        assert got.dtype == np.int32
        np.testing.assert_array_equal(got, problem.units)
        np.testing.assert_array_equal(pixels.mirrored(got), problem.units[:, :, ::-1])
        assert problem.scale.unit == float(oracle.unit(problem.is_float))
        assert problem.scale.grey_level == float(oracle.grey_level(problem.is_float))

    @pytest.mark.parametrize("shift", [0.0, 2.0**-18, 2.0**-17, 3 * 2.0**-17, -(2.0**-18)])
    def test_float_pixels_round_halves_to_even(self, shift):
        images = np.clip(np.arange(1, 65).reshape(1, 8, 8) / 64 + shift, 0, 1)
        got = pixels.pixel_grid(images, pixels.pixel_scale(np.float64, None), False)
        np.testing.assert_array_equal(got, oracle.pixel_units(images))

    @settings(check, max_examples=200)
    @given(problems())
    def test_centred_patches(self, problem):
        for body in ("cpu", "generic"):
            with running(body):
                got = patches.centred_patches(
                    problem.seen.astype(np.int32), problem.geometry, problem.mean, problem.mean_context,
                    problem.global_mean,
                )  # fmt: skip
            assert got.dtype == np.float64
            np.testing.assert_array_equal(got, problem.centred)

    def test_global_mode_without_a_mean_gives_the_patches(self):
        units = oracle.pixel_units(small_images(0, 2, 5, 6, 3))
        got = patches.centred_patches(units.astype(np.int32), Geometry(5, 6, 3, 2), "global", 1, None)
        np.testing.assert_array_equal(got, oracle.patches(units, 2).reshape(-1, 12).T)
        sums = whitening.patch_sum(got)
        np.testing.assert_array_equal(oracle.half_up(sums, got.shape[1]), oracle.global_mean(units, 2))


class TestWhitening:
    """Second moments, whitening and the unit grid."""

    @check
    @given(problems())
    def test_patch_moment(self, problem):
        moment = whitening.patch_moment(problem.centred)
        assert moment.dtype == np.int64
        np.testing.assert_array_equal(moment, oracle.patch_moment(problem.removed))
        found = moment * problem.scale.unit**2 / problem.centred.shape[1]
        np.testing.assert_allclose(found, oracle.covariance(problem.removed, problem.is_float), rtol=1e-14)

    def test_patch_moment_is_exact_beyond_float64(self):
        n = 3 * 2**20 + 1
        assert n * 65535**2 > 2**53  # and odd
        assert whitening.patch_moment(np.full((1, n), -65535.0)).tolist() == [[n * 65535**2]]

    @check
    @given(seeds, st.integers(1, 12), st.sampled_from([1e-3, 0.1, 3.0]))
    def test_whitening_matrices(self, seed, p, ridge):
        samples = np.random.default_rng(seed).normal(size=(p, max(1, p - 2)))  # of deficient rank
        cov = samples @ samples.T
        whiten, unwhiten = whitening.whitening_matrices(cov, ridge)
        expected, inverse = oracle.whitening(cov, ridge)
        np.testing.assert_allclose(whiten, expected, rtol=1e-9, atol=1e-9 * abs(expected).max())
        np.testing.assert_allclose(unwhiten, inverse, rtol=1e-9, atol=1e-9 * abs(inverse).max())
        np.testing.assert_allclose(whiten @ (cov + ridge * np.eye(p)) @ whiten, np.eye(p), atol=1e-8)

    @check
    @given(seeds, st.integers(1, 40), st.sampled_from([1e-4, 0.7, 1.3, 5e3]))
    @example(256, 256, 1.0)
    @example(257, 257, 1.0)
    @example(512, 512, 1.0)
    @example(513, 513, 1.0)
    def test_integer_whitening(self, seed, p, size):
        W = size * np.random.default_rng(seed).normal(size=(p, p))
        got = whitening.integer_whitening(W)
        np.testing.assert_array_equal(got, oracle.integer_whiten(W))
        assert abs(got).max() * p * 2**16 <= 2**53

    @check
    @given(problems(), bodies)
    def test_unit_grid(self, problem, body):
        floor = whitening.contrast_floor(problem.min_contrast, problem.geometry.pixels, problem.scale)
        with running(body):
            got, constant = whitening.unit_grid(problem.centred, problem.whiten.astype(np.float64), floor)
        assert got.dtype == np.float32
        np.testing.assert_array_equal(constant, problem.constant)
        np.testing.assert_array_equal(got, problem.grid.T)

    @pytest.mark.parametrize("body", ["cpu", "generic"])
    @pytest.mark.parametrize("p", [3, 9, 36, 108])
    def test_unit_grid_to_the_last_bit(self, body, p):
        """Between two grid points, the rounding of squares, sum and quotient decides."""
        rng = np.random.default_rng(p)
        removed = np.array([halfway(rng, p) for _ in range(60)])
        W = np.diag(np.full(p, 2**28 - 57))
        expected, constant = oracle.unit_grid(removed, W, 0.0, is_float=False)
        with running(body):
            got, found = whitening.unit_grid(removed.T.astype(np.float64), W.astype(np.float64), 0.0)
        np.testing.assert_array_equal(got, expected.T)
        np.testing.assert_array_equal(found, constant)

    @pytest.mark.parametrize("body", ["cpu", "generic"])
    def test_contrast_exactly_at_the_floor_is_not_constant(self, body):
        removed = np.array([[256, -256], [256, -255], [0, 0]])
        scale = pixels.pixel_scale(np.uint8, None)
        with running(body):
            floor = whitening.contrast_floor(1.0, 2, scale)
            grid, constant = whitening.unit_grid(removed.T.astype(np.float64), None, floor)
        expected = oracle.unit_grid(removed, np.eye(2, dtype=np.int64), 1.0, is_float=False)
        np.testing.assert_array_equal(grid, expected[0].T)
        assert constant.tolist() == expected[1].tolist() == [False, True, True]

    def test_scalars(self):
        assert [whitening.grid_scale(p) for p in range(1, 5000)] == [
            oracle.grid_scale(p) for p in range(1, 5000)
        ]
        s = oracle.grid_scale(36)
        assert whitening.threshold_cut(0.3, 36) == -(-3 * s * s // 10)
        assert whitening.threshold_cut(0.45, 108) == -(-45 * oracle.grid_scale(108) ** 2 // 100)
        assert whitening.threshold_cut(1.0, 36) == s * s

    @check
    @given(seeds, st.integers(1, 12))
    def test_atoms_to_grid(self, seed, p):
        vectors = np.random.default_rng(seed).normal(size=(7, p)) * 10.0 ** np.arange(-3, 4)[:, None]
        expected = [np.rint(oracle.grid_scale(p) * oracle.l2(vector)) for vector in vectors]
        got = whitening.atoms_to_grid(vectors)
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, expected)


class TestCodes:
    """Binary codes, nearest atoms and centroid sums."""

    @settings(check, max_examples=100)
    @given(
        problems(), seeds, st.integers(1, 9), st.sampled_from(["gq", "vq"]),
        st.sampled_from(["tie", 0.1, 0.3, 0.45, 0.9, 1.0]), policies, policies, st.booleans(), bodies,
    )  # fmt: skip
    def test_encode_and_its_parts(
        self, problem, seed, K, feature, t, constant_patch, zero_code, euclidean, body
    ):
        atoms = some_atoms(problem, seed, K)
        if feature == "vq" and euclidean:
            atoms = atoms // np.random.default_rng(seed).integers(1, 5, (K, 1))
        if t == "tie":
            t = reached(problem.grid, atoms)
        A = oracle.codes(
            problem.grid, atoms, feature, t, problem.constant, constant_patch, zero_code, euclidean
        )
        B, p = len(problem.images), problem.geometry.pixels
        cut, atoms32 = whitening.threshold_cut(t, p), atoms.astype(np.float32)
        encoder = Encoder(problem.whitener, atoms32, feature, cut, euclidean, constant_patch, zero_code)
        sites = oracle.sites(A, problem.constant, constant_patch, zero_code)
        grid32 = np.ascontiguousarray(problem.grid.T.astype(np.float32))
        given = grid32, atoms32, cut, problem.constant, constant_patch, zero_code
        ways = [partial(encode, problem.images, encoder, problem.mirror), partial(codes.gq_codes, *given)]
        for way in ways if feature == "gq" else ways[:1]:
            with running(body):
                coded = way()
                kept, found = context.kept_mask(coded, (1, 1, A.shape[1])), dense(coded, B)
            np.testing.assert_array_equal(np.hstack(found), A)
            np.testing.assert_array_equal(kept.reshape(-1), sites)

    @check
    @given(problems(), seeds, st.integers(1, 9), bodies)
    def test_spherical_round(self, problem, seed, K, body):
        atoms = some_atoms(problem, seed, K)
        labels, sums, counts = oracle.spherical_kmeans_round(problem.grid, atoms, problem.constant)
        grid32 = np.ascontiguousarray(problem.grid.T.astype(np.float32))
        with running(body):
            nearest, dots = codes.nearest_atoms(grid32, atoms.astype(np.float32), False)
        assert nearest.dtype == np.int32
        assert dots.dtype == np.float32
        np.testing.assert_array_equal(nearest[~problem.constant], labels[~problem.constant])
        np.testing.assert_array_equal(dots, (problem.grid * atoms[nearest]).sum(axis=1))
        got_counts, got_sums = np.zeros(K, np.int64), np.zeros(atoms.shape, np.int64)
        left_out = np.where(problem.constant, -1, nearest).astype(np.int32)
        codes.add_label_sums(got_counts, got_sums, left_out, grid32)
        np.testing.assert_array_equal(got_counts, counts)
        np.testing.assert_array_equal(got_sums, sums)


def reached(grid, atoms):
    """A threshold that some dot product meets exactly: ceil(t s²) is the middle one of those in range."""
    square = oracle.grid_scale(grid.shape[1]) ** 2
    dots = np.unique(np.clip(grid @ atoms.T, 1, square))
    return math.floor(int(dots[len(dots) // 2]) * 10**10 / square) / 10**10


def sparse(images):
    """A (K, n) of every image -> Codes."""
    A = np.hstack(images)
    columns = [np.flatnonzero(column) for column in A.T]
    indptr = np.cumsum([0] + [len(column) for column in columns])
    return Codes(indptr.astype(np.int64), np.concatenate(columns).astype(np.uint16), len(A))


def added(K, dtype, add):
    """What `add(out)` adds to the upper triangle of a matrix in use; the lower one must stay as it is."""
    start = np.arange(K * K, dtype=dtype).reshape(K, K) * 3 + 1
    out = start.copy()
    add(out)
    below = np.tril_indices(K, -1)
    np.testing.assert_array_equal(out[below], start[below])
    return scatter.mirror_upper(out - start)


integers = st.sampled_from([np.int32, np.int64])


class TestScatter:
    """Sums over codes and over neighbours."""

    @check
    @given(coded_images(), seeds, integers, bodies)
    def test_sums_over_patches_and_images(self, drawn, seed, dtype, body):
        images, rows, columns = drawn
        got, K, n, rng = sparse(images), len(images[0]), rows * columns, np.random.default_rng(seed)
        expected = oracle.statistics(images, rows, columns, 1, 1)
        w = rng.integers(0, 9, n * len(images)) * (rng.random(n * len(images)) < 0.6)
        v = rng.integers(-9, 9, len(images))
        s, A = [A.sum(axis=1) for A in images], np.hstack(images)
        activity, weighted = np.ones(K, np.int64), np.ones(K, np.int64)
        with running(body):
            scatter.add_activity(activity, got)
            scatter.add_activity(weighted, got, w)
            second = added(K, dtype, lambda out: scatter.add_second_moment(out, got))
            deficit = added(K, np.int64, lambda out: scatter.add_weighted_moment(out, got, w))
            counts = scatter.image_counts(got, len(images))
            outer = added(K, dtype, lambda out: scatter.add_outer_of(out, counts))
            outer_w = added(K, dtype, lambda out: scatter.add_outer_of(out, counts, v))
        np.testing.assert_array_equal(activity - 1, expected["activity"])
        np.testing.assert_array_equal(weighted - 1, A @ w)
        np.testing.assert_array_equal(second, expected["second_moment"])
        np.testing.assert_array_equal(deficit, A @ np.diag(w) @ A.T)
        np.testing.assert_array_equal(counts, s)
        np.testing.assert_array_equal(outer, sum(np.outer(x, x) for x in s))
        np.testing.assert_array_equal(outer_w, sum(a * np.outer(x, x) for a, x in zip(v, s, strict=True)))

    @pytest.mark.parametrize("body", ["cpu", "generic"])
    @pytest.mark.parametrize("n", [4095, 4096, 4097, 70_001])
    def test_image_outer_beyond_float32(self, n, body):
        """Σ s² passes 2^24, the last whole number float32 counts to."""
        images = [np.ones((2, n), dtype=np.int64) for _ in range(3)]
        images[1][0, 7] = 0
        s = [A.sum(axis=1) for A in images]
        with running(body):
            counts = scatter.image_counts(sparse(images), 3)
            got = added(2, np.int64, lambda out: scatter.add_outer_of(out, counts))
        np.testing.assert_array_equal(got, sum(np.outer(x, x) for x in s))

    @settings(check, max_examples=80)
    @given(coded_images(side=5), contexts, integers, bodies)
    def test_first_order(self, drawn, d, dtype, body):
        """A diag(deg) Aᵀ - cooccurrence, and the whole image from n A Aᵀ - s sᵀ (design, section 1)."""
        images, rows, columns = drawn
        got, K, B = sparse(images), len(images[0]), len(images)
        expected = oracle.statistics(images, rows, columns, d, 1)
        with running(body):
            kept = context.kept_mask(got, (B, rows, columns))
            degree = context.degrees(kept, reach_of(d))
            n_kept = context.degrees(kept, None) + kept
            weighted = added(K, np.int64, lambda out: scatter.add_weighted_moment(out, got, degree.ravel()))
            if d == "whole":
                total = added(
                    K, np.int64, lambda out: scatter.add_weighted_moment(out, got, n_kept.ravel())
                )
                outer = added(K, dtype, lambda out: scatter.add_outer_of(out, scatter.image_counts(got, B)))
                cooccurrence = outer - expected["second_moment"]
                np.testing.assert_array_equal(total - outer, expected["context_scatter"])
            else:
                cooccurrence = added(
                    K, dtype, lambda out: context.add_window_cooccurrence(out, got, kept, d)
                )
        near = [oracle.neighbours(rows, columns, d, A.any(axis=0)) for A in images]
        np.testing.assert_array_equal(kept, np.reshape([A.any(axis=0) for A in images], kept.shape))
        np.testing.assert_array_equal(degree.ravel(), [len(js) for lists in near for js in lists])
        assert int(kept.sum()) == expected["n_positions"]
        np.testing.assert_array_equal(cooccurrence, expected["cooccurrence"])
        np.testing.assert_array_equal(weighted - cooccurrence, expected["context_scatter"])

    @settings(check, max_examples=80)
    @given(coded_images(side=5), contexts, bodies)
    def test_second_order(self, drawn, d, body):
        images, rows, columns = drawn
        got = sparse(images)
        expected = oracle.statistics(images, rows, columns, d, 2)
        with running(body):
            kept = context.kept_mask(got, (len(images), rows, columns))
            found = second_order(got, kept, d)
        np.testing.assert_array_equal(found, expected["context_scatter"])


class TestRepresentation:
    """Embedding, normalisation and pooling, to float32 rounding."""

    @check
    @given(coded_images(side=5), seeds, st.integers(1, 5), st.integers(1, 3), st.integers(1, 3), bodies)
    def test_embed_and_pool(self, drawn, seed, L, size, stride, body):
        images, rows, columns = drawn
        size = min(size, rows, columns)
        P = np.random.default_rng(seed).normal(size=(L, len(images[0]))).astype(np.float32)
        with running(body):
            beta = representation.embed(sparse(images), np.ascontiguousarray(P.T))
            z = representation.pool(beta, len(images), rows, columns, size, stride)
            at_once = representation.represent(
                sparse(images), P.T, len(images), rows, columns, size, stride
            )
        assert at_once.tobytes() == z.tobytes()
        assert beta.dtype == z.dtype == np.float32
        P = P.astype(np.float64)
        expected = oracle.transform(images, P, rows, columns, 1, 1)
        np.testing.assert_allclose(beta.reshape(expected.shape), expected, atol=1e-5)
        expected = oracle.transform(images, P, rows, columns, size, stride)
        assert z.shape == (len(images), *representation.pooled_shape(rows, columns, size, stride), L)
        np.testing.assert_allclose(z, expected, atol=2e-5)
        empty = ~np.hstack(images).any(axis=0)
        assert not beta[empty].any()


@pytest.mark.parametrize("body", ["cpu", "generic"])
class TestSizes:
    """Sizes on both sides of the edges of words, tiles, blocks and slices."""

    @pytest.mark.parametrize("mean", ["context", "level", "patch", "channel", "global"])
    def test_patches_and_unit_grid(self, mean, body):
        problem = Problem(
            small_images(5, 2, 41, 31, 2), Geometry(41, 31, 2, 2), None, False, False, mean, 1, 1.0
        )
        assert len(problem.grid) > 2048
        assert mean == "global" or 0 < problem.constant.sum() < len(problem.grid)
        with running(body, tiny_buffers=False):
            got, constant = codes.grid_patches(problem.images, problem.whitener, False)
        np.testing.assert_array_equal(constant, problem.constant)
        np.testing.assert_array_equal(got, problem.grid.T)

    @pytest.mark.parametrize(
        ("K", "n"), [(63, 255), (64, 256), (65, 257), (130, 2100), (513, 1030), (1030, 60)]
    )
    def test_codes(self, K, n, body):
        rng, p = np.random.default_rng(K + n), 5
        vectors = rng.normal(size=(n + K, p))
        grid = np.array(
            [np.rint(oracle.grid_scale(p) * oracle.l2(vector)) for vector in vectors], dtype=np.int64
        )
        grid, atoms = grid[:n], grid[n:][rng.integers(0, K, K)]  # many atoms twice, so that tiles tie
        constant = rng.random(n) < 0.1
        grid[constant] = 0
        grid32, atoms32 = np.ascontiguousarray(grid.T.astype(np.float32)), atoms.astype(np.float32)
        for t, policies in (
            (0.3, ("leave_out", "activate_best")),
            (0.995, ("activate_best", "activate_best")),
        ):
            A = oracle.codes(grid, atoms, "gq", t, constant, *policies)
            with running(body, tiny_buffers=False):
                cut = whitening.threshold_cut(t, p)
                found = codes.gq_codes(grid32, atoms32, cut, constant, *policies)
            np.testing.assert_array_equal(dense(found, 1)[0], A)
        short = atoms // rng.integers(1, 4, (K, 1))
        for euclidean, dictionary in ((False, atoms), (True, short)):
            A = oracle.codes(grid, dictionary, "vq", 1, constant, "activate_best", "leave_out", euclidean)
            with running(body, tiny_buffers=False):
                labels, dots = codes.nearest_atoms(grid32, dictionary.astype(np.float32), euclidean)
            np.testing.assert_array_equal(labels, A.argmax(axis=0))
            np.testing.assert_array_equal(dots, (grid * dictionary[labels]).sum(axis=1))

    @pytest.mark.parametrize("dtype", [np.int32, np.int64])
    @pytest.mark.parametrize(
        ("K", "n"),
        [
            (1, 1), (15, 17), (16, 31), (17, 255), (63, 256), (64, 257), (65, 600), (20, 33_000),
            (511, 513), (512, 40), (513, 300), (530, 2), (1030, 90),
        ],
    )  # fmt: skip
    def test_sums_of_codes(self, K, n, dtype, body):
        rng, B = np.random.default_rng(K + n), 3
        share = rng.choice([0.0, 0.02, 0.3, 0.9], size=(K, 1))
        images = [(rng.random((K, n)) < share).astype(np.int64) for _ in range(B)]
        images[0][:, : n // 3] = 0
        got, A, s = sparse(images), np.hstack(images), [A.sum(axis=1) for A in images]
        w = rng.integers(0, 2**21, n * B) * (rng.random(n * B) < 0.2)
        wide = A.astype(np.float64)  # sums below 2^53: exact
        second, activity, weighted = wide @ wide.T, np.zeros(K, np.int64), np.zeros(K, np.int64)
        with running(body, tiny_buffers=False):
            scatter.add_activity(activity, got)
            scatter.add_activity(weighted, got, w)
            found = added(K, dtype, lambda out: scatter.add_second_moment(out, got))
            deficit = added(K, np.int64, lambda out: scatter.add_weighted_moment(out, got, w))
            counts = scatter.image_counts(got, B)
            outer = added(K, np.int64, lambda out: scatter.add_outer_of(out, counts))
        np.testing.assert_array_equal(found, second)
        np.testing.assert_array_equal(deficit, (wide * w) @ wide.T)
        np.testing.assert_array_equal(activity, np.diag(second))
        np.testing.assert_array_equal(weighted, A @ w)
        np.testing.assert_array_equal(counts, s)
        np.testing.assert_array_equal(outer, sum(np.outer(x, x) for x in s))

    @pytest.mark.parametrize("d", [1, 2, "whole"])
    @pytest.mark.parametrize(("K", "rows", "columns"), [(70, 6, 9), (530, 3, 11), (130, 1, 20)])
    def test_sums_of_neighbours(self, K, rows, columns, d, body):
        rng, n = np.random.default_rng(K), rows * columns
        images = [(rng.random((K, n)) < 0.2).astype(np.int64) * (rng.random(n) < 0.8) for _ in range(2)]
        first = oracle.statistics(images, rows, columns, d, 1)
        second = oracle.statistics(images, rows, columns, d, 2)
        got = sparse(images)
        with running(body, tiny_buffers=False):
            kept = context.kept_mask(got, (2, rows, columns))
            found = second_order(got, kept, d)
            reach = max(rows, columns) if d == "whole" else d
            pairs = added(K, np.int32, lambda out: context.add_window_cooccurrence(out, got, kept, reach))
        np.testing.assert_array_equal(found, second["context_scatter"])
        np.testing.assert_array_equal(pairs, first["cooccurrence"])
