"""The time of a batch of the sums, from smaller batches and dictionaries: known laws are found, and a fit's own time."""

import mmap

import numpy as np
import pytest
from drawing import small_images
from hypothesis import assume, given
from hypothesis import strategies as st

from smtdist.configuration import Configuration
from smtdist.data.array import ArraySource
from smtdist.engine import calibration
from smtdist.engine.calibration import Deadline
from smtdist.engine.memory import resident_bytes
from smtdist.models import calibrate
from smtdist.models.calibrate import Asked, Batch, active_of, measured, predicted
from smtdist.models.plan import fit_steps
from smtdist.statistics import cooccurrence
from smtdist.statistics.cooccurrence import CodeSums

COEFFICIENTS = st.lists(st.sampled_from([0.0, 0.1, 1.0, 5.0]), min_size=5, max_size=5).filter(any)
SCALES = (1e-3, 1e-4, 1e-7, 1e-10, 1e-8)
"""Of the five terms, so that at K = 2,048 none hides the others."""


def law(coefficients, atoms, images, patches=16):
    """A batch whose atoms are drawn at random: active are as many as so many draws leave."""
    active = round(atoms * -np.expm1(-images * patches / atoms))
    terms = Batch(atoms, images, active, 0.0).terms
    return Batch(
        atoms, images, active, float(np.dot(np.array(coefficients) * np.array(SCALES), np.array(terms)))
    )


@given(COEFFICIENTS)
def test_a_law_is_found_from_small_batches(coefficients):
    found = [law(coefficients, k, n) for k in (512, 2048) for n in (4, 16, 64, 256)]
    found += [law(coefficients, 8192, n) for n in (4, 16)]
    truth = law(coefficients, 8192, 4096)
    assert predicted(found, 8192, 4096) == pytest.approx(truth.seconds, rel=0.02)


@given(COEFFICIENTS, st.integers(0, 9))
def test_noise_does_little_harm(coefficients, seed):
    found = [law(coefficients, k, n) for k in (512, 2048, 8192) for n in (4, 16, 64)]
    noise = np.random.default_rng(seed).uniform(0.9, 1.1, len(found))
    noisy = [Batch(b.atoms, b.images, b.active, b.seconds * by) for b, by in zip(found, noise, strict=True)]
    assert 0.4 < predicted(noisy, 8192, 256) / law(coefficients, 8192, 256).seconds < 2.5


@given(COEFFICIENTS, st.sampled_from([(512,), (512, 2048)]), st.sampled_from([(1,), (1, 4)]))
def test_few_batches_do_not_make_a_plan_far_too_short(coefficients, atoms, images):
    # of one dictionary nothing tells a sweep from what an update costs anyway
    assume(len(atoms) > 1 or not coefficients[4])
    found = [law(coefficients, k, n, 2000) for k in atoms for n in images]
    assert predicted(found, 8192, 64) > 0.25 * law(coefficients, 8192, 64, 2000).seconds


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("images", [4, 256])
def test_atoms_that_occur_beyond_the_batches_found(dense, images):
    """Draws from all atoms, as many a patch or a share of them: also from batches in which all atoms occur."""

    def active(atoms, n):
        draws = n * (atoms / 20 if dense else 200)
        return round(-atoms * np.expm1(-draws / atoms))

    found = [Batch(k, n, active(k, n), 1.0) for k in (1024, 4096, 16384) for n in (1, 4, 16, 64)]
    found += [Batch(k, 16, active(k, 1), 1.0, 1) for k in (4096, 16384)]
    assert active_of(found, 65536, images) == pytest.approx(active(65536, images), rel=0.02)


def fresh_zeros(shape, dtype):
    array = np.zeros(shape, dtype)
    return np.frombuffer(mmap.mmap(-1, max(array.nbytes, 1)), array.dtype, array.size).reshape(shape)


