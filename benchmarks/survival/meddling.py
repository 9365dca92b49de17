"""Two updates of one model at once, and data that change at random moments of a fit.

    python -m benchmarks.survival.meddling --out results

Of two updates, whose starts are spread over the time that one takes, both are in the sums, or the one that is not ends with
another code than 0; repeated, it gives the bits of one after the other. A fit whose data change (one byte, a hundredth, all;
with and without the time of the file restored; in one process and with two workers) ends in one sentence and no model, or
with the bits of a fit of the data as they were or as they are. Writes DATE-meddling.json and .md; exits with 1 where
something ended otherwise.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import h5py
import numpy as np

from benchmarks.record import write_record
from benchmarks.survival.processes import Driver
from benchmarks.survival.run import bits

SEED: Final = 20261126
SETTINGS: Final = ("patch=3", "dictionary=8", "n_components=2")
PAIRS: Final = 20
CHANGES: Final = {"one byte": 0.0, "1 %": 0.01, "all": 1.0}
SECONDS: Final = 200.0


@dataclass(frozen=True)
class Row:
    """What was done, and how it ended."""

    case: str
    moment: str
    outcome: str
    good: bool
    told: str


class Meddling:
    """A folder with small data and a model, and commands in processes of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.rng = folder, np.random.default_rng(SEED)
        images = self.rng.integers(0, 256, (4096, 9, 9), dtype=np.uint8)
        for number, name in enumerate("abc"):
            with h5py.File(folder / f"{name}.h5", "w") as file:
                file["x"] = images[1000 * number : 1000 * number + 1000]
        with h5py.File(folder / "data.h5", "w") as file:
            self.start = int(file.create_dataset("x", data=images).id.get_offset() or 0)
            file.flush()
            self.start, self.size = int(file["x"].id.get_offset()), images.nbytes

    def fit(self, data: Path, model: Path, workers: int) -> Driver:
        """Begin a fit."""
        settings = [word for setting in SETTINGS for word in ("--set", setting)]
        words = ["--dataset", "x", *settings, "--out", str(model), "--workers", str(workers)]
        return Driver(["fit", str(data), *words])

    def update(self, model: Path, name: str) -> Driver:
        """Begin an update in place."""
        return Driver(["update", str(model), str(self.folder / f"{name}.h5"), "--dataset", "x"])

    def pairs(self, count: int) -> list[Row]:
        """Let so many pairs of updates meet."""
        model = self.folder / "model.h5"
        _done(self.fit(self.folder / "a.h5", self.folder / "fitted.h5", 0))
        want = {}
        for order in ("b", "c", "bc", "cb"):
            shutil.copyfile(self.folder / "fitted.h5", model)
            began = time.monotonic()
            for name in order:
                _done(self.update(model, name))
            want[order], took = bits(model), (time.monotonic() - began) / len(order)
        rows = []
        for delay in self.rng.uniform(-took, took, count):
            shutil.copyfile(self.folder / "fitted.h5", model)
            rows.append(self._pair(model, float(delay), want))
            print(rows[-1], flush=True)
        return rows

    def _pair(self, model: Path, delay: float, want: dict[str, str]) -> Row:
        names = "bc" if delay > 0 else "cb"
        with self.update(model, names[0]) as first:
            threading.Event().wait(abs(delay))
            with self.update(model, names[1]) as second:
                codes = {names[0]: first.ended(SECONDS), names[1]: second.ended(SECONDS)}
                said = {names[0]: first.sentence, names[1]: second.sentence}
        went = "".join(name for name in names if codes[name] == 0)
        good = bool(went) and bits(model) in {
            want[order] for order in want if sorted(order) == sorted(went)
        }
        for name in set(names) - set(went):
            good = good and said[name].startswith("smtdist: ")
            _done(self.update(model, name))
        good = good and bits(model) in (want["bc"], want["cb"])
        outcome = "both" if len(went) == 2 else f"one ended with {[codes[n] for n in names if codes[n]]}"
        told = "; ".join(said[name] for name in names if codes[name])
        return Row(
            "two updates",
            f"{abs(delay):.2f} s apart",
            outcome,
            good,
            told.replace(str(self.folder), "FOLDER"),
        )

    def moments(self, workers: int, change: str, restored: bool, count: int) -> list[Row]:
        """Change the data of so many fits, each at a moment of its own."""
        case = f"{change}, {'time restored' if restored else 'time new'}, {workers or 'no'} workers"
        model, data = self.folder / "m.h5", self.folder / "changing.h5"
        model.unlink(missing_ok=True)
        shutil.copyfile(self.folder / "data.h5", data)
        with self.fit(data, model, workers) as driver:
            if driver.ended(SECONDS) != 0:
                raise RuntimeError(driver.sentence)
            events = len(driver.events)
        before, rows = bits(model), []
        for _ in range(count):
            model.unlink(missing_ok=True)
            shutil.copyfile(self.folder / "data.h5", data)
            number, pause = int(self.rng.integers(events)), float(self.rng.uniform(0, 0.1))
            heard, struck = itertools.count(), threading.Event()

            def strike(_: object, heard=heard, number=number, pause=pause, struck=struck) -> None:  # type: ignore[no-untyped-def]
                if next(heard) == number:
                    threading.Event().wait(pause)
                    self._change(data, CHANGES[change], restored)
                    struck.set()

            with self.fit(data, model, workers) as driver:
                driver._on_event = strike
                code = driver.ended(SECONDS)
            outcome, good = self._judged(code, model, data, before, driver, struck.is_set())
            told = driver.sentence.replace(str(self.folder), "FOLDER") if code else ""
            rows.append(Row(case, f"{pause:.3f} s after event {number} of {events}", outcome, good, told))
            if not good:
                print(rows[-1], flush=True)
        print(f"{case}: {sum(row.good for row in rows)} of {count}", flush=True)
        return rows

    def _change(self, path: Path, share: float, restored: bool) -> None:
        about, size = os.stat(path), max(1, int(share * self.size))
        place = self.start + int(self.rng.integers(self.size - size + 1))
        with open(path, "r+b", buffering=0) as file:
            old = os.pread(file.fileno(), size, place)
            os.pwrite(file.fileno(), bytes(255 - value for value in old), place)
        if restored:
            os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))

    def _judged(
        self, code: int | None, model: Path, data: Path, before: str, driver: Driver, struck: bool
    ) -> tuple[str, bool]:
        if code is None:
            return "hung", False
        if code != 0:
            good = code == 1 and not model.exists() and driver.sentence.startswith("smtdist: ")
            return "one sentence", good
        found = bits(model)
        if found == before:
            return "as they were" if struck else "changed after the end", True
        _done(self.fit(data, self.folder / "again.h5", 0))
        same = bits(self.folder / "again.h5") == found
        (self.folder / "again.h5").unlink()
        return ("as they are" if same else "NEITHER"), same


