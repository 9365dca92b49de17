"""SMT-VQ on MNIST (SMT 2023, Table 1): choose settings on a validation split of the training set, then measure once.

    python -m benchmarks.quality.mnist_vq --data mnist.h5 choose --train 10000
    python -m benchmarks.quality.mnist_vq --data mnist.h5 choose --train 60000 --leave-one-out 20000
    python -m benchmarks.quality.mnist_vq --data mnist.h5 choose --train 60000 --leave-one-out 20000 --leading 200 400 800
    python -m benchmarks.quality.mnist_vq --data mnist.h5 run --train 10000 --test 2000 --dictionary 2048

`mnist.h5` holds train/images, train/labels, test/images, test/labels (uint8). Choosing never looks at the test set: it judges
the last fifth of the training images by the others or, since labels do not enter a fit, so many of them each by all others.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from rich.console import Console

from benchmarks.record import write_record
from smtdist.configuration import Configuration, parse_setting, preset
from smtdist.data.array import as_source
from smtdist.engine.events import EventStream
from smtdist.engine.passes import Engine
from smtdist.engine.session import executor_for
from smtdist.evaluate.knn import SoftNeighbours, evaluate_knn, evaluation_of, nearest
from smtdist.evaluate.leading import leading_directions
from smtdist.models.fit import fit
from smtdist.models.model import Model
from smtdist.models.transform import transform
from smtdist.monitor.progress import ProgressView

VOTERS = tuple(itertools.product((5, 7, 10, 20, 30), (0.02, 0.03, 0.05, 0.1)))
"""Neighbours and temperatures that are compared."""
MOST = max(k for k, _ in VOTERS)
GRID = ["ridge=0.03,0.1,0.3,1.0", "constant_patch=activate_best,leave_out"]


def grid(texts: list[str]) -> list[dict[str, Any]]:
    """Return every combination of KEY=VALUE,VALUE,... texts."""
    columns = []
    for text in texts:
        key, values = text.split("=")
        columns.append([parse_setting(f"{key}={value}") for value in values.split(",")])
    return [dict(row) for row in itertools.product(*columns)]


def read(path: str, group: str, start: int, stop: int) -> tuple[Any, Any]:
    """Return images and labels of a range."""
    with h5py.File(path, "r") as file:
        return file[f"{group}/images"][start:stop], file[f"{group}/labels"][start:stop].astype(np.int64)


def represent(model: Model, images: Any, engine: Engine, drop: int) -> Any:
    """Return all representations in memory."""
    settings = model.settings
    z = np.empty((len(images), *model.feature_shape(settings.n_components)), settings.dtype)
    for first, values in transform(model, as_source(images), engine, drop=drop):
        z[first : first + len(values)] = values
    return z.reshape(len(z), -1)


def choose(options: argparse.Namespace, settings: Configuration) -> dict[str, Any]:
    """Compare settings on the last fifth of the training images, or on some of them when each is left out."""
    images, labels = read(options.data, "train", 0, options.train)
    cut = len(images) if options.leave_one_out else len(images) * 4 // 5
    asked = np.sort(np.random.default_rng(0).permutation(cut)[: options.leave_one_out])
    rows = []
    with executor_for(workers=options.workers) as executor:
        engine = Engine(executor)
        for changes in grid(options.grid or GRID):
            started = time.perf_counter()
            model, _ = fit(as_source(images[:cut]), settings.replace(**changes), engine)
            for drop in (0, 1):
                z = represent(model, images[:cut], engine, drop)
                rest = None if options.leave_one_out else represent(model, images[cut:], engine, drop)
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


def run(options: argparse.Namespace, settings: Configuration) -> dict[str, Any]:
    """Fit on the first training images, evaluate on the first test images, beside raw pixels."""
    train, train_labels = read(options.data, "train", 0, options.train)
    test, test_labels = read(options.data, "test", 0, options.test)
    started = time.perf_counter()
    folder = None if options.checkpoint is None else Path(options.checkpoint)
    with executor_for(workers=options.workers) as executor, ProgressView(Console(stderr=True)) as show:
        engine = Engine(executor, EventStream(show), folder, settings.digest())
        model, passes = fit(as_source(train), settings, engine)
        fitted = time.perf_counter() - started
        z = [represent(model, part, engine, settings.drop) for part in (train, test)]
    found = evaluate_knn(z[0], train_labels, z[1], test_labels)
    raw = evaluate_knn(
        train.reshape(len(train), -1) / np.float32(255),
        train_labels,
        test.reshape(len(test), -1) / np.float32(255),
        test_labels,
    )
    return {
        "top1": found.top1,
        "interval": list(found.interval),
        "raw_top1": raw.top1,
        "fit_seconds": fitted,
        "seconds": time.perf_counter() - started,
        "passes": passes,
        "configuration": settings.to_dict(),
        "rank": int(model.embedding.rank) if model.embedding else 0,
    }


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Parse the command line, run it, and return what it found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--json", help="folder for the dated result")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, work in (("choose", choose), ("run", run)):
        command = commands.add_parser(name)
        command.set_defaults(work=work)
        command.add_argument("--train", type=int, default=10000)
        command.add_argument("--test", type=int, default=2000)
        command.add_argument("--dictionary", type=int, default=2048)
        command.add_argument("--checkpoint")
    commands.choices["choose"].add_argument("--grid", action="append", metavar="KEY=VALUE,VALUE")
    commands.choices["choose"].add_argument(
        "--leave-one-out", type=int, default=0, metavar="N", help="judge N images, each by all others"
    )
    commands.choices["choose"].add_argument(
        "--leading", type=int, nargs="+", default=[], help="compare in so many directions too"
    )
    commands.choices["choose"].add_argument(
        "--whiten", type=float, nargs="+", default=[0.25, 0.5, 0.75, 1.0]
    )
    options = parser.parse_args(arguments)
    settings = preset("mnist-vq").replace(
        dictionary=options.dictionary, **dict(map(parse_setting, options.set))
    )
    result: dict[str, Any] = options.work(options, settings)
    print(
        {
            key: value
            for key, value in result.items()
            if key not in ("passes", "configuration", "validation")
        }
    )
    if options.json:
        write_record(
            options.json, f"mnist-vq-{options.command}-{options.train}-K{options.dictionary}", result
        )
    return result


if __name__ == "__main__":
    main()
