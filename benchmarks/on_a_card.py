"""What a card does in a few minutes: its rates, our kernels, the tests for it, whole fits, solves and votes, in this order.

    python -m benchmarks.on_a_card --cut cifar10_lossless.h5 cifar10_test_lossless.h5 part.h5     (anywhere: 24,000 images, 44 MB)
    python -m benchmarks.on_a_card --data part.h5 --seconds 560 --json results         (on the card)

A step begins only if the time that is left is enough for it; the record says which were left out, and what failed. Times of
kernels are medians by events, of whole commands those of the clock. Fits begin with an empty cache of kernels, and go on warm.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.record import write_record

PIXELS: Final = 108
THRESHOLD: Final = 0.3
COMPONENTS: Final = 384


@dataclass
class Run:
    """What steps share. card : CuPy. images, atoms, per_image : of the kernels' steps. work : a folder for models."""

    card: Any
    data: str | None
    images: int
    atoms: int
    per_image: int
    seconds: float
    work: Path
    began: float = field(default_factory=time.perf_counter)

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.seconds - (time.perf_counter() - self.began)

    def milliseconds(self, call: Callable[[], object], repeats: int = 7) -> float:
        """Return the median time of a call on the card, warm, by events."""
        taken = []
        for turn in range(repeats + 2):
            start, stop = self.card.cuda.Event(), self.card.cuda.Event()
            start.record()
            call()
            stop.record()
            stop.synchronize()
            if turn > 1:
                taken.append(float(self.card.cuda.get_elapsed_time(start, stop)))
        return statistics.median(taken)

    def waited(self, call: Callable[[], object], repeats: int = 3) -> float:
        """Return the median seconds until a call has ended on the card, warm."""
        taken = []
        for turn in range(repeats + 1):
            self.card.cuda.get_current_stream().synchronize()
            began = time.perf_counter()
            call()
            self.card.cuda.get_current_stream().synchronize()
            if turn:
                taken.append(time.perf_counter() - began)
        return statistics.median(taken)


