"""Algorithm 1: concepts of low-rank data by rejection sampling with Hopfield updates, sharded either way.

Candidates come in rounds of blocks. Either each block is iterated where it fits, on all rows of U at once
("candidates"), or its iterations are passes over rows that are spread over workers ("rows"): the same
tiles, the same sums, the same concepts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.concepts.bits import Packed, distinct, pack, sparse_side, unpack, words
from smtdist.concepts.iteration import Annealing, Passed, RowPasses, project, signs
from smtdist.concepts.keyed import normals
from smtdist.concepts.objective import best_weights
from smtdist.concepts.progress import Progress
from smtdist.concepts.scores import Scores, leaves, rank_above_noise
from smtdist.concepts.settings import ConceptSettings
from smtdist.concepts.state import blocks_of, state_of
from smtdist.data.array import ArraySource
from smtdist.data.source import Source
from smtdist.data.table import as_table, read_rows
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, counted
from smtdist.kernels import hashing
from smtdist.kernels.threads import single_blas

Matrix = NDArray[np.float64]

SHARED_BYTES: Final = 64 * 2**20
"""Rows of U up to this size are sent to every worker, and candidates are spread; larger ones stay where they are."""
STARTS: Final = 2**40
"""Streams of random numbers from here on are for the candidates' beginnings, one a block."""
MORE: Final = 8
"""Rounds, in those asked for, after which concepts that are still missing are given up."""
PATIENCE: Final = 3
"""Rounds on end that bring nothing new, after which they are given up too."""
POOL: Final = (64, 1024)
"""Concepts to choose from: four times as many as are wanted, within these."""
POOL_BYTES: Final = 256 * 2**20
"""Of S of the pool, at most, where that holds those wanted."""
SETTLED: Final = 2
"""Rounds on end that bring nothing better, after which the best ones, chosen without a tolerance, stand."""


BLOCK: Final = 256
"""Candidates that are iterated together, at most."""
COOLING: Final = 0.8
"""Factor of the temperature of annealed updates from one iteration to the next."""
ITERATIONS: Final = 60
"""Of a block, at most."""


@dataclass
class Sampled:
    """Accepted concepts and how they came about."""

    concepts: NDArray[np.uint8]  # (p, found), the sparse side of each
    quality: Matrix  # ‖Uᵀs‖² / ‖Hs‖²; concepts are in the order of their shares in the kernel
    candidates: int  # tried
    rank: int  # components of X that were used
    rounds: int
    iterations: list[int] = field(default_factory=list)  # of each block
    rejected: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Block:
    """What one block of candidates needs besides the rows."""

    inverse: Matrix  # (r,) 1 / (grid σ): scores on the grid to columns of U
    used: int
    push: Matrix  # (r, r) D Dᵀ: what accepted concepts have left of the image
    width: int  # candidates
    settings: ConceptSettings

    def start(self, number: int) -> Matrix:
        """Return y of the candidates' beginnings, normal: Uᵀs, and the constant's share as the last row."""
        count = (self.used + 1) * self.width
        return normals(self.settings.random_state, STARTS + number, count).reshape(-1, self.width)

    def aim(self, y: Matrix, mean: Matrix, pushed: bool) -> NDArray[np.float32]:
        """Return A with (rows, 1) @ A = U D Dᵀ y + mean."""
        target = y
        if pushed:
            with single_blas():
                target = self.push @ y
        return np.concatenate([self.inverse[:, None] * target, mean[None]]).astype(np.float32)

    def annealing(self, number: int, iteration: int) -> Annealing | None:
        """Return the noise of an iteration, None where there is none."""
        heat = self.settings.annealing * COOLING**iteration
        if heat < 1e-3:
            return None
        return Annealing(heat, self.settings.random_state, iteration, number * self.width)


@dataclass
class _Fixed:
    """Where a block of candidates ended."""

    aim: NDArray[np.float32]  # its signs are sign(rows @ aim)
    settled: NDArray[np.bool_]
    quality: Matrix
    iterations: int


