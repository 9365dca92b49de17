"""Samples in many files: the bits of the same samples in one, one file open at a time, and sentences for the rest."""

import pickle
from itertools import pairwise

import h5py
import numpy as np
import pytest
from arrays_in_files import add_arrays
from calling import same_fits
from drawing import small_images
from encoding import pillow_bytes, write_encoded
from executors import LossyExecutor, engine
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from toys import Total

import smtdist
from smtdist import SMT
from smtdist.configuration import Configuration
from smtdist.data.array import as_source
from smtdist.data.locations import full_location, resolved
from smtdist.data.opening import ShardedSource, open_labels, open_source
from smtdist.data.source import MAX_LEAVES, MIN_LEAF_SAMPLES, Reader, shard_bounds
from smtdist.data.views import chunk_subset
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.engine.plan import WorkerLimits, plan_pass
from smtdist.errors import ConfigurationError, DataError

SMALL = {"patch": 3, "feature": "vq", "context": 2, "dictionary": 16, "n_components": 4, "pool_size": 2}
SMALL |= {"constant_patch": "activate_best", "mean": "global"}
KMEANS = {"dictionary_method": "kmeans", "dictionary_rounds": 2}
CUTS = (0, 300, 310, 700, 900)


def write_plain(path, images, labels=None, chunk=None, classes=None):
    with h5py.File(path, "w") as file:
        options = {} if chunk is None else {"chunks": (min(chunk, len(images)), *images.shape[1:])}
        file.create_dataset("train/images", data=images, **options)
        if labels is not None:
            file["train/labels"] = labels
        if classes is not None:
            file["train"].attrs["classes"] = classes
    return str(path)


@pytest.fixture(scope="module")
def images():
    return small_images(3, CUTS[-1], 9, 9)


@pytest.fixture(scope="module")
def folders(images, tmp_path_factory):
    """The images in one file and in four of different lengths and chunks, plain and encoded."""
    root = tmp_path_factory.mktemp("shards")
    labels = np.arange(len(images)) % 3
    for kind in ("plain", "encoded"):
        (root / kind).mkdir()
    for name, start, stop in [("all", 0, len(images))] + [
        (f"part-{number}", start, stop) for number, (start, stop) in enumerate(pairwise(CUTS))
    ]:
        sub = "." if name == "all" else "plain"
        write_plain(
            root / sub / f"{name}.h5", images[start:stop], labels[start:stop], chunk=40 + 10 * (stop % 3)
        )
        sub, name = (".", "all-encoded") if name == "all" else ("encoded", name)
        blobs = [pillow_bytes(image) for image in images[start:stop]]
        write_encoded(root / sub / f"{name}.h5", blobs, "train", labels[start:stop], chunks=(999,))
    return root


@pytest.mark.parametrize("kind", ["plain", "encoded"])
@pytest.mark.parametrize(
    "settings", [{}, {"positions": 20}, {"feature": "gq", "threshold": 0.4, "order": 2}, KMEANS]
)
def test_a_fit_has_the_bits_of_one_file(folders, kind, settings):
    settings = SMALL | settings
    one = SMT(**settings).fit((folders / ("all.h5" if kind == "plain" else "all-encoded.h5"), "train"))
    many = SMT(**settings).fit((folders / kind, "train"))
    same_fits(one.model_, many.model_)
    assert np.array_equal(one.model_.whitening.covariance, many.model_.whitening.covariance)
    assert one.model_.provenance["fingerprint"] == many.model_.provenance["fingerprint"]
    source = open_source(folders / kind, "train")
    assert isinstance(source, ShardedSource)
    whitening, dictionary, statistics = many.passes_[:3]
    assert whitening["read_bytes"] == statistics["read_bytes"] == source.stored_bytes
    assert 0 < dictionary["read_bytes"] < source.stored_bytes * dictionary["rounds"]


