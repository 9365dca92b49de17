"""Patches on a stride and drawn ones: which they are, that only they are made, and that their sums are the oracle's."""

from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import plain_bodies
import pytest
import reference as oracle
from coded import encode, same_scatter
from drawing import small_images
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from measured import on_threads, peak_of
from toys import sum_of

from smtdist.configuration import Configuration
from smtdist.errors import ConfigurationError, MemoryBudgetError
from smtdist.kernels import codes, context, memory, patches, pixels, positions, scatter, whitening
from smtdist.kernels.memory import batch_bytes, code_capacity
from smtdist.kernels.mirrored import is_symmetric
from smtdist.kernels.types import Codes, Encoder, Geometry, Sampling, Whitener
from smtdist.models.model import image_geometry
from smtdist.statistics import covariance
from smtdist.statistics.candidates import Candidates, Centroids
from smtdist.statistics.cooccurrence import CodeSums
from smtdist.statistics.covariance import PatchMoment
from smtdist.statistics.sums import finish

check = settings(deadline=None, max_examples=60)
seeds = st.integers(0, 2**32)
SCALE = pixels.pixel_scale(np.uint8, None)
MEANS = [
    ("context", 1),
    ("context", 3),
    ("context", "whole"),
    ("level", 2),
    ("level", "whole"),
    ("patch", 1),
    ("channel", 1),
    ("global", 1),
]


@contextmanager
def running(body):
    """Take the compiled bodies, or those for any array module."""
    with pytest.MonkeyPatch.context() as patch:
        if body == "generic":
            for module in (patches, whitening, codes, scatter, context):
                patch.setattr(module, "is_host", lambda *_: False)
                patch.setattr(module, "gpu", plain_bodies, raising=False)
        yield


@st.composite
def whiteners(draw):
    """Draw a whitener with a sampling; the images are those of `images_of`."""
    T, rows, columns, channels = (
        draw(st.integers(1, 3)),
        draw(st.integers(2, 6)),
        draw(st.integers(1, 6)),
        draw(st.sampled_from([1, 3])),
    )
    geometry = Geometry(rows + T - 1, columns + T - 1, channels, T)
    mean, reach = draw(st.sampled_from(MEANS))
    offset = 256 * np.arange(geometry.pixels) if mean == "global" else None
    sampling = Sampling(
        draw(st.integers(1, 4)), draw(st.sampled_from([None, 1, 3, 8, 99])), draw(st.integers(0, 3))
    )
    contrast = draw(st.sampled_from([0.0, 1.0, 8.0]))
    return Whitener(geometry, SCALE, False, mean, reach, offset, contrast, None, sampling)


def images_of(whitener, seed, n):
    height, width, channels, _ = whitener.geometry
    return small_images(seed, n, height, width, channels)


def oracle_positions(whitener, key, view, drawn=True):
    geometry, (stride, m, seed, _) = whitener.geometry, whitener.sampling
    return oracle.chosen(geometry.rows, geometry.columns, stride, m if drawn else None, seed, key, view)


def all_positions(whitener, images):
    return np.tile(np.arange(whitener.geometry.positions, dtype=np.int32), (images, 1))


def random_positions(rng, whitener, images):
    """Any positions: a kernel that is told where to look need not know why."""
    n = whitener.geometry.positions
    m = int(rng.integers(1, n + 1))
    return np.array([np.sort(rng.permutation(n)[:m]) for _ in range(images)], np.int32)


