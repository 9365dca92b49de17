"""Bad sources end in a sentence and leave nothing; workers, stops and kills do not change a bit."""

import errno
import gzip
import itertools
import os
import resource
import signal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arrays_in_files import add_arrays, read_array, write_arrays
from calling import same
from importing import (
    cifar_pickle,
    contents,
    draw_classes,
    idx,
    imported,
    jpeg,
    parts,
    pixels,
    png,
    refused,
    shard,
    tree,
)
from measured import peak_of

from smtdist.data.importers import run as run_module
from smtdist.data.importers.images import kind_of, open_listing
from smtdist.data.importers.items import ImportOptions
from smtdist.data.importers.journal import JournalledFile
from smtdist.data.importers.run import import_images
from smtdist.errors import DataError, InterruptedRun


@pytest.fixture
def classes(tmp_path):
    return draw_classes(tmp_path)


# bad images, bad files


def test_unreadable_images(classes, tmp_path):
    root, images = classes
    bad = root / "bird" / "0003.png"
    bad.write_bytes(bad.read_bytes()[:-20])
    for layout in ("plain", "encoded"):
        refused(
            r"bird/0003.png: the PNG image is cut short", root, tmp_path / "o.h5", layout=layout, workers=3
        )
        assert os.listdir(tmp_path) == ["tree"]
    assert imported(root, tmp_path / "o.h5", verify=False).samples == 21
    result = imported(root, tmp_path / "o.h5", layout="plain", skip=True, overwrite=True)
    found = contents(tmp_path / "o.h5")
    kept = [*images["ant/deep"], *images["bird"][:3], *images["bird"][4:], *images["cat"]]
    np.testing.assert_array_equal(found["images"], kept)
    assert found["labels"].tolist() == [0] * 7 + [1] * 6 + [2] * 7
    assert (result.skipped, found["@skipped"]) == (1, 1)
    assert "0003.png" in found["@first_skipped"][0]
    assert "0003.png" in result.first_skipped[0]


def test_no_image_can_be_read(tmp_path):
    root = tree(tmp_path / "t", {"a": [b"x", b"y"]})
    for layout in ("plain", "encoded"):
        refused(
            "None of the 2 images could be read; the first: .*0000.png",
            root,
            tmp_path / "o.h5",
            layout=layout,
            skip=True,
        )
    assert os.listdir(tmp_path) == ["t"]


def test_mixed_sizes_in_the_plain_layout(tmp_path):
    root = tree(tmp_path / "t", {"a": [pixels(4, 5), pixels(4, 4)]})
    refused(
        r"0001.png: the image is 4 x 4, but the first one is 5 x 4.*resize=N",
        root,
        tmp_path / "o.h5",
        layout="plain",
    )


def test_sentences_about_files(classes, tmp_path):
    root, _ = classes
    out = tmp_path / "o.h5"
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.xyz").write_bytes(b"what")
    refused("empty holds no file with the ending of an image", tmp_path / "empty", out)
    refused("There is no file .*missing", tmp_path / "missing", out)
    refused("a.xyz is none of what is imported", tmp_path / "a.xyz", out)
    pq.write_table(pa.table({"a": [b""]}), tmp_path / "b.parquet")
    refused("of the kinds folder, parquet", [root, tmp_path / "b.parquet"], out)
    refused("No source is named", [], out)
    refused("does not exist; make it first", root, tmp_path / "no" / "o.h5")
    refused("is a folder; name a file", root, tmp_path / "empty")
    refused("to add a group to; leave out append=True", root, out, append=True)
    out.write_bytes(b"precious")
    refused("o.h5 exists already", root, out)
    refused("is not an HDF5 file", root, out, append=True)
    assert out.read_bytes() == b"precious"
    for name in ("", "a.npz", "a.npy", "a.tar", "a.parquet"):
        if name:
            (tmp_path / name).write_bytes(b"")
            refused(name, tmp_path / name, tmp_path / "p.h5")
    assert not (tmp_path / "p.h5").exists()


