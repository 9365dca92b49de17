"""Samples that cannot be read: the run ends with a sentence, or leaves out the same ones in every pass, and says so."""

import json

import h5py
import numpy as np
import pytest
from calling import run, same_fits, sets, told
from drawing import small_images
from encoding import pillow_bytes, write_encoded
from executors import LossyExecutor, ThreadsExecutor

from smtdist.configuration import Configuration
from smtdist.data.opening import open_source
from smtdist.engine.events import EventStream
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError, UnreadableError
from smtdist.models import store
from smtdist.models.fit import fit

SETTINGS = Configuration(
    patch=3, feature="vq", dictionary=16, n_components=4, pool_size=2, context=2, dictionary_method="random"
)
WORDS = sets(patch=3, feature="vq", dictionary=16, n_components=4, pool_size=2, context=2)
N, CHUNK = 1024, 64


def write_plain(path, n=N, bad=()):
    """Write images in chunks under a checksum, some of which fail it."""
    with h5py.File(path, "w") as file:
        stored = file.create_dataset(
            "x", data=small_images(0, N, 8, 8)[:n], chunks=(CHUNK, 8, 8, 1), fletcher32=True
        )
        offsets = [stored.id.get_chunk_info(row).byte_offset for row in bad]
    content = bytearray(path.read_bytes())
    for offset in offsets:
        content[offset + 9] ^= 4
    path.write_bytes(content)
    return path


def fitted(path, executor=None, events=(), settings=SETTINGS, folder=None, name="x"):
    source = open_source(path, name, settings, skip_damaged=True)
    engine = Engine(executor or SerialExecutor(1), EventStream(*events), folder, "k", on_bad_chunk="skip")
    return fit(source, settings, engine)


def assert_same_bits(one, other):
    same_fits(one, other)
    np.testing.assert_array_equal(one.statistics.origin.samples, other.statistics.origin.samples)


@pytest.mark.parametrize("method", ["random", "spherical", "diverse"])
def test_skipping_the_last_chunks_is_a_fit_without_them(tmp_path, method):
    """All passes leave out the same samples: else whitening, atoms or sums would differ."""
    settings = SETTINGS.replace(dictionary_method=method, dictionary_rounds=2, dictionary_samples=10**6)
    left, records = fitted(write_plain(tmp_path / "a.h5", bad=range(8, 16)), settings=settings)
    whole, _ = fitted(write_plain(tmp_path / "b.h5", n=8 * CHUNK), settings=settings)
    assert_same_bits(left, whole)
    assert left.statistics.n_samples == left.provenance["audit"][0]["n_samples"] == 8 * CHUNK
    assert left.provenance["fingerprint"] == whole.provenance["fingerprint"]
    assert [record["n_samples"] for record in records[::2]] == [8 * CHUNK] * 2
    assert records[0]["n_skipped"] == records[2]["n_skipped"] == 8 * CHUNK
    assert "skipped" not in whole.provenance


def test_the_same_samples_are_skipped_whoever_reads_them(tmp_path):
    path = write_plain(tmp_path / "a.h5", bad=(0, 5, 6, 11))
    want, _ = fitted(path)
    for executor, folder in (
        (ThreadsExecutor(4), None),
        (LossyExecutor(3), None),
        (LossyExecutor(4), tmp_path / "checkpoint"),
        (SerialExecutor(1), tmp_path / "checkpoint"),
    ):
        got, records = fitted(path, executor, folder=folder)
        assert_same_bits(got, want)
        assert [record.get("n_skipped") for record in records[:3:2]] == [4 * CHUNK] * 2
    (told,) = want.provenance["skipped"]
    assert told == {
        "source": f"{path}:x",
        "n_samples": 4 * CHUNK,
        "n_ranges": 3,
        "ranges": [[0, 64], [320, 448], [704, 768]],
    }


def test_a_bad_chunk_ends_the_run_unless_told_otherwise(tmp_path):
    path = write_plain(tmp_path / "a.h5", bad=(3,))
    source = open_source(path, "x")
    with pytest.raises(UnreadableError, match="samples 0 to 255: the stored data cannot be read"):
        fit(source, SETTINGS, Engine(SerialExecutor(1)))
    with pytest.raises(ConfigurationError, match="on_bad_chunk is 'ignore'"):
        Engine(SerialExecutor(1), on_bad_chunk="ignore")


def test_what_was_skipped_does_not_pass_for_sound_later(tmp_path):
    """A checkpoint with gaps is not finished in a run that allows none."""
    path, folder = write_plain(tmp_path / "a.h5", bad=(3,)), tmp_path / "checkpoint"
    fitted(path, folder=folder)
    with pytest.raises(DataError, match=r"left out samples .*192 to 255.* on_bad_chunk=.skip"):
        fit(open_source(path, "x"), SETTINGS, Engine(SerialExecutor(1), checkpoint=folder, key="k"))


