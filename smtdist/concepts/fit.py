"""From a table to concepts: scores, a search by one of the methods, tidying, weights and features."""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.concepts import reading
from smtdist.concepts.descent import Descended, Sweep, descend
from smtdist.concepts.model import ConceptModel, Ending, features_of
from smtdist.concepts.objective import best_scale, best_weights, reached
from smtdist.concepts.relaxation import relax
from smtdist.concepts.sampling import sample
from smtdist.concepts.scores import (
    Coordinates,
    Scores,
    above,
    floor_of,
    leading,
    prepare,
    reliability,
)
from smtdist.concepts.settings import ConceptSettings
from smtdist.concepts.state import (
    Concepts,
    flip_to_sparse,
    random_projection,
    residual_projection,
    state_of,
    tidied,
    unit_weight,
)
from smtdist.data.table import as_table
from smtdist.engine.manifest import Facts
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError, ModelError, counted
from smtdist.kernels.threads import single_blas
from smtdist.models.jobs import Job, Request

STEPS: Final = ("moments", "sweeps")
"""What a search tells of."""
SCRATCH: Final = ".concepts."
"""How the folder of scores begins."""
ATTEMPTS: Final = 16
"""Times that concepts which are still missing are tried anew, at most."""
REFININGS: Final = 2
"""Last descents, at most; the second has a sixth of the penalty."""
VAIN: Final = 16
"""Exchanges on end that bring nothing, after which there are no more, at least."""
NOTABLE: Final = 1e-9
"""Relative fall of the objective that counts."""
TIES: Final = 1e-3
"""Penalty up to which it decides between concepts that fit alike; what a larger one costs in equation (3) is wanted."""
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
    with single_blas(), engine.run(STEPS, lambda: Facts.of(source, settings)):
        started = time.perf_counter()
        scores = prepare(source, engine, folder=folder)
        seconds = {"scores": time.perf_counter() - started}
        found = _searched_above(scores, settings, engine, folder)
        concepts = found.concepts[:, tidied(found.concepts)]
        if not concepts.shape[1]:
            raise ModelError(
                f"{source.name}: no concept was found by {settings.method}; raise the tolerance, lower the penalty, or ask for "
                f"more."
            )
        state = state_of(concepts, scores, engine)
        flip_to_sparse(state)
        sums = state.moments(scores)
        weights = best_weights(sums)
        distance, cka = reached(sums, weights)
        seconds["search"] = time.perf_counter() - started - seconds["scores"]
        return ConceptModel(
            settings,
            state.concepts,
            weights,
            scores.axes @ features_of(sums, weights, settings.feature_map),
            state.together,
            state.crossed,
            state.total,
            Coordinates(scores.grid, scores.mean, scores.axes, scores.singular),
            cka,
            distance / float((scores.singular**4).sum()),
            unit_weight(scores, len(weights)),
            found.history,
            {
                "source": source.describe(),
                "points": scores.points,
                "dimensions": source.shape[1],
                "seconds": seconds,
                **found.notes,
            },
            found.ending,
        )


def job(request: Request) -> Job:
    """Open the rows of a search; scores that do not fit into memory lie in its checkpoint folder, or beside what it writes."""
    settings = ConceptSettings(**request.settings)
    (path,) = request.data if len(request.data) == 1 else ("",)
    if not path:
        raise ConfigurationError("Concepts are those of one table; give one file.")
    source = as_table(path if path.endswith(".npy") else (path, request.dataset or "z"))

    def search(engine: Engine) -> tuple[ConceptModel, list[Any]]:
        near = engine.checkpoint or (None if request.out is None else request.out.absolute().parent)
        for left in [] if engine.checkpoint is None else engine.checkpoint.glob(f"{SCRATCH}*"):
            shutil.rmtree(left, ignore_errors=True)  # of a run that was killed
        with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=near) as folder:
            return fit_concepts(source, settings, engine, folder=Path(folder)), []

    return Job(
        source,
        search,
        lambda: Facts.of(source, settings),
        lines=lambda model: reading.described(model, source),
        advice=lambda model: [model.advice],
    )


@dataclass
class _Way:
    """A search: where it began and ended, and how it came there."""

    start: Concepts
    concepts: Concepts
    history: list[Sweep] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    objective: float = 0.0
    ending: Ending = field(default_factory=lambda: Ending(0, True, 0.0))

    def follow(self, done: Descended) -> None:
        """Go on to where a descent led."""
        self.concepts, self.objective = done.concepts, done.objective
        self.history.extend(done.history)
        self.ending = Ending(self.ending.n_iter + done.sweeps, done.still, done.gap)


