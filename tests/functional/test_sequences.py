"""Sums over sequences and straightness, against the matrices of the paper written out."""

import h5py
import numpy as np
import pytest
from blas_threads import bits_by_blas_threads
from drawing import unit_columns
from reference import sums_in_time

from smtdist.data.array import ArraySamples
from smtdist.data.video import PatchSequences, open_clips
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError
from smtdist.kernels.features import Features, Landmarks, RadialBasis
from smtdist.models.functional.fit import SparseCoder, Whitening
from smtdist.models.functional.video_judge import straightness
from smtdist.statistics.operators import Temporal, temporal_differences
from smtdist.statistics.sequences import DictionarySums, FrameMoments
from smtdist.statistics.sites import Sequences
from smtdist.statistics.values import ValueSums, finish

FEATURES = RadialBasis(np.random.default_rng(1).standard_normal((7, 3)), 1.0)


def sequence_sums(features, order, width=3):
    return ValueSums(Sequences(width), features, Temporal(order))


def printed_operator(length, order):
    """D as printed below equation 8, a column for each inner frame; first order likewise."""
    D = np.zeros((length, length - order))
    for column in range(length - order):
        if order == 2:
            D[column : column + 3, column] = [-0.5, 1, -0.5]
        else:
            D[column : column + 2, column] = [1, -1]
    return D


@pytest.mark.parametrize("order", [1, 2])
def test_sums_are_those_of_the_printed_operator(order):
    rows = np.random.default_rng(0).standard_normal((40, 6, 3))
    sums = sequence_sums(FEATURES, order)
    partial, _ = Engine(SerialExecutor()).reduce("codes", sums, ArraySamples(rows))
    found = finish(partial.state, sums).means()
    moment, scatter, mean = np.zeros((7, 7)), np.zeros((7, 7)), np.zeros(7)
    for sequence in rows:
        A = np.exp(-((sequence[:, None] - FEATURES.points) ** 2).sum(axis=2) / 2).T
        AD = A @ printed_operator(6, order)
        moment += A @ A.T
        scatter += AD @ AD.T
        mean += A.sum(axis=1)
    assert found.n_positions == 240
    np.testing.assert_allclose(found.moment, moment / 240, atol=1e-4)
    np.testing.assert_allclose(found.scatter, scatter / 240, atol=1e-4)
    np.testing.assert_allclose(found.covariance, moment / 240 - np.outer(mean, mean) / 240**2, atol=1e-4)


def test_cuts_between_sequences_are_respected():
    rows = np.random.default_rng(2).standard_normal((50, 4, 3))
    sums = sequence_sums(FEATURES, 2)
    apart, joined = sums.zero(), sums.zero()
    sums.update(apart, rows, 0)
    sums.update(joined, rows.reshape(1, 200, 3), 0)
    # the same frames as one long sequence have differences across the joints, and other sums
    assert not np.array_equal(joined["context_scatter_low"], apart["context_scatter_low"])
    assert np.array_equal(joined["second_moment_low"], apart["second_moment_low"])


@pytest.mark.parametrize(("order", "length"), [(2, 4), (2, 8), (1, 3)])
def test_sums_of_overlapping_windows_are_those_of_whole_shots(order, length, tmp_path):
    # shots of 1, 2, 3, 9 and 16 frames: shorter than a window, with and without a rest
    draw, cuts = np.random.default_rng(3), [1, 3, 6, 15]
    frames = draw.integers(0, 256, (31, 3, 3), dtype=np.uint8)
    with h5py.File(tmp_path / "clips.h5", "w") as file:
        file["one/frames"] = frames
        file["one"].attrs["cuts"] = cuts
    # frames as large as a patch, so that all places are the same one
    source = PatchSequences(open_clips(str(tmp_path / "clips.h5")), 3, length, 2, overlap=order)
    features = RadialBasis(draw.uniform(0, 1, (5, 9)), 1.0)
    sums = ValueSums(Sequences.of(source), features, Temporal(order))
    engine = Engine(SerialExecutor())
    found = finish(engine.reduce("codes", sums, source)[0].state, sums).means()
    rows = (frames / np.float32(255)).reshape(31, 9).astype(np.float64)
    shots = [
        np.exp(-((part[:, None] - features.points) ** 2).sum(axis=2) / 2).T for part in np.split(rows, cuts)
    ]
    moment, scatter, activity, count = sums_in_time(shots, order)
    assert found.n_positions == 2 * count
    np.testing.assert_allclose(found.moment, moment / count, atol=2e-5)
    np.testing.assert_allclose(found.scatter, scatter / count, atol=2e-5)
    np.testing.assert_allclose(found.mean, activity / count, atol=2e-5)
    kept = np.concatenate([part for part in np.split(rows, cuts) if len(part) > order])
    whitening = engine.reduce("whitening", FrameMoments(9, marked=True), source)[0].state
    assert whitening["n"] == 2 * count
    np.testing.assert_allclose(whitening["moment"], 2 * kept.T @ kept, rtol=1e-12)
    # frames that windows share are read once, wherever reads begin
    with source.opened() as reader:
        whole = reader.read(0, source.n_samples)
        assert reader.read_bytes == source.stored_bytes == 9 * count
    with source.opened() as reader:
        parts = [reader.read(at, min(at + 3, source.n_samples)) for at in (6, 0, 3)]
    assert np.array_equal(np.concatenate([parts[1], parts[2], parts[0]]), whole[:9])
    with pytest.raises(ConfigurationError, match="overlap is 3"):
        PatchSequences(source.clips, 3, 3, 2, overlap=3)


