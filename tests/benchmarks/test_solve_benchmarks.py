"""The benchmarks of the solver run, tiny."""

import json

import pytest

from benchmarks.end_to_end import fit
from benchmarks.solve import eigen, large_k
from smtdist.models import solving, summing, ways


def test_eigen_beside_lapack(tmp_path):
    arguments = [
        "--atoms",
        "64",
        "--images",
        "40",
        "--components",
        "4",
        "--repeats",
        "2",
        "--peer-repeats",
        "1",
        "--threads",
        "1",
    ]
    (row,) = eigen.main([*arguments, "--keep", str(tmp_path), "--json", str(tmp_path)])
    assert row["residual"] < 1e-7
    assert row["smallest_cosine_of_spaces"] > 0.999
    assert row["products_float64"] > 0
    (again,) = eigen.main([*arguments, "--keep", str(tmp_path)])  # Q from its file
    assert again["atoms"] == row["atoms"] == 64
    (record,) = tmp_path.glob("*.json")
    assert json.loads(record.read_text())["result"]["runs"][0]["eigh_seconds"] > 0


@pytest.mark.benchmark
def test_large_k_in_tiles_and_whole(monkeypatch):
    monkeypatch.setattr(ways, "memory_limit", ways.memory_limit)
    monkeypatch.setattr(solving, "timed_solve", solving.timed_solve)
    monkeypatch.setattr(summing, "SMALL_SHARE", 0)
    monkeypatch.setattr(summing, "row_tiles", lambda sums, *_, **__: sums.tiled(3))
    arguments = ["--images", "20", "--atoms", "64", "--components", "3", "--threads", "1"]
    tiles = large_k.main([*arguments, "--memory", "1GB"])
    monkeypatch.undo()
    monkeypatch.setattr(solving, "timed_solve", solving.timed_solve)
    whole = large_k.main([*arguments, "--whole"])
    assert tiles["tiled"]
    assert not whole["tiled"]
    assert tiles["hashes"] == whole["hashes"]
    assert tiles["largest_residual"] < 1e-10
    assert tiles["process_peak_bytes"] > 0


def test_fit_by_passes(tmp_path, capsys):
    arguments = ["--images", "30", "--atoms", "64", "--components", "4", "--threads", "1"]
    rows = fit.main([*arguments, "--checkpoint", str(tmp_path / "kept"), "--json", str(tmp_path)])
    assert [row["name"].split(",")[0] for row in rows] == ["whitening", "dictionary", "statistics", "solve"]
    assert all(row["ours_peak_bytes"] > 2**20 for row in rows)
    assert rows[-1]["facts"]["largest_residual"] < 1e-7
    again = fit.main([*arguments, "--checkpoint", str(tmp_path / "kept")])
    assert again[2]["facts"]["resumed_leaves"] > 0
    assert len(list(tmp_path.glob("*.json"))) == 1
    with pytest.raises(SystemExit, match="no CUDA device"):
        fit.main([*arguments, "--gpu"])
