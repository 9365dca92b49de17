"""Nothing that was written is lost: not to a second command, not to a kill, not to a name that means something else."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from importing import imported, pixels, png

import smtdist
from smtdist.cli import data as manifest_command
from smtdist.data import writing
from smtdist.data.importers.images import open_listing
from smtdist.data.importers.items import ImportOptions
from smtdist.data.importers.run import import_images
from smtdist.data.writing import whole_file
from smtdist.errors import DataError, ModelError, OutputExistsError
from smtdist.models import merge


def samples(model):
    audit = smtdist.load(model).provenance["audit"]
    return sum(entry["n_samples"] for entry in audit)


def written(path, text, overwrite=False):
    with whole_file(path, overwrite) as temporary:
        Path(temporary).write_text(text)


def meanwhile(monkeypatch, module, name, act):
    """Let `act` happen once, when a function is called first."""
    function, results = getattr(module, name), []

    def late(*arguments, **named):
        if not results:
            results.append(None)
            results[0] = act()
        return function(*arguments, **named)

    monkeypatch.setattr(module, name, late)
    return results


class TestTwoCommandsAtOnce:
    """Two commands that read one file and replace it: the second is refused, and says who was first."""

    def update(self, run, at, name):
        return run("update", at / "model.h5", at / f"{name}.h5", "--dataset", "images")

    def test_of_two_updates_the_second_is_refused(self, at, run, monkeypatch):
        second = meanwhile(monkeypatch, merge, "update", lambda: self.update(run, at, "c"))
        assert self.update(run, at, "b").exit_code == 0
        assert second[0].exit_code == 1
        assert f"is being changed by the process {os.getpid()} on" in second[0].stderr
        assert samples(at / "model.h5") == 40
        assert self.update(run, at, "c").exit_code == 0
        assert samples(at / "model.h5") == 60
        assert not [path for path in at.iterdir() if path.name.startswith(".")]

    def test_without_locks_the_first_to_write_wins_and_the_other_says_so(self, at, run, monkeypatch):
        def unsupported(descriptor, operation):
            raise OSError(errno.ENOTSUP, "no locks here")

        monkeypatch.setattr(fcntl, "flock", unsupported)
        second = meanwhile(monkeypatch, merge, "update", lambda: self.update(run, at, "c"))
        first = self.update(run, at, "b")
        assert (first.exit_code, second[0].exit_code) == (1, 0)
        assert "was changed by another program since this command read it" in first.stderr
        assert samples(at / "model.h5") == 40

    def test_a_group_is_not_added_to_a_file_that_was_replaced_meanwhile(self, tmp_path):
        out, other = tmp_path / "data.h5", tmp_path / "other.h5"
        pictures = tmp_path / "x.npy"
        np.save(pictures, pixels(5, 4, 4))
        imported(pictures, out)
        imported(pictures, other, group="others")
        content = other.read_bytes()
        with pytest.raises(DataError, match="was replaced by another program"):
            import_images(
                open_listing([pictures]),
                out,
                ImportOptions(group="more", append=True, workers=0),
                report=lambda done: other.exists() and os.replace(other, out),
            )
        assert out.read_bytes() == content
        imported(pictures, out, group="more", append=True)

    def test_of_two_manifests_the_second_is_refused(self, at, run, monkeypatch):
        words = ("manifest", at / "a.h5", at / "b.h5", "--out", at / "all.json")
        second = meanwhile(monkeypatch, manifest_command, "describe_files", lambda: run(*words))
        assert run(*words).exit_code == 0
        assert second[0].exit_code == 1
        assert "is being changed by" in second[0].stderr

    def test_of_two_new_files_of_one_name_the_first_stays(self, tmp_path):
        with pytest.raises(OutputExistsError), whole_file(tmp_path / "a", False):
            written(tmp_path / "a", "quick")
        assert (tmp_path / "a").read_text() == "quick"
        assert os.listdir(tmp_path) == ["a"]


class TestWhatANameMeans:
    """An output replaces regular files only, and is written where the user's own links lead."""

    def test_a_device_is_refused(self):
        reading, writes = os.pipe()
        try:
            for name in ("/dev/null", f"/proc/self/fd/{writes}"):  # what /dev/stdout is in a pipeline
                with pytest.raises(ModelError, match="is a device or a pipe, which is never replaced"):
                    writing.check_target(name, True)
        finally:
            os.close(reading)
            os.close(writes)

    def test_a_pipe_is_refused_by_every_writer(self, at, run):
        os.mkfifo(at / "pipe")
        for words in (
            ("merge", at / "model.h5", "--out", at / "pipe", "--overwrite"),
            ("import", Path(__file__).parent, "--out", at / "pipe", "--overwrite"),
        ):
            result = run(*words)
            assert result.exit_code == 1
            assert "is a device or a pipe" in result.stderr
        assert (at / "pipe").is_fifo()

    @pytest.mark.parametrize("nameless", [True, False])
    def test_a_link_is_written_through(self, tmp_path, monkeypatch, nameless):
        if not nameless:
            monkeypatch.setattr(writing, "_has_nameless", lambda target, device: False)
        for name in ("here", "large"):
            (tmp_path / name).mkdir()
        link, real = tmp_path / "here" / "m.h5", tmp_path / "large" / "m.h5"
        link.symlink_to("../large/m.h5")
        for content in ("new", "newer"):
            with whole_file(link, True) as temporary:
                Path(temporary).write_text(content)
                assert os.listdir(link.parent) == ["m.h5"]  # nothing grows on the small disk
            assert (link.is_symlink(), real.is_symlink(), real.read_text()) == (True, False, content)

    def test_an_import_is_written_through_a_link(self, tmp_path, images):
        np.save(tmp_path / "x.npy", images)
        (tmp_path / "large").mkdir()
        (tmp_path / "data.h5").symlink_to(tmp_path / "large" / "data.h5")
        imported(tmp_path / "x.npy", tmp_path / "data.h5")
        imported(tmp_path / "x.npy", tmp_path / "data.h5", overwrite=True)
        assert (tmp_path / "data.h5").is_symlink()
        with h5py.File(tmp_path / "large" / "data.h5") as file:
            assert len(file["train/images"]) == len(images)

    def test_a_folder_of_sets_is_written_through_a_link(self, tmp_path, images, run):
        for place in ("p/train/a", "p/test/a", "large"):
            (tmp_path / place).mkdir(parents=True)
        for place in ("train", "test"):
            (tmp_path / "p" / place / "a" / "1.png").write_bytes(png(images[0]))
        (tmp_path / "large" / "data.h5").touch(0o600)
        (tmp_path / "data.h5").symlink_to(tmp_path / "large" / "data.h5")
        done = run("import", tmp_path / "p", "--out", tmp_path / "data.h5", "--overwrite", "--workers", 0)
        assert done.exit_code == 0, done.output
        assert (tmp_path / "data.h5").is_symlink()
        assert (tmp_path / "large" / "data.h5").stat().st_mode & 0o777 == 0o600
        with h5py.File(tmp_path / "large" / "data.h5") as file:
            assert {"train", "test"} <= set(file)

    def test_a_link_of_another_user_is_refused(self, tmp_path, monkeypatch):
        (tmp_path / "theirs").symlink_to(tmp_path / "m.h5")
        monkeypatch.setattr(os, "geteuid", lambda: 54321)
        with (
            pytest.raises(ModelError, match="belongs to another user"),
            whole_file(tmp_path / "theirs", True),
        ):
            pass
        assert os.listdir(tmp_path) == ["theirs"]


