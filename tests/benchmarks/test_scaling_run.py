"""The benchmarks of scale run on small data; memory and bytes are judged, times are not."""

import json

import h5py
import pytest
from encoding import write_encoded

from benchmarks.scaling import manifest, out_of_core, processes

TINY = ["--set", "dictionary=24", "--set", "n_components=6", "--set", "patch=4"]


def recorded(folder, result):
    (path,) = folder.glob("*.json")
    kept = json.loads(path.read_text())["result"]
    kept.pop("configuration")
    assert kept == json.loads(json.dumps(result))


def test_manifest(tmp_path):
    result = manifest.main(["--shards", "5", "--samples", "300", "--json", str(tmp_path), *TINY])
    assert (result["samples"], result["leaves"], result["tasks"]) == (1500, 5, 5)
    assert result["leaf_samples"] == [300, 300]
    assert [one["name"] for one in result["passes"]] == ["whitening", "dictionary", "statistics", "solve"]
    recorded(tmp_path, result)


@pytest.mark.benchmark
def test_out_of_core(tmp_path):
    sizes = ["--gigabytes", "0.003", "--side", "20", "--workers", "1", "--limit", "1"]
    result = out_of_core.main([*sizes, "--folder", str(tmp_path), "--json", str(tmp_path), *TINY])
    assert result["samples"] == 2500
    peaks = result["peak_bytes"]
    assert set(peaks) == {"worker 0", "driver"}
    assert 0 < peaks["worker 0"] <= result["limit_bytes"]
    assert 0 < result["projected_bytes"] <= result["limit_bytes"]
    for one in result["passes"][:3]:  # the solve, on the driver, plans for what it adds itself
        assert one["peak_bytes"] <= one["projected_bytes"], one
    for name, share in result[
        "read_share"
    ].items():  # the dictionary's pass reads the samples alone that it draws from
        assert share == pytest.approx(1, abs=0.05) or (name == "dictionary" and 0 < share < 1)
    assert result["asked_share"] > 0.95
    recorded(tmp_path, result)
    assert not list(tmp_path.glob("**/*.h5")), "the data are deleted"


def test_the_first_images_are_copied_with_their_offsets(tmp_path):
    path = write_encoded(tmp_path / "a.h5", [b"aa", b"b", b"cccc"], attributes={"channels": 3})
    assert processes.copy_first(str(path), "train", 2, tmp_path / "b.h5") == 2
    with h5py.File(tmp_path / "b.h5") as file:
        assert file["train/bytes"][()].tobytes() == b"aab"
        assert file["train/offsets"][()].tolist() == [0, 2, 3]
        assert file["train"].attrs["channels"] == 3
