"""Whether the defaults find the optimum of equation (3): planted concepts, exhaustive search, rejection sampling, words.

    python -m replication.concepts.optimum --words words.h5 --json results

"planted": 60 points of 6 concepts of half the points in 20 dimensions, weights from 1 to a ratio in equal steps of their
logarithm, noise of each coordinate against the lightest feature's length. "exhaustive": Gaussian points, planted concepts with
noise and word vectors, 8 to 12 points, 2 or 3 concepts, against every choice of concepts. "rejection": 6 concepts, dense or of an
eighth of the points, in 20 dimensions. "words": the first 600 word vectors for persons, 60 concepts. Losses with their weights
and the exhaustive search are those of `tests/reference.py`, written from the paper's equations.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from benchmarks.record import write_record
from smtdist.concepts import objective
from smtdist.concepts.fit import NOTABLE, fit_concepts
from smtdist.concepts.model import ConceptModel
from smtdist.concepts.settings import ConceptSettings
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from tests import reference as untyped

reference: Any = untyped
Matrix = NDArray[np.float64]
Concepts = NDArray[np.uint8]

PARTS: Final = ("planted", "exhaustive", "rejection", "words")
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "defaults": {},
    "earlier": {**ConceptSettings.EARLIER, "weights": "scale", "penalty": 0.01},
}
SAME: Final = 1e-6
"""Relative difference of losses that are one."""


def planted(
    seed: int, share: float, ratio: float, noise: float | None = None, snr: float | None = None
) -> tuple[Concepts, Matrix]:
    """Draw 6 concepts of 60 points, each point a member with the probability `share`, and their embedding in 20 dimensions."""
    rng = np.random.default_rng(seed)
    s = (rng.random((60, 6)) < share).astype(np.uint8)
    while (s.sum(0) < 2).any():
        s = (rng.random((60, 6)) < share).astype(np.uint8)
    clean = (s * np.sqrt(np.geomspace(1, ratio, 6))) @ np.linalg.qr(rng.normal(size=(20, 6)))[0].T
    error = rng.normal(size=clean.shape)
    if noise is not None:
        return s, clean + noise * error
    level = 0.0 if snr is None else np.sqrt((clean**2).sum() / (error**2).sum()) * 10 ** (-snr / 20)
    return s, clean + level * error


def recovered(true: Concepts, found: Concepts) -> int:
    """Return how many concepts are found to the last member, up to complements."""
    same = np.abs((2.0 * true - 1).T @ (2.0 * found - 1)) == len(true)
    rows, columns = linear_sum_assignment(-same.astype(float))
    return int(same[rows, columns].sum())


def best_flip(concepts: Concepts, x: Matrix) -> float:
    """Return by what share of equation (3) the best flip of a single member lowers it, weights fitted again; 0 for none."""

    def loss(s: Concepts) -> float:
        sums = objective.terms(objective.moments(s, x))
        return objective.loss(sums, objective.best_weights(sums))

    least = before = loss(concepts)
    for place in np.ndindex(concepts.shape):
        flipped = concepts.copy()
        flipped[place] ^= 1
        least = min(least, loss(flipped))
    return 0.0 if least > before * (1 - NOTABLE) else 1 - least / before


def fitted(x: Matrix, n_concepts: int, seed: int = 0, **changes: Any) -> tuple[ConceptModel, float]:
    """Return the concepts and the seconds of this process in the fit, which do not count those of others."""
    started = time.process_time()
    settings = ConceptSettings(n_concepts=n_concepts, random_state=seed, **changes)
    model = fit_concepts(x, settings, Engine(SerialExecutor(1)))
    return model, time.process_time() - started


def small_problems(words: Matrix, count: int) -> list[tuple[str, int, Matrix]]:
    """Draw kind, number of concepts and points, `count` of each kind, of 8 to 12 points and 2 or 3 concepts."""
    problems = []
    for number, kind in itertools.product(range(count), ("gaussian", "planted", "words")):
        rng = np.random.default_rng([7, number, len(kind)])
        p, b = 8 + number % 5, 2 + number // 5 % 2
        if kind == "gaussian":
            x = rng.normal(size=(p, int(rng.integers(3, 9))))
        elif kind == "planted":
            s = rng.random((p, b)) < 0.5
            axes = np.linalg.qr(rng.normal(size=(8, b)))[0]
            x = (s * np.sqrt(rng.uniform(0.3, 3, b))) @ axes.T + 0.1 * rng.normal(size=(p, 8))
        else:
            x = words[rng.choice(len(words), p, replace=False)]
        problems.append((kind, b, x))
    return problems


def of_planted(options: argparse.Namespace, how: str) -> list[dict[str, Any]]:
    """Return recovery and losses against the truth's, one row for each noise and ratio."""
    rows = []
    for noise, ratio in itertools.product((0.05, 0.2), (1, 3, 10, 30, 100)):
        found, losses, above, seconds, gains = [], [], 0, [], []
        for seed in range(options.seeds):
            true, x = planted(seed, 0.5, ratio, noise=noise)
            model, took = fitted(x, 6, seed, **SETTINGS[how])
            found.append(recovered(true, model.concepts))
            loss = reference.concept_loss(model.concepts, x)
            losses.append(loss)
            above += loss > reference.concept_loss(true, x) * (1 + SAME)
            seconds.append(took)
            gains.append(best_flip(model.concepts, x))
        rows.append(
            {
                "noise": noise,
                "ratio": ratio,
                "recovered": float(np.mean(found)),
                "loss_above_truth": int(above),
                "recovered_each": found,
                "losses": losses,
                "flips_left": [gain for gain in gains if gain],
                "seconds": float(np.median(seconds)),
            }
        )
    return rows