def _searched_above(scores: Scores, settings: ConceptSettings, engine: Engine, folder: Path | None) -> _Way:
    """Search above the kernel's floor where it has one and Algorithm 2 is asked for; the points stand for the floor."""
    whole = scores
    scores = leading(scores, settings.kernel_rank, engine, folder=folder)
    if not settings.way.descends:
        return _FIRST[settings.method](scores, settings, engine)
    floor = floor_of(scores, settings.n_concepts) if settings.singletons else 0.0
    given = np.zeros((scores.points, 0), np.uint8)
    if floor:
        given = np.eye(scores.points, dtype=np.uint8)
        scores = above(scores, floor)
        settings = settings.replace(n_concepts=settings.n_concepts - scores.points)
    found = _best(scores, given, settings, engine)
    if settings.alternative_penalty is not None:
        other = settings.replace(penalty=settings.alternative_penalty)
        rival = _best(scores, given, other, engine, suffix="-other")
        if _reached(whole, rival.concepts, engine)[1] > _reached(whole, found.concepts, engine)[1]:
            settings, found = other, rival
        found.notes["penalty"] = settings.penalty
    found.notes["floor"] = floor
    if settings.refine:
        found.concepts = np.ascontiguousarray(found.concepts[:, tidied(found.concepts)])
        found.notes["reliability"] = reliability(whole)
        _refine(whole, found, settings, engine)
    ties = max(settings.penalty, settings.refine_penalty or 0.0) <= TIES
    if ties and _reached(whole, found.start, engine)[0] < _reached(whole, found.concepts, engine)[0]:
        # never worse than where it began: from there down, by equation (3) alone
        alone = settings.cold.replace(penalty=0.0, weights="concept")
        found.follow(descend(whole, found.start, alone, engine, step="from-start"))
    return found


def _best(
    scores: Scores, given: Concepts, settings: ConceptSettings, engine: Engine, suffix: str = ""
) -> _Way:
    """Return the best of all starts, its concepts exchanged, with those given in front.

    Checkpoints are told apart by the suffix.
    """
    found = _settled(scores, given, settings, engine, suffix)
    for number in range(1, settings.starts(scores.points)):
        # further starts are cheap: nothing of them is kept in a checkpoint
        rival = _settled(scores, given, settings.again(number), engine, None)
        if rival.objective < found.objective * (1 - NOTABLE):
            rival.start, rival.notes = found.start, {**found.notes, "start": number}
            found = rival
    _exchange(found, scores, settings, engine)
    found.start = np.concatenate([given, found.start], 1)
    found.concepts = np.concatenate([given, found.concepts], 1)
    return found


def _settled(
    scores: Scores, given: Concepts, settings: ConceptSettings, engine: Engine, suffix: str | None
) -> _Way:
    """Search from one start, replace what melted, and descend without noise to where it rests.

    Nothing is kept in a checkpoint without a suffix.
    """
    first = _FIRST[settings.method](scores, settings, engine)
    found = first.concepts
    missing = range(found.shape[1], settings.n_concepts)
    if missing:
        found = np.concatenate(
            [found, random_projection(scores, missing, settings.random_state, engine)], 1
        )
    way = _Way(found, found, notes=first.notes)
    step, sweeps = None if suffix is None else f"descent{suffix}", settings.max_iter

    def report(number: int, reached: Sweep) -> None:
        engine.events.progress("sweeps", number + 1, reached.flips)
        if (number + 1) % 10 == 0:
            text = f"Sweep {number + 1}: loss {reached.loss:.4f}, CKA {reached.cka:.4f}, {reached.flips:,} flips"
            engine.events.emit("note", text=text)

    if step:
        slots = engine.executor.slots()
        engine.events.started("sweeps", sweeps, sweeps, workers=slots, unit="flips", counts="sweep")
    way.follow(descend(scores, found, settings, engine, on_sweep=report if step else None, step=step))
    if step:
        engine.events.emit("pass_finished", **{"pass": "sweeps"}, n_samples=sweeps)
    _complete(way, given, scores, settings, engine, suffix)
    kept, cold = way.concepts[:, _new(way.concepts, given)], settings.cold
    if kept.shape[1]:
        way.follow(descend(scores, kept, cold, engine, step=step and f"settling{suffix}"))
    if settings.way.projects:
        # what Algorithm 1 has found may be the answer, which noise would only spoil
        direct = descend(scores, found, cold, engine, step=step and f"direct{suffix}")
        if direct.objective < way.objective * (1 - NOTABLE):
            way.history, way.ending = [], Ending(0, True, 0.0)
            way.follow(direct)
    return way


def _exchange(way: _Way, scores: Scores, settings: ConceptSettings, engine: Engine) -> None:
    """Replace one concept after another by a random half-space along what the others leave, where that brings a lower objective.

    The lightest goes first. Each is followed by a descent without noise; after as many in vain as twice the
    concepts, and at least VAIN, none is left that would do.
    """
    b, vain, cold = way.concepts.shape[1], 0, settings.cold
    for attempt in range(settings.attempts(scores.points) if b else 0):
        if vain == max(VAIN, 2 * b):
            break
        sums = state_of(way.concepts, scores, engine).terms(scores)
        order = np.argsort(best_weights(sums) * np.sqrt(np.diag(sums.overlap)), kind="stable")
        others = np.delete(way.concepts, order[vain % b], 1)
        state = state_of(others, scores, engine)
        number = settings.n_concepts * (ATTEMPTS + 1) + attempt
        weights = best_weights(state.terms(scores))
        fresh = residual_projection(
            state, weights, scores, range(number, number + 1), settings.random_state, engine
        )
        done = descend(scores, np.concatenate([others, fresh], 1), cold, engine, step=None)
        vain += 1
        if done.objective < way.objective * (1 - NOTABLE):
            way.follow(done)
            b, vain = way.concepts.shape[1], 0