class TestDraw:
    """Which positions are chosen."""

    @check
    @given(whiteners(), st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=4), st.integers(0, 1))
    def test_the_chosen_are_the_oracles(self, whitener, keys, view):
        at = positions.drawn_positions(whitener, np.array(keys, np.uint64), view)
        at = all_positions(whitener, len(keys)) if at is None else at
        assert at.dtype == np.int32
        assert at.shape == (len(keys), whitener.drawn)
        assert at.tolist() == [oracle_positions(whitener, key, view) for key in keys]

    @check
    @given(whiteners(), st.integers(0, 2**64 - 1))
    def test_mirror_images_have_the_mirrored_patches_where_asked(self, whitener, key):
        assume(is_symmetric(replace(whitener, sampling=whitener.sampling.undrawn)))
        both = replace(whitener, sampling=whitener.sampling._replace(mirrored=True))
        own, other = (positions.drawn_positions(both, np.array([key], np.uint64), view) for view in (0, 1))
        if own is None:
            assert other is None
            return
        assert own[0].tolist() == oracle_positions(whitener, key, 0)
        columns = whitener.geometry.columns
        assert other[0].tolist() == sorted(p + columns - 1 - 2 * (p % columns) for p in own[0].tolist())

    def test_nothing_is_listed_where_all_are_coded(self):
        plain = Whitener(Geometry(6, 7, 1, 3), SCALE, False, "patch", 1, None, 1.0, None)
        for sampling in (Sampling(), Sampling(1, 20), Sampling(1, 999, 4)):
            every = replace(plain, sampling=sampling)
            assert positions.drawn_positions(every, np.arange(3, dtype=np.uint64), 0) is None
            assert positions.lattice_positions(every, 3) is None

    @pytest.mark.parametrize("thread_count", [1, 3])
    def test_fewer_are_a_subset_and_slices_do_not_matter(self, thread_count, monkeypatch):
        geometry = Geometry(20, 21, 1, 3)
        few, more = (
            Whitener(geometry, SCALE, False, "patch", 1, None, 1.0, None, Sampling(2, m, 5))
            for m in (7, 20)
        )
        keys = np.arange(3, 43, dtype=np.uint64)
        want = positions.drawn_positions(more, keys, 1)
        monkeypatch.setattr(positions, "DRAW_POSITIONS", 250)
        with on_threads(thread_count):
            got, fewer = (positions.drawn_positions(one, keys, 1) for one in (more, few))
        np.testing.assert_array_equal(got, want)
        assert all(set(some) <= set(all_) for some, all_ in zip(fewer, want, strict=True))
        assert len({tuple(row) for row in want.tolist()}) == 40, "every image is drawn on its own"

    def test_every_position_is_drawn_about_as_often(self):
        whitener = Whitener(
            Geometry(9, 9, 1, 2), SCALE, False, "patch", 1, None, 1.0, None, Sampling(1, 16, 1)
        )
        counts = np.bincount(
            positions.drawn_positions(whitener, np.arange(4000, dtype=np.uint64), 0).reshape(-1),
            minlength=64,
        )
        assert abs(counts - 1000).max() < 6 * np.sqrt(4000 * 0.25 * 0.75)

    def test_codes_go_back_to_their_places(self):
        narrow = Codes(np.array([0, 2, 2, 3, 5]), np.array([1, 4, 0, 2, 3], np.uint16), 5)
        wide = positions.on_grid(narrow, np.array([[0, 3], [1, 2]]), 4)
        assert wide.indptr.tolist() == [0, 2, 2, 2, 2, 2, 3, 5, 5]
        assert wide.indices is narrow.indices
        with pytest.raises(ConfigurationError, match="4 patches do not fit 3 chosen"):
            positions.on_grid(narrow, np.array([[0, 1, 2]]), 4)

    @check
    @given(whiteners())
    def test_numbers_on_the_lattice(self, whitener):
        places = positions.lattice(whitener.geometry, whitener.sampling.stride)
        assert places.tolist() == oracle_positions(whitener, 0, 0, drawn=False)
        assert positions.lattice_numbers(places, whitener).tolist() == list(range(len(places)))
        assert whitener.lattice[0] * whitener.lattice[1] == len(places)


