"""Cells that other benchmarks have measured, from their records: GloVe by `words.mnist_glove`, L1 codes by `sparse.cifar`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.record import records
from replication.quality import published
from replication.quality.cells import FILES, L1_ROW, OURS
from smtdist.evaluate.metrics import wilson


def measured(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the cells that other records hold, as rows of a record of tables."""
    yield from _of_l1(folder)
    for path in records(folder, "mnist-glove-*"):
        record = json.loads(path.read_text())
        found = record["result"]
        # records of one context came first
        contexts = found.get("contexts") or {found["context"]: found}
        for context, one in contexts.items():
            row = "whole image" if context == "whole" else f"{context} pixels"
            count = _option(record, "--test", 10_000)
            seeds = len(one["seeds"])
            own = {
                "top1": one["glove"],
                "interval": list(wilson(round(one["glove"] * count), count)),
                "n_train": _option(record, "--train", 60_000),
                "n_test": count,
                "dictionary": found["configuration"]["dictionary"],
                "seconds": None,
                "peak_bytes": None,
                "said": f"mean of {seeds} seeds; the transform on the same atoms {100 * one['smt']:.2f}",
            }
            yield _cell(record, path, row, "GloVe 100K", own)


def _of_l1(folder: Path) -> Iterator[dict[str, Any]]:
    for path in records(folder, "sparse-cifar"):
        record = json.loads(path.read_text())
        if FILES["cifar10"] not in record["command"]:
            continue  # JPEG is not mixed with lossless images
        found = record["result"]
        for feature in ("l1", "gq"):
            part = found[feature]
            own = {
                "top1": part["knn"],
                "interval": list(wilson(round(part["knn"] * found["test"]), found["test"])),
                "n_train": found["train"],
                "n_test": found["test"],
                "dictionary": found["units"],
                "seconds": part["seconds"],
                "peak_bytes": None,
            }
            yield {**_cell(record, path, L1_ROW, feature, own), "table": "ablations", "remark": OURS}


def _cell(record: dict[str, Any], path: Path, row: str, column: str, own: dict[str, Any]) -> dict[str, Any]:
    paper = published.TABLE_1.get((row, column))
    return {
        "table": "1",
        "row": row,
        "column": column,
        "paper": paper,
        "remark": "",
        "ours": {**own, "device": f"CPU, {record['machine']['cores']} cores"},
        "date": record["date"],
        "command": record["command"],
        "record": path.name,
    }


def _option(record: dict[str, Any], name: str, default: int) -> int:
    words = shlex.split(record["command"])
    return int(words[words.index(name) + 1]) if name in words else default
