"""Algorithm 2: coordinate descent over the rows of S, in sweeps whose blocks of rows are worked on side by side.

A sweep needs current SᵀS for each row. Blocks start from the sums of the sweep's beginning and see their
own changes only; the sums are put together after the sweep and the loss is looked at. Where it has risen at
low temperature, fewer blocks are worked on at once from then on, down to one: that is the sequential
descent. Blocks depend on the data alone. The sums of a block that is the only one are always current, so
that it is swept several times before they are looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from itertools import pairwise
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from smtdist.concepts.bits import Narrowed
from smtdist.concepts.few_points import FewPoints, are_few
from smtdist.concepts.keyed import key_of
from smtdist.concepts.objective import Terms, best_scale, best_weights, loss, reached
from smtdist.concepts.progress import Progress
from smtdist.concepts.rows import sweep
from smtdist.concepts.sampling import used_rank
from smtdist.concepts.scores import Scores, leaves
from smtdist.concepts.settings import ConceptSettings
from smtdist.concepts.state import (
    Concepts,
    State,
    blocks_of,
    flip_to_sparse,
    pack_rows,
    prices_of,
    state_of,
    unit_weight,
)
from smtdist.data.source import Source
from smtdist.data.table import read_rows
from smtdist.engine.passes import Engine
from smtdist.kernels.threads import single_blas

Matrix = NDArray[np.float64]

CLEAR: Final = 0.05
"""Temperature below which a rise of the loss is not noise."""
FITTED: Final = 0.01
"""Temperature below which concepts have formed, and weights less than `unit_weight` are believed."""
FAINT: Final = 1e-3
"""Of the mean weight: a concept of less gets a tenth of the mean while there is noise."""
ON_END: Final = (10, 20)
"""Sweeps of a block that is the only one, before the loss is looked at and the weights fitted: a tenth of all, within these."""
BLOCK_POINTS: Final = 4096
"""Points of a block, at least, unless `blocks` says how many."""


@dataclass
class Sweep:
    """One sweep, or those on end of a block that is the only one: what was reached."""

    temperature: float  # of the last
    loss: float  # of equation (3), over ‖X̄X̄ᵀ‖²
    objective: float  # with the penalty
    cka: float
    flips: int = 0
    at_once: int = 0  # blocks worked on side by side
    projected: int = 0  # members changed by the projection before it


@dataclass
class Descended:
    """The best S seen at the end, and the way there."""

    concepts: Concepts  # (p, b)
    weights: Matrix
    history: list[Sweep]
    objective: float  # of those concepts
    sweeps: int
    still: bool  # the last sweep flipped nothing

    @property
    def gap(self) -> float:
        """The relative fall of the objective in the last sweep, 0 where it flipped nothing."""
        if self.still or len(self.history) < 2:
            return 0.0 if self.still else 1.0
        before, after = self.history[-2].objective, self.history[-1].objective
        return max(0.0, 1 - after / before) if before > 0 else 0.0


@dataclass(frozen=True)
class _SweepJob:
    """What all blocks of a sweep share."""

    sums: State  # with S as bits
    inverse2: Matrix
    weights: Matrix
    heats: Matrix  # temperatures of the sweeps on end
    prices: Matrix  # of a member of each concept
    scale: float
    keys: NDArray[np.uint64]  # of their draws
    points: int


def _sweep_range(
    job: _SweepJob, source: Source, start: int, stop: int
) -> tuple[Concepts, Narrowed, Narrowed, int]:
    """Sweep a block of rows, once for each temperature; return the rows as bits, the changes of SᵀS and XᵀS, and the flips."""
    sums = job.sums
    s = np.unpackbits(sums.concepts[start:stop], axis=1, count=len(sums.members))
    together, crossed, members = sums.together.copy(), sums.crossed.copy(), sums.members.copy()
    x = read_rows(source, start, stop).astype(np.float64)
    flips = 0
    for heat, key in zip(job.heats, job.keys, strict=True):
        flips += sweep(
            x,
            s,
            together,
            members,
            crossed,
            sums.total,
            job.inverse2,
            job.weights,
            job.points,
            start,
            heat,
            job.prices,
            job.scale,
            key,
        )
    changes = Narrowed.of(together - sums.together), Narrowed.of(crossed - sums.crossed)
    return np.packbits(s, axis=1), *changes, int(flips)


@dataclass
class _Standing:
    """Where a descent stands after a sweep: all it needs to go on."""

    done: int  # sweeps
    groups: int  # into which blocks are parted, one group worked on at a time
    history: list[Sweep]
    best: tuple[float, Concepts, Matrix]  # objective, S as bits, weights
    ended: bool = False

    def save(self, progress: Progress, concepts: Concepts) -> None:
        if not progress.keeps:
            return
        progress.save(
            concepts=pack_rows(concepts),
            done=self.done,
            groups=self.groups,
            history=np.array([astuple(one) for one in self.history], float),
            objective=self.best[0],
            best=self.best[1],
            weights=self.best[2],
            ended=self.ended,
        )

    @classmethod
    def of(cls, kept: dict[str, Any]) -> Self:
        # flips, blocks and members changed are whole numbers
        history = [Sweep(*one[:4], *map(int, one[4:])) for one in kept["history"].tolist()]
        best = float(kept["objective"]), kept["best"], kept["weights"]
        return cls(int(kept["done"]), int(kept["groups"]), history, best, bool(kept["ended"]))


def descend(
    scores: Scores,
    start: Concepts,
    settings: ConceptSettings,
    engine: Engine,
    *,
    on_sweep: Callable[[int, Sweep], None] | None = None,
    step: str | None = "descent",
) -> Descended:
    """Return S of low loss (equation 3 with the penalty), from a start (p, b), by annealed sweeps (Algorithm 2).

    The temperatures of the paper, 5 x 0.8^sweep in 100 sweeps, cool faster than those of the settings where concepts form,
    between T = 0.2 and 0.02, and end in worse minima.

    Results depend on scores, start and settings, not on the workers. In an engine's checkpoint folder, S is
    kept after each sweep under the name `step`, unless that is None, and a descent that was stopped goes on to the same result.
    Memory: p b bytes here, b² + r b float64 a block's worker. A sweep costs p (r b + b members-of-a-row + b
    flips) operations.
    """
    progress, b = Progress(engine.checkpoint if step else None, step or ""), start.shape[1]
    kept = progress.load()
    if kept is not None:
        start = np.unpackbits(kept["concepts"], axis=1, count=b)
    search = _Search.of(start, scores, settings, engine)
    sums = search.state.terms(scores)
    weights = search.fitted(sums)
    if kept is None:
        first = search.measured(sums, weights, settings.start_temperature)
        now = _Standing(0, 1, [], (first.objective, pack_rows(search.state.concepts), weights))
    else:
        now = _Standing.of(kept)
    on_end = min(max(settings.max_iter // 10, ON_END[0]), ON_END[1])
    step_size = on_end if len(search.ranges) == 1 and settings.start_temperature > 0 else 1
    with engine.keeping(scores.source):
        while now.done < settings.max_iter and not now.ended:
            numbers = range(now.done, min(now.done + step_size, settings.max_iter))
            weights = search.sweep_once(weights, now, numbers)
            now.save(progress, search.state.concepts)
            if on_sweep is not None:
                on_sweep(numbers[-1], now.history[-1])
    concepts = np.unpackbits(now.best[1], axis=1, count=b)
    return Descended(concepts, now.best[2], now.history, now.best[0], now.done, now.ended)


@dataclass
class _Search:
    """What a descent works with."""

    state: State
    scores: Scores
    settings: ConceptSettings
    engine: Engine
    ranges: list[tuple[int, int]]  # of the blocks
    size: float  # the unit of weights
    few: FewPoints | None

    @classmethod
    def of(cls, start: Concepts, scores: Scores, settings: ConceptSettings, engine: Engine) -> Self:
        count = min(scores.points, settings.blocks or max(1, scores.points // BLOCK_POINTS))
        ranges = list(pairwise(scores.points * i // count for i in range(count + 1)))
        pays = len(ranges) == 1 and are_few(scores.points, scores.rank, start.shape[1])
        few = FewPoints.of(scores) if pays else None
        state = state_of(start, scores, engine)
        size = unit_weight(scores, start.shape[1])
        return cls(state, scores, settings, engine, ranges, size, few)

    def sweep_once(self, weights: Matrix, now: _Standing, numbers: range) -> Matrix:
        """Do one sweep, or several on end, and note in `now` where that leads; returns the weights of the next."""
        state, settings = self.state, self.settings
        heat = settings.heat(numbers[-1])
        projected = 0
        every = settings.projection_interval if settings.way.projects else 0
        if every and (numbers.stop // every) > (numbers.start // every):
            projected = self.project(heat <= CLEAR)
        flips = 0
        for group in range(now.groups):
            flips += self.swept(weights, self.ranges[group :: now.groups], numbers)
        if settings.penalty:
            flip_to_sparse(state)
        sums = state.terms(self.scores)
        weights = self.fitted(sums)
        reached = self.measured(sums, weights, heat)
        reached.flips, reached.at_once, reached.projected = (
            flips,
            -(-len(self.ranges) // now.groups),
            projected,
        )
        rose = bool(now.history) and reached.objective > now.history[-1].objective * (1 + 1e-12)
        now.history.append(reached)
        now.done = numbers.stop
        if reached.objective <= now.best[0]:
            now.best = (reached.objective, pack_rows(state.concepts), weights)
        # a sweep without a flip leaves every unit where its input points: colder ones would change nothing
        believed = heat <= FITTED or weights.min() >= self.size
        still = heat < CLEAR and believed and flips == 0 and projected == 0
        now.ended = still and (not every or now.groups == len(self.ranges))
        # stale sums make neighbours overshoot: only where no noise explains a rise
        if rose and heat < CLEAR and not now.ended:
            now.groups = min(len(self.ranges), 2 * now.groups)
        return weights

    def project(self, only_if_lower: bool) -> int:
        """Round the concepts' projections onto the image of X, [UUᵀs̄ + mean >= ½]; returns the members changed.

        Only concepts that lie mostly in the image are: a sparse one has little of its norm there and would
        vanish. Where asked, the projected S stays only if its loss is lower.
        """
        state, scores, p = self.state, self.scores, self.scores.points
        used = used_rank(scores, self.settings.rank, len(state.members))
        inverse = 1 / (scores.grid[:used] * scores.singular[:used])
        centred = state.crossed[:used] - np.outer(state.total[:used], state.members) / p
        y = centred * inverse[:, None]
        spread = state.members - state.members**2 / p
        inside = (y**2).sum(0) > 0.5 * np.maximum(spread, 1e-9)
        if not inside.any():
            return 0
        shared = (
            np.where(inside, y * inverse[:, None], 0.0),
            0.5 - state.members / p,
            inside,
            pack_rows(state.concepts),
        )
        new = state.concepts.copy()
        for (start, stop), part in self.engine.map(
            _project_range, shared, scores.source, leaves(scores.source)
        ):
            new[start:stop] = np.unpackbits(part, axis=1, count=len(inside))
        changed = int((new != state.concepts).sum())
        if changed:
            candidate = state_of(new, scores, self.engine)
            sums, before = candidate.terms(scores), state.terms(scores)
            if not only_if_lower or loss(sums, self.fitted(sums)) < loss(before, self.fitted(before)):
                vars(state).update(vars(candidate))
                return changed
        return 0

    def swept(self, weights: Matrix, ranges: list[tuple[int, int]], numbers: range) -> int:
        """Sweep some blocks side by side and bring state up to date; returns the flips."""
        state, settings = self.state, self.settings
        heats = np.array([settings.heat(number) for number in numbers])
        if heats[0] > FITTED:
            weights = np.maximum(weights, self.size)
        elif heats[0] > 0 and settings.weights == "concept":  # one that lost all weight may come back
            mean = weights.mean()
            weights = np.where(weights < FAINT * mean, 0.1 * mean, weights)
        prices = prices_of(weights, settings.penalty, self.size, settings.weighted_penalty)
        keys = np.array([key_of(settings.random_state, number) for number in numbers], np.uint64)
        scale = 1 / (self.scores.points * self.size**2)
        if self.few is not None:
            self.engine.heed_stop()
            return self.few.sweep(state, weights, heats, keys, prices, scale)
        job = _SweepJob(
            replace(state, concepts=pack_rows(state.concepts)),
            1 / self.scores.grid**2,
            weights,
            heats,
            prices,
            scale,
            keys,
            self.scores.points,
        )
        changed, flips = list[Any](), 0
        for (start, stop), (packed, together, crossed, count) in self.engine.map(
            _sweep_range, job, self.scores.source, ranges, stay=True
        ):
            state.concepts[start:stop] = np.unpackbits(packed, axis=1, count=state.concepts.shape[1])
            changed.append((together, crossed))
            flips += count
        for together, crossed in changed:  # whole numbers: any order
            state.together = state.together + together.widened()
            state.crossed = state.crossed + crossed.widened()
        state.members = np.diag(state.together).copy()
        return flips

    def fitted(self, sums: Terms) -> Matrix:
        """Return the weights that minimise the objective at this S."""
        penalty = self.price if self.settings.weighted_penalty else 0.0
        if self.settings.weights == "concept":
            return best_weights(sums, penalty)
        ones = np.ones(len(sums.members))
        return ones * best_scale(sums, ones, penalty)

    @property
    def price(self) -> float:
        """What a unit of weight costs for each member, in the units of equation (3)."""
        return 2 * (self.scores.points - 1) * self.size * self.settings.penalty

    def measured(self, sums: Terms, weights: Matrix, heat: float) -> Sweep:
        """Return loss and alignment of what stands."""
        value, cka = reached(sums, weights)
        value /= sums.norm
        cost = weights @ sums.members if self.settings.weighted_penalty else self.size * sums.members.sum()
        penalised = value + self.price * float(cost) / sums.norm
        return Sweep(heat, value, penalised, cka)


def _project_range(shared: Any, source: Source, start: int, stop: int) -> Concepts:
    aim, offset, inside, packed = shared
    parts = []
    with single_blas():
        for at, rows in blocks_of(source, start, stop):
            old = np.unpackbits(packed[at : at + len(rows)], axis=1, count=len(inside))
            value = rows[:, : len(aim)].astype(np.float64) @ aim
            parts.append(np.packbits(np.where(inside, value >= offset, old).astype(np.uint8), axis=1))
    return np.concatenate(parts)
