"""SMT-VQ on MNIST (SMT 2023, Table 1): choose settings and votes by training images alone. `replication.quality 1` judges them.

    python -m replication.quality.mnist_vq --data mnist.h5 choose --train 10000
    python -m replication.quality.mnist_vq --data mnist.h5 choose --train 60000 --leave-one-out 20000
    python -m replication.quality.mnist_vq --data mnist.h5 choose --train 60000 --leave-one-out 20000 --leading 200 400 800

`mnist.h5` holds train/images and train/labels (uint8). The last fifth of the training images is judged by the others or, since
labels do not enter a fit, so many of them each by all others.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

from benchmarks.record import write_record
from smtdist.configuration import Configuration, parse_settings, preset
from smtdist.data.array import as_source
from smtdist.engine.passes import Engine
from smtdist.engine.session import executor_for
from smtdist.evaluate.knn import SoftNeighbours, evaluation_of, nearest
from smtdist.evaluate.leading import leading_directions
from smtdist.models.fit import fit
from smtdist.models.readout import with_readout
from smtdist.models.transform import represented

VOTERS = tuple(itertools.product((5, 7, 10, 20, 30), (0.02, 0.03, 0.05, 0.1)))
"""Neighbours and temperatures that are compared."""
MOST = max(k for k, _ in VOTERS)
GRID = ["ridge=0.03,0.1,0.3,1.0", "constant_patch=activate_best,leave_out"]


def grid(texts: list[str]) -> list[dict[str, Any]]:
    """Return every combination of KEY=VALUE,VALUE,... texts."""
    columns = []
    for text in texts:
        key, values = text.split("=")
        each = (parse_settings([f"{key}={value}"]) for value in values.split(","))
        columns.append([pair for one in each for pair in Configuration.named(one).items()])
    return [dict(row) for row in itertools.product(*columns)]


def read(path: str, count: int) -> tuple[Any, Any]:
    """Return the first training images, and their labels."""
    with h5py.File(path, "r") as file:
        return file["train/images"][:count], file["train/labels"][:count].astype(np.int64)


def flat(transform: Any, images: Any, engine: Engine) -> Any:
    """Return the representation of each image as a row."""
    return represented(transform, as_source(images), engine).reshape(len(images), -1)


def choose(options: argparse.Namespace, settings: Configuration) -> dict[str, Any]:
    """Compare settings on the last fifth of the training images, or on some of them when each is left out."""
    images, labels = read(options.data, options.train)
    cut = len(images) if options.leave_one_out else len(images) * 4 // 5
    asked = np.sort(np.random.default_rng(0).permutation(cut)[: options.leave_one_out])
    rows = []
    with executor_for(workers=options.workers) as executor:
        engine = Engine(executor)
        for changes in grid(options.grid or GRID):
            started = time.perf_counter()
            model, _ = fit(as_source(images[:cut]), settings.replace(**changes), engine)
            for drop in (0, 1):
                transform = with_readout(model, None, drop=drop)
                z = flat(transform, images[:cut], engine)
                rest = None if options.leave_one_out else flat(transform, images[cut:], engine)
                wanted = labels[asked] if rest is None else labels[cut:]
                for where, known, others_z in seen(z, rest, options.leading, options.whiten):
                    cosines, near = (
                        others(known, asked) if others_z is None else nearest(others_z, known, MOST)
                    )
                    for k, temperature, top1 in voted(cosines, near, labels[:cut], wanted):
                        seconds = time.perf_counter() - started
                        voters = {"k": k, "temperature": temperature}
                        found = {"top1": top1, "seconds": seconds}
                        rows.append({**changes, "drop": drop, **where, **voters, **found})
                    print(max(rows, key=lambda row: row["top1"]), flush=True)
    return {"validation": sorted(rows, key=lambda row: -row["top1"])}


def seen(
    z: Any, rest: Any, counts: list[int], powers: list[float]
) -> Iterator[tuple[dict[str, float], Any, Any]]:
    """Yield where representations are compared, and both there: as they are, and in leading directions of the first."""
    yield {}, z, rest
    if not counts:
        return
    found = leading_directions(z, max(counts), 0.0)
    parts = [None if one is None else found.of(one) for one in (z, rest)]
    for count, power in itertools.product(counts, powers):
        by = (found.variances[:count] ** (-power / 2)).astype(np.float32)
        known, other = (None if part is None else part[:, :count] * by for part in parts)
        yield {"leading": count, "whiten": power}, known, other


def others(z: Any, asked: Any) -> tuple[Any, Any]:
    """Return cosines and rows of the nearest of some of the rows of z, themselves left out."""
    cosines, rows = nearest(z[asked], z, MOST + 1)
    # twins can come before a row itself, or crowd it out: then the last goes
    own = rows == asked[:, None]
    own[~own.any(axis=1), -1] = True
    return cosines[~own].reshape(len(asked), MOST), rows[~own].reshape(len(asked), MOST)


def voted(cosines: Any, rows: Any, known: Any, wanted: Any) -> Iterator[tuple[int, float, float]]:
    """Yield k, T and the share that is right, for every one of `VOTERS`."""
    for k, temperature in VOTERS:
        settings = SoftNeighbours(k, temperature)
        yield k, temperature, evaluation_of(cosines[:, :k], rows[:, :k], known, wanted, settings).top1


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Parse the command line, run it, and return what it found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--json", help="folder for the dated result")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    # the commands of records name it
    choices = parser.add_subparsers(required=True).add_parser("choose")
    choices.add_argument("--train", type=int, default=10000)
    choices.add_argument("--dictionary", type=int, default=2048)
    choices.add_argument("--grid", action="append", metavar="KEY=VALUE,VALUE")
    choices.add_argument(
        "--leave-one-out", type=int, default=0, metavar="N", help="judge N images, each by all others"
    )
    choices.add_argument(
        "--leading", type=int, nargs="+", default=[], help="compare in so many directions too"
    )
    choices.add_argument("--whiten", type=float, nargs="+", default=[0.25, 0.5, 0.75, 1.0])
    options = parser.parse_args(arguments)
    settings = preset("mnist-vq").replace(
        dictionary=options.dictionary, **Configuration.named(parse_settings(options.set))
    )
    result = choose(options, settings)
    if options.json:
        write_record(options.json, f"mnist-vq-choose-{options.train}-K{options.dictionary}", result)
    return result


if __name__ == "__main__":
    main()
