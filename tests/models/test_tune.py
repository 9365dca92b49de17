"""A tuned combination is what a separate fit is: sums and atoms bit for bit, representations to float32 rounding."""

import itertools

import numpy as np
import pytest
from arrays_in_files import write_arrays
from drawing import small_images
from executors import ThreadsExecutor
from hypothesis import given, settings
from hypothesis import strategies as st

from smtdist.configuration import Configuration
from smtdist.data.array import ArraySource
from smtdist.data.hdf5 import Hdf5Source
from smtdist.engine.events import EventStream
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError, ModelError
from smtdist.evaluate.knn import SoftNeighbours
from smtdist.kernels.codes import encode_pieces
from smtdist.kernels.context import kept_mask
from smtdist.kernels.nested import nested_pieces, nests
from smtdist.kernels.representation import embed, pool, pooled_slices, slice_places
from smtdist.models.fit import fit
from smtdist.models.model import make_encoder
from smtdist.models.transform import transform
from smtdist.models.tuning import scores, shared
from smtdist.models.tuning.grid import combinations, parse_grid
from smtdist.models.tuning.scores import Judge, score
from smtdist.models.tuning.shared import fit_together
from smtdist.models.tuning.split import limited, split
from smtdist.models.tuning.tune import tune
from smtdist.statistics.together import NestedSums, Together

SMALL = {"patch": 3, "dictionary": 20, "n_components": 5, "pool_size": 2, "threshold": 0.4}
TRAIN = small_images(3, 300, 9, 8)
ASKED = small_images(4, 40, 9, 8)
PARTS = (ArraySource(TRAIN), np.arange(300) % 3), (ArraySource(ASKED), np.arange(40) % 3)

GRIDS = {
    "sharing": ({}, ["ridge=0.001,0.1", "threshold=0.3,0.5", "dictionary=12,20", "drop=0,2"]),
    "whitening": ({}, ["mean=context,patch,global", "mean_context=1,2", "min_contrast=1,20", "flip=true,false"]),
    "policies": ({}, ["zero_code=keep,leave_out,activate_best", "constant_patch=keep,activate_best", "dictionary=9,20"]),
    "contexts": ({"mean": "patch"}, ["context=1,2,whole", "order=1,2", "moment=second,centred"]),
    "vq": ({"feature": "vq"}, ["dictionary=12,20", "n_components=3,5", "context=1,whole"]),
    "both": ({}, ["feature=vq,gq", "dictionary_method=random,kmeans,spherical", "pool_stride=1,2", "dtype=float32,float16"]),
    "diverse": ({"dictionary_method": "diverse"}, ["dictionary=8,16", "dictionary_cosine=0.7,0.9", "dictionary_samples=0,200"]),
    "sampled": ({"mean": "patch"}, ["stride=1,2", "positions=null,9", "patch=2,3", "seed=0,1"]),
}  # fmt: skip


def engine(executor=None):
    return Engine(executor or SerialExecutor())


def at_once(*data):
    return SoftNeighbours()(*data)  # a judge that learns block by block is another way


def trials_of(*texts, **changes):
    """Return the combinations of a grid, each with its settings."""
    return combinations(Configuration(**{**SMALL, **changes}), parse_grid([*texts]))


def chosen_of(*texts, **changes):
    """Return the settings of the combinations of a grid."""
    return [one for _, one in trials_of(*texts, **changes)]


def represented(model, images):
    pieces = sorted(transform(model, ArraySource(images), engine()), key=lambda piece: piece[0])
    return np.concatenate([values for _, values in pieces]).reshape(len(images), -1)


def assert_same_statistics(left, right):
    assert (left.n_samples, left.n_positions) == (right.n_samples, right.n_positions)
    assert left.matrices.keys() == right.matrices.keys()
    np.testing.assert_array_equal(left.activity, right.activity)
    for name in left.matrices:
        np.testing.assert_array_equal(left.matrices[name], right.matrices[name], err_msg=name, strict=True)
    np.testing.assert_array_equal(left.context_scatter, right.context_scatter)


