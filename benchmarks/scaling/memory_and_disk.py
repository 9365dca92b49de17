"""What a fit takes: measured peak beside projection, bytes read and bytes written, for growing numbers of images.

    python -m benchmarks.scaling.memory_and_disk --data mnist.h5 --samples 1000 20000 --set dictionary=2048
    python -m benchmarks.scaling.memory_and_disk --data cifar10_lossless.h5 --dataset train --codes gq vq window l1 mirrored
    python -m benchmarks.scaling.memory_and_disk --data cifar10_lossless.h5 --dataset train --cost 600 3000 50000

Every number of images runs on a fresh local cluster with a checkpoint folder that is watched while the fit runs. With
`--codes` each kind of code is fitted by the command, in a process of its own, without workers and with `--workers`, without
a checkpoint and with one; peaks of passes beside what was projected. With `--cost` the statistics pass of cifar10-gq without
and with a checkpoint, in turns; medians of the paired ratios. With `--at-once` both run at the same time, so that whatever
else the machine does slows both; the seconds of the processor that each fit takes are recorded, too.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import h5py

from benchmarks.local import local_executor
from benchmarks.record import write_record
from smtdist.configuration import Configuration, parse_settings
from smtdist.data.array import as_source
from smtdist.engine.passes import Engine
from smtdist.models.fit import fit
from smtdist.models.store import save

CODES: Final[dict[str, tuple[int, tuple[str, ...]]]] = {
    "gq": (600, ("--preset", "cifar10-gq", "--set", "n_components=32")),
    "vq": (600, ("--set", "feature=vq", "--set", "context=whole")),
    "window": (256, ("--set", "context=3", "--set", "threshold=0.3")),
    "l1": (16, ("--set", "feature=l1", "--set", "rounds=1", "--set", "images=16")),
    "mirrored": (
        600,
        ("--preset", "cifar10-gq", "--set", "n_components=32", "--set", "dictionary_mirrored=true"),
    ),
}
"""By the kind of code: images, and how the command is told."""


COUNTED: Final = (
    "import atexit, resource, sys; from smtdist.cli import main; "
    "atexit.register(lambda: print('processor:', sum(resource.getrusage(resource.RUSAGE_SELF)[:2]), file=sys.stderr)); main()"
)
"""The command, which says last how many seconds of the processor it took."""


class Watch:
    """Looks into a folder again and again: the most partial sums and the most bytes seen at once."""

    def __init__(self, folder: Path, interval: float = 0.01) -> None:
        self.folder, self.interval = folder, interval
        self.partials = self.bytes = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(self.interval):
            sizes = {}
            for path in self.folder.glob(
                "*/*"
            ):  # beside the folders of the passes lie the lock, the log and the manifest
                try:
                    if path.is_file() and path.name != "result.h5":
                        sizes[path] = path.stat().st_size
                except FileNotFoundError:
                    continue  # replaced between listing and asking
            self.partials = max(self.partials, len(sizes))
            self.bytes = max(self.bytes, sum(sizes.values()))


def measure(path: str, dataset: str, samples: int, settings: Configuration, workers: int) -> dict[str, Any]:
    """Fit on the first samples, copied to a file chunked like the original, and report."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with h5py.File(path, "r") as source, h5py.File(folder / "part.h5", "w") as part:
            stored = source[dataset]
            part.create_dataset(
                "images",
                data=stored[:samples],
                chunks=(min(1000, samples), *stored.shape[1:]),
                compression="gzip",
            )
        source = as_source((folder / "part.h5", "images"))
        checkpoint = folder / "checkpoint"
        with local_executor(workers) as executor, Watch(checkpoint) as watch:
            model, passes = fit(source, settings, Engine(executor, checkpoint=checkpoint, key="benchmark"))
        model_bytes = save(model, folder / "model.h5")
        results = sum(file.stat().st_size for file in checkpoint.rglob("*") if file.is_file())
    return {
        "samples": samples,
        "workers": workers,
        "passes": passes,
        "model_bytes": model_bytes,
        "partials_at_once": watch.partials,
        "partial_bytes_at_once": watch.bytes,
        "checkpoint_results_bytes": results,
        "raw_bytes": source.n_samples * source.sample_bytes,
    }


def fitted(
    options: argparse.Namespace, samples: int, words: list[str], workers: int, stored: bool
) -> dict[str, Any]:
    """Fit by the command, in a process of its own, and return what it says of its passes, or why it was refused."""
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        command = [sys.executable, "-c", COUNTED, "fit", options.data]
        command += [
            "--dataset",
            options.dataset,
            "--limit",
            str(samples),
            "--workers",
            str(workers),
            *words,
        ]
        command += [word for one in options.set for word in ("--set", one)]
        command += ["--out", str(Path(folder, "model.h5")), "--no-first-look", "--quiet", "--json"]
        command += ["--checkpoint", str(Path(folder, "checkpoint"))] if stored else []
        with Watch(Path(folder, "checkpoint"), 0.2) as watch:
            done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})
    found: dict[str, Any] = {"samples": samples, "workers": workers, "checkpoint": stored}
    told = done.stderr.split()
    if told[-2:-1] == ["processor:"]:
        found["processor_seconds"] = float(told[-1])
    if done.returncode:
        return {**found, "refused": done.stderr.strip().splitlines()[-1:], "passes": []}
    return {**found, "passes": json.loads(done.stdout)["passes"], "partial_bytes_at_once": watch.bytes}


