"""Patches of MNIST as words: GloVe against the transform on the same counts (SMT 2023, Table 1).

    python -m benchmarks.words.mnist_glove --data mnist.h5 --train 10000 --test 2000 --dictionary 2048 --json DIR
    python -m benchmarks.words.mnist_glove --data mnist.h5 --dictionary 4096 --work RUN --minutes 4 --json DIR

With --work the steps are kept in a folder (5 KiB an image and method until they are judged), and the same command goes on
where it was; --minutes ends it after so long, with exit code 3.

Table 1 has 98.8 (whole image) and 99.0 % (3 pixels) for GloVe with 100,000 patches, 98.9-99.0 and 99.2-99.3 % for the
transform. Each seed makes its own dictionary; GloVe then takes the co-occurrence counts of that fit, its vectors the place of
the components, and everything after is the same. The paired test is McNemar's exact one over all test images and seeds.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.stats import binomtest

from benchmarks.record import write_record
from benchmarks.steps import UNFINISHED, Steps
from smtdist.configuration import Configuration, parse_setting, preset
from smtdist.data.array import as_source
from smtdist.engine.events import EventStream
from smtdist.engine.passes import Engine
from smtdist.engine.session import executor_for
from smtdist.errors import InterruptedRun
from smtdist.evaluate.knn import nearest, vote
from smtdist.models.files import load, save
from smtdist.models.fit import fit
from smtdist.models.model import Model
from smtdist.models.transform import transform
from smtdist.models.words.others import GloveSettings, glove

SLICE: Final = 2500
"""Images whose representations are one step."""
TABLE_1: Final = {
    "whole": {"smt 16384": 99.0, "smt 65536": 98.9, "glove 100K": 98.8},
    "3": {"smt 16384": 99.2, "smt 65536": 99.3, "glove 100K": 99.0},
}
"""Percent right by k-NN, 60,000 training and 10,000 test images, by context."""


def read(path: str, group: str, count: int) -> tuple[Any, Any]:
    """Return the first images and labels."""
    with h5py.File(path, "r") as file:
        return file[f"{group}/images"][:count], file[f"{group}/labels"][:count].astype(np.int64)


def represent(steps: Steps, name: str, model: Model, images: Any, engine: Engine) -> NDArray[np.float32]:
    """Return all representations in memory, made a slice of images at a time."""
    settings = model.settings
    shape = model.feature_shape(settings.n_components)

    def make(part: Any) -> NDArray[np.float32]:
        z = np.empty((len(part), *shape), np.float32)
        for first, values in transform(model, as_source(part), engine):
            z[first : first + len(values)] = values
        return z.reshape(len(z), -1)

    parts = [
        steps.array(f"{name}-{start}", partial(make, images[start : start + SLICE]))
        for start in range(0, len(images), SLICE)
    ]
    return np.concatenate(parts)


def right(steps: Steps, name: str, model: Model, train: Any, test: Any, engine: Engine) -> NDArray[np.bool_]:
    """Return which test images the soft k-NN classifies rightly."""

    def judge() -> NDArray[np.bool_]:
        z = [
            represent(steps, f"{name}-{group}", model, images, engine)
            for group, (images, _) in (("train", train), ("test", test))
        ]
        cosines, rows = nearest(z[1], z[0], 30)
        return np.asarray(vote(cosines, train[1][rows], 10).argmax(axis=1) == test[1])

    found = steps.array(f"{name}-right", judge)
    steps.forget(f"{name}-train-*")
    steps.forget(f"{name}-test-*")
    return found


def fitted(steps: Steps, name: str, images: Any, settings: Configuration, workers: int) -> Model:
    """Return the model of a seed, from its file if it was fitted before."""
    path = steps.folder / f"{name}.h5"
    if not path.exists():
        folder = steps.folder / f"{name}-checkpoint"
        with executor_for(workers=workers) as executor:
            engine = Engine(executor, EventStream(), folder, settings.to_json(), steps.stop)
            save(fit(as_source(images), settings, engine)[0], path)
    steps.forget(f"{name}-checkpoint")
    return load(path)


def with_glove(model: Model, settings: GloveSettings) -> tuple[Model, list[float]]:
    """Return the model with GloVe's vectors in place of its components, and the loss of every sweep."""
    assert model.statistics is not None
    near = scipy.sparse.csr_array(model.statistics.cooccurrence)
    found = glove(near, settings)
    return with_vectors(model, found.vectors()), list(found.losses)