def test_mini_batches_take_rows_of_many_files(folders):
    settings = SMALL | KMEANS | {"dictionary_samples": 200}
    one, again = (SMT(**settings).fit((folders / "plain", "train")) for _ in range(2))
    assert np.array_equal(one.components_, again.components_)
    subset = chunk_subset(open_source(folders / "plain", "train"), 200, 0)
    assert subset.describe()["shape"] == list(subset.shape)
    assert len(subset.describe()["chunk_rows"]) * subset.chunk_samples == subset.n_samples
    whole = as_source((folders / "all.h5", "train/images"))
    with subset.opened() as reader, whole.opened() as expected:
        step = subset.chunk_samples
        for row, chunk in enumerate(subset.chunks):
            found = reader.read(row * step, (row + 1) * step)
            assert np.array_equal(found, expected.read(chunk * step, (chunk + 1) * step))


def test_the_same_bits_for_processes_and_losses(folders):
    settings = Configuration(**SMALL)
    source = open_source(folders / "plain", "train")
    found = [
        smtdist.models.fit.fit(source, settings, Engine(executor))[0].statistics.second_moment
        for executor in (SerialExecutor(), LossyExecutor(1), LossyExecutor(2))
    ]
    with_workers = SMT(**SMALL, workers=1).fit((folders / "plain", "train")).model_.statistics.second_moment
    assert all(np.array_equal(found[0], other) for other in (*found[1:], with_workers))


