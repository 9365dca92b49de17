"""Is one tree slower than another? Commands with both in turn, on one machine: CPU seconds, seconds of a pass, peak memory.

    python -m benchmarks.same_bits.times --old COMMIT --data ../shared/data/mnist.h5 --json results

Each command runs in a process of its own, old and new in turn, `--turns` times. What counts is the ratio of medians, new over
old: of CPU seconds, which a machine that others use too changes least, of the seconds of the pass that a case is about, and
of the peak memory of the process. Images are made up, of digits in colour; `--data` has those digits.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import h5py
import numpy as np

from benchmarks.record import write_record
from benchmarks.same_bits.__main__ import HERE
from benchmarks.same_bits.trees import environment, require_own, unpack

IMAGES: Final = "images.h5"
MODEL: Final = "model.h5"
"""Of the old tree, so that both can read it."""


@dataclass(frozen=True)
class Case:
    """A command, or a program in Python, and the passes whose seconds are compared, by the names they have had."""

    name: str
    command: str = ""
    passes: tuple[str, ...] = ()
    program: str = ""

    @property
    def arguments(self) -> list[str]:
        """Words of the command line of Python."""
        return ["-c", self.program] if self.program else ["-m", "smtdist", *self.command.split()]


def _fit(settings: str, dataset: str = "colour", out: str = "m.h5") -> str:
    sets = " ".join(f"--set {one}" for one in settings.split())
    return f"fit {IMAGES} --dataset {dataset} --out {out} --overwrite --quiet --json {sets}"


SMT: Final = "threshold=0.3 n_components=64 mean=level zero_code=leave_out"
CASES: Final = (
    Case("help", "--help"),
    Case("import", program="import smtdist; smtdist.SMT"),
    Case(
        "loading and saving, K = 8,192",
        program=f"import smtdist; smtdist.save(smtdist.load({MODEL!r}), 'again.h5', overwrite=True)",
    ),
    Case("fit of 1,000 images, K = 2,048", _fit(f"{SMT} dictionary=2048"), ("statistics",)),
    Case("statistics at K = 8,192", _fit(f"{SMT} dictionary=8192", "few"), ("statistics",)),
    Case("window of 3 pixels, K = 2,048", _fit(f"{SMT} dictionary=2048 context=3", "few"), ("statistics",)),
    Case(
        "one-hot at K = 16,384",
        _fit("feature=vq mean=level n_components=32 dictionary=16384", "grey"),
        ("statistics",),
    ),
    Case(
        "k-means, K = 2,048",
        _fit(f"{SMT} dictionary=2048 dictionary_method=kmeans dictionary_rounds=3", "few"),
        ("dictionary", "k-means", "dictionary-1"),
    ),
    Case(
        "tune, twelve trials, K = 512",
        f"tune {IMAGES} --train known --limit 600 --quiet --json --set dictionary=512 --set n_components=32 --set mean=level "
        "--set zero_code=leave_out --grid threshold=0.2,0.25,0.3,0.35 --grid n_components=16,32,64",
    ),
    Case("words, 20 MB of text", "words text.txt --components 16 --out w.h5 --overwrite --quiet --json"),
    Case(
        "L1 codes, 400 atoms",
        _fit("feature=l1 patch=6 dictionary=400 rounds=2 n_components=32 positions=64", "few"),
        ("statistics", "codes"),
    ),
)


def make_data(folder: Path, digits: Path | None) -> None:
    """Write images in colour (1,000; the first 300 again), in grey (2,000), labels, and a text."""
    rng = np.random.default_rng(0)
    if digits is not None:
        with h5py.File(digits) as file:
            grey = file["train/images"][:2000].reshape(2000, 28, 28)
            labels = file["train/labels"][:2000]
    else:
        grey, labels = rng.integers(0, 256, (2000, 28, 28), dtype=np.uint8), np.arange(2000) % 10
    tint = rng.uniform(0.2, 1, (1000, 1, 1, 3))
    colour = np.pad(grey[:1000], ((0, 0), (2, 2), (2, 2)))[..., None] * tint + rng.integers(
        0, 60, (1000, 32, 32, 3)
    )
    with h5py.File(folder / IMAGES, "w") as file:
        file["colour"], file["few"] = (
            np.clip(one, 0, 255).astype(np.uint8) for one in (colour, colour[:300])
        )
        file["grey"], file["known/images"], file["known/labels"] = grey, file["colour"], labels[:1000]
    words = np.array([f"w{number}" for number in range(20_000)])
    drawn = np.minimum(rng.zipf(1.2, 4_000_000), len(words)) - 1
    (folder / "text.txt").write_text(
        "\n".join(" ".join(words[drawn[at : at + 12]]) for at in range(0, len(drawn), 12))
    )


def timed(case: Case, tree: Path, folder: Path) -> dict[str, float]:
    """Run a command with a tree; return its CPU seconds, peak bytes, and the seconds of its pass."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *case.arguments],
        cwd=folder, env=environment(tree), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    said, errors = process.stdout.read(), process.stderr.read()  # type: ignore[union-attr]
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(
            f"{case.name} ended with {process.returncode} on {tree}: {errors.decode()[-2000:]}"
        )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = {
        "seconds": time.perf_counter() - started,
        "cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "peak_bytes": 1024.0 * used.ru_maxrss,
    }
    if case.passes:
        records = json.loads(said)["passes"]
        found["pass_seconds"] = sum(one["seconds"] for one in records if one["name"] in case.passes)
    return found


