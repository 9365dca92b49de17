"""Words: centred kernel alignment against the number of concepts, the most parallel pair, and king, queen, man and woman.

    python -m replication.concepts.words --data words.h5 --concepts 50 100 250 500 1000 --json results

`words.h5` holds `vectors` (words, dimensions), `words`, `is_person` and `wordnet_count`; the person words are fitted. `--figures`
names a folder for the analogram and the conceptual projection of the four words. Only words that WordNet has counted are named.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from benchmarks.record import write_record
from replication.concepts.exact import is_exact
from replication.concepts.squares import quadruplets
from smtdist.concepts.analogram import analogram
from smtdist.concepts.drawing import draw_analogram, draw_projection
from smtdist.concepts.fit import fit_concepts
from smtdist.concepts.model import ConceptModel
from smtdist.concepts.reading import parallelism, sub_concepts
from smtdist.concepts.settings import ConceptSettings
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine

FOUR = ("king", "queen", "man", "woman")
PROBES = ("prince", "princess", "boy", "girl", "uncle", "aunt", "duke", "lady")


def fitted(x: Any, b: int, options: argparse.Namespace) -> tuple[ConceptModel, dict[str, Any]]:
    """Fit b concepts by the hybrid; return the model and its row of the curve."""
    settings = ConceptSettings(
        n_concepts=b, rank=options.rank, penalty=options.penalty, max_iter=options.sweeps
    )
    started = time.perf_counter()
    # a search that is cut short goes on from its last sweep
    keep = None if options.keep is None else options.keep / str(b)
    model = fit_concepts(x, settings, Engine(SerialExecutor(), checkpoint=keep))
    row = {
        "asked": b,
        "n_concepts": model.n_concepts,
        "cka": model.cka,
        "seconds": time.perf_counter() - started,
        "median_size": float(np.median(model.members)),
        "sparse": int((~model.dense).sum()),
        "sizes": np.percentile(model.members, [0, 10, 50, 90, 100]).tolist(),
    }
    print(row, flush=True)
    return model, row


def pairs_of(model: ConceptModel, x: Any, count: int) -> list[dict[str, float]]:
    """Return the most parallel pairs among concepts that hold at least a fiftieth of the words."""
    large = np.flatnonzero(model.members >= model.points / 50)
    chosen = large[np.argsort(-model.weights[large], kind="stable")[:300]]
    found = parallelism(
        model.concepts, x, only=np.sort(chosen), smallest=max(10, model.points // 100), count=count
    )
    return [
        {
            "first": one.first,
            "second": one.second,
            "first_cosine": one.first_cosine,
            "second_cosine": one.second_cosine,
            "score": one.score,
        }
        for one in found
    ]


def royal(model: ConceptModel, words: list[str], counted: Any, folder: Path | None) -> dict[str, Any]:
    """Read the four words: kinds of concept among them, their analogram, the projection of all words."""
    at = [words.index(word) for word in FOUR]
    kinds = sub_concepts(model.concepts, at, model.weights)
    by_pattern = {kind.pattern: kind for kind in kinds}
    # one concept for each kind: the analogram of the four words' kinds
    s = np.array([kind.pattern for kind in kinds], np.uint8).T
    graph = analogram(s)
    result: dict[str, Any] = {
        "kinds": [{"pattern": kind.pattern, "concepts": len(kind.concepts)} for kind in kinds],
        "nodes": len(graph),
        "exact": is_exact(graph, s),
    }
    sex, rank = by_pattern.get((0, 1, 0, 1)), by_pattern.get((0, 0, 1, 1))
    if sex is None or rank is None:
        return result
    probes = [w for w in PROBES if w in words and counted[words.index(w)] > 0]
    result["probes"] = {
        word: [
            round(float(rank.values[words.index(word)]), 3),
            round(float(sex.values[words.index(word)]), 3),
        ]
        for word in (*FOUR, *probes)
    }
    if folder is not None:
        draw_analogram(graph, folder / "king-queen-analogram.png", names=list(FOUR), overwrite=True)
        draw_projection(
            rank.values,
            sex.values,
            folder / "king-queen-projection.png",
            names={words.index(word): word for word in (*FOUR, *probes)},
            labels=(
                "like man and woman, against king and queen",
                "like queen and woman, against king and man",
            ),
            overwrite=True,
        )
    return result


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True)
    parser.add_argument("--concepts", nargs="+", type=int, default=[50, 100, 250, 500, 1000])
    parser.add_argument("--most", type=int, default=4000, help="words, the most counted first")
    parser.add_argument("--rank", type=int, default=200)
    parser.add_argument("--penalty", type=float, default=0.0)
    parser.add_argument("--sweeps", type=int, default=40)
    parser.add_argument("--keep", type=Path, help="folder to go on from; seconds are then the last run's")
    parser.add_argument("--figures", type=Path)
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    if options.figures is not None:  # before the search, not after it
        options.figures.mkdir(parents=True, exist_ok=True)
    with h5py.File(options.data) as file:
        counts = file["wordnet_count"][()]
        person = np.flatnonzero(file["is_person"][()])
        keep = np.sort(person[np.argsort(-counts[person], kind="stable")[: options.most]])
        words = [str(word) for word in file["words"].asstr()[()][keep]]
        x, counts = file["vectors"][()][keep], counts[keep]
    curve = []
    for b in options.concepts:
        model, row = fitted(x, b, options)
        pairs = pairs_of(model, x, 50)
        row["parallel"] = pairs[:5]
        # both cosines at least as large as one number says more than their mean
        row["parallel_by_smaller"] = max(
            pairs, key=lambda one: min(one["first_cosine"], one["second_cosine"]), default=None
        )
        print("most parallel", pairs[:1], row["parallel_by_smaller"], flush=True)
        curve.append(row)
    best = pairs[0] if pairs else None
    squares = (
        []
        if best is None
        else quadruplets(model.concepts, int(best["first"]), int(best["second"]), count=50)
    )
    shown = [
        [words[point] for point in one.points]
        for one in squares
        if all(counts[point] > 0 for point in one.points)
    ]
    result = {
        "words": len(words),
        "curve": curve,
        "quadruplets": shown[:5],
        "four": royal(model, words, counts, options.figures),
    }
    print(result["quadruplets"], result["four"])
    if options.json:
        write_record(options.json, f"concepts-words-{len(words)}", result)
    return result


if __name__ == "__main__":
    main()