KILLED = """
import os, signal, sys
from pathlib import Path
from smtdist.data import writing
if sys.argv[2] == "named":
    writing._has_nameless = lambda target, device: False
with writing.whole_file(sys.argv[1], True) as temporary:
    Path(temporary).write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


class TestKills:
    """A kill leaves the old file, and nothing that stays."""

    def killed(self, path, how):
        ended = subprocess.run([sys.executable, "-c", KILLED, path, how], check=False)
        assert ended.returncode == -signal.SIGKILL
        assert path.read_text() == "old"

    def test_a_kill_leaves_nothing_where_files_need_no_name(self, tmp_path):
        if not writing._has_nameless(tmp_path / "a", tmp_path.stat().st_dev):
            pytest.skip("this file system has no files without a name")
        (tmp_path / "m.h5").write_text("old")
        self.killed(tmp_path / "m.h5", "nameless")
        assert os.listdir(tmp_path) == ["m.h5"]

    def test_elsewhere_the_next_write_removes_what_dead_processes_left(self, tmp_path, monkeypatch):
        target = tmp_path / "m.h5"
        target.write_text("old")
        self.killed(target, "named")
        assert len(os.listdir(tmp_path)) == 2
        notes = {".m.h5.notes.tmp", ".n.h5.12345678.tmp", ".m.h5.12345678.tmp2"}
        for name in notes:
            (tmp_path / name).touch()
        monkeypatch.setattr(writing, "_has_nameless", lambda target, device: False)
        with whole_file(target, True) as slow:
            Path(slow).write_text("slow")
            with whole_file(target, True) as quick:
                assert Path(slow).exists()  # its process lives
                Path(quick).write_text("quick")
        assert target.read_text() == "slow"
        assert set(os.listdir(tmp_path)) == {"m.h5", *notes}


@pytest.mark.parametrize("how", ["link", "chain", "storage"])
def test_what_the_data_name_is_no_output(at, run, how, monkeypatch):
    """Files that links lead to, through another file too, and those that hold an array from outside."""
    monkeypatch.chdir(at)
    lost = at / "b.h5"
    if how == "storage":
        with h5py.File(lost) as file:
            images = file["images"][:]
        lost = at / "b.raw"
        images.tofile(lost)
    with h5py.File(at / "one.h5", "w") as file:
        if how == "storage":
            file.create_dataset("images", (20, 7, 7), np.uint8, external=[("b.raw", 0, 980)])
        else:
            file["images"] = h5py.ExternalLink("b.h5", "images")
    with h5py.File(at / "two.h5", "w") as file:
        file["images"] = h5py.ExternalLink("one.h5", "images")
    data, before = "two.h5" if how == "chain" else "one.h5", lost.read_bytes()
    fit = run("fit", data, "--dataset", "images", "--from-model", "model.h5", "--out", lost, "--overwrite")
    assert (fit.exit_code, "is read by this command" in fit.stderr) == (1, True), fit.stderr
    assert lost.read_bytes() == before
