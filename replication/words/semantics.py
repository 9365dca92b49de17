"""What words are near: kinds of words, and human judgements, for the transform, PPMI-SVD and GloVe on the same counts.

    python -m replication.words.semantics corpus.txt.gz --vocabulary 30000 --json DIR
    python -m replication.words.semantics corpus.txt.gz --vocabulary 10000 --methods smt-degree ppmi-svd --work RUN --json DIR

`kinds.json` was taken from WordNet before any fit: months, cities, animals, kinship. Asked are those of its words that
occur 200 times; counted are words of the same kind among the 10 nearest, and among the 10 most often beside it. WordSim-353
and SimLex-999 are in gensim's wheel; without gensim that part is left out. Intervals are 95 %, by resampling the words
asked, or the pairs judged, 1,000 times.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.stats import spearmanr

from benchmarks.record import write_record
from examples.word_rivals import (
    GloveSettings,
    glove,
    positive_information,
    ppmi_svd,
)
from smtdist.data.text import TextSource
from smtdist.engine.passes import Engine
from smtdist.engine.session import executor_for
from smtdist.models import store
from smtdist.models.words.fit import fit_words
from smtdist.models.words.model import WordModel, WordSettings, rank_correlation, solve_words, unit
from smtdist.solve.iterative import largest_eigenvectors
from smtdist.statistics.word_pairs import WordSums

KINDS = Path(__file__).with_name("kinds.json")
JUDGED = {"WordSim-353": "wordsim353.tsv", "SimLex-999": "simlex999.txt"}
RESAMPLED = 1000
METHODS = ("smt", "smt-degree", "smt-information", "ppmi-svd", "ppmi-svd-unscaled", "glove")
AGAINST = "ppmi-svd"


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
            line.split("\t")
            for line in (folder / file).read_text().splitlines()
            if not line.startswith("#")
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


def resampled(values: NDArray[np.float64]) -> dict[str, Any]:
    """Return the mean of values and its interval."""
    draw = np.random.default_rng(0)
    draws = [float(draw.choice(values, len(values)).mean()) for _ in range(RESAMPLED)]
    return {"share": float(values.mean()), "interval": interval(draws), "words": len(values)}


def shares(
    model: WordModel, vectors: NDArray[np.float64] | None, least: int, count: int = 10
) -> dict[str, NDArray[np.float64]]:
    """Return for each word asked of each kind the share of words of the same kind among the `count` first of a list.

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
            if directions is not None:
                value = directions @ directions[number]
            else:
                assert near is not None
                value = near[[number]].toarray()[0].astype(float)
            value[number] = -np.inf
            found.append(is_member[np.argsort(-value, kind="stable")[:count]].mean())
        if found:
            result[kind] = np.array(found)
    return result


Judged = tuple[NDArray[np.float64], NDArray[np.float64]]


def cosines(model: WordModel, vectors: NDArray[np.float64]) -> dict[str, Judged]:
    """Return the cosines of judged pairs, and the judgements, of each set as far as its words are known."""
    result = {}
    for name, judged in judgements().items():
        known = [pair for pair in judged if pair[0] in model.numbers and pair[1] in model.numbers]
        if len(known) >= 3:
            result[name] = rank_correlation(vectors, model.numbers, known)[1:]
    return result


def correlation(cosine: NDArray[np.float64], scores: NDArray[np.float64]) -> tuple[float, list[float]]:
    """Return Spearman's correlation, and that of the pairs drawn anew, the same draws for every method."""
    draw = np.random.default_rng(0)
    draws = []
    for _ in range(RESAMPLED):
        rows = draw.integers(0, len(scores), len(scores))
        draws.append(float(spearmanr(cosine[rows], scores[rows])[0]))
    return float(spearmanr(cosine, scores)[0]), draws