def with_vectors(model: Model, vectors: NDArray[np.float64]) -> Model:
    """Return the model with other vectors of its atoms, (K, L)."""
    assert model.embedding is not None
    drop = np.zeros((model.settings.drop, len(vectors)))
    return replace(model, embedding=replace(model.embedding, components=np.concatenate([drop, vectors.T])))


def mcnemar(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> dict[str, Any]:
    """Return how often only one of both is right, and the exact two-sided p of that being chance."""
    only_first, only_second = int((first & ~second).sum()), int((second & ~first).sum())
    both = only_first + only_second
    p = binomtest(only_first, both).pvalue if both else 1.0
    return {"only_first": only_first, "only_second": only_second, "p": float(p)}


def compared(
    steps: Steps, seed: int, settings: Configuration, options: argparse.Namespace, train: Any, test: Any
) -> tuple[dict[str, Any], NDArray[np.bool_], NDArray[np.bool_]]:
    """Return what one seed gives, and which test images either method classifies rightly."""
    model = fitted(steps, f"seed{seed}", train[0], settings, options.workers)
    glove_settings = GloveSettings(
        n_components=settings.n_components, sweeps=options.sweeps, most=options.most, seed=seed
    )

    def trained() -> NDArray[np.float64]:
        other, losses = with_glove(model, glove_settings)
        assert other.embedding is not None
        steps.array(f"seed{seed}-losses", lambda: np.array(losses))
        return other.embedding.components[settings.drop :].T

    vectors = steps.array(f"seed{seed}-glove-vectors", trained)
    losses = np.load(steps.folder / f"seed{seed}-losses.npy")
    with executor_for(workers=options.workers) as executor:
        engine = Engine(executor)
        mine = right(steps, f"seed{seed}-smt", model, train, test, engine)
        other = right(steps, f"seed{seed}-glove", with_vectors(model, vectors), train, test, engine)
    row = {
        "seed": seed,
        "smt": float(mine.mean()),
        "glove": float(other.mean()),
        "losses": [float(losses[0]), float(losses[-1])],
        **mcnemar(mine, other),
    }
    print(json.dumps(row), flush=True)
    return row, mine, other


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Compare on every seed."""
    train, test = read(options.data, "train", options.train), read(options.data, "test", options.test)
    base = preset("mnist-vq").replace(
        dictionary=options.dictionary,
        context="whole" if options.context == "whole" else int(options.context),
        **dict(map(parse_setting, options.set)),
    )
    asked = {**vars(options), "data": Path(options.data).name}
    steps = Steps(folder, options.minutes)
    steps.same(
        {name: value for name, value in asked.items() if name not in ("minutes", "work", "json", "workers")}
    )
    found = [
        compared(steps, seed, base.replace(seed=seed), options, train, test) for seed in range(options.seeds)
    ]
    rows = [row for row, _, _ in found]
    return {
        "context": options.context,
        "configuration": base.to_dict(),
        "table_1": TABLE_1,
        "seeds": rows,
        "smt": float(np.mean([row["smt"] for row in rows])),
        "glove": float(np.mean([row["glove"] for row in rows])),
        "all": mcnemar(*(np.concatenate(part) for part in list(zip(*found, strict=True))[1:])),
    }


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True)
    parser.add_argument("--train", type=int, default=60_000)
    parser.add_argument("--test", type=int, default=10_000)
    parser.add_argument("--dictionary", type=int, default=16_384)
    parser.add_argument("--context", default="3", help="pixels, or whole")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sweeps", type=int, default=25)
    parser.add_argument("--most", type=float, default=100.0, help="GloVe's x_max")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--work", help="folder that keeps the steps, so that the command can go on")
    parser.add_argument("--minutes", type=float, default=np.inf, help="stop after so many; needs --work")
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="smtdist-glove-") as name:
        try:
            result = run(options, Path(options.work or name))
        except InterruptedRun as error:
            print(f"{error} Repeat the command to go on.", flush=True)
            raise SystemExit(UNFINISHED) from error
    print(json.dumps({name: result[name] for name in ("context", "smt", "glove", "all")}), flush=True)
    if options.json:
        write_record(
            options.json, f"mnist-glove-{options.train}-K{options.dictionary}-{options.context}", result
        )
    return result


if __name__ == "__main__":
    main()