def test_storage_that_changes_its_mind_ends_the_run(tmp_path):
    path = write_plain(tmp_path / "a.h5", bad=(3,))

    def mend(event):
        if event["kind"] == "pass_finished" and event["pass"] == "whitening":
            write_plain(path)

    with pytest.raises(
        DataError, match=r"an earlier pass skipped 192 to 255 of them, the dictionary\S* pass none"
    ):
        fitted(path, events=[mend])


def test_no_sample_at_all_is_a_sentence(tmp_path):
    path = write_plain(tmp_path / "a.h5", bad=range(16))
    with pytest.raises(DataError, match=r"No sample of .* can be read"):
        fitted(path)


def test_events_count_what_is_skipped(tmp_path):
    events = []
    path = write_plain(tmp_path / "a.h5", bad=(15,))
    fitted(path, events=[events.append])
    notes = [event["text"] for event in events if event["kind"] == "note"]
    assert notes == ["whitening: 64 of 1,024 samples cannot be read and are skipped: 960 to 1023"]
    ends = {event["pass"]: event for event in events if event["kind"] == "pass_finished"}
    assert ends["statistics"]["n_skipped"] == 64


def write_jpegs(path, bad):
    """Write JPEGs of which some are damaged."""
    parts = []
    for number, image in enumerate(small_images(0, 300, 16, 16)):
        content = pillow_bytes(image, "JPEG")
        parts.append(content[: len(content) // 2] if number in bad else content)
    return write_encoded(path, parts)


def test_corrupt_jpegs_are_skipped_one_by_one(tmp_path):
    path = write_jpegs(tmp_path / "a.h5", {0, 77, 78, 299})
    model, _ = fitted(path, name="train")
    assert model.provenance["skipped"][0]["ranges"] == [[0, 1], [77, 79], [299, 300]]
    assert model.statistics.n_samples == 296
    again, _ = fitted(path, ThreadsExecutor(3), name="train")
    assert_same_bits(again, model)


def test_a_corrupt_first_header_does_not_hide_the_others(tmp_path):
    path = write_jpegs(tmp_path / "a.h5", set())
    with h5py.File(path, "a") as file:
        file["train/bytes"][:4] = 0
    with pytest.raises(DataError, match="sample 0: the bytes are no image"):
        open_source(path, "train")
    model, _ = fitted(path, name="train")
    assert model.provenance["skipped"][0]["ranges"] == [[0, 1]]


def test_the_commands_skip_say_so_and_go_on_from_a_run_that_ended(tmp_path):
    path, out, folder = (tmp_path / name for name in ("a.h5", "m.h5", "checkpoint"))
    write_plain(path, bad=(3, 9))
    asked = ["fit", path, "--dataset x --out", out, "--checkpoint", folder, WORDS]
    assert "the stored data cannot be read" in run(*asked, code=1)
    assert "must be one of raise, skip" in run(*asked, "--on-bad-chunk maybe", code=2)
    skipped = told("resume", folder, "--on-bad-chunk skip")["skipped"]
    assert skipped[0]["ranges"] == [[192, 256], [576, 640]]
    assert store.load(out).provenance["skipped"] == skipped
    assert told("info", out)["provenance"]["skipped"] == skipped
    assert "128 samples of" in " ".join(run("info", out).split())
    end = run(*asked, "--on-bad-chunk skip --overwrite")
    assert "could not be read and were skipped: 192 to 255, 576 to 639" in end


def test_transform_leaves_rows_without_numbers(tmp_path):
    sound, bad = write_plain(tmp_path / "a.h5"), write_plain(tmp_path / "b.h5", bad=(0, 9))
    model = tmp_path / "m.h5"
    run("fit", sound, "--dataset x --out", model, WORDS)
    for path, name in ((sound, "y"), (bad, "z")):
        asked = ["transform", model, path, "--dataset x --out", tmp_path / f"{name}.h5"]
        skipped = told(*asked, "--on-bad-chunk skip")["skipped"]
    assert skipped[0]["ranges"] == [[0, 64], [576, 640]]
    with h5py.File(tmp_path / "y.h5") as whole, h5py.File(tmp_path / "z.h5") as holed:
        want, got = whole["z"][()], holed["z"][()]
        assert json.loads(holed.attrs["skipped"]) == skipped
        assert json.loads(whole.attrs["skipped"]) == []
    for start, stop in skipped[0]["ranges"]:
        want[start:stop] = np.nan
    np.testing.assert_array_equal(got, want)
    assert "damaged there" in run(*asked, "--overwrite", code=1)


def test_an_update_skips_and_the_model_keeps_count(tmp_path):
    sound, bad, model = write_plain(tmp_path / "a.h5"), tmp_path / "b.h5", tmp_path / "m.h5"
    run("fit", sound, "--dataset x --out", model, WORDS)
    write_plain(bad, bad=(2,))
    words = ["update", model, bad, "--dataset", "x", "--allow-repeats"]
    run(*words, code=1)
    run(*words, "--on-bad-chunk", "skip")
    assert store.load(model).provenance["skipped"][0]["ranges"] == [[128, 192]]
    assert store.load(model).statistics.n_samples == 2 * N - 64
