"""What words are near: kinds of words, and human judgements, for the transform, PPMI-SVD and GloVe on the same counts.

    python -m benchmarks.words.semantics corpus.txt.gz --vocabulary 30000 --json DIR

`kinds.json` was taken from WordNet before any fit: months, cities, animals, kinship. Asked are those of its words that
occur 200 times; counted are words of the same kind among the 10 nearest, and among the 10 most often beside it. WordSim-353
and SimLex-999 are in gensim's wheel; without gensim that part is left out. Intervals are 95 %, by resampling the words
asked, or the pairs judged, 1,000 times.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from benchmarks.record import write_record
from smtdist.data.text import TextSource
from smtdist.engine.passes import Engine
from smtdist.engine.session import executor_for
from smtdist.models.words.fit import fit_words, solve_words
from smtdist.models.words.model import WordModel, WordSettings, unit
from smtdist.models.words.others import GloveSettings, glove, ppmi_svd, rank_correlation

KINDS = Path(__file__).with_name("kinds.json")
JUDGED = {"WordSim-353": "wordsim353.tsv", "SimLex-999": "simlex999.txt"}
RESAMPLED = 1000


def kinds() -> dict[str, set[str]]:
    """Return the words of each kind."""
    read = json.loads(KINDS.read_text())
    return {name: set(text.split()) for name, text in read.items() if name != "remark"}


def judgements() -> dict[str, list[tuple[str, str, float]]]:
    """Return the judged pairs of words, as far as gensim is there."""
    found = importlib.util.find_spec("gensim")
    if found is None or found.origin is None:
        return {}
    folder = Path(found.origin).parent / "test" / "test_data"
    result = {}
    for name, file in JUDGED.items():
        rows = [
            line.split("\t") for line in (folder / file).read_text().splitlines() if not line.startswith("#")
        ]
        result[name] = [
            (row[0].lower(), row[1].lower(), float(row[2]))
            for row in rows
            if len(row) > 2 and row[2].replace(".", "").isdigit()
        ]
    return result


def interval(draws: list[float]) -> list[float]:
    """Return the middle 95 % of resampled values."""
    return [float(value) for value in np.nanpercentile(draws, [2.5, 97.5])]


def resampled_mean(values: NDArray[np.float64]) -> dict[str, Any]:
    """Return the mean of shares and its interval."""
    draw = np.random.default_rng(0)
    draws = [float(draw.choice(values, len(values)).mean()) for _ in range(RESAMPLED)]
    return {"share": float(values.mean()), "interval": interval(draws), "words": len(values)}


def shares(
    model: WordModel, vectors: NDArray[np.float64] | None, least: int, count: int = 10
) -> dict[str, Any]:
    """Return for each kind the share of words of the same kind among the `count` first of a list.

    With `vectors` the list is of the nearest words, without of those most often beside it.
    """
    words, result = model.vocabulary.words, {}
    directions = None if vectors is None else unit(vectors)
    near = model.statistics.cooccurrence() if model.statistics is not None else None
    for kind, members in kinds().items():
        is_member = np.array([word in members for word in words])
        asked = np.flatnonzero(is_member & (model.vocabulary.counts >= least))
        found = []
        for number in asked:
            value = (
                near[[number]].toarray()[0].astype(float)
                if directions is None
                else directions @ directions[number]
            )
            value[number] = -np.inf
            found.append(is_member[np.argsort(-value, kind="stable")[:count]].mean())
        if found:
            result[kind] = resampled_mean(np.array(found))
    return result


def correlations(model: WordModel, vectors: NDArray[np.float64]) -> dict[str, Any]:
    """Return Spearman's correlation with each set of judgements, and its interval."""
    result, draw = {}, np.random.default_rng(0)
    for name, judged in judgements().items():
        known = [pair for pair in judged if pair[0] in model.numbers and pair[1] in model.numbers]
        if len(known) < 3:
            continue
        value, cosine, scores = rank_correlation(vectors, model.numbers, known)
        draws = []
        for _ in range(RESAMPLED):
            rows = draw.integers(0, len(scores), len(scores))
            draws.append(float(spearmanr(cosine[rows], scores[rows])[0]))
        result[name] = {"spearman": value, "interval": interval(draws), "pairs": len(scores)}
    return result


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Count once, embed in four ways, judge each."""
    settings = WordSettings(
        vocabulary=options.vocabulary,
        min_count=options.min_count,
        window=options.window,
        n_components=options.components,
    )
    with executor_for(workers=options.workers) as executor:
        model, passes = fit_words(TextSource.open(options.text), settings, Engine(executor))
    assert model.statistics is not None
    sums = model.statistics
    solve_seconds = passes[-1]["seconds"]
    rows: dict[str, Any] = {"beside": {"kinds": shares(model, None, options.least)}}

    def judge(name: str, vectors: NDArray[np.float64], seconds: float) -> None:
        rows[name] = {
            "seconds": seconds,
            "kinds": shares(model, vectors, options.least),
            **correlations(model, vectors),
        }
        print(name, json.dumps(rows[name]), flush=True)

    print("beside", json.dumps(rows["beside"]), flush=True)
    judge("smt", model.vectors(), solve_seconds)
    started = time.perf_counter()
    embedding = solve_words(sums, replace(model.settings, moment="degree"))
    judge("smt-degree", embedding.components[settings.drop :].T, time.perf_counter() - started)
    started = time.perf_counter()
    vectors = ppmi_svd(sums, options.components)
    judge("ppmi-svd", vectors, time.perf_counter() - started)
    started = time.perf_counter()
    trained = glove(
        sums.cooccurrence(), GloveSettings(n_components=options.components, sweeps=options.sweeps)
    )
    judge("glove", trained.vectors(), time.perf_counter() - started)
    return {
        "settings": json.loads(model.settings.to_json()),
        "tokens": sums.n_positions,
        "pairs": len(sums.pair),
        "passes": passes,
        "methods": rows,
    }


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("text", nargs="+")
    parser.add_argument("--vocabulary", type=int, default=30_000)
    parser.add_argument("--min-count", type=int, default=5)
    parser.add_argument("--window", type=int, default=4)
    parser.add_argument("--components", type=int, default=200)
    parser.add_argument("--sweeps", type=int, default=25)
    parser.add_argument("--least", type=int, default=200, help="occurrences of the words asked")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    result = run(options)
    if options.json:
        write_record(
            options.json,
            f"words-semantics-{options.vocabulary}-min{options.min_count}-{options.components}",
            result,
        )
    return result


if __name__ == "__main__":
    main()
