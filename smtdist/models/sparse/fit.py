"""Learn a dictionary through the engine: whitening, a start, then rounds of codes, sums and a step."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from smtdist.codes.coder import Record
from smtdist.codes.l1 import SparseCoder, SparseSettings
from smtdist.data.source import Source
from smtdist.data.subset import chunk_subset
from smtdist.engine.manifest import Facts
from smtdist.engine.passes import Engine
from smtdist.kernels.threads import single_blas
from smtdist.models.coders.start import STEPS, Start, begun, dictionary_step, origin
from smtdist.statistics.base import State, Statistic
from smtdist.statistics.l1_codes import L1Sums

Float64 = NDArray[np.float64]

FLOOR = 0.01
"""Share of the mean curvature below which an atom's own does not shorten its divisor."""


@dataclass(frozen=True)
class Learned:
    """Between two rounds: atoms (K, D), the sums remembered of rounds before, and how long each atom has not been used."""

    atoms: Float64
    idle: NDArray[np.int64]
    taken: int = 0
    trace: tuple[float, ...] = ()
    active: float = 0.0
    square: Float64 | None = None  # (K,) running mean of a²
    second: Float64 | None = None
    cross: Float64 | None = None


def fit_sparse(source: Source, settings: SparseSettings, engine: Engine) -> tuple[SparseCoder, list[Record]]:
    """Learn a dictionary; returns the coder and the records of its passes.

    Passes: `whitening`, `start` (drawn patches), then `round-1`, `round-2`, ... over chunk rows drawn by (seed, round).
    All sums are floating point and meet along the fixed tree: the same bits for any number of workers, after losses and after a
    resume. Memory on a worker: 8 K (D + 2) bytes a sum, and 8 K² more with learning "sums"; stated before each pass.
    """
    with engine.run(STEPS, lambda: Facts.of(source, asdict(settings))):
        start = begun(source, settings, engine)
        end, records = _learned_in_rounds(source, settings, engine, start)
    coder = SparseCoder(
        settings,
        start.patches.shape,
        start.mean,
        start.whiten,
        start.unwhiten,
        end.atoms,
        end.trace,
        end.active,
        origin(source),
    )
    return coder, [*start.records, *records]


def _learned_in_rounds(
    source: Source, settings: SparseSettings, engine: Engine, start: Start
) -> tuple[Learned, list[Record]]:
    units = settings.units
    spares = start.atoms[units:]

    def make(state: Learned, number: int) -> tuple[Statistic, Source]:
        statistic = L1Sums(
            start.patches,
            state.atoms.astype(np.float32),
            settings.penalty,
            settings.positive,
            settings.method,
            settings.gap,
            number + 1,
            settings.learning == "sums",
        )
        return statistic, chunk_subset(source, settings.images, settings.seed + number)

    def update(state: Learned, sums: State, number: int) -> Learned:
        with single_blas():
            return learned(state, sums, settings, number, spares)

    first = Learned(start.atoms[:units].copy(), np.zeros(units, np.int64))
    return engine.loop("round", first, make, update, settings.rounds)


def learned(state: Learned, sums: State, settings: SparseSettings, number: int, spares: Float64) -> Learned:
    """Return what a round's sums make of the atoms: a step, then spares in place of atoms that have long been idle."""
    n = int(sums["n"])
    trace = (*state.trace, float(sums["loss"]) / n)
    active = float(sums["uses"].sum()) / n
    square = second = cross = None
    if settings.learning == "gradient":
        fresh = sums["square"] / n
        square = (
            fresh if state.square is None else settings.memory * state.square + (1 - settings.memory) * fresh
        )
        atoms = gradient_step(state.atoms, sums["pull"] / n, square, settings.step(number))
    else:
        second, cross = sums["second"], sums["cross"]
        if state.second is not None and state.cross is not None:
            second = second + settings.memory * state.second
            cross = cross + settings.memory * state.cross
        atoms = dictionary_step(state.atoms, second, cross, settings.sweeps)
    idle = np.where(sums["uses"] > 0, 0, state.idle + 1)
    dead = np.flatnonzero(idle >= settings.idle)
    if len(dead) and len(spares):
        atoms[dead] = spares[(state.taken + np.arange(len(dead))) % len(spares)]
        idle[dead] = 0
        for kept in (square, second, cross):
            if kept is not None:
                kept[dead] = 0
        if second is not None:
            second[:, dead] = 0
    return Learned(atoms, idle, state.taken + len(dead), trace, active, square, second, cross)


def gradient_step(atoms: Float64, pull: Float64, square: Float64, rate: float) -> Float64:
    """Return unit atoms φ_j + rate ⟨a_j r⟩ / ⟨a_j²⟩: down ½ ‖x - Φ a‖² with the diagonal of its Hessian.

    pull : (K, D) means of a_j r. square : (K,) means of a_j², raised to a hundredth of their own mean, so that atoms that are
    rarely used do not jump.
    """
    floor = max(FLOOR * float(square.mean()), 1e-300)
    moved = atoms + rate * pull / np.maximum(square, floor)[:, None]
    return np.asarray(moved / np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-12))