class TestPatches:
    """A chosen patch is what it is among all; nothing else is made."""

    @check
    @given(whiteners(), seeds, st.integers(1, 4), st.booleans(), st.sampled_from(["cpu", "generic"]))
    def test_a_patch_does_not_depend_on_the_others(self, whitener, seed, n, mirror, body):
        images, rng = images_of(whitener, seed, n), np.random.default_rng(seed)
        at = random_positions(rng, whitener, n)
        columns = (at + whitener.geometry.positions * np.arange(n)[:, None]).reshape(-1)
        whole, constant = codes.grid_patches(images, whitener, mirror)
        with running(body):
            some, flat = codes.grid_patches(images, whitener, mirror, at)
        np.testing.assert_array_equal(some, whole[:, columns])
        np.testing.assert_array_equal(flat, constant[columns])

    @check
    @given(whiteners(), seeds, st.sampled_from(["cpu", "generic"]))
    def test_means_are_over_all_patches(self, whitener, seed, body):
        images, T = images_of(whitener, seed, 2), whitener.geometry.patch
        units = oracle.pixel_units(images)
        want = oracle.mean_removed(units, T, whitener.mean, whitener.mean_context, whitener.global_mean)
        at = random_positions(np.random.default_rng(seed), whitener, 2)
        with running(body):
            got = patches.centred_patches(
                units.astype(np.int32), whitener.geometry, whitener.mean, whitener.mean_context,
                whitener.global_mean, at,
            )  # fmt: skip
        chosen = np.concatenate([image[places] for image, places in zip(want, at, strict=True)])
        np.testing.assert_array_equal(got, chosen.T)

    @check
    @given(
        whiteners(),
        seeds,
        st.sampled_from(["gq", "vq"]),
        st.booleans(),
        st.sampled_from(["cpu", "generic"]),
    )
    def test_codes_off_the_stride_are_empty(self, whitener, seed, feature, mirror, body):
        encoder = some_encoder(whitener, seed, feature)
        images, n = images_of(whitener, seed, 3), whitener.geometry.positions
        plain = some_encoder(replace(whitener, sampling=Sampling()), seed, feature)
        want = encode(images, plain, mirror)
        on_stride = np.isin(np.arange(3 * n) % n, oracle_positions(whitener, 0, 0, drawn=False))
        counts = np.diff(want.indptr)
        with running(body):
            got = encode(images, encoder, mirror)
            tight = code_capacity(whitener.geometry, 9, encoder.form, 1, Sampling(whitener.sampling.stride))
            pieces = list(codes.encode_pieces(images, encoder, mirror, tight))
            with pytest.raises(MemoryBudgetError, match="One image can have"):
                next(codes.encode_pieces(images, encoder, mirror, whitener.lattice[0] - 1))
        np.testing.assert_array_equal(np.diff(got.indptr), counts * on_stride)
        np.testing.assert_array_equal(got.indices, want.indices[np.repeat(on_stride, counts)])
        assert sum(count for _, count, _ in pieces) == 3
        assert all(piece.n_patches == count * n for _, count, piece in pieces)
        np.testing.assert_array_equal(
            np.concatenate([piece.indices for _, _, piece in pieces]), got.indices
        )


def some_encoder(whitener, seed, feature, policies=("leave_out", "leave_out"), t=0.25, n_atoms=9):
    rng = np.random.default_rng(seed)
    atoms = whitening.atoms_to_grid(rng.normal(size=(n_atoms, whitener.geometry.pixels)))
    return Encoder(
        whitener, atoms, feature, whitening.threshold_cut(t, whitener.geometry.pixels), False, *policies
    )


