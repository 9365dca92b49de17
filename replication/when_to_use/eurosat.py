"""smtdist as it comes on satellite images, EuroSAT, beside what one would take instead.

    python -m replication.when_to_use.eurosat --data ../shared/data --work RUN --json results
    python -m replication.when_to_use.eurosat --markdown results/DATE-eurosat.json    # the tables, to the page

All methods see the same 4,500 training images of 64 x 64 pixels, and the same draws of few labels; 1,000 test images judge
once. smtdist's rows are its commands without a setting: `fit`, `transform --mirrored`, `evaluate`. Features and classifiers of
the others are those of `replication.when_to_use`, on one thread. HOG needs scikit-image and the CNN PyTorch; they are left out,
and named, where these are not installed. RUN keeps what is done, so that the same command goes on where it ended.

`--add RECORD` puts the rows of other methods beside them, from an earlier record, whose command and machine are named.

The CNN with all labels gets the CPU seconds of smtdist's fit, transform and kernel head for each of its seeds; with few labels
the draws share them. `--done` writes the record of what RUN holds. `--file` names another file with groups train and test,
such as a part of the training images that judges the rest.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from benchmarks.processes import watched
from benchmarks.record import records, write_record
from benchmarks.steps import Steps
from replication.heads import run
from replication.when_to_use.__main__ import ONE_THREAD
from replication.when_to_use.options import parsed, parser_of
from replication.when_to_use.sets import ImageSet, of_seeds, write_images
from replication.when_to_use.table import put_between
from smtdist.evaluate.metrics import wilson

NAME: Final = "eurosat"
PAGE: Final = Path(__file__).parents[2] / "docs" / "eurosat.md"
BEGIN: Final = "<!-- table: begin; written by python -m replication.when_to_use.eurosat --markdown -->"
CLASSES: Final = 10
SETTINGS: Final = {
    "hog": ("--cell", "8"),
    "kmeans": ("--step", "2"),
    "random": ("--step", "2", "--bias", "1"),
}
"""Of features, for images of twice the side that the defaults are made for."""


Took = dict[str, Any]


class NotDone(Exception):
    """A step is not done, and nothing is to be measured."""


class Method(NamedTuple):
    """Features and a classifier; `needs` is a package that may not be installed, `more` are words of smtdist's commands."""

    title: str
    features: str
    judge: str
    needs: str = ""
    more: tuple[str, ...] = ()


METHODS: Final = {
    "smtdist-kernel": Method("**smtdist**, `--metric kernel`", "smtdist", "kernel"),
    "smtdist-pooled": Method(
        "**smtdist**, `--metric kernel --pool 1`", "smtdist", "kernel", more=("--pool", "1")
    ),
    "smtdist-linear": Method("**smtdist**, `--metric linear`", "smtdist", "linear"),
    "smtdist-knn": Method("**smtdist**, `--metric knn`", "smtdist", "knn"),
    "raw-ridge": Method("raw pixels, ridge", "raw", "ridge"),
    "hog-ridge": Method("HOG, ridge", "hog", "ridge", "skimage"),
    "hog-logistic": Method("HOG, logistic regression", "hog", "logistic", "skimage"),
    "kmeans-ridge": Method("k-means features, ridge", "kmeans", "ridge"),
    "kmeans-logistic": Method("k-means features, logistic regression", "kmeans", "logistic"),
    "random-ridge": Method("random convolutional features, ridge", "random", "ridge"),
    "cnn": Method("small CNN", "cnn", "", "torch"),
}