def _done(driver: Driver) -> None:
    with driver:
        if driver.ended(SECONDS) != 0:
            raise RuntimeError(driver.sentence)


def table(rows: list[Row]) -> str:
    """Return how the cases ended, in Markdown."""
    lines = ["| case | outcome | times | as promised |", "|---|---|---:|---:|"]
    for case, outcome in dict.fromkeys((row.case, row.outcome) for row in rows):
        mine = [row.good for row in rows if (row.case, row.outcome) == (case, outcome)]
        lines.append(f"| {case} | {outcome} | {len(mine)} | {sum(mine)} |")
    good = sum(row.good for row in rows)
    return "\n".join([f"# {good} of {len(rows)} ended as promised", "", *lines, ""])


def main() -> None:
    """Run the cases and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--times", type=int, default=PAIRS, help="how often each case is tried")
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 2])
    parser.add_argument("--out", default="", help="folder for the tables")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        meddling = Meddling(Path(folder))
        rows = meddling.pairs(options.times)
        for workers, change, restored in itertools.product(options.workers, CHANGES, (False, True)):
            rows += meddling.moments(workers, change, restored, options.times)
    print(table(rows))
    if options.out:
        path = write_record(options.out, "meddling", {"cases": [asdict(row) for row in rows]})
        path.with_suffix(".md").write_text(table(rows))
    sys.exit(0 if all(row.good for row in rows) else 1)


if __name__ == "__main__":
    main()