def beyond(mine: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return by how much a method is above another, and the interval of that: the same words, and the same draws of pairs."""
    result: dict[str, Any] = {"kinds": {}}
    for kind, values in mine["kinds"].items():
        result["kinds"][kind] = resampled(values - other["kinds"][kind])
    for name, (value, draws) in mine["judged"].items():
        theirs, their_draws = other["judged"][name]
        between = [a - b for a, b in zip(draws, their_draws, strict=True)]
        result[name] = {"spearman": value - theirs, "interval": interval(between)}
    return result


def information_vectors(sums: WordSums, count: int, drop: int) -> NDArray[np.float64]:
    """Return SMT with each pair of words weighted by its positive information W instead of by its count X.

    Minimises Σ W_ij |P_i - P_j|² with P diag(W 1) Pᵀ = I: the objective of `moment = "degree"` but for the weights.
    """
    near = positive_information(sums.cooccurrence())
    degree = np.asarray(near.sum(axis=1)).reshape(-1)
    scale = np.divide(1, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)
    spread = scipy.sparse.diags_array(scale)
    _, vectors = largest_eigenvectors((spread @ near @ spread).tocsr(), count + drop, which="LA")
    return vectors[:, drop:]


def embeddings(
    options: argparse.Namespace, model: WordModel
) -> dict[str, Callable[[], NDArray[np.float64]]]:
    """Return the methods, each a way to vectors from the same counts."""
    sums, settings, count = model.statistics, model.settings, options.components
    assert sums is not None

    def degree() -> NDArray[np.float64]:
        return (
            solve_words(sums, replace(settings, second_moment="degree"))
            .components[settings.drop_components :]
            .T
        )

    def trained() -> NDArray[np.float64]:
        return glove(
            sums.cooccurrence(), GloveSettings(n_components=count, sweeps=options.sweeps)
        ).vectors()

    return {
        "smt": model.vectors,
        "smt-degree": degree,
        "smt-information": lambda: information_vectors(sums, count, settings.drop_components),
        "ppmi-svd": lambda: ppmi_svd(sums, count),
        "ppmi-svd-unscaled": lambda: ppmi_svd(sums, count, power=0.0),
        "glove": trained,
    }


def counted(options: argparse.Namespace, folder: Path) -> tuple[WordModel, list[dict[str, Any]]]:
    """Return the fit, from its file if it was made before."""
    path, told = folder / "words.h5", folder / "passes.json"
    if path.exists() and told.exists():
        return store.load(path), json.loads(told.read_text())
    settings = WordSettings(
        vocabulary=options.vocabulary,
        min_count=options.min_count,
        window=options.window,
        n_components=options.components,
    )
    with executor_for(workers=options.workers) as executor:
        model, passes = fit_words(TextSource.open(options.text), settings, Engine(executor))
    store.save(model, path, overwrite=True)
    told.write_text(json.dumps(passes))
    return model, passes


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Count once, embed in several ways, judge each."""
    folder.mkdir(parents=True, exist_ok=True)
    model, passes = counted(options, folder)
    assert model.statistics is not None
    found: dict[str, Any] = {"beside": {"kinds": shares(model, None, options.least), "judged": {}}}
    rows: dict[str, Any] = {}
    for name, make in embeddings(options, model).items():
        if name not in options.methods:
            continue
        path, started = folder / f"{name}.npz", time.perf_counter()
        if not path.exists():
            np.savez(path, vectors=make(), seconds=time.perf_counter() - started)
        kept = np.load(path)
        judged = {key: correlation(*pairs) for key, pairs in cosines(model, kept["vectors"]).items()}
        found[name] = {"kinds": shares(model, kept["vectors"], options.least), "judged": judged}
        rows[name] = {"seconds": passes[-1]["seconds"] if name == "smt" else float(kept["seconds"])}
        print(name, {key: round(value, 4) for key, (value, _) in judged.items()}, flush=True)
    for name, one in found.items():
        rows.setdefault(name, {})["kinds"] = {
            kind: resampled(values) for kind, values in one["kinds"].items()
        }
        for key, (value, draws) in one["judged"].items():
            pairs = len(cosines(model, np.load(folder / f"{name}.npz")["vectors"])[key][1])
            rows[name][key] = {"spearman": value, "interval": interval(draws), "pairs": pairs}
    others = [name for name in found if name not in ("beside", AGAINST)] if AGAINST in found else []
    return {
        "settings": json.loads(model.settings.to_json()),
        "tokens": model.statistics.n_positions,
        "pairs": len(model.statistics.pair),
        "passes": passes,
        "methods": rows,
        f"beyond {AGAINST}": {name: beyond(found[name], found[AGAINST]) for name in others},
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
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument(
        "--work", help="folder that keeps counts and vectors, so that the command can go on"
    )
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="smtdist-semantics-") as name:
        result = run(options, Path(options.work or name))
    if options.json:
        write_record(
            options.json,
            f"words-semantics-{options.vocabulary}-min{options.min_count}-{options.components}"
            + ("" if set(options.methods) == set(METHODS) else f"-{len(options.methods)}-methods"),
            result,
        )
    return result


if __name__ == "__main__":
    main()