class TestSums:
    """The statistics of chosen patches."""

    @settings(check, max_examples=150)
    @given(st.data())
    def test_code_sums_are_the_oracles(self, data):
        whitener, seed = data.draw(whiteners()), data.draw(seeds)
        feature = data.draw(st.sampled_from(["gq", "vq"]))
        policies = [data.draw(st.sampled_from(["keep", "leave_out", "activate_best"])) for _ in range(2)]
        t, n = data.draw(st.sampled_from([-0.9, 0.01, 0.3])), data.draw(st.integers(1, 4))
        around = data.draw(st.sampled_from([1, 2, 5, "whole"]))
        order, flip, first = data.draw(st.integers(1, 2)), data.draw(st.booleans()), data.draw(seeds)
        encoder = some_encoder(whitener, seed, feature, policies, t)
        images = images_of(whitener, seed, n)
        sums = CodeSums(encoder, around, order, flip, n)
        state, cut = sums.zero(), data.draw(st.integers(0, n))
        with running(data.draw(st.sampled_from(["cpu", "generic"]))):
            for start, stop in ((0, cut), (cut, n)):
                if start < stop:
                    sums.update(state, images[start:stop], first + start)
        for name, value in state.items():  # what the types were chosen by
            assert value.ndim == 0 or value.min() >= 0 or name in ("scatter", "beyond_high")
        got, want = finish(sums, state), oracle_sums(images, sums, t)
        assert (got.n_samples, got.n_positions) == (n, want["n_positions"])
        np.testing.assert_array_equal(got.activity, want["activity"])
        same_scatter(got, want)
        for name in ("second_moment", "cooccurrence"):
            np.testing.assert_array_equal(getattr(got, name), want[name], err_msg=name)

    @settings(check, max_examples=30)
    @given(whiteners(), seeds, st.integers(1, 3), st.sampled_from(["cpu", "generic"]))
    def test_moments_are_over_the_chosen(self, whitener, seed, n, body):
        images, T, first = images_of(whitener, seed, n), whitener.geometry.patch, seed % 1000
        moment = PatchMoment(whitener, True)
        with running(body):
            state = sum_of(moment, images, first)
        units, removed = oracle.pixel_units(images), []
        for view, seen in enumerate((units, units[:, :, ::-1])):
            zero = np.zeros(whitener.geometry.pixels, np.int64)
            centred = oracle.mean_removed(seen, T, whitener.mean, whitener.mean_context, zero)
            removed += [
                image[oracle_positions(whitener, oracle.sample_key(images[i]), view)]
                for i, image in enumerate(centred)
            ]
        removed = np.concatenate(removed)
        assert int(state["n_positions"]) == len(removed) == 2 * n * whitener.drawn
        np.testing.assert_array_equal(state["total"], removed.sum(axis=0))
        found = covariance.limbs.exact(state["moment_high"], state["moment_low"])
        np.testing.assert_array_equal(found, oracle.patch_moment(removed))

    @settings(check, max_examples=30)
    @given(whiteners(), seeds, st.integers(1, 3), st.sampled_from(["cpu", "generic"]))
    def test_centroids_and_candidates(self, whitener, seed, n, body):
        images, first = images_of(whitener, seed, n), seed % 1000
        encoder = some_encoder(whitener, seed, "vq")
        spares = Candidates(whitener, False, 10**4, 11)
        rounds = Centroids(encoder, False, spares)
        with running(body):
            state = sum_of(rounds, images, first)
        removed = oracle.mean_removed(
            oracle.pixel_units(images), whitener.geometry.patch, whitener.mean, whitener.mean_context,
            whitener.global_mean,
        )  # fmt: skip
        identity = np.eye(whitener.geometry.pixels, dtype=np.int64)
        sums, counts, alive = 0, 0, set()
        for sample, image in enumerate(removed):
            grid, constant = oracle.unit_grid(image, identity, whitener.min_contrast, False)
            at = oracle_positions(whitener, oracle.sample_key(images[sample]), 0)
            _, more, number = oracle.spherical_kmeans_round(grid[at], encoder.atoms, constant[at])
            sums, counts = sums + more, counts + number
            lattice = oracle_positions(whitener, 0, 0, drawn=False)
            alive |= {(first + sample, i, tuple(grid[i])) for i in lattice if not constant[i]}
        np.testing.assert_array_equal(state["sums"], sums)
        np.testing.assert_array_equal(state["counts"], counts)
        fields = (state[f"spare_{name}"].tolist() for name in ("sample", "position", "vector"))
        found = {(sample, place, tuple(vector)) for sample, place, vector in zip(*fields, strict=True)}
        assert found <= alive
        assert {vector for *_, vector in found} == {vector for *_, vector in alive}

    def test_equal_draws_of_a_whole_image_have_equal_degrees(self):
        """So that the sums of a complete code need no third matrix, and n is the draw."""
        whitener = Whitener(
            Geometry(9, 9, 1, 3), SCALE, False, "patch", 1, None, 0.0, None, Sampling(1, 10, 3)
        )
        sums = CodeSums(
            some_encoder(whitener, 0, "gq", ("activate_best", "activate_best")), "whole", 1, False, 5
        )
        state = sum_of(sums, images_of(whitener, 1, 5))
        assert "deficit" not in state
        assert sums.full_degree == 9
        assert finish(sums, state).equal_degree == 9


