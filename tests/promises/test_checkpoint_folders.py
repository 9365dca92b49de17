"""A checkpoint folder is one that smtdist began and nobody else may change; what is not ours in it is never deleted."""

import os

import numpy as np
import pytest
from executors import ThreadsExecutor
from toys import Total

from smtdist.data.array import ArraySource
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.errors import CheckpointError

IMAGES = ArraySource(np.arange(40 * 4, dtype=np.uint8).reshape(40, 2, 2))


def total(folder, executor=None):
    engine = Engine(executor or SerialExecutor(1), checkpoint=folder, key="k")
    return engine.reduce("whitening", Total(), IMAGES)[0].state


def test_a_folder_with_other_files_is_refused_and_left_as_it_is(tmp_path, at, run):
    (at / "whitening").mkdir()
    (at / "whitening" / "a.h5").write_bytes(b"mine")
    before = sorted(at.rglob("*"))
    words = ("fit", at / "a.h5", "--dataset", "images", "--out", tmp_path / "m.h5", "--checkpoint", at)
    result = run(*words)
    assert result.exit_code == 1
    assert "is not empty and no checkpoint of smtdist" in result.stderr
    assert sorted(at.rglob("*")) == before


def test_a_record_of_another_program_makes_no_checkpoint(tmp_path):
    (tmp_path / "manifest.json").write_text('{"name": "an app"}')
    with pytest.raises(CheckpointError, match="no checkpoint of smtdist"):
        total(tmp_path)


def test_only_files_of_ours_are_deleted(tmp_path):
    want = total(tmp_path)
    inside = tmp_path / "whitening"
    (inside / "result.h5").unlink()
    ours = {"0123456789abcdef.h5": b"damaged", "0123456789abcdefabcdefgh.tmp": b""}
    theirs = {"a.h5": b"mine", "notes.txt": b"mine", "x.tmp": b"mine"}
    for name, content in (ours | theirs).items():
        (inside / name).write_bytes(content)
    got = total(tmp_path, ThreadsExecutor(2))
    assert got["numbers"] == want["numbers"]
    assert {path.name for path in inside.iterdir()} == {"result.h5", *theirs}


def test_what_killed_drivers_left_is_deleted(tmp_path):
    total(tmp_path)
    left = [tmp_path / name for name in (".manifest.json.ab_cd123.tmp", ".run.json.abcdefgh.tmp")]
    left += [tmp_path / ".driver.json.1.tmp", tmp_path / "whitening" / f"{16 * '0'}.h5"]
    for path in left:
        path.write_bytes(b"")
    kept = tmp_path / ".notes.json.abcdefgh.tmp"
    kept.write_bytes(b"mine")
    total(tmp_path)
    assert [path for path in (*left, kept) if path.exists()] == [kept]


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_folder_that_others_may_write_to_is_refused(tmp_path, mode):
    folder = tmp_path / "c"
    total(folder)
    for one in (folder / "whitening", folder):
        one.chmod(mode)
        with pytest.raises(CheckpointError, match="Other users can write to"):
            total(folder)
        one.chmod(0o755)
    total(folder)


def test_a_group_of_several_is_others(tmp_path, monkeypatch):
    folder = tmp_path / "c"
    total(folder)
    folder.chmod(0o775)
    monkeypatch.setattr("smtdist.engine.folder._is_alone", lambda group: True)
    total(folder)
    monkeypatch.setattr("smtdist.engine.folder._is_alone", lambda group: False)
    with pytest.raises(CheckpointError, match="Other users can write to"):
        total(folder)


def test_what_is_made_is_for_nobody_else_to_write_to(tmp_path):
    before = os.umask(0)
    try:
        total(tmp_path / "c")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "c", tmp_path / "c" / "whitening")} == {
        0o755
    }


def test_a_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    total(tmp_path / "c")
    if os.geteuid() == 0:
        os.chown(tmp_path / "c", 54321, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(CheckpointError, match="belongs to another user"):
        total(tmp_path / "c")


@pytest.mark.parametrize("name", ["events.jsonl", "driver.lock", "whitening/result.h5"])
def test_links_in_place_of_files_are_refused(tmp_path, name):
    folder, elsewhere = tmp_path / "c", tmp_path / "elsewhere"
    total(folder)
    (folder / "manifest.json").write_text('{"settings": {}}')
    elsewhere.write_text("mine")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(elsewhere)
    with pytest.raises(CheckpointError, match="is a link, but a checkpoint holds none"):
        total(folder)
    assert elsewhere.read_text() == "mine"