def of_exhaustive(options: argparse.Namespace, how: str) -> list[dict[str, Any]]:
    """Return in how many small problems of a kind the optimum was reached."""
    rows: dict[str, dict[str, Any]] = {}
    for kind, b, x in small_problems(person_vectors(options.words), options.problems):
        model, took = fitted(x, b, **SETTINGS[how])
        reached = reference.concept_loss(model.concepts, x)
        least = reference.best_concepts(x, b)[1]
        row = rows.setdefault(
            kind, {"kind": kind, "problems": 0, "optimal": 0, "excess": [], "slowest_seconds": 0.0}
        )
        row["problems"] += 1
        row["optimal"] += int(reached <= least * (1 + SAME) + 1e-12)
        row["excess"].append(reached - least)
        row["slowest_seconds"] = max(row["slowest_seconds"], took)
    for row in rows.values():
        row["excess"] = float(np.max(row["excess"]))
    return list(rows.values())


def of_rejection(options: argparse.Namespace, how: str) -> list[dict[str, Any]]:
    """Return the recovery of dense and sparse concepts by rejection sampling."""
    rows = []
    for (name, share), snr in itertools.product((("dense", 0.5), ("sparse", 0.125)), (None, 26, 20, 14)):
        found = []
        for seed in range(options.seeds):
            true, x = planted(seed, share, 1, snr=snr)
            model, _ = fitted(x, 6, seed, method="rejection", **SETTINGS[how])
            found.append(recovered(true, model.concepts))
        rows.append({"concepts": name, "snr": snr, "recovered": float(np.mean(found)), "least": min(found)})
    return rows


def of_words(options: argparse.Namespace, how: str) -> list[dict[str, Any]]:
    """Return the alignment of 60 concepts with 600 word vectors."""
    model, seconds = fitted(person_vectors(options.words)[:600], 60, **SETTINGS[how])
    ending = model.ending
    assert ending is not None
    median = float(np.median(model.members))
    return [{"cka": model.cka, "median_size": median, "seconds": seconds, **vars(ending)}]


def person_vectors(path: Path) -> Matrix:
    """Return the vectors of the words for persons."""
    with h5py.File(path) as file:
        return np.asarray(file["vectors"][()][file["is_person"][()].astype(bool)], np.float64)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--words", type=Path, help="words.h5, for the exhaustive and the words part")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--settings", nargs="+", default=["defaults"], choices=list(SETTINGS))
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--problems", type=int, default=20, help="small problems of each kind")
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    if options.words is None and {"exhaustive", "words"} & set(options.parts):
        parser.error("name the file of word vectors with --words")
    measure = {
        "planted": of_planted,
        "exhaustive": of_exhaustive,
        "rejection": of_rejection,
        "words": of_words,
    }
    fitted(np.random.default_rng(0).normal(size=(9, 4)), 2)  # compiled before it is timed
    result: dict[str, Any] = {}
    for how, part in itertools.product(options.settings, options.parts):
        rows = result.setdefault(how, {})[part] = measure[part](options, how)
        for row in rows:
            print(how, part, row, flush=True)
    if options.json:
        write_record(options.json, "concepts-optimum", result)
    return result


if __name__ == "__main__":
    main()
