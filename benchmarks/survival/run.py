"""Thirty fits on four worker processes under faults, and a table of how each ended.

    python -m benchmarks.survival.run --cases 30 --out results

Every fit must end with the bits of a fit in one process, if need be after `resume`, and none may hang. Moments are events:
the n-th leaf of a pass, both drawn from the seed. Writes DATE-survival.json and DATE-survival.md; exits with 1 where a fit
ended otherwise.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import h5py
import numpy as np

from benchmarks.record import records, write_record
from benchmarks.survival.faults import THIRTY, Fault, Scene, heard
from benchmarks.survival.processes import Cluster, Driver, Event

SEED = 20261121
IMAGES, SIDE, CHUNK = 12_288, 12, 128
LEAF = 256
LEAVES = IMAGES // LEAF
WORKERS = 4
SECONDS = 300.0
"""How long a fit may take before it counts as hanging."""

SETTINGS = ("patch=4", "dictionary=64", "n_components=8", "threshold=0.4", "context=2", "pool_size=3")
PASSES = ("whitening", "statistics")  # those that read all leaves


@dataclass(frozen=True)
class Row:
    """How one fit ended."""

    case: int
    seed: int
    fault: str
    moment: str
    outcome: str
    good: bool
    seconds: float
    told: str


def write_data(path: Path) -> None:
    """Write smooth random images."""
    rng = np.random.default_rng(SEED)
    coarse = rng.integers(0, 256, (IMAGES, SIDE // 3, SIDE // 3, 1), dtype=np.uint8)
    images = np.kron(coarse, np.ones((1, 3, 3, 1), np.uint8)) // 2
    images += rng.integers(0, 64, images.shape, dtype=np.uint8)
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=images, chunks=(CHUNK, SIDE, SIDE, 1), compression="lzf")


def bits(path: Path) -> str:
    """Return one hash of all arrays of a model file."""
    digest = hashlib.blake2b(digest_size=12)

    def add(name: str, stored: object) -> None:
        if isinstance(stored, h5py.Dataset):
            value = np.asarray(stored[()])
            digest.update(
                name.encode() + (value.tobytes() if value.dtype != object else repr(value).encode())
            )

    with h5py.File(path) as file:
        file.visititems(add)
    return digest.hexdigest()


def fit_words(folder: Path, data: Path, out: str, cluster: str | None, checkpoint: Path) -> list[str]:
    """Return the command line of a fit."""
    words = [
        "fit",
        str(data),
        "--dataset",
        "x",
        "--out",
        str(folder / out),
        "--checkpoint",
        str(checkpoint),
    ]
    words += [word for setting in SETTINGS for word in ("--set", setting)]
    return [*words, *(["--workers", "0"] if cluster is None else ["--cluster", cluster])]


class Chaos:
    """Runs cases one after another; a cluster that survives a case serves the next."""

    def __init__(self, folder: Path, workers: int = WORKERS) -> None:
        self.folder, self.workers = folder, workers
        self.data = folder / "data.h5"
        write_data(self.data)
        with Driver(fit_words(folder, self.data, "want.h5", None, folder / "reference")) as driver:
            if driver.ended(SECONDS) != 0:
                raise RuntimeError(f"the reference fit failed: {driver.sentence}")
        self.want = bits(folder / "want.h5")
        self._cluster: Cluster | None = None

    def cluster(self) -> Cluster:
        """Return a cluster with all its workers, a new one where the last was harmed."""
        if self._cluster is None or not self._cluster.alive:
            self.close()
            self._cluster = Cluster(self.folder / "cluster", self.workers)
        self._cluster.wait_for_workers()
        return self._cluster

    def close(self) -> None:
        """End the cluster."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def run(self, case: int, fault: Fault) -> Row:
        """Run one fit with its fault, resume it where it ended early, and say how it went."""
        seed = SEED + case
        rng = np.random.default_rng(seed)
        at_pass, leaf = (
            PASSES[int(rng.integers(len(PASSES)))],
            int(rng.integers(2, LEAVES - 2 * fault.times - 2)),
        )
        here = self.folder / f"case-{case}"
        here.mkdir()
        cluster, checkpoint = self.cluster(), here / "checkpoint"
        started = time.monotonic()
        scene = Scene(
            cluster,
            checkpoint,
            rng,
            fit_words(here, self.data, "second.h5", cluster.address, checkpoint),
        )

        def on_event(event: Event) -> None:
            heard(scene, event)
            if event["kind"] != "progress" or event["pass"] != at_pass or scene.struck >= fault.times:
                return
            if event["n_samples"] >= (leaf + 2 * scene.struck) * LEAF:
                scene.struck += 1
                fault.strike(scene)

        words = fit_words(here, self.data, "model.h5", cluster.address, checkpoint)
        # what strikes the checkpoint needs one that holds sums; of the other fits every second one has such
        driver = Driver(words, on_event, fault.stored or case % 2 == 0)
        scene.driver = driver
        try:
            with driver:
                code = driver.ended(SECONDS)
            outcome, good = self._judged(scene, fault, code, driver, here)
        finally:
            scene.undo()
        notes = [note for note in driver.notes if not note.startswith(("Dashboard", "Starting"))]
        told = "; ".join(filter(None, [*scene.told, *notes[:2], driver.sentence]))
        told = told.replace(str(here), "FOLDER")
        moment = f"{at_pass}, leaf {leaf} of {LEAVES}"
        shutil.rmtree(here, ignore_errors=True)
        return Row(
            case, seed, fault.name, moment, outcome, good, round(time.monotonic() - started, 1), told[:600]
        )

    def _judged(
        self, scene: Scene, fault: Fault, code: int | None, driver: Driver, here: Path
    ) -> tuple[str, bool]:
        if driver.errors:
            return f"the fault failed: {driver.errors[0]}", False
        if scene.struck == 0:
            return "the moment never came", False
        if code is None:
            return f"hung for {SECONDS:.0f} s", False
        if code == 0:
            same = bits(here / "model.h5") == self.want
            return ("reference bits" if same else "OTHER BITS"), same
        if not fault.ends or fault.says not in driver.sentence:
            return f"ended with {code}: {driver.sentence}", False
        first = f"ended with {code}"
        scene.undo()
        if fault.after is not None:
            fault.after(scene)
        where, words = self._elsewhere(scene)
        with Driver(["resume", str(scene.checkpoint), *words]) as again:
            code = again.ended(SECONDS)
        if code is None:
            return f"{first}, resume hung", False
        if code != 0:
            return f"{first}, resume ended with {code}: {again.sentence}", False
        told = [note for note in again.notes if fault.resumed_says in note]
        if fault.resumed_says:
            scene.told += told[:1]
        if fault.resumed_says and not told:
            return f"{first}, the damage went unnoticed", False
        same = bits(here / "model.h5") == self.want
        return f"{first}, resumed on {where}: {'reference bits' if same else 'OTHER BITS'}", same

    def _elsewhere(self, scene: Scene) -> tuple[str, list[str]]:
        """Choose where to resume: the cluster (a new one if need be), this process alone, or two local workers."""
        choice = int(scene.rng.integers(3))
        if choice == 0:
            return "one process", ["--workers", "0"]
        if choice == 1:
            return "two workers", ["--cluster", "local", "--workers", "2"]
        return f"{self.workers} workers", ["--cluster", self.cluster().address]


