"""Random patches by their hashes first: few samples are read, and the sketch is that of a pass over all of them."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from arrays_in_files import write_arrays
from coding import plain
from drawing import small_images
from encoding import pillow_bytes, write_encoded
from executors import LossyExecutor, ThreadsExecutor, stopping
from hypothesis import given, settings
from hypothesis import strategies as st

from smtdist.configuration import Configuration
from smtdist.data.array import as_source, chosen_samples
from smtdist.data.opening import open_source
from smtdist.data.views import ChunkSubset, First
from smtdist.engine.events import EventStream
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.errors import DataError, InterruptedRun
from smtdist.kernels.whitening import integer_whitening
from smtdist.models import random_patches
from smtdist.models.fit import fit
from smtdist.models.forecast import Place, Planner
from smtdist.models.model import whitener_for
from smtdist.models.tuning.shared import fit_together
from smtdist.statistics.candidates import Candidates

IMAGES = small_images(3, 1100, 9, 8)
REPEATED = np.where(np.arange(len(IMAGES))[:, None, None, None] % 10 > 0, IMAGES[:1], IMAGES)
"""Nine images of ten are the first, whose patches count once, and may be constant."""
SETTINGS = Configuration(patch=3, dictionary=40, n_components=4, flip=True, threshold=0.4)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The same images in every kind of source that reads some of its samples in a way of its own."""
    root = tmp_path_factory.mktemp("looks")
    blobs = [pillow_bytes(image) for image in REPEATED]
    write_encoded(root / "encoded.h5", blobs, "train", chunks=(999,))
    write_arrays(root / "chunks.h5", {"train": REPEATED}, chunks=(70, 5, 8, 1), compression="gzip")
    write_arrays(root / "plain.h5", {"train": REPEATED})
    for number, (start, stop) in enumerate([(0, 300), (300, 310), (310, 1100)]):
        write_arrays(root / f"part-{number}.h5", {"train": REPEATED[start:stop]}, chunks=(7, 9, 8, 1))
    (root / "files").mkdir()
    for number, blob in enumerate(blobs):
        (root / "files" / f"{number:04}.png").write_bytes(blob)
    longer = as_source(np.concatenate([REPEATED, IMAGES]))
    found = {name: open_source(root / f"{name}.h5", "train") for name in ("encoded", "chunks", "plain")}
    return found | {
        "shards": open_source([str(root / f"part-{number}.h5") for number in range(3)], "train"),
        "files": as_source(root / "files"),
        "array": as_source(REPEATED),
        "first": First(longer, 1100),
        "rows": ChunkSubset(longer, tuple(range(0, 22, 2)), 100),
    }


PLAIN = ("chunks", "plain", "shards", "array", "first", "rows")
KINDS = ("encoded", "files", *PLAIN)


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=20)
@given(st.sets(st.integers(0, 1099), min_size=1, max_size=300), st.data())
def test_chosen_samples_are_those_of_the_source(sources, kind, numbers, data):
    source, numbers = sources[kind], np.array(sorted(numbers))
    chosen = chosen_samples(source, numbers)
    start = data.draw(st.integers(0, len(numbers) - 1))
    with chosen.opened() as reader, source.opened() as whole:
        np.testing.assert_array_equal(
            reader.read(start, len(numbers)), whole.read(0, source.n_samples)[numbers[start:]]
        )
    with chosen.opened() as reader:
        reader.read(0, len(numbers))
        # of encoded images as if all had the same size
        assert chosen.stored_bytes == pytest.approx(reader.read_bytes, rel=0 if kind in PLAIN else 0.5)
    bounds = chosen.leaf_bounds()
    assert bounds[0] == 0
    assert bounds[-1] == len(numbers)
    assert (np.diff(bounds) > 0).all()


def looked(source, sketches, executor=None, skipped=()):
    """What `drawn` finds, and the samples that each of its passes has read."""
    engine, read = Engine(executor or SerialExecutor(1), on_bad_chunk="skip"), []
    engine.skipped[source.name, source.n_samples] = skipped

    def reduce(name, some, samples):
        read.append(samples.n_samples)
        return {key: engine.reduce(name, one, samples)[0].state for key, one in some.items()}

    return random_patches.drawn(source, sketches, engine, reduce), read


def require_same(found, sketch, source, skipped=()):
    """A sketch has what one pass over all samples but some finds."""
    whole = sketch.zero()
    with source.opened() as reader:
        for start, stop in zip(
            [0, *(stop for _, stop in skipped)], [*(start for start, _ in skipped), 1100], strict=True
        ):
            sketch.update(whole, reader.read(start, stop), start)
    for name in ("hash", "vector", "sample", "position", "view"):
        np.testing.assert_array_equal(found[name], whole[name])