@pytest.mark.parametrize("name", GRIDS)
def test_equals_separate_fits(name):
    changes, texts = GRIDS[name]
    chosen = chosen_of(*texts, **changes)
    known, asked = ArraySource(TRAIN), ArraySource(ASKED)
    fitted = fit_together(known, chosen, engine(), keep_statistics=True)
    found = score(fitted, chosen, known, asked, Judge(lambda z, y: (z.copy(), y.copy())), engine())
    for one, own, (known_z, asked_z) in zip(chosen, fitted, found, strict=True):
        model, _ = fit(known, one, engine())
        np.testing.assert_array_equal(own.dictionary.grid, model.dictionary.grid)
        np.testing.assert_array_equal(own.dictionary.source_sample, model.dictionary.source_sample)
        np.testing.assert_array_equal(own.whitening.whiten, model.whitening.whiten)
        assert_same_statistics(own.statistics, model.statistics)
        wanted = one.n_components + one.drop_components
        components = own.embedding.components[:wanted]
        np.testing.assert_allclose(components, model.embedding.components, rtol=0, atol=1e-8)
        for z, images in ((known_z, TRAIN), (asked_z, ASKED)):
            expected = represented(model, images)
            assert (z.shape, z.dtype) == (expected.shape, expected.dtype)
            np.testing.assert_allclose(z, expected, rtol=0, atol=2e-6 if one.dtype == "float32" else 5e-4)


def test_given_atoms():
    atoms = np.random.default_rng(0).normal(size=(15, 9))
    base = Configuration(**{**SMALL, "dictionary_method": "given"})
    chosen = [one for _, one in combinations(base, parse_grid(["threshold=0.3,0.5", "ridge=0.01,0.1"]), 15)]
    for own, one in zip(
        fit_together(ArraySource(TRAIN), chosen, engine(), atoms=atoms, keep_statistics=True),
        chosen,
        strict=True,
    ):
        model, _ = fit(ArraySource(TRAIN), one, engine(), atoms=atoms)
        assert_same_statistics(own.statistics, model.statistics)
    with pytest.raises(ModelError, match="give both or neither"):
        fit_together(ArraySource(TRAIN), chosen, engine())


def test_reads_once_where_memory_allows_and_the_same_otherwise(monkeypatch):
    chosen = chosen_of("ridge=0.1,0.2", "threshold=0.3,0.4")
    seen = []

    def run():
        seen.clear()
        watched = Engine(SerialExecutor(), EventStream(lambda event: seen.append(event)))
        return fit_together(ArraySource(TRAIN), chosen, watched, keep_statistics=True)

    def passes():
        return [event["pass"] for event in seen if event["kind"] == "pass_started"]

    expected = run()
    assert passes() == ["whitening", "dictionary", "statistics", "solve"]
    monkeypatch.setattr(shared, "STATES_SHARE", 1e-12)
    again = run()
    assert passes().count("statistics") == 4
    for left, right in zip(expected, again, strict=True):
        assert_same_statistics(left.statistics, right.statistics)
        np.testing.assert_array_equal(left.embedding.components, right.embedding.components)


def test_a_temporary_file_where_memory_does_not_suffice(monkeypatch, tmp_path):
    trials = trials_of("threshold=0.3,0.4", "drop=0,1")

    def accuracies(**how):
        rows = tune(trials, *PARTS, at_once, engine(), **how)
        return [(row.changes, row.top1) for row in rows]

    expected = accuracies()
    assert accuracies(at_once=3) == expected
    monkeypatch.setattr(scores, "memory_limit", lambda: 3000)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert accuracies() == expected
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("executor", [SerialExecutor, lambda: ThreadsExecutor(3)])
@pytest.mark.parametrize("block_bytes", [1, 20_000, 2**30])
def test_learning_by_blocks_is_learning_at_once(monkeypatch, executor, block_bytes):
    monkeypatch.setattr(scores, "BLOCK_BYTES", block_bytes)
    trials = trials_of("threshold=0.3,0.4", "drop=0,1", "n_components=2,5", "dtype=float32,float16")

    def accuracies(classify):
        rows = tune(trials, *PARTS, classify, engine(executor()), at_once=2)
        return [(row.changes, row.top1, row.top5, row.interval) for row in rows]

    assert accuracies(SoftNeighbours()) == accuracies(at_once)


def test_workers_and_files_do_not_matter(tmp_path):
    write_arrays(tmp_path / "x.h5", {"x": TRAIN[..., 0]}, chunks=(32, 9, 8))
    source = Hdf5Source.open(tmp_path / "x.h5", "x")
    chosen = chosen_of("threshold=0.3,0.4", "drop=0,1")
    known, asked = split(source, 0.3, None, 0)
    results = []
    for executor in (SerialExecutor(), ThreadsExecutor(3)):
        fitted = fit_together(known.source, chosen, engine(executor), keep_statistics=True)
        judge = Judge(lambda z, y: y.copy())
        results.append((fitted, score(fitted, chosen, known.source, asked.source, judge, engine(executor))))
    (serial, serial_z), (threads, threads_z) = results
    for left, right in zip(serial, threads, strict=True):
        assert_same_statistics(left.statistics, right.statistics)
    np.testing.assert_array_equal(serial_z, threads_z)


