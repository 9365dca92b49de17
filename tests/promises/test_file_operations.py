"""An error at a file operation of a command: the output is the old or the new one, whole, and nothing stays behind.

A sample; `python -m benchmarks.survival.file_operations` takes every operation of six commands in turn.
"""

import errno
import io
import itertools
import os
import signal

import h5py
import numpy as np
import pytest

from benchmarks.survival.run import bits
from smtdist.data import hdf5, writing
from smtdist.data.importers import journal
from smtdist.errors import DataError

COMMANDS = {
    "merge": (("merge", "model.h5", "--out", "out.h5", "--overwrite"), "out.h5"),
    "import": (("import", "more.npy", "--out", "data.h5", "--group", "more", "--append"), "data.h5"),
}
CALLS = ("open", "link", "replace", "unlink", "fsync", "pwrite", "ftruncate")


def full():
    raise OSError(errno.ENOSPC, "No space left on device")


def refused():
    raise OSError(errno.EACCES, "Permission denied")


def interrupted():
    signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def heeded():
    """Have Ctrl-C raise KeyboardInterrupt, also where whoever began the tests has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def scene(at, run):
    """The folder, with what the commands need, and a call of one of them."""
    np.save(at / "first.npy", np.arange(5 * 49, dtype=np.uint8).reshape(5, 7, 7))
    np.save(at / "more.npy", np.arange(6 * 49, dtype=np.uint8).reshape(6, 7, 7))
    assert run("import", at / "first.npy", "--out", at / "data.h5").exit_code == 0
    (at / "out.h5").write_bytes((at / "model.h5").read_bytes()[:-1])
    return lambda words: run(*(at / word if "." in word else word for word in words))


def struck(call, words, number, strike):
    """Run a command with a fault at its so-manieth operation; return how it ended and how many there were."""
    counts = itertools.count(1)

    def counted(real):
        def operation(*arguments, **named):
            if next(counts) == number:
                strike()
            return real(*arguments, **named)

        return operation

    class Writing(io.FileIO):
        write = counted(io.FileIO.write)

    writing.Lenient.__bases__ = (Writing,)
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name in CALLS:
                patch.setattr(os, name, counted(getattr(os, name)))
            result = call(words)
    finally:
        writing.Lenient.__bases__ = (io.FileIO,)
    return result, next(counts) - 1


@pytest.mark.parametrize(
    ("name", "strike"),
    [*itertools.product(["import"], [full, refused, interrupted]), ("merge", interrupted)],
)
def test_an_error_at_any_operation_leaves_the_old_file_or_the_new_one(at, scene, name, strike):
    words, out = COMMANDS[name]
    begun = {path.name: path.read_bytes() for path in at.iterdir()}
    _, total = struck(scene, words, None, strike)
    want, files = bits(at / out), set(os.listdir(at))
    for number in range(1, total + 1, max(1, total // 4)):
        for path in at.iterdir():
            path.unlink()
        for file, content in begun.items():
            (at / file).write_bytes(content)
        result, _ = struck(scene, words, number, strike)
        assert result.exit_code in (0, 130 if strike is interrupted else 1), (number, result.output)
        told = [line for line in result.stderr.splitlines() if line.startswith("smtdist: ")]
        assert len(told) == (result.exit_code != 0), (number, result.stderr)
        new = (at / out).read_bytes() != begun[out] and bits(at / out) == want
        if result.exit_code == 1:
            assert new or name == "import" or (at / out).read_bytes() == begun[out], number
            assert set(os.listdir(at)) == files, (number, told)
        if not new:
            assert result.exit_code != 0
            assert scene(words).exit_code == 0
        assert bits(at / out) == want
        assert set(os.listdir(at)) == files


def test_the_last_step_of_an_import_that_fails_is_taken_back(at, scene, monkeypatch):
    before = (at / "data.h5").read_bytes()
    monkeypatch.setattr(journal.JournalledFile, "finish", once_full(journal.JournalledFile.finish))
    result = scene(COMMANDS["import"][0])
    assert result.exit_code == 1
    assert "could not be written: the disk is full" in result.stderr
    assert (at / "data.h5").read_bytes() == before
    assert not list(at.glob(".*"))


def once_full(finish):
    """Return `finish` with a disk that is full for the second page that it writes."""
    pwrite = os.pwrite

    def finishing(file):
        calls = itertools.count()

        def once(*arguments):
            if next(calls) == 1:
                full()
            return pwrite(*arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "pwrite", once)
            finish(file)

    return finishing


def test_a_file_that_an_import_left_half_finished_is_not_read(at, scene, monkeypatch):
    def killed(file):
        file._apply(0)
        raise SystemExit(9)

    with monkeypatch.context() as patch:
        patch.setattr(journal.JournalledFile, "finish", killed)
        scene(COMMANDS["import"][0])
    assert (at / ".data.h5.journal").exists()
    with pytest.raises(DataError, match="repeat it, to have it finished"), hdf5.open_file(at / "data.h5"):
        pass
    assert scene(COMMANDS["import"][0]).exit_code == 0
    with hdf5.open_file(at / "data.h5") as file:
        assert len(file["more/images"]) == 6


def test_ctrl_c_while_hdf5_writes_is_raised_when_it_is_done(tmp_path, monkeypatch):
    def interrupting(data):
        interrupted()
        return memoryview(data)

    monkeypatch.setattr(writing, "memoryview", interrupting, raising=False)
    handler, raised = signal.getsignal(signal.SIGINT), []
    try:
        with writing.lenient(tmp_path / "x.h5") as raw:
            with h5py.File(raw, "w") as file:
                file["a"] = np.zeros(1000)
            raised.append("not by HDF5")
    except KeyboardInterrupt:
        raised.append("by the block")
    assert raised == ["not by HDF5", "by the block"]
    assert signal.getsignal(signal.SIGINT) is handler
