"""Patches of MNIST as words: GloVe against the transform on the same counts (SMT 2023, Table 1).

    python -m benchmarks.words.mnist_glove --data mnist.h5 --train 10000 --test 2000 --dictionary 2048 --json DIR

Table 1 has 98.8 (whole image) and 99.0 % (3 pixels) for GloVe with 100,000 patches, 98.9-99.0 and 99.2-99.3 % for the
transform. Each seed makes its own dictionary; GloVe then takes the co-occurrence counts of that fit, its vectors the place of
the components, and everything after is the same. The paired test is McNemar's exact one over all test images and seeds.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import Any

import h5py
import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.stats import binomtest

from benchmarks.record import write_record
from smtdist.configuration import parse_setting, preset
from smtdist.data.array import as_source
from smtdist.engine.passes import Engine
from smtdist.engine.session import executor_for
from smtdist.evaluate.knn import nearest, vote
from smtdist.models.fit import fit
from smtdist.models.model import Model
from smtdist.models.transform import transform
from smtdist.models.words.others import GloveSettings, glove


def read(path: str, group: str, count: int) -> tuple[Any, Any]:
    """Return the first images and labels."""
    with h5py.File(path, "r") as file:
        return file[f"{group}/images"][:count], file[f"{group}/labels"][:count].astype(np.int64)


def represent(model: Model, images: Any, engine: Engine) -> NDArray[np.float32]:
    """Return all representations in memory."""
    settings = model.settings
    z = np.empty((len(images), *model.feature_shape(settings.n_components)), np.float32)
    for first, values in transform(model, as_source(images), engine):
        z[first : first + len(values)] = values
    return z.reshape(len(z), -1)


def right(model: Model, train: Any, test: Any, engine: Engine) -> NDArray[np.bool_]:
    """Return which test images the soft k-NN classifies rightly."""
    z = [represent(model, images, engine) for images, _ in (train, test)]
    cosines, rows = nearest(z[1], z[0], 30)
    return vote(cosines, train[1][rows], 10).argmax(axis=1) == test[1]


def with_glove(model: Model, settings: GloveSettings) -> tuple[Model, list[float]]:
    """Return the model with GloVe's vectors in place of its components."""
    assert model.statistics is not None
    assert model.embedding is not None
    near = scipy.sparse.csr_array(model.statistics.cooccurrence)
    found = glove(near, settings)
    drop = np.zeros((model.settings.drop, near.shape[0]))
    components = np.concatenate([drop, found.vectors().T])
    return replace(model, embedding=replace(model.embedding, components=components)), list(found.losses)


def mcnemar(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> dict[str, Any]:
    """Return how often only one of both is right, and the exact two-sided p of that being chance."""
    only_first, only_second = int((first & ~second).sum()), int((second & ~first).sum())
    both = only_first + only_second
    p = binomtest(only_first, both).pvalue if both else 1.0
    return {"only_first": only_first, "only_second": only_second, "p": float(p)}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Compare on every seed."""
    train, test = read(options.data, "train", options.train), read(options.data, "test", options.test)
    base = preset("mnist-vq").replace(
        dictionary=options.dictionary,
        context="whole" if options.context == "whole" else int(options.context),
        **dict(map(parse_setting, options.set)),
    )
    rows, smt_right, glove_right = [], [], []
    with executor_for(workers=options.workers) as executor:
        engine = Engine(executor)
        for seed in range(options.seeds):
            model, _ = fit(as_source(train[0]), base.replace(seed=seed), engine)
            glove_settings = GloveSettings(
                n_components=base.n_components, sweeps=options.sweeps, most=options.most, seed=seed
            )
            other, losses = with_glove(model, glove_settings)
            smt_right.append(right(model, train, test, engine))
            glove_right.append(right(other, train, test, engine))
            row = {
                "seed": seed,
                "smt": float(smt_right[-1].mean()),
                "glove": float(glove_right[-1].mean()),
                "losses": [losses[0], losses[-1]],
                **mcnemar(smt_right[-1], glove_right[-1]),
            }
            rows.append(row)
            print(json.dumps(row), flush=True)
    return {
        "context": options.context,
        "configuration": base.to_dict(),
        "seeds": rows,
        "smt": float(np.mean([row["smt"] for row in rows])),
        "glove": float(np.mean([row["glove"] for row in rows])),
        "all": mcnemar(np.concatenate(smt_right), np.concatenate(glove_right)),
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
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    result = run(options)
    print(json.dumps({name: result[name] for name in ("context", "smt", "glove", "all")}), flush=True)
    if options.json:
        write_record(
            options.json, f"mnist-glove-{options.train}-K{options.dictionary}-{options.context}", result
        )
    return result


if __name__ == "__main__":
    main()
