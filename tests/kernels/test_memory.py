"""What a batch takes stays within what was planned, also for images of thousands of patches and dense codes."""

from dataclasses import replace

import numpy as np
import pytest
from measured import peak_of

from smtdist.kernels.codes import are_paired
from smtdist.kernels.pixels import pixel_scale
from smtdist.kernels.types import Encoder, Geometry, Whitener
from smtdist.kernels.whitening import atoms_to_grid, integer_whitening, threshold_cut
from smtdist.statistics.candidates import Candidates, Centroids
from smtdist.statistics.cooccurrence import CodeSums
from smtdist.statistics.covariance import PatchMoment

IMAGES = 24


def statistics(context, threshold, n_atoms=256):
    """On images of 64 x 64 x 3 with 3,481 patches of 108 pixels each."""
    geometry = Geometry(64, 64, 3, 6)
    whiten = integer_whitening(np.eye(108))
    whitener = Whitener(geometry, pixel_scale(np.uint8, None), False, "context", "whole", None, 1.0, whiten)
    atoms = atoms_to_grid(np.random.default_rng(0).normal(size=(n_atoms, 108)))
    cut = threshold_cut(threshold, 108)
    gq = Encoder(whitener, atoms, "gq", cut, False, "leave_out", "keep")
    vq = Encoder(whitener, atoms, "vq", cut, True, "leave_out", "leave_out")
    spares = Candidates(whitener, False, 1024, 1)
    own = replace(whitener, ridge=1e6)
    return {
        "moment": PatchMoment(whitener, True),
        "gq": CodeSums(gq, context, 1, False, 1000),
        "vq": CodeSums(vq, context, 1, False, 1000),
        "centroids": Centroids(vq, False, spares),
        "candidates": spares,
        "gq, each image whitened": replace(
            CodeSums(gq, context, 1, False, 1000), encoder=replace(gq, whitener=own)
        ),
        "candidates, each image whitened": replace(spares, whitener=own),
    }


def peak_of_a_batch(statistic, images):
    tiny = statistic.miniature()
    tiny.update(tiny.zero(), images[:1], 0)  # compiles
    state = statistic.zero()
    return peak_of(lambda: statistic.update(state, images, 0)), state


@pytest.mark.usefixtures("thread_count")
@pytest.mark.parametrize("context", ["whole", 2])
@pytest.mark.parametrize("threshold", [0.02, 0.2], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", statistics("whole", 0.2))
def test_the_first_batch_takes_what_was_planned(name, threshold, context):
    statistic = statistics(context, threshold)[name]
    images = np.random.default_rng(1).integers(0, 256, (IMAGES, 64, 64, 3), dtype=np.uint8)
    peak, state = peak_of_a_batch(statistic, images)
    assert peak <= statistic.batch_bytes(IMAGES)
    if name == "gq" and threshold == 0.02:
        assert int(state["activity"].sum()) > IMAGES * 3481 * 256 // 32, "several pieces"


@pytest.mark.usefixtures("thread_count")
@pytest.mark.parametrize("images", [1, 2, 5, 24])
@pytest.mark.parametrize("threshold", [0.02, 0.2], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", ["gq", "vq"])
def test_images_and_mirror_images_take_what_was_planned(name, threshold, images):
    """They are coded together, where each image has a Σ of its own."""
    sums = statistics("whole", threshold)[name]
    whitener = replace(sums.encoder.whitener, geometry=Geometry(32, 32, 3, 6), ridge=1e6)
    sums = replace(sums, encoder=replace(sums.encoder, whitener=whitener), flip=True)
    assert are_paired(whitener)
    given = np.random.default_rng(1).integers(0, 256, (images, 32, 32, 3), dtype=np.uint8)
    assert peak_of_a_batch(sums, given)[0] <= sums.batch_bytes(images)


@pytest.mark.usefixtures("thread_count")
@pytest.mark.parametrize(("context", "order"), [("whole", 1), (2, 1), ("whole", 2)])
def test_images_with_flat_parts_take_what_was_planned(context, order):
    """Each lacks neighbours by a number of its own, so that nearly all codes are summed with weights."""
    rng = np.random.default_rng(2)
    count = 4 * IMAGES
    images = rng.integers(0, 256, (count, 64, 64, 3), dtype=np.uint8)
    for image, width in zip(images, rng.integers(4, 16, count), strict=True):
        image[:, :width] = 128
    statistic = replace(statistics(context, 0.175, 1024)["gq"], order=order)
    peak, state = peak_of_a_batch(statistic, images)
    assert peak <= statistic.batch_bytes(count)
    assert (state["deficit"] if order == 1 else state["beyond_high"]).any()
    assert int(state["activity"].sum()) > statistic.capacity(count), (
        "a full buffer of codes, and more to come"
    )