def test_kinds_are_told_by_contents(tmp_path):
    shard(tmp_path / "a", [("1.jpg", jpeg(pixels(8, 8)))])
    (tmp_path / "b").write_bytes(gzip.compress(idx(pixels(2, 4, 4))))
    cifar_pickle(tmp_path / "c", pixels(2, 32, 32, 3), [0, 1])
    expected = ["webdataset", "idx", "cifar", "folder"]
    assert [kind_of(tmp_path / name) for name in ("a", "b", "c", ".")] == expected


@pytest.mark.parametrize("append", [False, True])
def test_a_full_disk(append, tmp_path):
    np.save(tmp_path / "x.npy", pixels(4000, 32, 32))
    out, before = tmp_path / "o.h5", b""
    if append:
        write_arrays(out, {"a": np.arange(1000)})
        before = out.read_bytes()
    child = os.fork()
    if not child:
        code = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (2**21, 2**21))
            imported(tmp_path / "x.npy", out, append=append)
        except DataError as error:
            code = 0 if "o.h5 could not be written: it would be larger than" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sorted(os.listdir(tmp_path)) == (["o.h5", "x.npy"] if append else ["x.npy"])
    assert not append or out.read_bytes() == before


@pytest.mark.parametrize("name", ["pwrite", "fsync", "ftruncate"])
def test_no_space_left(name, tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", pixels(300, 32, 32))
    real = getattr(os, name)

    def full(file, *arguments):
        if name == "ftruncate" and arguments == (0,):
            return real(file, 0)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, name, full)
    refused(
        "o.h5 could not be written: the disk is full; free space", tmp_path / "x.npy", tmp_path / "o.h5"
    )
    assert os.listdir(tmp_path) == ["x.npy"]


def test_what_is_left_of_an_import_is_no_hindrance(classes, tmp_path):
    root, _ = classes
    (tmp_path / ".o.h5.partial").write_bytes(b"half")
    imported(root, tmp_path / "o.h5")
    (tmp_path / ".o.h5.partial.journal").write_bytes(b"half")
    imported(root, tmp_path / "o.h5", overwrite=True)
    assert len(parts(tmp_path / "o.h5")) == 21
    assert sorted(os.listdir(tmp_path)) == ["o.h5", "tree"]
    (tmp_path / ".o.h5.journal").write_bytes(b"half")
    refused(r"\.o\.h5\.journal is not a journal", root, tmp_path / "o.h5", append=True)


def test_memory_does_not_grow_with_the_data(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", images=np.zeros((1600, 128, 128, 3), np.uint8))
    assert (
        peak_of(lambda: imported(tmp_path / "x.npz", tmp_path / "o.h5", workers=2)) < 40 * 2**20
    )  # of 75 MiB


# the same bits, whatever happens


@pytest.fixture
def many(tmp_path, monkeypatch):
    monkeypatch.setattr(run_module, "COMMIT_BYTES", 30_000)
    monkeypatch.setattr(run_module, "BATCH_ITEMS", 16)
    images = {name: [png(pixels(5 + n % 3, 6, 3)) for n in range(90)] for name in "abc"}
    return tree(tmp_path / "t", images)


def stopped(source, out, batches, code=130, **options):
    """Import until `batches` were written, or to the end."""
    asked = itertools.chain([None] * batches, itertools.repeat(code))
    return import_images(open_listing([source]), out, ImportOptions(**options), stop=lambda: next(asked))


@pytest.mark.parametrize("append", [False, True])
@pytest.mark.parametrize("options", [{}, {"resize": 4}])
def test_a_stopped_import_goes_on(many, tmp_path, append, options):
    out = tmp_path / "o.h5"
    if append:
        write_arrays(out, {"mine": np.arange(1000)})
        before = out.read_bytes()
    stops = 0
    while stops < 100:
        workers = stops % 3
        try:
            result = stopped(many, out, 3, 143, workers=workers, append=append, **options)
            break
        except InterruptedRun as error:
            ended = error
        assert ended.exit_code == 143
        assert "images; repeat the command to continue" in str(ended)
        assert append == out.exists()
        assert not append or out.read_bytes()[: len(before)] == before
        stops += 1
    assert stops == 270 // 64
    assert result.samples == 270
    imported(many, tmp_path / "whole.h5", **options)
    same(contents(out), contents(tmp_path / "whole.h5"))
    assert sorted(os.listdir(tmp_path)) == ["o.h5", "t", "whole.h5"]
    if append:
        assert read_array(out, "mine").tolist() == list(range(1000))


def kill_at(count):
    """Let this process be killed at the so-manieth call that changes files."""
    calls = itertools.count(1)

    def killing(real):
        def call(*arguments, **keywords):
            if next(calls) == count:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **keywords)

        return call

    for name in ("pwrite", "replace", "fsync", "ftruncate", "unlink"):
        setattr(os, name, killing(getattr(os, name)))


