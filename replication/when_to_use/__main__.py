"""smtdist beside what one would take instead, at about equal CPU time, each method in processes of its own.

    python -m replication.when_to_use --data ../shared/data --work RUN --json results
    python -m replication.when_to_use --data ../shared/data --work RUN --sets cifar10-2000 --only hog-ridge cnn
    python -m replication.when_to_use --work RUN --done --json results   # what is done; measure nothing
    python -m replication.when_to_use --markdown results/DATE-when-to-use.json    # the tables, to the page

HOG needs scikit-image and the networks PyTorch; they are left out, and named, where these are not installed. RUN keeps what
is done, so that the same command goes on where it ended. Networks get the CPU seconds of smtdist-kernel on the same images,
or `--cpu-seconds`. `--heads RECORD` takes smtdist's rows on CIFAR-10 from a record of `replication.heads`.

Features see the training images without labels; what classifiers need is chosen by labelled training images; the test
images judge once. All methods but smtdist run on one thread, so that no thread burns CPU time while it waits. The CPU
seconds of a row are those of its features and its classifier, the three draws of few labels together; memory is
the largest resident set of any of its processes; numbers are the float32 that a classifier gets of an image. With all
labels the CNN runs once for each of `--seeds`; its row has their mean, and the CPU seconds of one.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from benchmarks.processes import watched
from benchmarks.record import write_record
from benchmarks.steps import Steps
from replication.when_to_use import table
from replication.when_to_use.options import parsed, parser_of
from replication.when_to_use.ours import Ours
from replication.when_to_use.sets import SETS, ImageSet, of_seeds, write_images
from smtdist.evaluate.metrics import wilson

HERE: Final = "replication.when_to_use"
PAGE: Final = Path(__file__).parents[2] / "docs" / "when_to_use.md"
ONE_THREAD: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)


class Method(NamedTuple):
    """Features and a classifier of theirs; `needs` is a package that may not be installed."""

    title: str
    features: str
    judge: str = ""
    needs: str = ""


METHODS: Final = {
    "raw-knn": Method("raw pixels, soft k-NN", "raw", "knn"),
    "raw-ridge": Method("raw pixels, ridge", "raw", "ridge"),
    "hog-ridge": Method("HOG, ridge", "hog", "ridge", "skimage"),
    "hog-svm": Method("HOG, linear SVM", "hog", "svm", "skimage"),
    "kmeans-ridge": Method("k-means features, ridge", "kmeans", "ridge"),
    "kmeans-kernel": Method("k-means features, smtdist's kernel ridge", "kmeans", "kernel"),
    "smtdist-knn": Method("**smtdist**: embedding (colour), soft k-NN", "smtdist", "knn"),
    "smtdist-kernel": Method("**smtdist**: codes and embedding, kernel ridge", "smtdist", "kernel"),
    "cnn": Method("small CNN, supervised", "cnn", needs="torch"),
    "simclr-knn": Method("small SimCLR, soft k-NN", "simclr", "knn", "torch"),
}


class Bench:
    """One set of images: features once for each kind, then what each classifier makes of them."""

    def __init__(self, name: str, asked: argparse.Namespace, steps: Steps) -> None:
        self.name, self.asked, self.steps = name, asked, steps
        self.set: ImageSet = SETS[name]
        self.images = asked.images or self.set.images
        self.labels = self.set.labels if asked.labels is None else tuple(asked.labels)
        self.data = steps.path(f"{name}/data.h5")
        self.ours = Ours(
            self.set, self.data, steps.path(f"{name}/smtdist"), self.images, self.labels, asked
        )

    def about(self) -> dict[str, Any]:
        """Return what the table says of the set."""
        return {"title": self.set.title, "images": self.images, "labels": list(self.labels)}

    def write(self) -> None:
        """Write the images, unless they are there."""
        if not self.data.exists():
            part = self.data.with_suffix(".part")
            write_images(self.set, self.asked.data, part, self.images, self.asked.test)
            part.replace(self.data)

    def rows(self, method: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of a method, with all labels and with few."""
        if METHODS[method].features == "smtdist":
            found = self._ours(METHODS[method].judge)
        else:
            found = {labels: self._row(method, labels) for labels in (0, *self.labels)}
        for labels, one in found.items():
            if one is None:
                continue
            n = one["n_test"]
            right = one.get("right") or [round(share * n) for share in one["shares"]]
            shares = [count / n for count in right]
            # of draws the lowest and the highest, with all labels the interval of the images
            between = [min(shares), max(shares)] if labels else list(wilson(sum(right) / len(right), n))
            kept = ("n_test", "cpu_seconds", "peak_bytes", "row_bytes", "chosen")
            yield {
                **{"set": self.name, "method": method, "labels": labels, "top1": float(np.mean(shares))},
                **{"between": between, "right": right, "seed": self.asked.seed},
                **{name: one[name] for name in kept},
            }

    def _ours(self, judge: str) -> dict[int, dict[str, Any] | None]:
        if judge == "kernel":
            return dict(self.ours.kernel()) if not self.asked.done or self.ours.is_done() else {}
        name = f"{self.images}-{self.asked.dictionary}-knn.json"
        return {0: self.ours.knn()} if not self.asked.done or self.ours.steps.done(name) else {}

    def _row(self, method: str, labels: int) -> dict[str, Any] | None:
        """Return what a classifier found; None where it is not done and nothing is to be measured."""
        about = METHODS[method]
        seeded = ["--seed", str(self.asked.seed)]
        judged = [*seeded, "--labels", str(labels), "--draws", str(self.asked.draws)]
        before: list[dict[str, Any]] = []
        if about.features == "cnn":
            words = ["networks", "cnn", str(self.data), *judged]
        else:
            kinds = [about.features]
            if about.judge == "kernel" and self.set.mirrored:
                kinds.append(f"{about.features}-mirrored")
            files = []
            for kind in kinds:
                out = self.steps.path(f"{self.name}/{kind}.h5")
                files.append(str(out))
                one = self._step(f"features-{kind}", self._features(kind, out, seeded))
                if one is None:
                    return None
                before.append(one)
            words = ["judges", about.judge, str(self.data), *files, *judged]
        several = about.features == "cnn" and not labels
        last = self._networks() if several else self._step(f"{method}-{labels or 'all'}", words)
        if last is None:
            return None
        parts = [*before, last]
        return {
            **last["said"],
            "cpu_seconds": sum(one["cpu_seconds"] for one in parts),
            "peak_bytes": max(one["peak_bytes"] for one in parts),
            "chosen": [one["said"] for one in before if one["said"]] + last["said"]["chosen"],
        }

    def _networks(self) -> dict[str, Any] | None:
        """Return what CNNs of all labels found, of several first weights; None as in `_row`."""
        words = ["networks", "cnn", str(self.data), "--seed"]
        each = [self._step(f"cnn-all-{seed}", [*words, str(seed)]) for seed in range(self.asked.seeds)]
        done = [one for one in each if one is not None]
        return of_seeds(done) if done else None

    def _features(self, kind: str, out: Path, seeded: list[str]) -> list[str]:
        if kind == "simclr":
            return ["networks", kind, str(self.data), "--out", str(out), *seeded]
        return ["features", kind, str(self.data), str(out), "--atoms", str(self.asked.atoms), *seeded]

    def _step(self, name: str, words: list[str]) -> dict[str, Any] | None:
        path = f"{self.name}/{name}.json"
        if self.asked.done and not self.steps.done(path):
            return None
        found: dict[str, Any] = self.steps.facts(path, partial(self._run, words))
        return found

    def _run(self, words: list[str]) -> dict[str, Any]:
        program, *rest = words
        if program == "networks":
            rest += ["--cpu-seconds", str(self._seconds())]
            rest += [] if self.set.mirrored else ["--no-mirrored"]
        found = watched([sys.executable, "-m", f"{HERE}.{program}", *rest], environment=ONE_THREAD)
        kept = {name: found[name] for name in ("seconds", "cpu_seconds", "peak_bytes")}
        return {"said": json.loads(found["lines"][-1]) if found["lines"] else {}, **kept}

    def _seconds(self) -> float:
        """Return the CPU seconds that a network may use."""
        if self.asked.cpu_seconds:
            return float(self.asked.cpu_seconds)
        if not self.ours.is_done():
            raise SystemExit(
                f"smtdist-kernel is not measured on {self.name}; run it first, or give --cpu-seconds."
            )
        return float(self.ours.kernel()[0]["cpu_seconds"])


