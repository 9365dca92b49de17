"""Patches of MNIST as words: GloVe against the transform on the same counts (SMT 2023, Table 1).

    python -m replication.words.mnist_glove --data mnist.h5 --train 10000 --test 2000 --dictionary 1024 --json DIR
    python -m replication.words.mnist_glove --data mnist.h5 --dictionary 4096 --work RUN --minutes 4 --json DIR

With --work the steps are kept in a folder (0.7 GB until a seed is judged), and
the same command goes on where it was; --minutes ends it after so long, with exit code 3.

Table 1 has 98.8 (whole image) and 99.0 % (3 pixels) for GloVe with 100,000 patches, 98.9-99.0 and 99.2-99.3 % for the
transform. Each seed makes its own dictionary, which all contexts and methods share; GloVe takes the co-occurrence counts of
the fit, its vectors the place of the components, and everything after is the same: patches are coded once for both.

Two tests are given. McNemar's exact test, for one seed; and for all seeds the same test over images, an image being "only
right" by the method that has it right under more seeds: the seeds share their test images, so that counting each seed's
images as new ones would make chance differences look certain.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.stats import binomtest

from benchmarks.record import write_record
from benchmarks.steps import Steps, folder_of
from examples.word_rivals import GloveSettings, glove
from smtdist.configuration import Configuration, parse_settings, preset
from smtdist.data.array import as_source
from smtdist.engine.events import EventStream
from smtdist.engine.passes import Engine
from smtdist.engine.session import executor_for
from smtdist.evaluate.knn import nearest, vote
from smtdist.evaluate.metrics import wilson
from smtdist.kernels.codes import encode_pieces
from smtdist.kernels.memory import code_capacity
from smtdist.kernels.representation import embed, pool
from smtdist.models.fit import fit
from smtdist.models.model import Model
from smtdist.models.store import load, save

SLICE: Final = 5000
"""Images whose representations are one step."""
BATCH: Final = 250
"""Images coded at a time."""
NEIGHBOURS: Final = 30
METHODS: Final = ("smt", "glove")
TABLE_1: Final = {
    "whole": {"smt 16384": 99.0, "smt 65536": 98.9, "glove 100K": 98.8},
    "3": {"smt 16384": 99.2, "smt 65536": 99.3, "glove 100K": 99.0},
}
"""Percent right by k-NN, 60,000 training and 10,000 test images, by context."""

Images = tuple[NDArray[Any], NDArray[np.int64]]
"""Images and their labels."""


def read(path: str, group: str, count: int) -> Images:
    """Return the first images and labels."""
    with h5py.File(path, "r") as file:
        return file[f"{group}/images"][:count], file[f"{group}/labels"][:count].astype(np.int64)


def represented(
    model: Model, vectors: list[NDArray[np.float32]], images: NDArray[Any]
) -> NDArray[np.float32]:
    """Return the representations of images, (methods, B, features), by several vectors (K, L) of the same atoms.

    What `smtdist transform` does, except that patches are coded once for all methods: that is most of the work.
    """
    encoder, geometry = model.encoder, model.geometry
    parts = []
    for start in range(0, len(images), BATCH):
        batch = images[start : start + BATCH, ..., None]
        capacity = code_capacity(geometry, len(encoder.atoms), encoder.form, len(batch))
        for _, count, codes in encode_pieces(batch, encoder, False, capacity):
            shape = count, geometry.rows, geometry.columns, *model.pooling
            found = [pool(embed(codes, one), *shape).reshape(count, -1) for one in vectors]
            parts.append(np.stack(found))
    return np.concatenate(parts, axis=1)


def judged(
    steps: Steps, name: str, model: Model, vectors: list[NDArray[np.float32]], train: Images, test: Images
) -> NDArray[np.bool_]:
    """Return which test images the soft k-NN classifies rightly, (methods, test images).

    Training images come a slice at a time: of each slice the nearest to every test image are kept, not what it is
    represented by.
    """

    def queries(start: int) -> NDArray[np.float32]:
        return represented(model, vectors, test[0][start : start + SLICE])

    def near(start: int) -> NDArray[np.float64]:
        z = represented(model, vectors, train[0][start : start + SLICE])
        count = min(NEIGHBOURS, z.shape[1])
        found = np.empty((2, len(vectors), len(test[0]), count))
        for method, own in enumerate(z):
            asked = np.concatenate([part[method] for part in tests])
            cosines, rows = nearest(asked, own, count)
            found[:, method] = cosines, rows + start
        return found

    def vote_of_all() -> NDArray[np.bool_]:
        found = [
            steps.array(f"{name}-near-{start}", partial(near, start))
            for start in range(0, len(train[0]), SLICE)
        ]
        cosines, rows = (np.concatenate([part[which] for part in found], axis=2) for which in (0, 1))
        # slices ascend, and within one equal cosines have their lowest row first, so a stable order is that of all
        order = np.argsort(-cosines, axis=2, kind="stable")[..., :NEIGHBOURS]
        cosines = np.take_along_axis(cosines, order, 2).astype(np.float32)
        labels = train[1][np.take_along_axis(rows, order, 2).astype(np.int64)]
        return np.stack(
            [vote(*both, 10).argmax(axis=1) == test[1] for both in zip(cosines, labels, strict=True)]
        )

    done = steps.folder / f"{name}-right.npy"
    tests = (
        []
        if done.exists()
        else [
            steps.array(f"{name}-test-{start}", partial(queries, start))
            for start in range(0, len(test[0]), SLICE)
        ]
    )
    right = steps.array(f"{name}-right", vote_of_all)
    steps.forget(f"{name}-near-*")
    steps.forget(f"{name}-test-*")
    return np.asarray(right)


def fitted(
    steps: Steps, name: str, images: Any, settings: Configuration, workers: int, base: Model | None
) -> Model:
    """Return the model of a seed and a context, from its file if it was fitted before; `base` may lend its dictionary."""
    path = steps.folder / f"{name}.h5"
    if not path.exists():
        folder = steps.folder / f"{name}-checkpoint"
        with executor_for(workers=workers) as executor:
            engine = Engine(executor, EventStream(), folder, settings.to_json(), steps.stop)
            save(fit(as_source(images), settings, engine, base=base)[0], path)
    steps.forget(f"{name}-checkpoint")
    model: Model = load(path)
    return model


def with_glove(
    steps: Steps, name: str, model: Model, settings: GloveSettings
) -> tuple[NDArray[np.float32], list[float]]:
    """Return GloVe's vectors of the atoms from the co-occurrences of a model, (K, L), and the loss of every sweep."""
    losses: list[float] = []

    def trained() -> NDArray[np.float32]:
        assert model.statistics is not None
        found = glove(scipy.sparse.csr_array(model.statistics.cooccurrence), settings)
        losses.extend(found.losses)
        steps.array(f"{name}-losses", lambda: np.array(losses))
        return np.ascontiguousarray(found.vectors(), np.float32)

    vectors = steps.array(f"{name}-vectors", trained)
    return np.asarray(vectors), np.load(steps.folder / f"{name}-losses.npy").tolist()


