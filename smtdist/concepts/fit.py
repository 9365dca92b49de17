"""From a table to concepts: scores, a search by one of the methods, tidying, weights and features."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from smtdist.concepts.descent import Sweep, descend
from smtdist.concepts.model import ConceptModel, model_of
from smtdist.concepts.objective import best_weights
from smtdist.concepts.relaxation import relax
from smtdist.concepts.sampling import sample
from smtdist.concepts.scores import Scores, prepare
from smtdist.concepts.settings import ConceptSettings
from smtdist.concepts.state import Concepts, flip_to_sparse, random_projection, state_of, tidied
from smtdist.data.table import as_table
from smtdist.engine.passes import Engine
from smtdist.errors import DataError, ModelError


def fit_concepts(
    table: Any, settings: ConceptSettings, engine: Engine, *, folder: Path | None = None
) -> ConceptModel:
    """Return the concepts of a table (p, n) by `settings.method`.

    `folder` holds the scores where they exceed 256 MiB; all workers must see it. Memory: p b bytes and 4 p r bytes of
    scores here; on a worker as stated by the passes. Progress goes to the engine's events as passes named after the
    steps. Raises DataError for points that are all equal, ModelError where no concept was found.
    """
    started = time.perf_counter()
    source = as_table(table)
    scores = prepare(source, engine, folder=folder)
    seconds = {"scores": time.perf_counter() - started}
    concepts, history, notes = _searched(scores, settings, engine)
    concepts = concepts[:, tidied(concepts)]
    if not concepts.shape[1]:
        raise ModelError(
            f"{source.name}: no concept was found by {settings.method}; raise the tolerance, lower the penalty, or ask for more."
        )
    state = state_of(concepts, scores, engine)
    flip_to_sparse(state)
    sums = state.moments(scores)
    weights = best_weights(sums)
    seconds["search"] = time.perf_counter() - started - seconds["scores"]
    provenance = {
        "source": source.describe(),
        "points": scores.points,
        "dimensions": source.shape[3],
        "seconds": seconds,
        **notes,
    }
    return model_of(settings, state, scores, weights, history, provenance)


def _searched(
    scores: Scores, settings: ConceptSettings, engine: Engine
) -> tuple[Concepts, list[Sweep], dict[str, Any]]:
    if settings.method == "convex":
        if scores.points > 500:
            raise DataError(
                f"The convex method keeps kernels of all points, and {scores.points:,} are too many; "
                f"use hopfield or hybrid beyond 500 points."
            )
        return relax(scores, settings, engine), [], {}
    found = np.zeros((scores.points, 0), np.uint8)
    notes: dict[str, Any] = {}
    if settings.method in ("rejection", "hybrid"):
        sampled = sample(scores, settings.sampling, engine)
        found = sampled.concepts
        notes["sampling"] = {
            "candidates": sampled.candidates,
            "found": int(found.shape[1]),
            "quality": sampled.quality.tolist(),
            "rejected": sampled.rejected,
        }
        if settings.method == "rejection":
            return found, [], notes
    missing = range(found.shape[1], settings.n_concepts)
    if missing:
        found = np.concatenate([found, random_projection(scores, missing, settings.seed, engine)], 1)
    done = descend(scores, found, settings.descent, engine, on_sweep=_reporting(engine, settings))
    return done.concepts, done.history, notes


def _reporting(engine: Engine, settings: ConceptSettings) -> Any:
    engine.events.emit(
        "pass_started",
        **{"pass": "sweeps"},
        n_samples=settings.sweeps,
        n_leaves=settings.sweeps,
        resumed_leaves=0,
        workers=engine.executor.slots(),
        projected_bytes=0,
    )

    def report(number: int, reached: Sweep) -> None:
        engine.events.emit(
            "progress",
            **{"pass": "sweeps"},
            n_samples=number + 1,
            n_positions=reached.flips,
            read_bytes=0,
        )
        if (number + 1) % 10 == 0:
            text = (
                f"Sweep {number + 1}: loss {reached.loss:.4f}, CKA {reached.cka:.4f}, {reached.flips:,} flips"
            )
            engine.events.emit("note", text=text)

    return report