def asked_for(words: list[str] | None) -> argparse.Namespace:
    """Return the options."""
    parser = parser_of(HERE, __doc__, METHODS, PAGE)
    parser.add_argument("--dictionary", type=int, default=2048, help="atoms of smtdist")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS), metavar="NAME")
    parser.add_argument("--heads", type=Path, help="record of replication.heads")
    parser.add_argument("--images", type=int, help="training images, in place of a set's own number")
    parser.add_argument("--labels", type=int, nargs="*", help="so few labels, in place of a set's own")
    return parsed(parser, words)


def main(words: list[str] | None = None) -> None:
    """Measure what is asked for, print it, and write a record if asked."""
    asked = asked_for(words)
    if asked.markdown:
        table.write(asked.markdown, asked.page)
        return
    steps = Steps(asked.work)
    benches = [Bench(name, asked, steps) for name in asked.sets]
    rows: list[dict[str, Any]] = []
    missing: list[dict[str, str]] = []
    for method in asked.only:
        needs = METHODS[method].needs
        if needs and not asked.done and importlib.util.find_spec(needs) is None:
            print(f"{method} is left out: {needs} is not installed.", flush=True)
            missing += [
                {"set": name, "method": method, "why": f"{needs} was not installed"} for name in asked.sets
            ]
            continue
        for bench in benches:
            if not asked.done:
                bench.write()
            found = list(bench.rows(method))
            rows += found
            if not found:
                missing.append({"set": bench.name, "method": method, "why": "not run yet"})
            for row in found:
                of = f", {row['labels']} labels" if row["labels"] else ""
                took = f"{100 * row['top1']:.1f} %, {row['cpu_seconds']:.0f} CPU s"
                print(f"{bench.name}, {method}{of}: {took}", flush=True)
    if asked.json:
        result = {
            "sets": {bench.name: bench.about() for bench in benches},
            "methods": {name: METHODS[name].title for name in asked.only},
            "rows": rows,
            "missing": missing,
        }
        print(write_record(asked.json, table.NAME, result))


if __name__ == "__main__":
    main()