def test_the_best_comes_first_and_its_equals_are_marked():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 340)
    images = np.concatenate([TRAIN, ASKED])
    images[labels == 1, :4] //= 3
    trials = trials_of("n_components=3,5", "threshold=0.3,0.6")
    known, asked = ArraySource(images[:300]), ArraySource(images[300:])
    rows = tune(trials, (known, labels[:300]), (asked, labels[300:]), at_once, engine())
    assert len(rows) == 4
    assert [row.top1 for row in rows] == sorted((row.top1 for row in rows), reverse=True)
    assert rows[0].within
    for row in rows:
        model, _ = fit(known, row.settings, engine())
        z = represented(model, images[:300]), represented(model, images[300:])
        alone = SoftNeighbours()(z[0], labels[:300], z[1], labels[300:])
        assert abs(alone.top1 - row.top1) < 1.5 / 40  # a tie that rounding breaks
        assert row.within == (row.top1 >= rows[0].interval[0])
    with pytest.raises(DataError, match="2 labels for 300 training images"):
        tune(trials, (known, labels[:2]), (asked, labels[300:]), at_once, engine())


def encoders(cuts, sizes, zero_code, constant_patch):
    base = Configuration(**SMALL, zero_code=zero_code, constant_patch=constant_patch)
    (own,) = fit_together(ArraySource(TRAIN), [base], engine())
    return [
        make_encoder(base.replace(threshold=cut), own.encoder.whitener, own.dictionary.grid[:size])
        for size in sizes
        for cut in cuts
    ]


@settings(deadline=None, max_examples=15)
@given(
    st.integers(0, 2**16),
    st.lists(st.sampled_from([0.1, 0.3, 0.6, 0.95]), min_size=1, max_size=3, unique=True),
    st.lists(st.integers(1, 20), max_size=3, unique=True),
    st.sampled_from(["keep", "leave_out", "activate_best"]),
    st.sampled_from(["keep", "leave_out", "activate_best"]),
    st.booleans(),
)
def test_nested_codes_are_the_codes(seed, cuts, sizes, zero_code, constant_patch, mirror):
    images = small_images(seed, 5, 9, 8)
    found = encoders(cuts, [20, *sorted(set(sizes) - {20}, reverse=True)], zero_code, constant_patch)
    assert all(nests(one, found[0]) for one in found)
    pieces = list(nested_pieces(images, found, mirror, 42 * 20))
    assert sum(count for _, count, _ in pieces) == 5
    for number, encoder in enumerate(found):
        expected = next(encode_pieces(images, encoder, mirror, 10**6))[2]
        indices = np.concatenate([codes[number].indices for _, _, codes in pieces])
        counts = np.concatenate([np.diff(codes[number].indptr) for _, _, codes in pieces])
        np.testing.assert_array_equal(indices, expected.indices)
        np.testing.assert_array_equal(counts, np.diff(expected.indptr))
        kept = [kept_mask(codes[number], (count, 7, 6)) for _, count, codes in pieces]
        np.testing.assert_array_equal(np.concatenate(kept), kept_mask(expected, (5, 7, 6)))


def test_what_does_not_nest_is_refused():
    first, second = encoders([0.3], [20, 10], "leave_out", "leave_out")
    assert not nests(first, second)
    with pytest.raises(ConfigurationError, match="one product"):
        list(nested_pieces(ASKED, [second, first], False, 10**6))


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**16), st.integers(1, 4), st.integers(1, 3), st.data())
def test_slices_are_pooled_embeddings(seed, size, stride, data):
    (encoder,) = encoders([0.3], [20], "leave_out", "leave_out")
    images = small_images(seed, 3, 9, 8)
    codes = next(encode_pieces(images, encoder, False, 10**6))[2]
    components = np.random.default_rng(seed).normal(size=(20, 9)).astype(np.float32)
    pairs = list(itertools.combinations(range(10), 2))
    slices = sorted(data.draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=5, unique=True)))
    parts = [pool(embed(codes, components[:, a:b]), 3, 7, 6, size, stride) for a, b in slices]
    places = slice_places(slices, parts[0].shape[1] * parts[0].shape[2], 3)
    out = np.full(int(places[-1]), np.nan, np.float32)
    pooled_slices(codes, 3, encoder.whitener.geometry, components, slices, size, stride, out, places)
    np.testing.assert_allclose(out, np.concatenate([part.reshape(-1) for part in parts]), rtol=0, atol=2e-6)