def _reached(scores: Scores, concepts: Concepts, engine: Engine) -> tuple[float, float]:
    """Return the loss of equation (3) and the CKA of SΠSᵀ with the kernel, at the best weights."""
    sums = state_of(concepts[:, tidied(concepts)], scores, engine).terms(scores)
    return reached(sums, best_weights(sums))


def _refine(whole: Scores, found: _Way, settings: ConceptSettings, engine: Engine) -> None:
    """Go on by the last descent, and by one with less penalty while S is less aligned than asked."""
    start, reliable, best, aligned = found.concepts, found.notes["reliability"], None, -1.0
    for attempt in range(REFININGS):
        asked = settings.refining(reliable, attempt)
        name = f"refining-{attempt + 1}" if attempt else "refining"
        done = descend(whole, start, asked, engine, step=name)
        found.follow(done)
        cka = _reached(whole, done.concepts, engine)[1] if settings.target_cka else 0.0
        if cka > aligned:
            best, aligned = done, cka
            cold = settings.cold.replace(penalty=asked.penalty)
        if aligned >= settings.target_cka or not asked.penalty:
            break
    assert best is not None
    found.follow(descend(whole, best.concepts, cold, engine, step="settling-refined"))


def _random(scores: Scores, settings: ConceptSettings, engine: Engine) -> _Way:
    """Return no concepts: Algorithm 2 draws those that are missing."""
    none = np.zeros((scores.points, 0), np.uint8)
    return _Way(none, none)


def _relaxed(scores: Scores, settings: ConceptSettings, engine: Engine) -> _Way:
    """Return what Algorithm 3 finds."""
    if scores.points > 500:
        raise DataError(
            f"The convex method keeps kernels of all points, and {scores.points:,} are too many; "
            f"use hopfield or hybrid beyond 500 points."
        )
    concepts = relax(scores, settings, engine)
    return _Way(concepts, concepts, ending=Ending(scores.points, True, 0.0))


def _sampled(scores: Scores, settings: ConceptSettings, engine: Engine) -> _Way:
    """Return what Algorithm 1 finds."""
    sampled = sample(scores, settings, engine)
    found = sampled.concepts
    about = {
        "candidates": sampled.candidates,
        "rank": sampled.rank,
        "found": int(found.shape[1]),
        "quality": sampled.quality.tolist(),
        "rejected": sampled.rejected,
    }
    ending = Ending(max(sampled.iterations, default=0), True, 0.0)
    return _Way(found, found, notes={"sampling": about}, ending=ending)


_FIRST: Final = {"rejection": _sampled, "hopfield": _random, "hybrid": _sampled, "convex": _relaxed}
"""What finds the first concepts, by method."""


def _complete(
    way: _Way,
    given: Concepts,
    scores: Scores,
    settings: ConceptSettings,
    engine: Engine,
    suffix: str | None,
) -> None:
    """Replace concepts that melted into constants, copies or complements by further candidates; note how many stayed.

    Candidates are random half-spaces along what the kernel of the others leaves over. They settle beside
    the others in a short descent at low temperature, which is kept where more distinct concepts, none of
    them `given`, come out of it. Each attempt in vain halves the penalty of the next: what melts at once
    may be too small for it.
    """
    kept = _new(way.concepts, given)
    before, tried, vain = len(kept), settings.n_concepts, 0
    for attempt in range(ATTEMPTS):
        missing = settings.n_concepts - len(kept)
        if missing <= 0 or not len(kept) or vain == PATIENCE:
            break
        state = state_of(way.concepts[:, kept], scores, engine)
        sums = state.terms(scores)
        ones = np.ones(len(kept))
        weights = best_weights(sums) if settings.weights == "concept" else ones * best_scale(sums, ones)
        numbers = range(tried, tried + missing)
        fresh = residual_projection(state, weights, scores, numbers, settings.random_state, engine)
        tried += missing
        start = np.concatenate([state.concepts, fresh], 1)
        step = None if suffix is None else f"replacing-{attempt + 1}{suffix}"
        cool = settings.replacing.replace(penalty=settings.penalty / 2**vain)
        done = descend(scores, start, cool, engine, step=step)
        found = _new(done.concepts, given)
        engine.events.emit(
            "note",
            text=f"Replacing {counted(missing, 'concept')}: {len(found):,} of {settings.n_concepts:,}",
        )
        vain = 0 if len(found) > len(kept) else vain + 1
        if not vain:
            way.follow(done)
            kept = found
    way.notes["replaced"] = len(kept) - before


def _new(concepts: Concepts, given: Concepts) -> NDArray[np.int64]:
    """Return the places of concepts that are neither constant nor copies or complements of one given or before."""
    places = tidied(np.concatenate([given, concepts], 1)) - given.shape[1]
    return np.asarray(places[places >= 0])
