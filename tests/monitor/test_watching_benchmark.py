"""The benchmark of watching runs, tiny."""

import json

import pytest

from benchmarks.live import cost
from smtdist.engine.dask_executor import DaskExecutor


@pytest.mark.benchmark
@pytest.mark.parametrize("workers", [0, 1])
def test_the_cost_of_watching_is_recorded(tmp_path, workers):
    words = ["--samples", "600", "--side", "12", "--atoms", "32", "--pairs", "1", "--out", str(tmp_path)]
    words += ["--workers", str(workers), "--follow"]
    result = cost.main(words)
    (record,) = tmp_path.glob(f"*watching-600-K32-w{workers}-followed.json")
    assert json.loads(record.read_text())["result"]["pairs"] == result["pairs"]
    assert result["median_plain_seconds"] > 0
    assert len(cost.main([*words, "--more"])["pairs"]) == 2
    assert DaskExecutor.cluster is not None
