"""What `transform` and `evaluate` take, on the command line and in Python: each pass's measured peak beside its projection.

    python -m benchmarks.scaling.represented --data DATA --atoms 2048 --train 2000 --test 500

For MNIST and CIFAR-10, with and without mirror images, in one process and with two workers. Exits with 1 where a peak is
above what was announced.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import h5py

from benchmarks.record import write_record
from smtdist.engine.memory import readable

DATA: Final = {"MNIST": "mnist.h5", "CIFAR-10": "cifar10_lossless.h5"}
FIT_IMAGES: Final = 500
PYTHON: Final = """
import json, sys
import smtdist
from smtdist import SMT
how, model, data, workers, mirrored, out = sys.argv[1:]
if __name__ == "__main__":
    events = []
    smt = SMT(workers=int(workers), on_event=events.append)._fitted(smtdist.load(model), [])
    if how == "transform":
        smt.transform((data, "train"), mirrored=mirrored == "1")
    else:
        smt.evaluate((data, "train"), X_test=(data, "test"), mirrored=mirrored == "1")
    with open(out, "w") as file:
        for event in events:
            file.write(json.dumps(event, default=str) + "\\n")
"""
"""Runs as a program of its own, so that its peaks are its own."""


def part(source: Path, path: Path, images: dict[str, int]) -> None:
    """Write the first images of each group, as they are stored."""
    with h5py.File(source) as whole, h5py.File(path, "w") as file:
        for name, count in images.items():
            found, group = whole[name], file.create_group(name)
            group.attrs.update(found.attrs)
            if "images" in found:
                group.create_dataset(
                    "images", data=found["images"][:count], chunks=(100, *found["images"].shape[1:])
                )
            else:
                group["offsets"] = found["offsets"][: count + 1]
                group["bytes"] = found["bytes"][: group["offsets"][-1]]
            group["labels"] = found["labels"][:count]
            for key in set(found) & {"bytes", "offsets", "labels"}:
                group[key].attrs.update(found[key].attrs)


def passes(path: Path) -> Iterator[dict[str, Any]]:
    """Yield a row for every pass of a run, and for the driver of one on workers."""
    for line in path.read_text().splitlines():
        event = json.loads(line)
        if event["kind"] == "pass_finished" and event.get("projected_bytes"):
            yield {
                "pass": event["pass"],
                "peak": event["peak_bytes"],
                "projected": event["projected_bytes"],
            }
            if event.get("driver_bytes"):
                driver = {"peak": event["driver_peak_bytes"], "projected": event["driver_bytes"]}
                yield {"pass": f"{event['pass']}, driver", **driver}


def commands(model: Path, data: Path, workers: int, mirrored: bool, folder: Path) -> dict[str, list[str]]:
    """Return the command lines, each of which writes its events to `folder`/events."""
    events = folder / "events"
    common = ["--workers", str(workers), "--events", str(events), "--quiet"]
    z = ["--dataset", "train", "--out", str(folder / "z.h5"), "--overwrite"]
    groups = ["--train", "train", "--test", "test"]
    files, flags = [str(model), str(data)], ["--mirrored"] if mirrored else []
    return {
        "transform": ["-m", "smtdist", "transform", *files, *z, *flags, *common],
        "evaluate": ["-m", "smtdist", "evaluate", *files, *groups, *(flags or ["--no-mirrored"]), *common],
        **{
            f"Python, {how}": [
                str(folder / "call.py"),
                how,
                *files,
                str(workers),
                str(int(mirrored)),
                str(events),
            ]
            for how in ("transform", "evaluate")
        },
    }


def measured(options: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """Run everything; yield a row for every pass."""
    (folder / "call.py").write_text(PYTHON)
    for name in options.only:
        data, model = folder / f"{name}.h5", folder / f"{name}.model.h5"
        part(Path(options.data) / DATA[name], data, {"train": options.train, "test": options.test})
        first = folder / "first.h5"
        part(Path(options.data) / DATA[name], first, {"train": min(FIT_IMAGES, options.train)})
        words = ["--set", f"dictionary={options.atoms}", "--no-first-look", "--out", str(model), "--quiet"]
        _run(["-m", "smtdist", "fit", str(first), "--dataset", "train", *words])
        for workers, mirrored in itertools.product(options.workers, (False, True)):
            for command, line in commands(model, data, workers, mirrored, folder).items():
                (folder / "events").unlink(missing_ok=True)
                _run(line)
                for row in passes(folder / "events"):
                    case = {"data": name, "command": command, "workers": workers, "mirrored": mirrored}
                    share = row["peak"] / row["projected"]
                    print(
                        f"{name}, {command}, {workers} workers{', mirrored' if mirrored else ''}: {row['pass']} "
                        f"{readable(row['peak'])} of {readable(row['projected'])}{'' if share <= 1 else ' ABOVE'}",
                        flush=True,
                    )
                    yield {**case, **row, "share": round(share, 3)}


def _run(words: list[str]) -> None:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {done.stderr[-2000:]}")


def main() -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with mnist.h5 and cifar10_lossless.h5")
    parser.add_argument("--only", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--atoms", type=int, default=2048)
    parser.add_argument("--train", type=int, default=2000)
    parser.add_argument("--test", type=int, default=500)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2])
    parser.add_argument("--out", default="", help="folder for the record")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = list(measured(options, Path(folder)))
    above = [row for row in rows if row["share"] > 1]
    print(f"{len(rows)} passes, {len(above)} above what was announced")
    if options.out:
        write_record(options.out, f"represented-{options.atoms}", {"passes": rows})
    sys.exit(1 if above else 0)


if __name__ == "__main__":
    main()