def kernels(run: Run) -> dict[str, Any]:
    """Each kernel of one view of a batch, in milliseconds, and the operations a second of the products."""
    from smtdist.kernels.gpu import codes, representation, scatter, tensor, whitening
    from smtdist.kernels.gpu.marks import Marks, row_words
    from smtdist.kernels.types import Codes
    from smtdist.kernels.whitening import image_whitenings, threshold_cut

    xp, n = run.card, run.images * run.per_image
    rng = np.random.default_rng(0)

    def unit(count: int) -> Any:
        rows = rng.standard_normal((count, PIXELS), dtype=np.float32)
        for apart in (
            1,
            3,
            9,
        ):  # neighbours are alike, so that about as many atoms are active as in photographs
            rows = rows + 0.55 * np.roll(rows, apart, axis=1)
        return np.rint(4090 * rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    grid, atoms = xp.asarray(np.ascontiguousarray(unit(n).T)), xp.asarray(unit(run.atoms))
    constant, cut = xp.zeros(n, dtype=bool), threshold_cut(THRESHOLD, PIXELS)
    found = codes.gq_codes(grid, atoms, cut, constant, (False, False), run.images)
    marks: Marks = found.bits
    halves, atom_halves = codes.halves_of(grid), codes.atom_halves(atoms)
    words = row_words(run.images, run.per_image)
    second = xp.zeros((run.atoms, run.atoms), dtype=xp.int32)
    outer = xp.zeros((run.atoms, run.atoms), dtype=xp.int64)
    counts = marks.image_counts()
    patches = grid.astype(np.float64)
    whitens = image_whitenings(patches, run.images, 1e6, None)
    components = xp.asarray(rng.standard_normal((run.atoms, COMPONENTS), dtype=np.float32))
    lists = Codes(marks.indptr(), marks.lists(marks.indptr()), run.atoms)
    result: dict[str, Any] = {
        "patches": n,
        "active": float(marks.active().sum()) / n,
        "moments": run.milliseconds(lambda: whitening.moments(patches, run.images)),
        "moments and roots": run.milliseconds(lambda: image_whitenings(patches, run.images, 1e6, None)),
        "whiten": run.milliseconds(lambda: whitening.whitened(patches, whitens)),
        "halve": run.milliseconds(lambda: codes.halves_of(grid)),
        "mark_bits": run.milliseconds(
            lambda: codes._mark(marks, halves, atom_halves, cut, constant, (0, words), 0)
        ),
        "add_bits": run.milliseconds(lambda: tensor.add_products(second, marks.words, marks.words)),
        "count_atoms": run.milliseconds(marks.image_counts),
        "outer": run.milliseconds(lambda: scatter.add_outer_of(outer, counts, None, run.per_image)),
        "lists": run.milliseconds(lambda: marks.lists(marks.indptr())),
        "embed": run.milliseconds(lambda: representation.embed(lists, components, run.atoms)),
    }
    upper = run.atoms * (run.atoms + 128) / 2
    result["binary operations a second"] = 2 * upper * words * 32 / result["add_bits"] * 1e3
    result["int8 operations a second"] = (
        8 * halves.shape[2] * run.atoms * run.images * marks.image_words * 32 / result["mark_bits"] * 1e3
    )
    return result


def rates(run: Run) -> dict[str, Any]:
    """Bytes a second copied on the card and to and fro, and float64 operations a second."""
    xp, size = run.card, min(1 << 30, run.images * run.per_image * 4096)
    host, device = np.ones(size, np.uint8), run.card.zeros(size, dtype=np.uint8)
    other = device.copy()
    pinned = np.frombuffer(xp.cuda.alloc_pinned_memory(size), np.uint8, size)
    matrix = xp.asarray(np.eye(run.atoms))
    return {
        "on the card": 2 * size / run.milliseconds(lambda: xp.copyto(other, device)) * 1e3,
        "to the card": size / run.waited(lambda: device.set(host)),
        "from the card": size / run.waited(lambda: xp.asnumpy(device)),
        "to the card, pinned": size / run.waited(lambda: device.set(pinned)),
        "float64 operations": 2 * run.atoms**3 / run.milliseconds(lambda: matrix @ matrix, 3) * 1e3,
    }


def tests(run: Run) -> dict[str, Any]:
    """The tests for a card, whole."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", "tests/kernels"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=run.left)
    return {"code": done.returncode, "said": done.stdout.strip().splitlines()[-3:]}


def smtdist(run: Run, *words: str, cache: str) -> dict[str, Any]:
    """Run a command; return its seconds and what it says of its passes, or how it failed."""
    command = [sys.executable, "-m", "smtdist", *words, "--json"]
    began = time.perf_counter()
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=run.left,
        env={**os.environ, "CUPY_CACHE_DIR": cache},
    )
    seconds = round(time.perf_counter() - began, 1)
    if done.returncode:
        return {"seconds": seconds, "failed": done.stderr[-800:]}
    said = json.loads(done.stdout)
    passes = {one["name"]: round(one["seconds"], 2) for one in said.get("passes", ())}
    numbers = {name: value for name, value in said.items() if isinstance(value, int | float | str)}
    return {"seconds": seconds, "passes": passes, "said": numbers}


def fits(run: Run) -> dict[str, Any]:
    """Whole fits by the command line: with an empty cache of kernels, then warm, and with more components; and votes."""
    with tempfile.TemporaryDirectory() as cache:
        fit = ("fit", str(run.data), "--dataset", "train", "--preset", "cifar10-gq", "--overwrite")
        found: dict[str, Any] = {}
        model = str(run.work / "384.h5")
        for name, out, components in (
            ("cold", "384.h5", 384),
            ("warm", "384.h5", 384),
            ("1,632 components", "1632.h5", 1632),
        ):
            if run.left > 60:
                given = ("--out", str(run.work / out), "--set", f"n_components={components}")
                found[name] = smtdist(run, *fit, *given, cache=cache)
        if run.left > 60:
            judged = ("--train", "train", "--test", "test", "--metric", "knn")
            found["evaluate"] = smtdist(run, "evaluate", model, str(run.data), *judged, cache=cache)
    return found


def many_atoms(run: Run) -> dict[str, Any]:
    """A fit of 65,536 atoms, and its accuracy."""
    with tempfile.TemporaryDirectory() as cache:
        model = str(run.work / "many.h5")
        fit = (
            "fit",
            str(run.data),
            "--dataset",
            "train",
            "--preset",
            "cifar10-gq",
            "--overwrite",
            "--out",
            model,
        )
        found = {"fit": smtdist(run, *fit, "--set", "n_atoms=65536", cache=cache)}
        if run.left > 60:
            judged = ("--train", "train", "--test", "test", "--metric", "knn")
            found["evaluate"] = smtdist(run, "evaluate", model, str(run.data), *judged, cache=cache)
    return found


STEPS: Final[dict[str, tuple[Callable[[Run], dict[str, Any]], float, bool]]] = {
    "kernels": (kernels, 30, False),
    "rates": (rates, 20, False),
    "tests": (tests, 90, False),
    "fits": (fits, 120, True),
    "65,536 atoms": (many_atoms, 240, True),
}
"""Steps in their order: the seconds that must be left for one to begin, and whether it needs data."""


def steps(run: Run, wanted: list[str]) -> dict[str, Any]:
    """Run the steps there is time for; return what each found, or why it found nothing."""
    found: dict[str, Any] = {}
    for name in wanted:
        step, needed, of_data = STEPS[name]
        if of_data and run.data is None:
            found[name] = {"left out": "no data were given"}
        elif run.left < needed:
            found[name] = {"left out": f"{run.left:.0f} s were left of the {needed:.0f} that it needs"}
        else:
            began = time.perf_counter()
            try:
                found[name] = step(run)
            except Exception as error:  # the rest goes on: the card is not lent again
                found[name] = {
                    "failed": f"{type(error).__name__}: {error}",
                    "trace": traceback.format_exc()[-1500:],
                }
            found[name]["took"] = round(time.perf_counter() - began, 1)
        print(json.dumps({name: found[name]}), flush=True)
    return found


def cut(train: str, test: str, out: str, count: int) -> None:
    """Write the first images of two encoded files as groups train and test of one."""
    import h5py

    with h5py.File(out, "w") as new:
        for path, group, images in ((train, "train", count), (test, "test", 10_000)):
            with h5py.File(path, "r", locking=False) as old:
                offsets = old[f"{group}/offsets"][: images + 1]
                new[f"{group}/bytes"] = old[f"{group}/bytes"][: offsets[-1]]
                new[f"{group}/offsets"] = offsets
                new[f"{group}/labels"] = old[f"{group}/labels"][: len(offsets) - 1]


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Cut a file, or run the steps and write the record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cut", nargs=3, metavar=("TRAIN", "TEST", "OUT"))
    parser.add_argument("--count", type=int, default=24_000, help="training images of --cut")
    parser.add_argument("--data", help="groups train and test of encoded images, such as --cut writes")
    parser.add_argument("--steps", nargs="+", choices=list(STEPS), default=list(STEPS))
    parser.add_argument("--seconds", type=float, default=560)
    parser.add_argument("--images", type=int, default=256, help="images of a batch of the kernels")
    parser.add_argument("--atoms", type=int, default=8192)
    parser.add_argument("--patches", type=int, default=729, help="patches of an image")
    parser.add_argument("--json", help="folder for the record")
    options = parser.parse_args(arguments)
    if options.cut:
        train, test, out = options.cut
        cut(train, test, out, options.count)
        return {}
    from smtdist.kernels.device import gpu_available

    if not gpu_available():
        raise SystemExit("There is no CUDA device that CuPy sees; `smtdist info` says why.")
    import cupy

    with tempfile.TemporaryDirectory() as work:
        run = Run(
            cupy, options.data, options.images, options.atoms, options.patches, options.seconds, Path(work)
        )
        found = steps(run, options.steps)
    if options.json:
        write_record(options.json, "on-a-card", {"settings": vars(options), "steps": found})
    return found


if __name__ == "__main__":
    main()
