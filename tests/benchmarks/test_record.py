"""Dated results: a record of another command is not lost."""

import datetime
import json
import re
import sys
from pathlib import Path
from typing import Any

from benchmarks.record import records, write_record

ROOT = Path(__file__).parents[2]
PAGES = [
    path for path in ROOT.rglob("*.md") if not {".venv", "results"} & set(path.relative_to(ROOT).parts)
]
WRITTEN = {path: path.read_text() for path in PAGES}
CODE = "\n".join(
    path.read_text()
    for folder in ("smtdist", "tests", "benchmarks", "replication", "docs")
    for path in (ROOT / folder).rglob("*.py")
)
"""Comments and docstrings say which record a number is from."""


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


def test_every_record_is_the_source_of_something():
    text = "\n".join([*WRITTEN.values(), CODE])
    named = set(re.findall(r"\d{4}-\d\d-\d\d-[\w.-]*\w", text))
    named |= {name.removesuffix(".json") for name in named}
    assert not [path.name for path in (ROOT / "results").glob("*.json") if path.stem not in named]
    assert not [path.name for path in (ROOT / "results").glob("*.png") if path.name not in text]


def test_no_page_shows_a_record_that_a_newer_one_replaces():
    """The same command for the same thing on the same kind of machine, wherever its data and the folder of its run lay."""
    newest: dict[Any, str] = {}
    for path in sorted((ROOT / "results").glob("*.json")):
        about = json.loads(path.read_text())
        words = re.sub(r" --(json|work|out|data|test-data) \S+", "", about["command"])
        machine = about["machine"]
        key = (
            re.sub(r"^[\d-]{10}-|-\d$", "", path.stem),
            words,
            machine["processor"],
            machine.get("products"),
        )
        older, newest[key] = newest.get(key), path.stem
        assert older is None or not [
            page.name for page, text in WRITTEN.items() if f"{older}.json" in text
        ], newest[key]
