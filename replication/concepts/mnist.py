"""MNIST: Boolean formulas of at most three concepts of an SMT embedding, against as many k-means clusters.

    python -m replication.concepts.mnist --data mnist.h5 --train 60000 --test 10000 --json results

For each digit the best formula, any Boolean function of at most three concepts, is chosen by its F1 on the training images and
scored on the test images; k-means clusters of the same representation are treated alike, as concepts of their members.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from benchmarks.record import write_record
from smtdist.concepts.fit import fit_concepts
from smtdist.concepts.scores import leading, prepare
from smtdist.concepts.settings import ConceptSettings
from smtdist.configuration import preset
from smtdist.data.array import as_source
from smtdist.data.table import read_rows
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.models.fit import fit
from smtdist.models.transform import transform

Concepts = NDArray[np.uint8]


def cells(s: Concepts, inside: NDArray[np.bool_], triples: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count the points of a class in the eight cells of every triple of concepts: (triples, 8), cell 4a + 2b + c."""
    chosen = s[inside].astype(np.float32)
    b = s.shape[1]
    third = np.stack([(chosen * chosen[:, [a]]).T @ chosen for a in range(b)]).astype(np.int64)
    i, j, k = triples.T
    one, pair = np.einsum("aaa->a", third), np.einsum("aab->ab", third)
    n111, n = third[i, j, k], len(chosen)
    n110, n101, n011 = pair[i, j] - n111, pair[i, k] - n111, pair[j, k] - n111
    n100, n010, n001 = one[i] - n110 - n101 - n111, one[j] - n110 - n011 - n111, one[k] - n101 - n011 - n111
    n000 = n - (n111 + n110 + n101 + n011 + n100 + n010 + n001)
    return np.stack([n000, n001, n010, n011, n100, n101, n110, n111], 1)


def best_formula(
    hits: NDArray[np.int64], every: NDArray[np.int64], size: int
) -> tuple[int, list[int], float]:
    """Return the triple, its cells and the F1 of the best formula: cells are taken by precision, to the best F1."""
    precision = hits / np.maximum(every, 1)
    order = np.argsort(-precision, axis=1, kind="stable")
    taken, total = (np.cumsum(np.take_along_axis(v, order, 1), 1) for v in (hits, every))
    f1 = 2 * taken / (total + size)
    at, last = np.unravel_index(int(f1.argmax()), f1.shape)
    return int(at), order[at, : last + 1].tolist(), float(f1[at, last])


def formulas(
    train: Concepts, labels: NDArray[np.int64], test: Concepts, truth: NDArray[np.int64]
) -> list[dict[str, Any]]:
    """Choose a formula for each class on train, score it on test."""
    triples = np.array(list(itertools.combinations(range(train.shape[1]), 3)), np.int64)
    counts = {label: cells(train, labels == label, triples) for label in np.unique(labels)}
    every = sum(counts.values())
    rows = []
    for label, hits in counts.items():
        at, kept, f1 = best_formula(hits, np.asarray(every), int((labels == label).sum()))
        code = test[:, triples[at]].astype(np.int64) @ [4, 2, 1]
        said, true = np.isin(code, kept), truth == label
        both = int((said & true).sum())
        rows.append(
            {
                "class": int(label),
                "concepts": triples[at].tolist(),
                "cells": kept,
                "train_f1": f1,
                "test_f1": 2 * both / max(1, int(said.sum() + true.sum())),
                "test_precision": both / max(1, int(said.sum())),
                "test_recall": both / max(1, int(true.sum())),
            }
        )
    return rows