def mcnemar(first: NDArray[np.integer], second: NDArray[np.integer]) -> dict[str, Any]:
    """Return how many images one of both has right more often, and the exact two-sided p of that being chance.

    `first` and `second` say how often each image was classified rightly: 0 or 1 for one seed.
    """
    only_first, only_second = int((first > second).sum()), int((first < second).sum())
    both = only_first + only_second
    p = binomtest(only_first, both).pvalue if both else 1.0
    return {"only_first": only_first, "only_second": only_second, "p": float(p)}


def compared(
    steps: Steps,
    context: str,
    settings: Configuration,
    options: argparse.Namespace,
    train: Images,
    test: Images,
) -> dict[str, Any]:
    """Return what one seed says of a context, with which test images either method classifies rightly."""
    seed, model = settings.random_state, None
    for one in dict.fromkeys((options.context[0], context)):  # the first context lends its dictionary
        here = settings.replace(context=one if one == "whole" else int(one))
        model = fitted(steps, f"seed{seed}-{one}", train[0], here, options.workers, model)
    assert model is not None
    chosen = GloveSettings(
        n_components=settings.n_components, sweeps=options.sweeps, most=options.most, seed=seed
    )
    vectors, losses = with_glove(steps, f"seed{seed}-{context}-glove", model, chosen)
    mine, other = judged(
        steps, f"seed{seed}-{context}", model, [model.components(), vectors], train, test
    ).astype(np.int64)
    return {
        "row": {
            "seed": seed,
            "smt": float(mine.mean()),
            "glove": float(other.mean()),
            "losses": [losses[0], losses[-1]],
            **mcnemar(mine, other),
        },
        "right": (mine, other),
    }


def told(context: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what all seeds say of a context."""
    rows = [one["row"] for one in found]
    mine, other = (np.sum(part, axis=0) for part in zip(*(one["right"] for one in found), strict=True))
    means = {method: float(np.mean([row[method] for row in rows])) for method in METHODS}
    intervals = {
        f"{method}_interval": wilson(round(share * len(mine)), len(mine)) for method, share in means.items()
    }
    return {
        **means,
        **intervals,
        "by_image": mcnemar(mine, other),
        "seeds": rows,
        "table_1": TABLE_1.get(context, {}),
    }


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Compare on every seed."""
    train, test = read(options.data, "train", options.train), read(options.data, "test", options.test)
    base = preset("mnist-vq").replace(
        dictionary=options.dictionary, **Configuration.named(parse_settings(options.set))
    )
    asked = {**vars(options), "data": Path(options.data).name}
    free = ("minutes", "work", "json", "workers", "seeds", "context")
    steps = Steps(folder, options.minutes)
    steps.same({name: value for name, value in asked.items() if name not in free})
    contexts = {}
    for context in options.context:
        found = []
        for seed in range(options.seeds):
            found.append(compared(steps, context, base.replace(seed=seed), options, train, test))
            print(context, found[-1]["row"], flush=True)
        contexts[context] = told(context, found)
    return {
        "train": len(train[0]),
        "test": len(test[0]),
        "configuration": {name: value for name, value in base.to_dict().items() if name != "context"},
        "contexts": contexts,
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
    parser.add_argument(
        "--context", nargs="+", default=["3", "whole"], help="pixels, or whole; one or more"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sweeps", type=int, default=25)
    parser.add_argument("--most", type=float, default=100.0, help="GloVe's x_max")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--work", help="folder that keeps the steps, so that the command can go on")
    parser.add_argument("--minutes", type=float, default=np.inf, help="stop after so many; needs --work")
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    with folder_of(options.work) as folder:
        result = run(options, folder)
    for context, row in result["contexts"].items():
        print(context, {name: row[name] for name in (*METHODS, "by_image")}, flush=True)
    if options.json:
        write_record(options.json, f"mnist-glove-{options.train}-K{options.dictionary}", result)
    return result


if __name__ == "__main__":
    main()