@given(
    seed=st.integers(0, 2**32),
    lengths=st.lists(st.integers(1, 12), min_size=2, max_size=5),
    dtype=st.sampled_from(["uint8", "float32"]),
    ranges=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=4),
)
@hypothesis_settings(
    max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
def test_any_range_reads_as_the_joined_array(tmp_path_factory, seed, lengths, dtype, ranges):
    folder = tmp_path_factory.mktemp("ranges")
    rng = np.random.default_rng(seed)
    parts = [small_images(int(rng.integers(2**31)), n, 4, 3, 3, dtype) for n in lengths]
    paths = [write_plain(folder / f"{i}.h5", part, chunk=4) for i, part in enumerate(parts)]
    whole = np.concatenate(parts)
    source = pickle.loads(pickle.dumps(open_source(paths, "train")))
    assert source.shape == whole.shape
    with source.opened() as reader:
        for start, stop in [(0, len(whole)), *ranges]:
            start, stop = sorted((min(start, len(whole)), min(stop, len(whole))))
            before = reader.read_bytes
            assert np.array_equal(reader.read(start, stop), whole[start:stop])
            assert reader.read_bytes - before == whole[start:stop].nbytes


@given(files=st.lists(st.tuples(st.integers(1, 400_000), st.integers(1, 3000)), min_size=1, max_size=40))
def test_leaves_never_straddle_files_and_are_not_too_many(files):
    bounds = shard_bounds(files)
    assert all(start < stop for start, stop in pairwise(bounds))
    ends = np.cumsum([0, *(samples for samples, _ in files)]).tolist()
    assert set(ends) <= set(bounds)
    assert len(bounds) - 1 <= MAX_LEAVES + len(files)
    for first, (samples, chunk) in zip(ends, files, strict=False):
        inside = [bound - first for bound in bounds if first <= bound < first + samples]
        assert all(bound % chunk == 0 for bound in inside)
        lengths = [stop - start for start, stop in pairwise([*inside, samples])]
        assert len(lengths) == 1 or min(lengths[:-1]) >= MIN_LEAF_SAMPLES


def test_equal_files_have_no_short_leaf_at_their_end():
    bounds = shard_bounds([(1280, 16)] * 1000)
    assert {stop - start for start, stop in pairwise(bounds)} == {1280}


def test_a_reader_has_one_file_open_and_a_task_opens_each_of_its_files_once(folders, monkeypatch):
    source = open_source(folders / "plain", "train")
    now, most, opened = [0], [0], []
    for cls in {type(shard) for shard in source.shards}:
        original = cls.opened

        def counted(self, original=original):
            class Context:
                def __enter__(self_):
                    opened.append(self.path)
                    now[0] += 1
                    most[0] = max(most[0], now[0])
                    self_.inner = original(self)
                    return self_.inner.__enter__()

                def __exit__(self_, *error):
                    now[0] -= 1
                    return self_.inner.__exit__(*error)

            return Context()

        monkeypatch.setattr(cls, "opened", counted)
    partial, _ = engine().reduce("toy", Total(), source)
    assert int(partial.state["numbers"]) == sum(range(source.n_samples))
    assert (now, most) == ([0], [1])
    assert len(set(opened)) == len(source.shards)
    assert len(opened) <= len(source.leaf_bounds()) - 1, "a task of one leaf opens one file"


def test_memory_is_planned_for_the_file_that_needs_most(tmp_path):
    small, large = np.zeros((2, 40, 30, 3), np.uint8)
    for name, image, most in (
        ("a", small, 40 * 30),
        ("b", np.kron(large, np.ones((9, 9, 1), np.uint8)), None),
    ):
        attributes = {} if most is None else {"max_pixels": most}
        write_encoded(tmp_path / f"{name}.h5", [pillow_bytes(image)] * 3, "train", attributes=attributes)
    settings = Configuration(resize=8)
    source = open_source(tmp_path / "*.h5", "train", settings)
    parts = [open_source(tmp_path / f"{name}.h5", "train", settings) for name in "ab"]
    assert parts[0].thread_bytes != parts[1].thread_bytes
    assert source.thread_bytes == max(part.thread_bytes for part in parts)
    assert source.reader_bytes == max(part.reader_bytes for part in parts)
    assert source.stored_bytes == sum(part.stored_bytes for part in parts)
    limits = WorkerLimits(2**31, 0, 2, 1)
    planned = [plan_pass("toy", Total(), one, limits).projected_bytes for one in (source, *parts)]
    assert planned[0] == max(planned)


def test_colour_in_one_file_makes_all_colour(tmp_path):
    grey, colour = np.full((4, 4, 1), 7, np.uint8), np.full((4, 4, 3), 9, np.uint8)
    write_encoded(tmp_path / "a.h5", [pillow_bytes(grey)] * 2)
    write_encoded(tmp_path / "b.h5", [pillow_bytes(colour)] * 2)
    source = open_source(tmp_path, "train")
    with source.opened() as reader:
        assert reader.read(0, 4)[:, 0, 0].tolist() == [[7] * 3] * 2 + [[9] * 3] * 2
    assert open_source(tmp_path, "train", Configuration(channels=1)).shape == (4, 4, 4, 1)


def test_labels_follow_one_another(folders):
    source = open_source(folders / "encoded", "train")
    assert np.array_equal(open_labels(folders / "encoded", "train", source), np.arange(CUTS[-1]) % 3)


def test_mixed_layouts_shapes_and_settings_are_refused(tmp_path, folders):
    images = np.zeros((3, 4, 4), np.uint8)
    plain = write_plain(tmp_path / "a.h5", images)
    with pytest.raises(DataError, match=r"b\.h5.* holds encoded images, but .*a\.h5.* holds plain ones"):
        open_source([plain, write_encoded(tmp_path / "b.h5", [pillow_bytes(images[0])])], "train")
    with pytest.raises(DataError, match=r"c\.h5.* has uint8 images of \(5, 4, 1\).*a\.h5"):
        open_source([plain, write_plain(tmp_path / "c.h5", np.zeros((3, 5, 4), np.uint8))], "train")
    with pytest.raises(DataError, match=r"d\.h5.*float32 images"):
        open_source([plain, write_plain(tmp_path / "d.h5", images.astype("float32"))], "train")
    write_encoded(tmp_path / "e.h5", [pillow_bytes(np.zeros((6, 4), np.uint8))])
    with pytest.raises(DataError, match=r"e\.h5.*make all 4 x 4: a fit with resize=4"):
        open_source([tmp_path / "b.h5", tmp_path / "e.h5"], "train")
    with pytest.raises(ConfigurationError, match="resize is for encoded"):
        open_source(folders / "plain", "train", Configuration(resize=4))


def test_a_file_without_the_images_is_named(tmp_path):
    paths = [write_plain(tmp_path / f"{name}.h5", np.zeros((3, 4, 4), np.uint8)) for name in "ab"]
    with h5py.File(paths[1], "a") as file:
        del file["train"]
    with pytest.raises(DataError, match=r"b\.h5 has no dataset 'train'"):
        open_source(paths, "train")


def test_labels_that_cannot_be_joined_are_refused(tmp_path):
    images = np.zeros((3, 4, 4), np.uint8)
    classes = {"a": ["cat", "dog"], "b": ["cat", "cow"], "c": None, "d": ["cat", "dog", "emu"]}
    paths = {
        name: write_plain(tmp_path / f"{name}.h5", images, [0, 1, 1], classes=names)
        for name, names in classes.items()
    }
    for other, sentence in [
        ("b", "'dog' and 'cow' for class 1"),
        ("c", r"a\.h5 names its 2 classes, but .*c\.h5 does not"),
        ("d", "2 and 3 classes"),
    ]:
        both = [paths["a"], paths[other]]
        with pytest.raises(DataError, match=sentence):
            open_labels(both, "train", open_source(both, "train"))
    paths["e"] = write_plain(tmp_path / "e.h5", images, [0, 1], classes=["cat", "dog"])
    both = [paths["a"], paths["e"]]
    with pytest.raises(
        DataError, match=r"e\.h5:train/labels has the shape \(2,\), but there are 3 samples"
    ):
        open_labels(both, "train", open_source(both, "train"))


def test_what_names_many_files(tmp_path):
    for name in ("b.h5", "a.hdf5", "c.txt", ".hidden.h5"):
        (tmp_path / name).touch()
    paths = (str(tmp_path / "a.hdf5"), str(tmp_path / "b.h5"))
    (tmp_path / "list.txt").write_text("# shards\nb.h5\n\na.hdf5 # the rest\n")
    (tmp_path / "list.json").write_text('["b.h5", "s3://bucket/x.h5"]')
    assert resolved(tmp_path).paths == paths
    assert resolved(str(tmp_path / "[ab].h*5")).paths == paths
    assert resolved(tmp_path / "list.txt").paths == paths[::-1]
    assert resolved(tmp_path / "list.json").paths == (paths[1], "s3://bucket/x.h5")
    assert resolved([tmp_path / "list.txt", "c.h5"]).paths[:2] == paths[::-1]
    assert resolved([paths[0]]) == paths[0] == full_location([paths[0]])
    for bad, sentence in [
        ([], "is empty"),
        (tmp_path / "*.png", "No file matches"),
        ([paths[0], paths[0]], "named twice"),
        (tmp_path / "c.txt", "lists no file"),
    ]:
        with pytest.raises(DataError, match=sentence):
            resolved(bad)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"folder without files ending in \.h5"):
        resolved(tmp_path / "empty")


def test_a_file_that_changed_after_opening_is_found(tmp_path):
    paths = [write_plain(tmp_path / f"{n}.h5", np.zeros((3, 4, 4), np.uint8)) for n in range(2)]
    source = as_source((paths, "train"))
    add_arrays(paths[1], {"more": np.zeros(9999)})
    with source.opened() as reader:
        assert isinstance(reader, Reader)
        reader.read(0, 3)
        with pytest.raises(DataError, match=r"1\.h5 has .* bytes but had"):
            reader.read(2, 4)


def test_the_key_of_a_run_knows_the_files(tmp_path):
    paths = [write_plain(tmp_path / f"{n}.h5", np.zeros((3, 4, 4), np.uint8)) for n in range(2)]
    one, swapped = open_source(paths, "train").describe(), open_source(paths[::-1], "train").describe()
    assert one["files"] != swapped["files"]
    assert one == open_source(paths, "train").describe()
