"""Outputs are read by whom the user lets read them: new files follow the umask, replaced files keep their mode."""

import os
import stat
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from importing import imported

from smtdist.data import writing
from smtdist.data.writing import whole_file


@contextmanager
def masked(mask):
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path):
    return stat.S_IMODE(Path(path).stat().st_mode)


def write(path):
    with whole_file(path, True) as temporary:
        Path(temporary).write_text("x")
        assert mode(temporary) == 0o600  # nobody else sees it grow


@pytest.mark.parametrize("nameless", [True, False])
@pytest.mark.parametrize(("mask", "expected"), [(0o077, 0o600), (0o022, 0o644), (0o007, 0o660)])
def test_a_new_file_follows_the_umask(tmp_path, monkeypatch, mask, expected, nameless):
    if not nameless:
        monkeypatch.setattr(writing, "_has_nameless", lambda target, device: False)
    with masked(mask):
        write(tmp_path / "m.h5")
    assert mode(tmp_path / "m.h5") == expected


@pytest.mark.parametrize("kept", [0o600, 0o640, 0o444])
def test_a_replaced_file_keeps_its_mode(tmp_path, kept):
    (tmp_path / "m.h5").touch()
    (tmp_path / "m.h5").chmod(kept)
    write(tmp_path / "m.h5")
    assert mode(tmp_path / "m.h5") == kept


def test_a_group_that_cannot_be_kept_may_no_more_than_all_others(tmp_path, monkeypatch):
    def refused(*arguments):
        raise PermissionError

    (tmp_path / "m.h5").touch()
    (tmp_path / "m.h5").chmod(0o664)
    monkeypatch.setattr(os, "chown", refused)
    write(tmp_path / "m.h5")
    assert mode(tmp_path / "m.h5") == 0o644


def test_a_model_and_an_import_do_so(at, run):
    with masked(0o077):
        merged = run("merge", at / "model.h5", "--out", at / "m.h5")
        np.save(at / "x.npy", np.zeros((3, 4, 4), np.uint8))
        imported(at / "x.npy", at / "data.h5")
    assert merged.exit_code == 0, merged.output
    assert (mode(at / "m.h5"), mode(at / "data.h5")) == (0o600, 0o600)
    (at / "data.h5").chmod(0o640)
    imported(at / "x.npy", at / "data.h5", overwrite=True)
    assert mode(at / "data.h5") == 0o640
    (at / "model.h5").chmod(0o600)
    updated = run("update", at / "model.h5", at / "b.h5", "--dataset", "images")
    assert updated.exit_code == 0, updated.output
    assert mode(at / "model.h5") == 0o600