def table(rows: list[Row]) -> str:
    """Return the rows as a table in Markdown."""
    lines = ["| case | seed | fault | moment | outcome | seconds |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {row.case} | {row.seed} | {row.fault} | {row.moment} | {row.outcome} | {row.seconds} |"
        for row in rows
    ]
    good = sum(row.good for row in rows)
    return "\n".join(
        [f"# {good} of {len(rows)} fits ended with the reference bits or as they must", "", *lines, ""]
    )


def chosen(cases: list[int]) -> list[tuple[int, Fault]]:
    """Return the faults of these cases."""
    return [(case, THIRTY[case]) for case in cases]


def _with_earlier(folder: Path, rows: list[Row]) -> list[Row]:
    """Return the last table with these cases in place of what they were."""
    earlier = records(folder, "survival")
    found = json.loads(earlier[-1].read_text())["result"]["cases"] if earlier else []
    by_case = {row["case"]: Row(**row) for row in found} | {row.case: row for row in rows}
    return [by_case[case] for case in sorted(by_case)]


def main() -> None:
    """Run the cases and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", type=int, default=len(THIRTY), help="how many of the thirty")
    parser.add_argument("--only", type=int, nargs="*", help="single cases, put into the last table")
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--out", default="", help="folder for the tables")
    options = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        chaos = Chaos(Path(folder), options.workers)
        try:
            for case, fault in chosen(options.only or list(range(options.cases))):
                rows.append(chaos.run(case, fault))
                print(rows[-1], flush=True)
        finally:
            chaos.close()
    if options.out:
        rows = _with_earlier(Path(options.out), rows) if options.only else rows
        path = write_record(options.out, "survival", {"cases": [asdict(row) for row in rows]})
        path.with_suffix(".md").write_text(table(rows))
    print(table(rows))
    sys.exit(0 if all(row.good for row in rows) else 1)


if __name__ == "__main__":
    main()
