"""What decoding costs beside the statistics pass that it feeds.

    python -m benchmarks.kernels.decode --data cifar10_jpeg.h5 --images 8192 --json results

Encoded images are decoded by a bare Pillow loop on one thread, by the project's reader on one thread, and on as many
as the pass has. Then the statistics pass runs as an engine runs it, over the encoded group and over the same images
as an array; the time inside the reader (offsets, bytes, decoding) is its share of the pass. Rates are images a second,
medians of turns; `update` is the worker's own update of its sums on one batch that is in memory already.
Without `--data` the images are smooth random ones, 32 x 32 in colour, stored as JPEG of quality 95.
"""

from __future__ import annotations

import argparse
import io
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from PIL import Image

from benchmarks.kernels.pass3 import read_images, seconds
from benchmarks.record import write_record
from smtdist.configuration import Configuration
from smtdist.data.array import ArraySource
from smtdist.data.opening import open_source
from smtdist.data.source import Reader, Source
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.kernels import threads
from smtdist.models.fit import fit
from smtdist.statistics.cooccurrence import CodeSums


@dataclass(frozen=True, eq=False)
class Timed(Source):
    """A source whose readers add up the seconds that reading takes, in `spent`; in this process only."""

    whole: Source
    spent: list[float] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole, name)

    def describe(self) -> dict[str, Any]:
        """Return what the source says."""
        return self.whole.describe()

    @contextmanager
    def opened(self) -> Iterator[Reader]:
        """Open the source and time every read."""
        with self.whole.opened() as reader:
            read = reader.read

            def timed(start: int, stop: int, out: Any = None) -> Any:
                kept: list[Any] = []
                self.spent.append(seconds(lambda: kept.append(read(start, stop, out))))
                return kept[0]

            reader.read = timed  # type: ignore[method-assign]
            yield reader


def encoded_copy(path: str | None, count: int, target: Path) -> None:
    """Write the first images of an encoded file, or smooth random ones as JPEG, to a file of their own."""
    if path is None:
        encoded = []
        for image in read_images(None, count):
            room = io.BytesIO()
            Image.fromarray(image).save(room, "JPEG", quality=95)
            encoded.append(room.getvalue())
        offsets, data = np.cumsum([0, *map(len, encoded)]), np.frombuffer(b"".join(encoded), np.uint8)
    else:
        with h5py.File(path, "r", locking=False) as file:
            offsets = file["train/offsets"][: count + 1]
            data = file["train/bytes"][: offsets[-1]]
    with h5py.File(target, "w") as file:
        file.create_dataset("train/bytes", data=data, chunks=(min(len(data), 2**20),), compression="gzip")
        file["train/offsets"] = offsets


def pillow_loop(path: Path) -> Callable[[], None]:
    """Return a loop that decodes images which are in memory already, one after another."""
    with h5py.File(path, "r", locking=False) as file:
        offsets, data = file["train/offsets"][()].tolist(), file["train/bytes"][()].tobytes()
    parts = [data[start:stop] for start, stop in pairwise(offsets)]

    def loop() -> None:
        for part in parts:
            np.asarray(Image.open(io.BytesIO(part)))

    return loop


def stored_only(path: Path) -> None:
    """Read the encoded bytes and their offsets, and decode nothing."""
    with h5py.File(path, "r", locking=False) as file:
        for name in ("train/offsets", "train/bytes"):
            file[name][()]


def read_all(source: Source, n_threads: int) -> Any:
    """Read all samples on so many threads."""
    threads.set_threads(n_threads)
    with source.opened() as reader:
        return reader.read(0, source.n_samples)


def medians(turns: int, **actions: Callable[[], object]) -> dict[str, float]:
    """Time actions in turns; the first turn warms up and does not count."""
    spent: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(turns + 1):
        for name, action in actions.items():
            once = seconds(action)
            if turn:
                spent[name].append(once)
    return {name: statistics.median(values) for name, values in spent.items()}


def measure(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Time decoding alone, the update alone, and the pass with and without decoding."""
    source = open_source(path, "train")
    count, n_threads = source.n_samples, options.threads
    alone = medians(
        options.repeats,
        stored=lambda: stored_only(path),
        pillow=pillow_loop(path),
        one_thread=lambda: read_all(source, 1),
        reader=lambda: read_all(source, n_threads),
    )
    images = read_all(source, n_threads)
    settings = Configuration(n_atoms=options.atoms, n_components=1, positions=options.positions)
    engine = Engine(SerialExecutor(n_threads))
    model, _ = fit(ArraySource(images[: options.fitted]), settings, engine)
    sums = CodeSums(model.encoder, settings.context_size, settings.difference_order, False, count)
    state, batch = sums.zero(), images[: options.batch]
    update = medians(options.repeats, update=lambda: sums.update(state, batch, 0))["update"] / len(batch)
    passes = []
    for _ in range(options.repeats):
        timed = Timed(source)
        _, with_decoding = engine.reduce("statistics", sums, timed)
        _, without = engine.reduce("statistics", sums, ArraySource(images))
        passes.append((with_decoding["seconds"], without["seconds"], sum(timed.spent)))
    streamed, plain, reading = (statistics.median(column) for column in zip(*passes, strict=True))
    return {
        "images": count,
        "encoded_bytes": source.stored_bytes,
        "atoms": len(model.dictionary.grid),
        "threads": n_threads,
        **{f"{name}_per_second": round(count / spent) for name, spent in alone.items()},
        "update_per_second": round(1 / update, 1),
        "pass_per_second": round(count / streamed, 1),
        "pass_without_decoding_per_second": round(count / plain, 1),
        "share_of_pass": round(reading / streamed, 4),
    }


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run, print, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="HDF5 file with train/bytes and train/offsets")
    parser.add_argument("--images", type=int, default=4096)
    parser.add_argument("--fitted", type=int, default=1024, help="images for covariance and dictionary")
    parser.add_argument("--atoms", type=int, default=2048)
    parser.add_argument("--positions", type=int, help="code so many positions of an image only")
    parser.add_argument("--batch", type=int, default=128, help="images in the update that is timed alone")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="smtdist-decode-") as folder:
        path = Path(folder, "encoded.h5")
        encoded_copy(options.data, options.images, path)
        result = measure(path, options)
    for name, value in result.items():
        print(f"{name:>34} {value:>14,}")
    if options.json:
        name = Path(options.data).stem if options.data else "synthetic"
        write_record(options.json, f"decode-{name}", result)
    return result


if __name__ == "__main__":
    main()