def test_straight_codes_cost_nothing_and_short_sequences_are_refused():
    time = np.arange(5.0)[None, :, None]
    assert not temporal_differences(3 * time + 1, 2).any()
    with pytest.raises(DataError, match="longer"):
        temporal_differences(np.zeros((1, 2, 1)), 2)
    with pytest.raises(ConfigurationError, match="order"):
        sequence_sums(Landmarks(np.zeros((3, 2))), 3)
    none = sequence_sums(Landmarks(np.zeros((3, 2))), 1)
    with pytest.raises(DataError, match="No position has a code"):
        finish(none.zero(), none).means()


def test_codes_too_large_for_exact_sums_are_refused():
    class Large(Features):
        size = 2

        def __call__(self, rows):
            return np.full((len(rows), 2), 1e5)

    sums = sequence_sums(Large(), 1, 1)
    with pytest.raises(DataError, match="variance around 1"):
        sums.update(sums.zero(), np.zeros((2, 3, 1)), 0)


def test_frame_moments_are_those_of_all_rows():
    rows = np.random.default_rng(3).standard_normal((300, 4, 5)).astype(np.float32)
    partial, _ = Engine(SerialExecutor()).reduce("whitening", FrameMoments(5), ArraySamples(rows))
    flat = rows.reshape(-1, 5).astype(np.float64)
    np.testing.assert_allclose(partial.state["moment"], flat.T @ flat, rtol=1e-12)
    np.testing.assert_allclose(partial.state["total"], flat.sum(axis=0), rtol=1e-9)
    assert partial.state["n"] == 1200


def test_straightness_of_lines_turns_and_noise():
    line = np.arange(6.0)[None, :, None] * np.array([1.0, 2.0, 0.0])
    assert straightness(line).second_difference == pytest.approx(0, abs=1e-30)
    assert straightness(line).angle == pytest.approx(0, abs=1e-5)
    noise = np.random.default_rng(4).standard_normal((400, 5, 300))
    found = vars(straightness(noise))
    assert found["second_difference"] == pytest.approx(1.5, rel=0.01)
    assert found["angle"] == pytest.approx(120, abs=1)
    assert found["bend"] == pytest.approx(0.75, rel=0.01)
    walk = straightness(np.cumsum(noise, axis=1))
    assert walk.bend == pytest.approx(0.5, rel=0.02)
    assert walk.angle == pytest.approx(90, abs=1)
    to_and_fro = straightness(np.array([[[0.0], [1.0], [0.0], [1.0]]]))
    assert (to_and_fro.bend, to_and_fro.angle) == (1.0, 180.0)
    still = np.concatenate([line, np.ones((1, 6, 3))])
    assert straightness(still).angle == pytest.approx(0, abs=1e-5)
    for wrong in (np.zeros((2, 2, 3)), np.zeros((0, 4, 3)), np.ones((2, 4, 3))):
        with pytest.raises(DataError):
            straightness(wrong)


@pytest.mark.parametrize("name", ["codes", "dictionary", "whitening"])
def test_sums_do_not_follow_the_threads_of_blas(name):
    # a product by two threads may round otherwise than one by one thread, and vdot does from 10,000 numbers on
    draw = np.random.default_rng(5)
    dictionary = unit_columns(draw, 64, 90)
    whitening = Whitening(np.zeros(64), draw.standard_normal((64, 64)) / 8, np.eye(64))
    coder = SparseCoder(dictionary, 0.5, whitening)
    statistic = {
        "codes": sequence_sums(coder, 2, 90),
        "dictionary": DictionarySums(coder),
        "whitening": FrameMoments(90, coder),
    }[name]
    rows = draw.standard_normal((700, 3, 64)).astype(np.float32)
    one, two, three = bits_by_blas_threads(statistic, rows)
    assert one == two == three