def test_sums_that_cannot_be_together_are_refused():
    chosen = chosen_of("threshold=0.3,0.5", "context=1,whole", mean="patch")
    one, two, *_ = sums_of(chosen, fit_together(ArraySource(TRAIN), chosen, engine()))
    other = sums_of(chosen[:1], fit_together(ArraySource(ASKED), chosen[:1], engine()))[0]
    with pytest.raises(ConfigurationError, match="different names"):
        Together((("a", one), ("a", two)))
    with pytest.raises(ConfigurationError, match="do not follow"):
        NestedSums((("a", one), ("b", other)))


def sums_of(chosen, fitted):
    from smtdist.statistics.cooccurrence import CodeSums

    return [
        CodeSums(own.encoder, one.context_size, one.difference_order, one.augment_flip, 300)
        for one, own in zip(chosen, fitted, strict=True)
    ]


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 3000), st.floats(0.01, 0.9), st.integers(2, 3000), st.integers(0, 9))
def test_splits_are_disjoint_and_of_the_size_asked_for(n, share, limit, seed):
    source = ArraySource(np.arange(n, dtype=np.float32).reshape(n, 1, 1) / n)
    try:
        known, asked = split(source, share, limit, seed)
    except (ConfigurationError, DataError) as error:
        judging = round(share * min(n, limit))
        assert judging in (0, min(n, limit)) or "too few" in str(error)  # noqa: PT017
        return
    assert len(asked.samples) == round(share * min(n, limit))
    assert len(known.samples) + len(asked.samples) <= min(n, limit)
    # rows are at most 1/32 of the samples: one is cut by the judging part, one is short
    assert len(known.samples) >= min(n, limit) * (1 - share - 2 / 32) - 1
    assert not set(known.samples) & set(asked.samples)
    for part in (known, asked):
        with part.source.opened() as reader:
            values = reader.read(0, part.source.n_samples)[:, 0, 0, 0]
        np.testing.assert_array_equal(values, (part.samples / n).astype(np.float32))
        assert part.source.n_samples == len(part.samples)


def test_files_are_split_in_whole_chunk_rows(tmp_path):
    write_arrays(tmp_path / "x.h5", {"x": np.repeat(TRAIN[..., 0], 4, axis=0)}, chunks=(16, 9, 8))
    source = Hdf5Source.open(tmp_path / "x.h5", "x")
    known, asked = split(source, 0.25, None, 1)
    rows = [set(part.samples // 16) for part in (known, asked)]
    assert not rows[0] & rows[1]
    assert limited(source, 100, 0).source.n_samples == 100
    assert limited(source, 10**6, 0).source is source
    first, again, other = (split(source, 0.25, 200, seed)[0].samples for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_grids():
    assert parse_grid(["context=3,whole", "flip=true", "ridge=0.1,0.1,1"]) == {
        "context_size": [3, "whole"],
        "augment_flip": [True],
        "whitening_reg": [0.1, 1],
    }
    for texts, message in (
        ([], "nothing to tune"),
        (["ridge="], "at least one value"),
        (["ridge"], "at least one value"),
        (["treshold=0.1"], "did you mean threshold"),
        (["ridge=0.1", "ridge=0.2"], "twice"),
        (["crop=8,16"], "crop cannot be tuned"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            parse_grid(texts)
    base = Configuration(**SMALL)
    for texts, message in (
        (["ridge=-1,0.1"], "whitening_reg is -1"),
        (["n_components=4,18", "drop=0,3"], "n_components=18 drop_components=3"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            combinations(base, parse_grid(texts))


def test_what_cannot_be_fitted_is_a_sentence():
    flat = ArraySource(np.zeros((50, 9, 8), np.uint8))
    chosen = [Configuration(**SMALL)]
    with pytest.raises(DataError, match="constant"):
        fit_together(flat, chosen, engine())
    with pytest.raises(ConfigurationError, match=r"With threshold=0\.4.*span only"):
        fit_together(
            ArraySource(TRAIN[:40]),
            [Configuration(**{**SMALL, "n_components": 18, "null_tolerance": 0.3})],
            engine(),
        )
    faint = ArraySource(np.random.default_rng(0).integers(100, 103, (20, 9, 8), dtype=np.uint8))
    far = chosen[0].replace(threshold=1.0, min_contrast=0.0, dictionary_method="given")
    with pytest.raises(DataError, match="has a code"):
        fit_together(faint, [far], engine(), atoms=np.eye(9))
