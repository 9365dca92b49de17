"""The benchmarks of the solver run, tiny."""

import pytest

from benchmarks.solve import large_k
from smtdist.models import solving, summing


@pytest.mark.benchmark
def test_large_k_in_tiles_and_whole(monkeypatch):
    monkeypatch.setattr(solving, "memory_limit", solving.memory_limit)
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