def whitener(**changes):
    first = whitener_for(as_source(IMAGES), SETTINGS.replace(**changes))
    matrix = np.random.default_rng(0).normal(size=(9, 9))
    return replace(first, whiten=integer_whitening(matrix + matrix.T))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 40, 400])
def test_looks_find_what_a_pass_over_all_samples_finds(sources, kind, size):
    source = sources[kind]
    sketch = Candidates(whitener(), True, size, 5)
    found, read = looked(source, {0: sketch})
    require_same(found[0], sketch, source)
    assert len(found[0]["hash"]) == size
    assert sum(read) < source.n_samples or size == 400


@pytest.mark.parametrize("skipped", [(), ((0, 70), (140, 280))])
@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("stride", [1, 3])
def test_duplicates_and_constant_patches_make_further_looks(sources, stride, mirrored, skipped):
    """Nine of ten images add nothing; the sketches are made in the same passes."""
    source = sources["plain"]
    sketches = {
        size: Candidates(whitener(stride=stride), not mirrored, size, 7, mirrored) for size in (4, 20, 40)
    }
    for executor in (SerialExecutor(1), ThreadsExecutor(3), LossyExecutor(1)):
        found, read = looked(source, sketches, executor, skipped)
        for size, sketch in sketches.items():
            require_same(found[size], sketch, source, skipped)
        assert len(read) > 1 or stride == 1
        assert max(read) < 0.5 * source.n_samples


def test_where_distinct_patches_are_too_few_all_samples_are_read_in_the_end():
    source = as_source(np.repeat(IMAGES[:2], 550, axis=0))
    sketch = Candidates(whitener(), False, 90, 7)
    found, read = looked(source, {0: sketch})
    require_same(found[0], sketch, source)
    assert len(found[0]["hash"]) < 90
    assert len(read) > 1
    assert read[-1] == source.n_samples


def test_a_fit_reads_few_samples_and_counts_them(sources, monkeypatch):
    monkeypatch.setattr("smtdist.data.encoded.PASSED_BYTES", 0)
    _, records = fit(sources["encoded"], SETTINGS, Engine(SerialExecutor(1)))
    whole, drawn, _, _ = records
    assert drawn["read_bytes"] < 0.5 * whole["read_bytes"]
    assert 0 < drawn["n_samples"] < 0.5 * 1100
    assert drawn["n_positions"] == drawn["n_samples"] * 2 * 42
    machines, shared = Place(0, 1).machines()
    step = Planner(sources["encoded"], SETTINGS, machines, shared=shared).steps()[1]
    assert 0 < step.source.n_samples < 0.2 * 1100
    # settings that are tried together draw the same atoms
    trials = [SETTINGS.replace(dictionary=size, ridge=ridge) for size in (30, 40) for ridge in (0.01, 0.1)]
    together = fit_together(sources["encoded"], trials, Engine(SerialExecutor(1)))
    for one in together:
        alone, _ = fit(sources["encoded"], one.settings, Engine(SerialExecutor(1)))
        np.testing.assert_array_equal(one.dictionary.grid, alone.dictionary.grid)


def test_a_fit_that_was_stopped_between_two_looks_goes_on_with_the_same_bits(sources, tmp_path):
    def atoms(engine):
        return fit(sources["plain"], SETTINGS.replace(dictionary=90), engine)[0].dictionary

    with pytest.raises(InterruptedRun):
        atoms(stopping("dictionary", checkpoint=tmp_path / "c"))
    begun = []
    found = atoms(Engine(ThreadsExecutor(2), EventStream(begun.append), tmp_path / "c"))
    looks = [one for one in begun if one["kind"] == "pass_started" and one["pass"] == "dictionary"]
    assert [one["resumed_leaves"] < one["n_leaves"] for one in looks] == [False, *[True] * (len(looks) - 1)]
    assert len(looks) > 1
    assert found.grid.tobytes() == plain(atoms).grid.tobytes()


def test_a_sample_that_has_changed_since_the_whitening_ends_the_fit(tmp_path, monkeypatch):
    path = Path(tmp_path / "images.h5")
    write_arrays(path, {"train": IMAGES})
    reduce = Engine.reduce

    def changing(self, name, *rest, **options):
        if name == "dictionary":
            about, whole = path.stat(), path.read_bytes()
            path.write_bytes(whole.replace(IMAGES.tobytes(), (255 - IMAGES).tobytes()))
            os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
        return reduce(self, name, *rest, **options)

    monkeypatch.setattr(Engine, "reduce", changing)
    monkeypatch.setattr("smtdist.data.identity.stamps", lambda source: [])  # an address has none
    with pytest.raises(
        DataError, match=r"train, sample \d+: the contents are not what this run has read before"
    ):
        fit(open_source(path, "train"), SETTINGS, Engine(SerialExecutor(1)))