def oracle_sums(images, sums, t):
    """The oracle's statistics of the codes of chosen patches, from raw pixels."""
    encoder, whitener = sums.encoder, sums.encoder.whitener
    units, coded, sites = oracle.pixel_units(images), [], []
    identity = np.eye(whitener.geometry.pixels, dtype=np.int64)
    for view, seen in enumerate((units, units[:, :, ::-1]) if sums.flip else (units,)):
        removed = oracle.mean_removed(
            seen, whitener.geometry.patch, whitener.mean, whitener.mean_context, whitener.global_mean
        )
        for sample, image in enumerate(removed):
            grid, constant = oracle.unit_grid(image, identity, whitener.min_contrast, False)
            policies = encoder.constant_patch, encoder.zero_code
            A = oracle.codes(grid, encoder.atoms, encoder.feature, t, constant, *policies)
            chosen = oracle_positions(whitener, oracle.sample_key(images[sample]), view)
            coded.append(oracle.only(A, chosen))
            sites.append(oracle.only(oracle.sites(A, constant, *policies)[None], chosen)[0])
    return oracle.statistics(
        coded,
        whitener.geometry.rows,
        whitener.geometry.columns,
        sums.context,
        sums.order,
        sites,
        whitener.drawn,
    )


class TestCost:
    """A draw costs what it draws."""

    GEOMETRY = Geometry(64, 64, 3, 6)

    def whitener(self, sampling):
        return Whitener(self.GEOMETRY, SCALE, False, "context", "whole", None, 1.0, None, sampling)

    @pytest.mark.parametrize("feature", ["gq", "vq"])
    @pytest.mark.parametrize("sampling", [Sampling(1, 32), Sampling(8), Sampling(4, 32)])
    def test_only_chosen_patches_are_made(self, feature, sampling, monkeypatch):
        made = []
        for module in (codes, patches):
            original = module.centred_patches

            def counted(*arguments, original=original):
                result = original(*arguments)
                made.append(result.shape[1])
                return result

            monkeypatch.setattr(module, "centred_patches", counted)
        whitener = self.whitener(sampling)
        images = images_of(whitener, 0, 70)
        encoder = some_encoder(whitener, 0, feature, n_atoms=40)
        spares = Candidates(whitener, False, 4, 0)
        for statistic, calls in (
            (CodeSums(encoder, "whole", 1, True, 70), 2),
            (CodeSums(encoder, 9, 2, False, 70), 1),
            (PatchMoment(whitener, True), 2),
        ):
            made.clear()
            statistic.update(statistic.zero(), images, 0)
            assert sum(made) == calls * 70 * whitener.drawn
        made.clear()
        spares.update(spares.zero(), images, 0)
        assert sum(made) <= 70 * whitener.sampling._replace(positions=None).drawn(self.GEOMETRY)

    def test_work_and_memory_follow_the_draw(self):
        every, few = Sampling(), Sampling(1, 32)
        sums = (CodeSums(some_encoder(self.whitener(one), 0, "gq"), 9, 1, True, 70) for one in (every, few))
        work = [one.work_per_sample for one in sums]
        assert work[0] / work[1] == 3481 / 32
        for form, around in (("bits", None), ("labels", None), ("bits", 3)):
            plain, drawn = (
                batch_bytes(self.whitener(one), 2048, form, 100, context=around) for one in (every, few)
            )
            # what is left are pixels and buffers of a fixed size
            assert drawn.encoding < plain.encoding / 4
            assert drawn.scatter < plain.scatter
            assert drawn.whitening < plain.whitening / 10

    @pytest.mark.parametrize(
        ("sampling", "around"), [(Sampling(1, 200), 2), (Sampling(1, 200), "whole"), (Sampling(2, 50), 4)]
    )
    def test_a_batch_stays_within_its_projection(self, sampling, around):
        """The arrays that NumPy allocates; those inside compiled functions are not seen."""
        whitener = self.whitener(sampling)
        images = images_of(whitener, 0, 150)
        encoder = some_encoder(whitener, 0, "gq", t=0.35, n_atoms=200)
        for statistic in (CodeSums(encoder, around, 1, True, 150), PatchMoment(whitener, True)):
            state = statistic.zero()
            with on_threads(1):
                statistic.update(state, images, 0)
                peak = peak_of(partial(statistic.update, state, images, 150))
            assert peak <= statistic.batch_bytes(150) <= 3 * peak + 4 * memory.BLAS_BYTES


def test_a_context_within_the_stride_is_refused():
    asked = Configuration(patch=3, context=2, stride=3)
    with pytest.raises(
        ConfigurationError, match="context of 2 pixels reaches no other patch on a stride of 3"
    ):
        image_geometry(asked, (5, 16, 16, 1), "images")
    assert image_geometry(asked.replace(stride=2), (5, 16, 16, 1), "images").positions == 14 * 14
