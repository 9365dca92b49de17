"""smtdist's own rows: its commands, as `replication.heads` runs them, or the record that it has written."""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.steps import Steps
from replication import heads
from replication.when_to_use.sets import ImageSet

Took = dict[str, Any]


class Ours:
    """Models, files and figures of one set of images, kept in a folder of `replication.heads`."""

    def __init__(
        self, one: ImageSet, data: Path, folder: Path, images: int, labels: tuple[int, ...], asked: argparse.Namespace
    ) -> None:  # fmt: skip
        self.images, self.draws, self.record = images, asked.draws, asked.heads if one.heads else None
        self.steps = Steps(folder)
        self.of_heads = argparse.Namespace(
            data=data,
            test_data=None,
            train="train",
            test="test",
            dictionary=asked.dictionary,
            set=[*one.settings, *asked.set],
            preset=one.preset,
            kinds=one.kinds,
            not_mirrored=not one.mirrored,
            labels=labels,
            landmarks=(),
            draws=asked.draws,
            half=False,
        )

    def recorded(self) -> Took | None:
        """Return what the commands took, of the record that was given, else None."""
        if self.record is None:
            return None
        rows = json.loads(self.record.read_text())["result"]["rows"]
        asked = self.images, self.of_heads.dictionary
        mine = [row["took"] for row in rows if (row["images"], row["dictionary"]) == asked]
        return mine[0] if mine else None

    def is_done(self) -> bool:
        """Tell whether nothing is left to be measured."""
        name = f"{self.images}-{self.of_heads.dictionary}"
        last = [f"{name}-kernel.json", *(f"{name}-{labels}-labels.json" for labels in self.of_heads.labels)]
        return self.recorded() is not None or all(map(self.steps.done, last))

    def kernel(self) -> dict[int, dict[str, Any]]:
        """Return the rows of codes and embedding with kernel ridge regression: of all labels (0), and of few."""
        took = self.recorded() or heads.measured(self.of_heads, self.steps, self.images)["took"]
        before = [one for name, one in took.items() if name.startswith(("fit", "transform"))]
        transformed = took["transform test"]["said"]
        width = 4 * transformed["n_features"]
        rows = {}
        for labels in (0, *self.of_heads.labels):
            judged = took["kernel" if not labels else f"{labels} labels"]
            parts = [*before, judged]
            said = judged["said"]
            rows[labels] = {
                "cpu_seconds": sum(one["cpu_seconds"] for one in parts),
                "peak_bytes": max(one["peak_bytes"] for one in parts),
                "row_bytes": width,
                "chosen": [said["penalty"] if not labels else said["sweep"][0]["penalty"]],
                "n_test": transformed["n_samples"],
                "shares": [said["top1"]] if not labels else said["sweep"][0]["draws"],
            }
        return rows

    def knn(self) -> dict[str, Any]:
        """Return the row of the colour model's embedding and its preset's soft k-NN."""
        name = f"{self.images}-{self.of_heads.dictionary}"
        model, fit = heads.fitted(self.of_heads, self.steps, name, "colour", self.of_heads.data)
        words = ["evaluate", str(model), str(self.of_heads.data), "--train", "train", "--test", "test"]
        judged = self.steps.facts(f"{name}-knn.json", partial(heads.run, words))
        said = judged["said"]
        return {
            "cpu_seconds": fit["cpu_seconds"] + judged["cpu_seconds"],
            "peak_bytes": max(fit["peak_bytes"], judged["peak_bytes"]),
            "row_bytes": None,
            "chosen": [{"neighbours": said["k"], "temperature": said["temperature"]}],
            "n_test": said["n_test"],
            "shares": [said["top1"]],
        }
