"""From a table to concepts: scores, a search by one of the methods, tidying, weights and features."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.concepts.descent import Sweep, descend
from smtdist.concepts.floor import above, floor_of, points_as_concepts
from smtdist.concepts.model import ConceptModel, model_of
from smtdist.concepts.objective import alignment, best_weights
from smtdist.concepts.relaxation import relax
from smtdist.concepts.reliability import reliability
from smtdist.concepts.sampling import sample
from smtdist.concepts.scores import Scores, leading, prepare
from smtdist.concepts.settings import ConceptSettings
from smtdist.concepts.state import (
    Concepts,
    flip_to_sparse,
    random_projection,
    residual_projection,
    state_of,
    tidied,
)
from smtdist.data.source import Source
from smtdist.data.table import as_table
from smtdist.engine.manifest import Facts
from smtdist.engine.passes import Engine
from smtdist.errors import DataError, ModelError
from smtdist.kernels.threads import single_blas

STEPS: Final = ("moments", "sweeps")
"""What a search tells of."""
ATTEMPTS: Final = 16
"""Times that concepts which are still missing are tried anew, at most."""
REFININGS: Final = 2
"""Last descents, at most; the second has a sixth of the penalty."""
PATIENCE: Final = 3
"""Attempts on end that bring nothing, after which those missing are given up."""


def fit_concepts(
    table: Any, settings: ConceptSettings, engine: Engine, *, folder: Path | None = None
) -> ConceptModel:
    """Return the concepts of a table (p, n) by `settings.method`.

    Concepts that become constants or copies on the way are replaced by further candidates while those
    survive, so that n_concepts come out where the data hold them at that penalty. Where the engine has a
    checkpoint folder, a search that was stopped goes on after its last round or sweep, to the same result.
    `folder` holds the scores where they exceed 256 MiB; all workers must see it. Memory: p b bytes and 4 p
    r bytes of scores here, twice where `kernel_rank` cuts them; on a worker as stated by the passes.
    Progress goes to the engine's events as passes named after the steps. Raises DataError for points that
    are all equal, ModelError where no concept was found.
    """
    source = as_table(table)
    # small products by the dozen: threads would cost more than they save, and round differently
    with single_blas(), engine.run(STEPS, lambda: Facts.of(source, asdict(settings))):
        return _fitted(source, settings, engine, folder)


def _fitted(source: Source, settings: ConceptSettings, engine: Engine, folder: Path | None) -> ConceptModel:
    started = time.perf_counter()
    scores = prepare(source, engine, folder=folder)
    seconds = {"scores": time.perf_counter() - started}
    concepts, history, notes = _searched_above(scores, settings, engine, folder)
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
        "dimensions": source.shape[1],
        "seconds": seconds,
        **notes,
    }
    return model_of(settings, state, scores, weights, history, provenance)


def _searched_above(
    scores: Scores, settings: ConceptSettings, engine: Engine, folder: Path | None
) -> tuple[Concepts, list[Sweep], dict[str, Any]]:
    """Search above the kernel's floor where it has one and Algorithm 2 is asked for; the points stand for the floor."""
    descends = settings.method in ("hopfield", "hybrid")
    whole = scores
    scores = leading(scores, settings.kernel_rank, engine, folder=folder)
    floor = floor_of(scores, settings.n_concepts) if descends and settings.floor else 0.0
    given = np.zeros((scores.points, 0), np.uint8)
    if floor:
        given = points_as_concepts(scores.points)
        scores = above(scores, floor)
        settings = settings.replace(n_concepts=settings.n_concepts - scores.points)
    concepts, history, notes = _settled(scores, given, settings, engine)
    if descends and settings.other_penalty is not None:
        other = settings.replace(penalty=settings.other_penalty)
        found = _settled(scores, given, other, engine, suffix="-other")
        if _alignment(whole, found[0], engine) > _alignment(whole, concepts, engine):
            settings, (concepts, history, notes) = other, found
        notes["penalty"] = settings.penalty
    notes["floor"] = floor
    if descends and settings.refine:
        concepts = np.ascontiguousarray(concepts[:, tidied(concepts)])
        notes["reliability"] = reliability(whole)
        concepts = _refined(whole, concepts, settings, notes["reliability"], engine, history)
    return concepts, history, notes