def forecast(monkeypatch, context, seconds, active_of, allowed, tiles=1):
    """Plan updates by a known law, on a clock of its own: seconds a sample, the batches (K, images) tried, bytes touched before.

    The latter as a share of the sums, at K = 2,048. The law is told twice the area of the rows that are summed.
    """
    now = [1e6]
    monkeypatch.setattr(calibration.time, "time", lambda: now[0])
    monkeypatch.setattr(calibration.time, "perf_counter", lambda: now[0])
    sizes, resident, touched = list[tuple[int, int]](), dict[int, int](), dict[int, float]()
    plain = CodeSums.zero

    def zero(self):
        # a map of its own: an allocator may hand out pages that were touched before
        state = {name: fresh_zeros(each.shape, each.dtype) for name, each in plain(self).items()}
        resident[self.n_atoms] = resident_bytes()
        return state

    def update(self, state, images, first_sample):
        if self.n_atoms == cooccurrence.FEW:  # the twin that warms kernels
            return 0
        share = (resident_bytes() - resident[self.n_atoms]) / self.state_bytes()
        touched.setdefault(self.n_atoms, share)
        active = active_of(self.n_atoms, len(np.unique(images, axis=0)))
        state["activity"][:active] += 1
        low, high = self.rows or (0, self.n_atoms)
        now[0] += seconds(self.n_atoms, len(images), active, (high - low) * (2 * self.n_atoms - low - high))
        sizes.append((self.n_atoms, len(images)))
        return 0

    images = small_images(3, 256, 8, 8)
    source, settings = (
        ArraySource(images),
        Configuration(patch=3, feature="vq", context=context, dictionary=2048, n_components=6),
    )
    step = fit_steps(source, settings)[-1]
    monkeypatch.setattr(CodeSums, "zero", zero)
    monkeypatch.setattr(CodeSums, "update", update)
    paces, *_ = measured(
        Asked(source, settings, (step,), ((256, 256, tiles),), 1, 1), Deadline.after(allowed)
    )
    return paces["statistics"].add[0][1], sizes, touched[2048]


@pytest.mark.parametrize("context", [2, "whole"])
def test_sweeping_the_sums_is_paid_by_the_batch_and_not_by_the_image(monkeypatch, context):
    """Time for few images and no more, whose atoms are a part of all."""

    def seconds(atoms, images, active, square):
        return 1e-3 * images + 1e-7 * images * atoms + 2e-7 * square / atoms * active

    found, sizes, touched = forecast(monkeypatch, context, seconds, lambda k, n: min(k, 40 * n), 2.5)
    # pages that a first batch would touch are no part of what a batch takes
    assert touched > 0.9
    tried = max(images for atoms, images in sizes if atoms == 2048)
    assert tried < 64
    assert found == pytest.approx(seconds(2048, 256, 2048, 2048**2) / 256, rel=0.25)
    # in proportion to the batch that was tried
    assert seconds(2048, tried, 40 * tried, 2048**2) / tried > 2 * found


@pytest.mark.parametrize("active_of", [lambda k, n: k, lambda k, n: min(k, 40 * n)])
def test_what_each_image_pays_is_not_taken_for_a_sweep(monkeypatch, active_of):
    """Pairs of atoms in windows of the second order: a few images are all there is time for, at any size of dictionary."""

    def seconds(atoms, images, active, square):
        return 0.13 + 1e-7 * images * square

    found, sizes, _ = forecast(monkeypatch, 2, seconds, active_of, 4.0)
    assert max(images for atoms, images in sizes if atoms == 2048) <= 4
    assert found == pytest.approx(1e-7 * 2048**2, rel=0.1)


@pytest.mark.parametrize("tiles", [1, 4])
@pytest.mark.parametrize("allowed", [1.0, 3.0])
def test_some_rows_of_large_sums_tell_of_all(monkeypatch, tiles, allowed):
    """A sweep of all takes longer than there is, and products with all atoms are coded anew for each tile of rows."""

    def seconds(atoms, images, active, square):
        return (
            2e-3 * images + 2e-5 * images * atoms + 1e-9 * images * square + 1e-6 * square / atoms * active
        )

    monkeypatch.setattr(calibrate, "SLICE_BYTES", 2**20)
    found, sizes, _ = forecast(monkeypatch, "whole", seconds, lambda k, n: min(k, 400 * n), allowed, tiles)
    assert max(atoms for atoms, _ in sizes) == 2048
    assert found == pytest.approx(seconds(2048, 256, 2048, 2048**2 / tiles) / 256, rel=0.2)


def test_a_tile_that_there_is_time_for_is_measured_itself(monkeypatch):
    def seconds(atoms, images, active, square):
        return 1e-9 * square

    found, sizes, _ = forecast(monkeypatch, "whole", seconds, lambda k, n: k, 60.0, 4)
    area = cooccurrence.tile_cuts(2048, 4)[1] * (2 * 2048 - cooccurrence.tile_cuts(2048, 4)[1])
    assert sizes[-1] == (2048, 256)
    assert found == pytest.approx(1e-9 * area / 256)