def sample(scores: Scores, settings: ConceptSettings, engine: Engine, *, shard: str = "auto") -> Sampled:
    """Return up to n_concepts concepts in the image of the centred table (Algorithm 1), those that weigh most in equation (3).

    A pool of more is drawn, since unions and copies of concepts are in the image, too. A fixed point s in ±1 is a concept if
    ‖Uᵀs‖² >= (1 - tolerance) ‖Hs‖², ‖Hs‖² = p (1 - mean²), so that concepts of any size are judged alike. There are fewer
    rounds than asked for where two on end bring nothing better.

    `shard` is "candidates" (rows of U are sent to every worker), "rows" (they stay where they are and each
    iteration is a pass), or "auto": by size. Results do not depend on it. Memory a worker: U and a block's
    signs of 512 rows ("candidates"), one leaf and r x block sums ("rows"); here p x candidates of a round
    bits, p bytes a concept.
    """
    used = used_rank(scores, settings.rank, settings.n_concepts)
    if shard not in ("auto", "candidates", "rows"):
        raise ConfigurationError(f"shard is {shard!r}; choose auto, candidates or rows.")
    if shard == "auto":
        fits = isinstance(scores.source, ArraySource) and scores.points * used * 4 <= SHARED_BYTES
        shard = "candidates" if fits else "rows"
    rows = read_rows(scores.source)[:, :used].copy() if shard == "candidates" else None
    inverse = 1 / (scores.grid[:used] * scores.singular[:used])
    width = min(BLOCK, settings.candidates)
    blocks = -(-settings.candidates // width)
    found = _Accepted(scores.points, settings, blocks * width)
    progress = Progress(engine.checkpoint, "sampling")
    push = found.resume(progress.load(), used)
    with engine.keeping(scores.source) if shard == "rows" else nullcontext():
        while found.goes_on:
            block = _Block(inverse, used, push, width, settings)
            numbers = range(found.rounds * blocks, (found.rounds + 1) * blocks)
            if rows is None:  # one after another: an iteration is a pass
                passes = RowPasses.of(scores.source, used, width, engine)
                ends = [_iterated(block, number, scores.points, passes) for number in numbers]
            else:  # a source of candidate numbers, so that the engine's map spreads them as it spreads samples
                stand_in, ranges = as_table(np.zeros((blocks, 1))), [(i, i + 1) for i in range(blocks)]
                shared = (rows, leaves(scores.source), block, numbers.start)
                ended = dict(engine.map(_iterate_range, shared, stand_in, ranges))
                ends = [ended[one] for one in ranges]
            accepted = found.consider(ends, lambda aim: _members(scores.source, used, aim, engine))
            if settings.duplicate_penalty and accepted.size:
                # U <- (I - λ/p ssᵀ) U for each accepted concept, within the image: for s̄ = Uy that is U (I - λ/‖y‖² yyᵀ)
                # up to a constant vector, which the centred image has not
                concepts, factor = unpack(accepted, scores.points), np.eye(used)
                for y in state_of(concepts, scores, engine).crossed[:used].T * inverse:
                    factor = (np.eye(used) - settings.duplicate_penalty * np.outer(y, y) / (y @ y)) @ factor
                push = factor @ push @ factor.T
            found.save(progress, push)
            engine.events.emit(
                "note",
                text=f"Sampling, round {found.rounds}: {counted(len(found.packed), 'concept')} of {settings.n_concepts:,}",
            )
    return found.result(scores, used, engine)


def _iterate_range(shared: Any, source: Source, start: int, stop: int) -> _Fixed:
    rows, parts, block, first = shared

    def passed(aim: NDArray[np.float32], annealing: Annealing | None) -> Passed:
        sums = Passed.zero(rows.shape[1], aim.shape[1])
        for begin, end in parts:
            sums.add(*project(rows[begin:end], aim, begin, annealing))
        return sums

    with single_blas():  # once: each change of the limit costs as much as a small product
        return _iterated(block, first + start, len(rows), passed)


def _iterated(
    block: _Block,
    number: int,
    points: int,
    passed: Callable[[NDArray[np.float32], Annealing | None], Passed],
) -> _Fixed:
    """Iterate a block until its sums repeat; discouraged first, then on the image itself.

    S̄ lies in the image of X̄, S in that and the constant vector: s <- sign(UUᵀs + mean of s) draws a sparse
    concept as much as a dense one.
    """
    start, pushed = block.start(number), block.settings.duplicate_penalty > 0
    y, mean = start[:-1], start[-1] / np.sqrt(points)
    before: NDArray[np.int64] | None = None
    last: NDArray[np.int64] | None = None
    for iteration in range(ITERATIONS):
        annealing = block.annealing(number, iteration)
        aim = block.aim(y, mean, pushed)
        sums = passed(aim, annealing)
        projected, total = sums.projected, sums.total
        y, mean = projected * block.inverse[:, None], total / points
        before, last = last, np.concatenate([projected, total[None]])
        if annealing is None and before is not None and np.array_equal(last, before):
            if not pushed:
                break
            pushed, last = False, None
    repeated = before is not None and last is not None
    settled = (
        np.all(np.asarray(last) == np.asarray(before), axis=0) if repeated else np.zeros(y.shape[1], bool)
    )
    spread = points - total.astype(np.float64) ** 2 / points
    with np.errstate(divide="ignore", invalid="ignore"):
        quality = np.where(spread > 0, (y**2).sum(0) / spread, 0.0)
    return _Fixed(aim, settled, quality, iteration + 1)


class _Accepted:
    """The concepts found so far, as bits, and why candidates were turned away."""

    def __init__(self, points: int, settings: ConceptSettings, each: int) -> None:
        self.points, self.settings, self.each = points, settings, each  # candidates of a round
        self.packed: Packed = pack(np.zeros((points, 0)))
        self.quality = np.zeros(0)
        self.rejected = dict.fromkeys(("unsettled", "constant", "tolerance", "duplicate"), 0)
        self.iterations: list[int] = []
        self.rounds = 0
        self.vain = 0  # rounds on end that brought nothing
        wanted = settings.n_concepts
        self.pool = max(wanted, min(max(POOL[0], 4 * wanted), POOL[1], POOL_BYTES // points))

    @property
    def goes_on(self) -> bool:
        """Whether another round is wanted: without a tolerance while better ones come; more for missing concepts.

        Duplicates that were turned away are replaced by further candidates, until several rounds on end
        bring nothing new.
        """
        missing = len(self.packed) < self.settings.n_concepts
        if self.rounds < self.settings.rounds:
            return missing or (self.settings.tolerance is None and self.vain < SETTLED)
        return missing and self.vain < PATIENCE and self.rounds < MORE * self.settings.rounds

    def save(self, progress: Progress, push: Matrix) -> None:
        """Keep what another run needs to go on after this round."""
        counts = {"rejected": self.rejected, "iterations": self.iterations}
        progress.save(
            packed=self.packed,
            quality=self.quality,
            push=push,
            rounds=self.rounds,
            vain=self.vain,
            counts=json.dumps(counts),
        )

    def resume(self, kept: dict[str, Any] | None, used: int) -> Matrix:
        """Take up what was kept; return D Dᵀ of the next round."""
        if kept is None:
            return np.eye(used)
        self.packed, self.quality = kept["packed"], kept["quality"]
        self.rounds, self.vain = int(kept["rounds"]), int(kept["vain"])
        counts = json.loads(str(kept["counts"]))
        self.rejected, self.iterations = counts["rejected"], counts["iterations"]
        return np.asarray(kept["push"])

    def consider(self, ends: list[_Fixed], members: Callable[[NDArray[np.float32]], Packed]) -> Packed:
        """Take the distinct fixed points of a round, best first; return those that are new."""
        self.rounds += 1
        self.iterations += [end.iterations for end in ends]
        settled = np.concatenate([end.settled for end in ends])
        quality = np.concatenate([end.quality for end in ends])
        limit = 0.0 if self.settings.tolerance is None else 1 - self.settings.tolerance
        varied = settled & (quality > 0)
        good = varied & (quality >= limit)
        self.rejected["unsettled"] += int((~settled).sum())
        self.rejected["constant"] += int((settled & ~varied).sum())
        self.rejected["tolerance"] += int((varied & ~good).sum())
        # candidates of the same sums have the same signs: one of each is made
        aims = np.concatenate([end.aim for end in ends], 1)[:, good]
        # known by a hash of their bits: telling whole columns apart took longer than the search where points are few
        _, firsts = np.unique(hashing.column_hashes(aims), return_index=True)
        firsts = firsts[np.argsort(-quality[good][firsts], kind="stable")]
        found = sparse_side(members(aims[:, firsts]), self.points)
        held = len(self.packed)
        pool = np.concatenate([self.packed, found])
        worth = np.concatenate([self.quality, quality[good][firsts]])
        # in the order found; without a tolerance, the best of all rounds stay
        order = (
            np.argsort(-worth, kind="stable") if self.settings.tolerance is None else np.arange(len(pool))
        )
        places = order[distinct(pool[order], self.points, self.settings.distinct, self.pool)]
        self.packed, self.quality = pool[places], worth[places]
        new = places[places >= held]
        self.rejected["duplicate"] += int(good.sum()) - len(new)
        better = places[: self.settings.n_concepts] >= held
        self.vain = 0 if better.any() else self.vain + 1
        return pool[new]

    def result(self, scores: Scores, used: int, engine: Engine) -> Sampled:
        """Return the concepts of the pool that hold most of the kernel, the largest share first."""
        order = _heaviest(unpack(self.packed, self.points), self.settings.n_concepts, scores, engine)
        return Sampled(
            unpack(self.packed[order], self.points),
            self.quality[order],
            self.rounds * self.each,
            used,
            self.rounds,
            self.iterations,
            self.rejected,
        )


def used_rank(scores: Scores, rank: int | None, wanted: int) -> int:
    """Return how many components make the image of X: as many as asked for, else those above the noise."""
    if rank is None:
        return rank_above_noise(scores.singular, scores.points, len(scores.mean), wanted)
    return min(rank, scores.rank)


def _heaviest(
    concepts: NDArray[np.uint8], wanted: int, scores: Scores, engine: Engine
) -> NDArray[np.int64]:
    """Return the places of the concepts that hold most of the kernel, at most `wanted` and none without weight.

    Weights are fitted to all (equation 3); half of those too many, the lightest by π_a ‖s̄_a‖², leave at a
    time, and the weights are fitted again.
    """
    places = np.arange(concepts.shape[1])
    if not len(places):
        return places
    whole = state_of(concepts, scores, engine).terms(scores)
    while True:
        some = whole._replace(
            overlap=whole.overlap[np.ix_(places, places)],
            pull=whole.pull[places],
            members=whole.members[places],
        )
        share = best_weights(some) * np.sqrt(np.diag(some.overlap))
        order = np.argsort(-share, kind="stable")[: int((share > 0).sum())]
        if len(order) <= wanted:
            return places[order]
        places = np.sort(places[order[: max(wanted, (wanted + len(order)) // 2)]])


def _members(source: Source, used: int, aim: NDArray[np.float32], engine: Engine) -> Packed:
    """Return the members of fixed points, sign(U y) > 0: made where the rows are, sent as bits."""
    packed = np.zeros((aim.shape[1], -(-source.n_samples // 8)), np.uint8)
    if aim.shape[1]:
        for (start, _), part in engine.map(_member_range, (aim, used), source, leaves(source)):
            packed[:, start // 8 : start // 8 + part.shape[1]] = part
    return words(packed)


def _member_range(shared: Any, source: Source, start: int, stop: int) -> NDArray[np.uint8]:
    aim, used = shared
    assert start % 8 == 0, "scores are aligned to powers of two"
    parts = []
    with single_blas():
        for at, rows in blocks_of(source, start, stop):
            held = np.ascontiguousarray(rows[:, :used], np.float32)
            parts.append(np.packbits(signs(held, aim, at)[0].T > 0, axis=1))
    return np.concatenate(parts, 1)