def _settled(
    scores: Scores, given: Concepts, settings: ConceptSettings, engine: Engine, suffix: str = ""
) -> tuple[Concepts, list[Sweep], dict[str, Any]]:
    """Search, replace what melted, and put the concepts given in front; checkpoints are told apart by the suffix."""
    concepts, history, notes = _searched(scores, settings, engine, suffix)
    if settings.method in ("hopfield", "hybrid"):
        concepts, notes["replaced"] = _completed(concepts, given, scores, settings, engine, history, suffix)
    return np.concatenate([given, concepts], 1), history, notes


def _alignment(scores: Scores, concepts: Concepts, engine: Engine) -> float:
    """Return the CKA of SΠSᵀ with the kernel at the best weights."""
    sums = state_of(concepts[:, tidied(concepts)], scores, engine).terms(scores)
    return alignment(sums, best_weights(sums))


def _refined(
    scores: Scores,
    start: Concepts,
    settings: ConceptSettings,
    reliable: float,
    engine: Engine,
    history: list[Sweep],
) -> Concepts:
    """Return what the last descent makes of S, with less penalty while it is less aligned than asked; `history` grows."""
    best, aligned = start, -1.0
    for attempt in range(REFININGS):
        asked = settings.refining(reliable, attempt)
        step = f"refining-{attempt + 1}" if attempt else "refining"
        done = descend(scores, start, asked, engine, step=step)
        history.extend(done.history)
        if not settings.aim:  # nothing to judge: spare the pass
            return done.concepts
        cka = alignment(state_of(done.concepts, scores, engine).terms(scores), done.weights)
        if cka > aligned:
            best, aligned = done.concepts, cka
        if aligned >= settings.aim or not asked.penalty:
            break
    return best


def _searched(
    scores: Scores, settings: ConceptSettings, engine: Engine, suffix: str
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
    report = _reporting(engine, settings)
    done = descend(scores, found, settings.descent, engine, on_sweep=report, step=f"descent{suffix}")
    engine.events.emit("pass_finished", **{"pass": "sweeps"}, n_samples=settings.sweeps)
    return done.concepts, done.history, notes


def _completed(
    concepts: Concepts,
    given: Concepts,
    scores: Scores,
    settings: ConceptSettings,
    engine: Engine,
    history: list[Sweep],
    suffix: str,
) -> tuple[Concepts, int]:
    """Replace concepts that melted into constants, copies or complements by further candidates; return how many stayed.

    Candidates are random half-spaces along what the kernel of the others leaves over. They settle beside
    the others in a short descent at low temperature, which is kept where more distinct concepts, none of
    them `given`, come out of it; `history` grows by its sweeps. Each attempt in vain halves the penalty of
    the next: what melts at once may be too small for it.
    """
    kept = _new(concepts, given)
    before, tried, vain = len(kept), settings.n_concepts, 0
    for attempt in range(ATTEMPTS):
        missing = settings.n_concepts - len(kept)
        if missing <= 0 or not len(kept) or vain == PATIENCE:
            break
        state = state_of(concepts[:, kept], scores, engine)
        fresh = residual_projection(state, scores, range(tried, tried + missing), settings.seed, engine)
        tried += missing
        start = np.concatenate([state.concepts, fresh], 1)
        step = f"replacing-{attempt + 1}{suffix}"
        cool = dataclasses.replace(settings.replacing, penalty=settings.penalty / 2**vain)
        done = descend(scores, start, cool, engine, step=step)
        found = _new(done.concepts, given)
        engine.events.emit(
            "note", text=f"Replacing {missing:,} concepts: {len(found):,} of {settings.n_concepts:,}"
        )
        vain = 0 if len(found) > len(kept) else vain + 1
        if not vain:
            concepts, kept = done.concepts, found
            history.extend(done.history)
    return concepts, len(kept) - before


def _new(concepts: Concepts, given: Concepts) -> NDArray[np.int64]:
    """Return the places of concepts that are neither constant nor copies or complements of one given or before."""
    places = tidied(np.concatenate([given, concepts], 1)) - given.shape[1]
    return np.asarray(places[places >= 0])


def _reporting(engine: Engine, settings: ConceptSettings) -> Any:
    sweeps = settings.sweeps
    engine.events.started("sweeps", sweeps, sweeps, workers=engine.executor.slots())

    def report(number: int, reached: Sweep) -> None:
        engine.events.progress("sweeps", number + 1, reached.flips)
        if (number + 1) % 10 == 0:
            text = f"Sweep {number + 1}: loss {reached.loss:.4f}, CKA {reached.cka:.4f}, {reached.flips:,} flips"
            engine.events.emit("note", text=text)

    return report