def compared(case: Case, old: Path, new: Path, folder: Path, turns: int) -> dict[str, Any]:
    """Run a case with both trees in turn; return medians, and ratios of new to old."""
    runs: dict[str, list[dict[str, float]]] = {"old": [], "new": []}
    for turn in range(turns + 1):  # the first fills caches, of compiled kernels too
        for name, tree in (("old", old), ("new", new)) if turn % 2 else (("new", new), ("old", old)):
            found = timed(case, tree, folder)
            if turn:
                runs[name].append(found)
    middle = {
        name: {key: median(one[key] for one in found) for key in found[0]} for name, found in runs.items()
    }
    ratios = {key: middle["new"][key] / middle["old"][key] for key in middle["new"] if middle["old"][key]}
    return {
        "name": case.name,
        "command": case.command or case.program,
        "turns": turns,
        **middle,
        "ratios": ratios,
        "runs": runs,
    }


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Compare two trees as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.same_bits.times", description=__doc__)
    parser.add_argument(
        "--old", metavar="COMMIT", required=True, help="commit of this repository to compare with"
    )
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument(
        "--only", metavar="TEXT", nargs="+", help="cases whose names hold one of these texts"
    )
    parser.add_argument("--data", type=Path, help="file of digits, as smtdist import makes it of MNIST")
    parser.add_argument("--json")
    options = parser.parse_args(arguments)
    cases = [one for one in CASES if not options.only or any(text in one.name for text in options.only)]
    result = []
    with tempfile.TemporaryDirectory(prefix="times-") as name:
        folder, tree = Path(name), Path(name, "tree")
        commit = unpack(options.old, HERE, tree)
        for one in (tree, HERE):
            require_own(one)
        make_data(folder, options.data)
        if any(MODEL in case.program for case in cases):
            timed(Case("model", _fit(f"{SMT} dictionary=8192", "few", MODEL)), tree, folder)
        for case in cases:
            found = compared(case, tree, HERE, folder, options.turns)
            ratios = ", ".join(f"{key} {value:.3f}" for key, value in found["ratios"].items())
            print(f"{case.name}: new over old: {ratios}", flush=True)
            result.append(found)
    if options.json:
        write_record(options.json, "side-by-side", {"old": commit, "cases": result})
    return result


if __name__ == "__main__":
    main()