def journal(out):
    return out.with_name(f".{out.name}.journal").read_bytes()


@pytest.mark.parametrize("append", [False, True])
def test_a_killed_import_goes_on(many, tmp_path, append):
    """Killed at many places, also between two writes of one commit; the file is whole in the end and at any time."""
    out = tmp_path / "o.h5"
    if append:
        write_arrays(out, {"mine": np.arange(1000)})
        before = out.read_bytes()
    kills = 0
    for after in (*range(1, 60, 6), 10**9):
        child = os.fork()
        if not child:
            kill_at(after)
            imported(many, out, append=append, workers=0)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status == 0:
            break
        assert status == -signal.SIGKILL
        kills += 1
        if append and out.with_name(".o.h5.journal").exists() and b'"whole": true' not in journal(out):
            assert out.read_bytes()[: len(before)] == before
    assert kills >= 3
    imported(many, tmp_path / "whole.h5")
    same(contents(out), contents(tmp_path / "whole.h5"))
    assert sorted(os.listdir(tmp_path)) == ["o.h5", "t", "whole.h5"]


def test_another_command_does_not_go_on(many, tmp_path):
    out, notes = tmp_path / "o.h5", []
    with pytest.raises(InterruptedRun):
        stopped(many, out, 2)
    refused(
        r"unfinished import .* \(48 images\); repeat that command, or pass overwrite=True",
        many,
        out,
        resize=4,
    )
    (many / "a" / "0099.png").write_bytes(png(pixels(5, 6, 3)))
    refused("unfinished import", many, out)
    import_images(open_listing([many]), out, ImportOptions(overwrite=True), note=notes.append)
    assert "Giving up" in notes[0]
    assert len(parts(out)) == 271
    assert sorted(os.listdir(tmp_path)) == ["o.h5", "t"]


def test_a_file_changed_between_is_refused(many, tmp_path):
    out = tmp_path / "o.h5"
    write_arrays(out, {"mine": np.arange(10)})
    with pytest.raises(InterruptedRun):
        stopped(many, out, 2, append=True)
    add_arrays(out, {"more": np.arange(10)})
    refused("was changed since an import into it was stopped; delete", many, out, append=True)


def test_a_group_that_exists_is_refused(many, tmp_path):
    out = tmp_path / "o.h5"
    imported(many, out)
    before = out.read_bytes()
    refused("has a group train already; choose another with group", many, out, append=True)
    assert out.read_bytes() == before
    imported(many, out, append=True, group="more/test")
    same(contents(out), contents(out, "more/test"))


def test_one_writer_at_a_time(tmp_path):
    first = JournalledFile(tmp_path / "a", tmp_path / "j", keep=False)
    with pytest.raises(DataError, match="is being written or read by another process"):
        JournalledFile(tmp_path / "a", tmp_path / "j", keep=False)
    first.close()
    JournalledFile(tmp_path / "a", tmp_path / "j", keep=False).close()


def test_many_classes_are_kept_beside(tmp_path):
    root = tree(tmp_path / "t", {f"{n:05}": [png(pixels(1, 1))] for n in range(4000)})
    imported(root, tmp_path / "o.h5")
    found = contents(tmp_path / "o.h5")
    assert [name.decode() for name in found["classes"]] == [f"{n:05}" for n in range(4000)]
    assert found["labels"].tolist() == list(range(4000))