def cells(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Fit each kind of code in each way, and print a line a pass: its peak beside what was projected."""
    found = []
    for code, workers, stored in itertools.product(options.codes, (0, options.workers), (False, True)):
        samples, words = CODES[code]
        size = ["--set", "units=8192" if code == "l1" else "dictionary=8192"]
        one = {"code": code, **fitted(options, samples, [*size, *words], workers, stored)}
        found.append(one)
        for part in one["passes"]:
            share = part["peak_bytes"] / part["projected_bytes"]
            sizes = f"{part['peak_bytes'] / 2**20:7,.0f} of {part['projected_bytes'] / 2**20:7,.0f} MiB {share:5.0%}"
            print(
                f"{code:<8} {workers} workers, checkpoint {stored!s:<5} {part['name']:<20} {sizes}",
                flush=True,
            )
        if not one["passes"]:
            print(f"{code:<8} {workers} workers, checkpoint {stored!s:<5} {one['refused']}", flush=True)
    over = sum(part["peak_bytes"] > part["projected_bytes"] for one in found for part in one["passes"])
    print(f"{over} of {sum(len(one['passes']) for one in found)} passes over their projection")
    return found


def cost(options: argparse.Namespace, samples: int) -> dict[str, Any]:
    """Return the seconds of the statistics pass without and with a checkpoint, in turns, and the median of their ratios."""
    words, seconds = list(CODES["gq"][1]), {False: list[float](), True: list[float]()}
    processor = {False: list[float](), True: list[float]()}
    with ThreadPoolExecutor(2 if options.at_once else 1) as pool:
        for turn in range(options.turns):
            order = (False, True) if turn % 2 == 0 else (True, False)
            fits = pool.map(lambda stored: fitted(options, samples, words, 0, stored), order)
            for stored, one in zip(order, fits, strict=True):
                parts = (part["seconds"] for part in one["passes"] if part["name"] == "statistics")
                seconds[stored].append(next(parts))
                processor[stored].append(one["processor_seconds"])
    ratios = [kept / plain for plain, kept in zip(seconds[False], seconds[True], strict=True)]
    print(
        f"{samples:,} images: statistics with a checkpoint {statistics.median(ratios):.3f} times as long; {seconds}",
        flush=True,
    )
    return {
        "samples": samples,
        "at_once": options.at_once,
        "without": seconds[False],
        "with": seconds[True],
        "processor_seconds_without": processor[False],
        "processor_seconds_with": processor[True],
        "ratio": statistics.median(ratios),
    }


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True)
    parser.add_argument("--dataset", default="train/images")
    parser.add_argument("--samples", type=int, nargs="+", default=[1000, 20000])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument(
        "--codes", nargs="+", choices=list(CODES), help="measure peaks of passes of K = 8,192 instead"
    )
    parser.add_argument(
        "--cost", nargs="+", type=int, metavar="IMAGES", help="measure what a checkpoint costs instead"
    )
    parser.add_argument("--turns", type=int, default=3, help="of --cost")
    parser.add_argument(
        "--at-once", action="store_true", help="of --cost: run the two fits of a turn side by side"
    )
    parser.add_argument("--folder", help="of checkpoints and models; default: a temporary one")
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    if options.codes or options.cost:
        measured = [cost(options, samples) for samples in options.cost] if options.cost else cells(options)
        if options.json:
            write_record(options.json, "checkpoint-cost" if options.cost else "peaks", {"runs": measured})
        return measured
    settings = Configuration(**{"n_components": 32, **Configuration.named(parse_settings(options.set))})
    results = [
        measure(options.data, options.dataset, samples, settings, options.workers)
        for samples in options.samples
    ]
    for result in results:
        for record in result["passes"]:
            share = record["peak_bytes"] / record["projected_bytes"]
            memory = f"{record['peak_bytes'] / 2**20:8.1f} MiB  {share:6.1%}"
            print(f"{result['samples']:>8} {record['name']:<12} {record['seconds']:8.1f} s  {memory}")
        print({key: value for key, value in result.items() if key != "passes"})
    if options.json:
        write_record(
            options.json, "memory-and-disk", {"runs": results, "configuration": settings.to_dict()}
        )
    return results


if __name__ == "__main__":
    main()
