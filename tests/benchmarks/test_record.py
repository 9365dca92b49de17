"""Dated results: a record of another command is not lost."""

import datetime
import json
import sys

from benchmarks.record import records, write_record


def test_only_the_same_command_replaces_a_record(tmp_path, monkeypatch):
    def written(*words, result):
        monkeypatch.setattr(sys, "argv", ["benchmark", *words])
        return write_record(tmp_path, "name-of-it", {"result": result}).stem

    today = datetime.date.today().isoformat()
    assert written("--rows", "a", result=1) == f"{today}-name-of-it"
    assert written("--rows", "b", result=2) == f"{today}-name-of-it-2"
    assert written("--rows", "c", result=3) == f"{today}-name-of-it-3"
    assert written("--rows", "b", result=4) == f"{today}-name-of-it-2"
    found = [json.loads(path.read_text())["result"]["result"] for path in records(tmp_path, "name*")]
    assert (
        found
        == [1, 4, 3]
        == [json.loads(path.read_text())["result"]["result"] for path in records(tmp_path, "name-of-it")]
    )