def represented(options: argparse.Namespace, engine: Engine) -> tuple[Any, Any, Any, Any]:
    """Return SMT representations of train and test images, reduced to their leading components, and the labels."""
    with h5py.File(options.data, "r") as file:
        images = [
            file[f"{group}/images"][:count]
            for group, count in (("train", options.train), ("test", options.test))
        ]
        labels = [
            file[f"{group}/labels"][:count].astype(np.int64)
            for group, count in (("train", options.train), ("test", options.test))
        ]
    settings = preset("mnist-vq").replace(dictionary=options.dictionary, n_components=options.components)
    if options.raw:
        z = [part.reshape(len(part), -1).astype(np.float32) / 255 for part in images]
    else:
        model, _ = fit(as_source(images[0][: options.fitted]), settings, engine)
        z = []
        for part in images:
            shape = model.feature_shape(settings.n_components)
            out = np.empty((len(part), int(np.prod(shape))), np.float32)
            for first, values in transform(model, as_source(part), engine):
                out[first : first + len(values)] = values.reshape(len(values), -1)
            z.append(out)
    scores = leading(prepare(z[0], engine), options.rank, engine)
    train = read_rows(scores.source) / scores.grid
    test = (z[1] - scores.mean) @ scores.axes
    return train.astype(np.float32), labels[0], test.astype(np.float32), labels[1]


def kept_representation(options: argparse.Namespace) -> tuple[Any, Any, Any, Any, float]:
    """Return the representations, labels and the seconds they took; from `--keep` where an earlier run has left them."""
    path = None if options.keep is None else options.keep / "representation.npz"
    if path is not None and path.exists():
        with np.load(path) as file:
            train, labels, test, truth, seconds = (file[f"arr_{i}"] for i in range(5))
        return train, labels, test, truth, float(seconds)
    started = time.perf_counter()
    parts = represented(options, Engine(SerialExecutor()))
    seconds = time.perf_counter() - started
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, *parts, seconds)
    return *parts, seconds


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True)
    parser.add_argument("--train", type=int, default=60000)
    parser.add_argument("--fitted", type=int, default=60000, help="images that the embedding is fitted on")
    parser.add_argument("--test", type=int, default=10000)
    parser.add_argument("--dictionary", type=int, default=1024)
    parser.add_argument("--components", type=int, default=64)
    parser.add_argument(
        "--rank", type=int, default=100, help="components of the representation that are kept"
    )
    parser.add_argument("--concepts", type=int, default=50)
    parser.add_argument("--penalty", type=float, default=0.01)
    parser.add_argument("--sweeps", type=int, default=60)
    parser.add_argument("--raw", action="store_true", help="pixels in place of the embedding")
    parser.add_argument(
        "--keep", type=Path, help="folder to go on from; concept_seconds are the last run's"
    )
    parser.add_argument("--only-represent", action="store_true", help="leave the representation in --keep")
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    train, labels, test, truth, embedded = kept_representation(options)
    if options.only_represent:
        return {"embedding_seconds": embedded}
    # a search that is cut short goes on from its last sweep
    engine = Engine(SerialExecutor(), checkpoint=options.keep)
    started = time.perf_counter()
    settings = ConceptSettings(
        n_concepts=options.concepts, rank=options.concepts, penalty=options.penalty, max_iter=options.sweeps
    )
    model = fit_concepts(train, settings, engine)
    found = time.perf_counter() - started
    rows = formulas(model.concepts, labels, model.transform(test), truth)
    clusters = KMeans(options.concepts, n_init=1, random_state=0).fit(train)
    eye = np.eye(options.concepts, dtype=np.uint8)
    other = formulas(eye[clusters.labels_], labels, eye[clusters.predict(test)], truth)
    result = {
        "cka": model.cka,
        "n_concepts": model.n_concepts,
        "replaced": model.provenance.get("replaced", 0),
        "embedding_seconds": embedded,
        "concept_seconds": found,
        "mean_test_f1": float(np.mean([row["test_f1"] for row in rows])),
        "kmeans_mean_test_f1": float(np.mean([row["test_f1"] for row in other])),
        "formulas": rows,
        "kmeans": other,
    }
    print({key: value for key, value in result.items() if key not in ("formulas", "kmeans")}, flush=True)
    if options.json:
        write_record(options.json, f"concepts-mnist-{options.train}", result)
    return result


if __name__ == "__main__":
    main()
