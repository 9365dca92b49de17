"""What a fit takes: measured peak beside projection, bytes read and bytes written, for growing numbers of images.

    python -m benchmarks.scaling.memory_and_disk --data mnist.h5 --samples 1000 20000 --set dictionary=2048

Every number of images runs on a fresh local cluster with a checkpoint folder that is watched while the fit runs.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
from pathlib import Path
from typing import Any

import h5py

from benchmarks.record import write_record
from smtdist.configuration import Configuration, parse_setting
from smtdist.data.array import as_source
from smtdist.engine.local_cluster import local_executor
from smtdist.engine.passes import Engine
from smtdist.models.files import save
from smtdist.models.fit import fit


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
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    settings = Configuration(**{"n_components": 32, **dict(map(parse_setting, options.set))})
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
