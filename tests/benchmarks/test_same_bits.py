"""Old against new, bit for bit: the tool agrees with itself, and finds a difference that was made."""

import shutil
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest

from benchmarks.same_bits.__main__ import HERE, main
from benchmarks.same_bits.compare import difference, folder_differences
from benchmarks.same_bits.fits import FITS, chosen, renamed

SETS = np.arange(12, dtype=np.int64).reshape(3, 4)


def in_git():
    asked = ["git", "-C", str(HERE), "rev-parse", "--verify", "HEAD"]
    return shutil.which("git") is not None and subprocess.run(asked, capture_output=True).returncode == 0


@pytest.mark.benchmark
def test_a_tree_agrees_with_its_last_commit(capsys):
    # a changed tree may differ from HEAD on purpose; here only the tool is asked, so that the tree is compared with itself
    # where there is no git
    old = ["--old", "HEAD"] if in_git() else ["--old-tree", str(HERE)]
    code = main([*old, "--only", "points-knn", "points-fourier-noise"])
    out = capsys.readouterr().out
    assert code == 0, out
    assert "points-knn: same (" in out
    assert "points-fourier-noise: same (" in out
    assert "2 of 2 fits are the same" in out


@pytest.fixture
def folders(tmp_path):
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        with h5py.File(tmp_path / name / "m.h5", "w") as file:
            file["statistics/V"], file["embedding/P"] = SETS, SETS / 7
            file.attrs["date"] = name
    return tmp_path / "old", tmp_path / "new"


def test_one_changed_entry_is_found(folders):
    assert folder_differences(*folders) == (2, [])
    with h5py.File(folders[1] / "m.h5", "a") as file:
        file["statistics/V"][1, 2] += 3
        file["embedding/P"][0, 1] = np.nextafter(1 / 7, 1)
    _, said = folder_differences(*folders)
    assert said[0] == "m.h5: embedding/P: 1 of 12 entries, by 2.78e-17 at most"
    assert said[1] == "m.h5: statistics/V: 1 of 12 entries, by 3 at most"


def test_missing_arrays_and_files_are_found(folders):
    old, new = folders
    with h5py.File(new / "m.h5", "a") as file:
        del file["embedding/P"]
        file["embedding/more"] = SETS  # what only the new tree writes is no difference
    np.save(new / "z.npy", SETS)
    _, said = folder_differences(old, new)
    assert said == ["z.npy: written by the new tree only", "m.h5: embedding/P: only in the old file"]


def test_kinds_signs_and_nans_are_bits():
    assert difference(SETS, SETS.astype(np.int32)) == "int64[3, 4] became int32[3, 4]"
    assert difference(np.array([np.nan]), np.array([np.nan])) is None
    assert difference(np.array([0.0]), np.array([-0.0])) == "1 of 1 entries, by 0 at most"


def test_fits_have_names_of_their_own_and_options_can_be_renamed():
    assert len({fit.name for fit in FITS}) == len(FITS)
    with pytest.raises(ValueError, match="There is no fit nothing"):
        chosen(["nothing"])
    assert renamed(resume="go-on")(("resume", "ck")) == ("go-on", "ck")
    assert Path(HERE / "smtdist").is_dir()