class Bench:
    """Steps of all methods, each a command that is measured once."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked, self.steps = asked, Steps(asked.work)
        self.data = self.steps.path("data.h5")
        self.labels = [CLASSES * each for each in asked.labels]

    def write(self) -> None:
        """Write the images, unless they are there."""
        if not self.data.exists():
            part = self.data.with_suffix(".part")
            one = ImageSet("EuroSAT", self.asked.file, self.asked.images)
            write_images(one, self.asked.data, part, self.asked.images, self.asked.test)
            part.replace(self.data)

    def rows(self, method: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of a method, with all labels and with few."""
        about = METHODS[method]
        if about.features == "smtdist":
            found = self._ours(method)
        elif about.features == "cnn":
            found = self._networks()
        else:
            found = self._others(method)
        with contextlib.suppress(NotDone):
            for labels, parts in found:
                last = parts[-1]["said"]
                n, right = last["n_test"], last["right"]
                shares = [count / n for count in right]
                yield {
                    **{"method": method, "labels": labels, "top1": float(np.mean(shares)), "right": right},
                    # of the images, and of what was drawn: labels or first weights
                    "interval": wilson(sum(right) / len(right), n),
                    "spread": float(np.std(shares, ddof=len(right) > 1)),
                    **{"n_test": n, "row_bytes": last["row_bytes"], "chosen": last["chosen"]},
                    "cpu_seconds": sum(one["cpu_seconds"] for one in parts),
                    "peak_bytes": max(one["peak_bytes"] for one in parts),
                    "commands": [one["command"] for one in parts if "command" in one],
                }

    def _ours(self, method: str) -> Iterator[tuple[int, list[Took]]]:
        """Run the commands of smtdist: what `evaluate MODEL DATA` does by itself, its representations kept for few labels."""
        model = str(self.steps.path("model.h5"))
        settings = [word for one in self.asked.set for word in ("--set", one)]
        words = ["fit", str(self.data), "--dataset", "train", *settings, "--no-first-look"]
        before = [self._command("smtdist-fit", [*words, "--out", model, "--overwrite"])]
        # where the kernel judges, `evaluate` takes codes and mirror images too
        about = METHODS[method]
        kernel = about.judge == "kernel"
        words = [*(("--features", "both", "--mirrored") if kernel else ()), *about.more]
        name = "-".join(["both" if kernel else "embedding", *(word.strip("-") for word in about.more)])
        files = [str(self.steps.path(f"{group}-{name}.h5")) for group in ("train", "test")]
        for group, out in zip(("train", "test"), files, strict=True):
            transform = ["transform", model, str(self.data), "--dataset", group, *words, "--out", out]
            before.append(self._command(f"smtdist-{name}-{group}", [*transform, "--overwrite"]))
        facts = {"row_bytes": 4 * before[-1]["said"]["n_features"]}
        judging = ["evaluate", *files, "--metric", about.judge]
        one = self._command(f"{method}-all", judging)
        said = one["said"]
        facts["n_test"] = said["n_test"]
        kept = ("penalty", "C", "n_iter", "converged", "path", "k", "temperature", "mirrored")
        chosen = [{name: said[name] for name in kept if name in said}]
        right = [round(said["top1"] * said["n_test"])]
        yield 0, [*before, {**one, "said": {**facts, "right": right, "chosen": chosen}}]
        for labels in self.labels if kernel else ():
            words = [*judging, "--labels", str(labels), "--draws", str(self.asked.draws)]
            one = self._command(f"{method}-{labels}", words)
            (told,) = one["said"]["sweep"]
            right = [round(share * facts["n_test"]) for share in told["draws"]]
            said = {**facts, "right": right, "chosen": [{"penalty": told["penalty"]}]}
            yield labels, [*before, {**one, "said": said}]

    def _others(self, method: str) -> Iterator[tuple[int, list[Took]]]:
        about, seeded = METHODS[method], ["--seed", str(self.asked.seed)]
        out = str(self.steps.path(f"{about.features}.h5"))
        sizes = ["--atoms", str(self.asked.atoms), "--filters", str(self.asked.filters)]
        words = ["features", about.features, str(self.data), out, *SETTINGS.get(about.features, ())]
        before = self._step(f"features-{about.features}", [*words, *sizes, *seeded])
        words = ["judges", about.judge, str(self.data), out, "--draws", str(self.asked.draws), *seeded]
        for labels in (0, *self.labels):
            last = self._step(f"{method}-{labels or 'all'}", [*words, "--labels", str(labels)])
            yield labels, [before, last]

    def _networks(self) -> Iterator[tuple[int, list[Took]]]:
        """Train the CNN; the row of all labels has the CPU seconds of one seed, as other rows are of one run."""
        seconds = self.asked.cpu_seconds
        if seconds is None:
            _, parts = next(self._ours("smtdist-kernel"))
            seconds = sum(one["cpu_seconds"] for one in parts)
        words = ["networks", "cnn", str(self.data), "--cpu-seconds"]
        each = []
        for seed in range(self.asked.seeds):
            with contextlib.suppress(NotDone):
                each.append(self._step(f"cnn-all-{seed}", [*words, str(seconds), "--seed", str(seed)]))
        if not each:
            return
        yield 0, [of_seeds(each)]
        shared = [str(seconds / self.asked.draws), "--seed", str(self.asked.seed)]
        for labels in self.labels:
            few = ["--labels", str(labels), "--draws", str(self.asked.draws)]
            yield labels, [self._step(f"cnn-{labels}", [*words, *shared, *few])]

    def pooled(self) -> dict[str, Any] | None:
        """Return what heads make of fewer windows, by training images alone; None where smtdist has no representations yet."""
        words = [
            "pooling",
            str(self.steps.path("train-both.h5")),
            "--held-out",
            str(self.asked.images * 2 // 9),
        ]
        with contextlib.suppress(NotDone):
            next(self._ours("smtdist-kernel"))
            found: dict[str, Any] = self._step("pooling", words)["said"]
            return found
        return None

    def _command(self, name: str, words: list[str]) -> Took:
        return self._once(name, lambda: run(words))

    def _step(self, name: str, words: list[str]) -> Took:
        def measured() -> Took:
            program, *rest = words
            command = [sys.executable, "-m", f"replication.when_to_use.{program}", *rest]
            found = watched(command, environment=ONE_THREAD)
            kept = {name: found[name] for name in ("seconds", "cpu_seconds", "peak_bytes")}
            return {"said": json.loads(found["lines"][-1]) if found["lines"] else {}, **kept}

        return self._once(name, measured)

    def _once(self, name: str, measure: Callable[[], Took]) -> Took:
        if self.asked.done and not self.steps.done(f"{name}.json"):
            raise NotDone(name)
        found: Took = self.steps.facts(f"{name}.json", measure)
        return found


def rendered(record: dict[str, Any]) -> str:
    """Return the table of all labels, that of few, and that of heads that see fewer windows."""
    result = record["result"]
    counts = [0, *result["labels"]]
    rows = {(row["method"], row["labels"]): row for row in result["rows"]}
    parts = ["| method | accuracy, % | CPU s | memory | numbers |", "|---|---:|---:|---:|---:|"]
    for method, title in result["methods"].items():
        if row := rows.get((method, 0)):
            took = f"{row['cpu_seconds']:,.0f}", f"{row['peak_bytes'] / 1e9:.2f} GB"
            seeds = len(row["right"])
            named = f"{title}, {seeds} seed{'s' * (seeds > 1)}" if method == "cnn" else title
            cells = [named, accuracy(row), *took, f"{row['row_bytes'] / 1000:,.1f} KB"]
            parts.append(f"| {' | '.join(cells)} |")
    parts += [
        "",
        f"| method | {' | '.join(f'{each:,} labels' for each in counts[1:])} |",
        "|---|---:|---:|",
    ]
    for method, title in result["methods"].items():
        few = [rows.get((method, labels)) for labels in counts[1:]]
        if any(few):
            parts.append(f"| {title} | {' | '.join(accuracy(row) if row else '-' for row in few)} |")
    if pooled := result["pooling"]:
        parts += [
            "",
            "| head | what it sees of an image | accuracy, % | difference, points |",
            "|---|---|---:|---:|",
        ]
        for row in pooled["rows"]:
            seen = f"{' and '.join(row['parts'])}{', mirror images too' if row['mirrored'] else ''}"
            low, high = row["interval"]
            ahead = f"{row['points']:+.1f} ({low:+.1f} to {high:+.1f})" if row["points"] or high else ""
            parts.append(f"| `{row['head']}` | {seen} | {100 * row['top1']:.1f} | {ahead} |")
    missing = [f"{result['methods'][method]} ({why})" for method, why in result["missing"].items()]
    return "\n".join([*parts, *(["", f"Not measured: {'; '.join(missing)}."] if missing else []), ""])


def accuracy(row: dict[str, Any]) -> str:
    """Return the accuracy of a row in percent, with the standard deviation of several draws, and the 95 % interval."""
    low, high = row["interval"]
    several = f" ± {100 * row['spread']:.1f}" if len(row["right"]) > 1 else ""
    return f"{100 * row['top1']:.1f}{several} ({100 * low:.1f} to {100 * high:.1f})"


def write(record: Path, page: Path) -> None:
    """Write the tables of a record to the page."""
    put_between(page, BEGIN, rendered(json.loads(record.read_text())))


def beside(earlier: Path, result: dict[str, Any]) -> dict[str, Any]:
    """Return a result with the methods of an earlier record that it has not."""
    record = json.loads(earlier.read_text())
    before = record["result"]
    others = [row for row in before["rows"] if row["method"] not in result["methods"]]
    missing = {name: why for name, why in before["missing"].items() if name not in result["methods"]}
    return {
        **result,
        "methods": {**before["methods"], **result["methods"]},
        "rows": [*others, *result["rows"]],
        "missing": missing | result["missing"],
        "pooling": result["pooling"] or before["pooling"],
        "added": {"methods": sorted({row["method"] for row in others})}
        | {name: record[name] for name in ("date", "command", "machine")},
    }


def newest(folder: Path) -> Path:
    """Return the newest record of a folder."""
    return records(folder, NAME)[-1]


def asked_for(words: list[str] | None) -> argparse.Namespace:
    """Return the options."""
    parser = parser_of("replication.when_to_use.eurosat", __doc__, METHODS, PAGE)
    parser.add_argument("--file", default="eurosat_rgb_jpeg.h5")
    parser.add_argument("--images", type=int, default=4500, help="training images")
    parser.add_argument("--labels", type=int, nargs="*", default=[10, 100], help="so few of a class, too")
    parser.add_argument("--add", type=Path, metavar="RECORD", help="earlier record, of other methods")
    parser.add_argument("--filters", type=int, default=4096, help="of random convolutions")
    return parsed(parser, words)


def main(words: list[str] | None = None) -> None:
    """Measure what is asked for, print it, and write a record if asked."""
    asked = asked_for(words)
    if asked.markdown:
        write(asked.markdown, asked.page)
        return
    bench, rows, missing = Bench(asked), [], {}
    bench.write()
    for method in asked.only:
        needs = METHODS[method].needs
        if needs and not asked.done and importlib.util.find_spec(needs) is None:
            print(f"{method} is left out: {needs} is not installed.", flush=True)
            missing[method] = f"{needs} was not installed"
            continue
        found = list(bench.rows(method))
        rows += found
        if not found:
            missing[method] = "not run yet"
        for row in found:
            of = f", {row['labels']} labels" if row["labels"] else ""
            print(f"{method}{of}: {100 * row['top1']:.1f} %, {row['cpu_seconds']:.0f} CPU s", flush=True)
    if asked.json:
        titles = {name: METHODS[name].title for name in asked.only}
        facts = {"images": asked.images, "labels": bench.labels, "methods": titles, "settings": SETTINGS}
        result = {**facts, "rows": rows, "missing": missing, "pooling": bench.pooled()}
        print(write_record(asked.json, NAME, beside(asked.add, result) if asked.add else result))


if __name__ == "__main__":
    main()
