"""The benchmark of watching runs, tiny."""

import json

from benchmarks.live import cost


def test_the_cost_of_watching_is_recorded(tmp_path):
    words = ["--samples", "600", "--side", "12", "--atoms", "32", "--pairs", "1", "--out", str(tmp_path)]
    result = cost.main(words)
    (record,) = tmp_path.glob("*watching-600-K32-w0.json")
    assert json.loads(record.read_text())["result"]["pairs"] == result["pairs"]
    assert result["median_plain_seconds"] > 0
