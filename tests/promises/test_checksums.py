"""What smtdist has written is compared with its checksums when it is read, and by `check`."""

import json
import os

import h5py
import numpy as np
import pytest

from smtdist.data import checksums, hdf5
from smtdist.data.table import as_table, read_rows
from smtdist.errors import DataError, SmtdistError
from smtdist.models import store


def altered(path, name, change):
    with h5py.File(path, "r+") as file:
        values = file[name][()]
        change(values)
        file[name][...] = values


def flip(values):
    values[0, 0] = -values[0, 0] - 1


def nan(values):
    values[0, 0] = np.nan


def stripped(path):
    """Make a file one of an earlier version."""
    with h5py.File(path, "r+") as file:
        del file.attrs[checksums.ATTRIBUTE]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("statistics/activity", lambda values: values.__setitem__(0, values[0] + 1)),
        ("embedding/components", flip),
        ("whitening/whiten", flip),
        ("dictionary/atoms", flip),
        ("statistics/cooccurrence", flip),
    ],
)
def test_an_altered_array_of_a_model_is_refused(at, run, name, change):
    altered(at / "model.h5", name, change)
    words = ("merge", at / "model.h5", "--out", at / "new.h5")
    result = run(*words)
    assert result.exit_code == 1
    assert f"the array {name} fails its checksum" in result.stderr
    assert not (at / "new.h5").exists()
    check = run("check", at / "model.h5")
    assert check.exit_code == 1
    assert f"model.h5: the array {name} fails its checksum" in check.stdout


def test_an_altered_setting_is_refused(at, run):
    with h5py.File(at / "model.h5", "r+") as file:
        file.attrs["configuration"] = file.attrs["configuration"].replace('"patch": 3', '"patch": 2')
    with pytest.raises(
        SmtdistError, match=r"an attribute of the root \(.*configuration, .*\) fails its checksum"
    ):
        store.load(at / "model.h5")
    assert run("check", at / "model.h5").exit_code == 1


@pytest.mark.parametrize(
    ("name", "change"), [("embedding/components", nan), ("statistics/activity", lambda v: v.fill(-1))]
)
def test_without_checksums_what_cannot_be_is_refused_still(at, name, change):
    stripped(at / "model.h5")
    store.load(at / "model.h5")  # files of earlier versions are read
    altered(at / "model.h5", name, change)
    with pytest.raises(SmtdistError, match="is not a complete smtdist model"):
        store.load(at / "model.h5")


def test_rows_of_representations_are_compared_block_by_block(at, run, monkeypatch):
    monkeypatch.setattr("smtdist.models.store.chunks_of", lambda shape, _: (8, *shape[1:]))
    assert (
        run(
            "transform", at / "model.h5", at / "a.h5", "--dataset", "images", "--out", at / "z.h5"
        ).exit_code
        == 0
    )
    table = as_table((at / "z.h5", "z"))
    read_rows(table)
    altered(at / "z.h5", "z", lambda values: values.__setitem__((10, 0), 7))
    read_rows(table, 0, 8)
    with pytest.raises(DataError, match="the array z, rows 8 to 15, fails its checksum"):
        read_rows(table)
    assert "z.h5: the array z, rows 8 to 15, fails its checksum" in run("check", at / "z.h5").stdout


def test_rows_are_compared_once_until_the_file_changes(at, run, monkeypatch):
    z = at / "z.h5"
    assert run("transform", at / "model.h5", at / "a.h5", "--dataset", "images", "--out", z).exit_code == 0
    compared, crc_of = [], checksums.crc_of
    monkeypatch.setattr(checksums, "crc_of", lambda values: compared.append(1) or crc_of(values))

    def reads():
        del compared[:]
        with hdf5.open_file(z) as file:
            file["z"][:]
        return len(compared)

    assert reads() == reads() > 0  # a file that has just been written may change within the tick of a clock
    monkeypatch.setattr(checksums, "_SETTLED", 0.0)
    assert reads() > reads()
    times = (z.stat().st_atime_ns, z.stat().st_mtime_ns)
    altered(z, "z", flip)
    os.utime(z, ns=times)
    with pytest.raises(checksums.Altered, match="fails its checksum"):
        reads()
    assert run("check", z).exit_code == 1


def test_an_altered_file_of_representations_is_named_by_evaluate(at, run):
    with h5py.File(at / "a.h5", "r+") as file:
        file["labels"] = np.arange(20) % 2
        file.move("images", "train/images")
        file.move("labels", "train/labels")
    words = ("transform", at / "model.h5", at / "a.h5", "--dataset", "train", "--quiet")
    assert run(*words, "--out", at / "z.h5").exit_code == 0
    altered(at / "z.h5", "z", lambda values: values.__setitem__((10, 0), 7))
    result = run("evaluate", at / "z.h5", at / "z.h5", "--metric", "knn", "--neighbours", "3", "--quiet")
    assert result.exit_code == 1
    assert (
        "z.h5 is not a complete file of representations (the array z, rows 0 to 19, fails its checksum); transform again."
        in result.stderr
    )


def test_manifests_have_a_checksum(at, run):
    out = at / "all.json"
    assert run("manifest", at / "a.h5", at / "b.h5", "--out", out).exit_code == 0
    assert run("check", out).stdout.endswith("all.json: whole\n")
    out.write_text(out.read_text().replace('"samples": 20', '"samples": 19'))
    assert run("check", out).exit_code == 1
    refused = run("manifest", out)
    assert refused.exit_code == 1
    assert "fails its checksum" in refused.stderr
    content = json.loads(out.read_text())
    del content[checksums.KEY]
    out.write_text(json.dumps(content))
    assert "no checksums" in run("check", out).stdout


def test_check_says_of_each_file_what_it_is(at, run):
    words = ("fit", at / "a.h5", "--dataset", "images", "--set", "patch=3", "--set", "dictionary=6")
    folder = at / "checkpoint"
    assert (
        run(*words, "--set", "n_components=2", "--out", at / "m.h5", "--checkpoint", folder).exit_code == 0
    )
    sound = run("check", at / "m.h5", at / "a.h5", folder, "--json")
    states = [one["state"] for one in json.loads(sound.stdout)["files"]]
    assert sound.exit_code == 0
    assert states[:2] == ["whole", "no checksums"]
    assert states.count("whole") >= 5  # the passes, manifest.json and run.json too
    path = folder / "whitening" / "result.h5"
    content = bytearray(path.read_bytes())
    content[-40] ^= 1
    path.write_bytes(content)
    wrong = run("check", at / "m.h5", folder, at / "nothing.h5")
    assert wrong.exit_code == 1
    for said in (f"{path}: ", "nothing.h5: "):
        assert said in wrong.stdout


def test_what_others_add_to_a_file_is_left_alone(at, run):
    with h5py.File(at / "model.h5", "r+") as file:
        file.attrs["note"] = "mine"
        file["whitening"].attrs["note"] = "mine"
        file["extra"] = np.arange(3)
    store.load(at / "model.h5")
    assert run("check", at / "model.h5").exit_code == 0
