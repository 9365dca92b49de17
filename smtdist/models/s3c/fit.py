"""Fit a patch coder through the engine: whitening, a start, then rounds of E-step, sums and M-step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from smtdist.codes.coder import Record
from smtdist.codes.s3c import GAP, PatchCoder, S3CSettings
from smtdist.data.source import Source
from smtdist.data.subset import chunk_subset
from smtdist.engine.manifest import Facts
from smtdist.engine.passes import Engine
from smtdist.kernels.spike_slab import SpikeSlab
from smtdist.kernels.threads import single_blas
from smtdist.models.coders.start import STEPS, begun, dictionary_step, origin
from smtdist.models.s3c.mstep import closed_form, gradient_step
from smtdist.statistics.base import State, Statistic
from smtdist.statistics.l1_codes import L1Sums
from smtdist.statistics.patch_rows import PatchRows
from smtdist.statistics.sparse_codes import OmpSums
from smtdist.statistics.spike_slab import SpikeSlabSums

Float64 = NDArray[np.float64]

FORGET = 0.9
"""What a round leaves of the sums of those before it, in sparse coding (Mairal et al. 2009)."""


def fit_coder(source: Source, settings: S3CSettings, engine: Engine) -> tuple[PatchCoder, list[Record]]:
    """Fit spike-and-slab sparse coding or a rival; returns it with the records of its passes.

    Passes: `whitening` (Σ x, Σ x xᵀ of contrast-normalised patches), `start` (a seeded sample of whitened ones), then `round-1`,
    `round-2`, ... over chunk rows drawn by (seed, round). All sums are floating point and meet along the fixed tree: the same
    bits for any number of workers, after losses and after a resume. Memory on a worker: the plan's, stated before each pass.
    """
    fits = {"s3c": _spike_slab, "omp": _omp, "sc": _sparse_coding}
    with engine.run(STEPS, lambda: Facts.of(source, asdict(settings))):
        start = begun(source, settings, engine)
        parameters, trace, rounds = fits[settings.model](source, settings, engine, start.patches, start.atoms)
    coder = PatchCoder(
        settings,
        start.patches.shape,
        start.mean,
        start.whiten,
        start.unwhiten,
        parameters,
        tuple(trace),
        origin(source),
    )
    return coder, [*start.records, *rounds]


@dataclass(frozen=True)
class _Learned:
    """Between two rounds: parameters, what sparse coding remembers of its sums, and the objective so far."""

    model: SpikeSlab
    trace: tuple[float, ...] = ()
    second: Float64 | None = None
    cross: Float64 | None = None


Outcome = tuple[SpikeSlab, tuple[float, ...], list[Record]]


def _rounds(
    source: Source,
    settings: S3CSettings,
    engine: Engine,
    start: SpikeSlab,
    statistic: Callable[[SpikeSlab, int], Statistic],
    step: Callable[[_Learned, State, int], _Learned],
) -> Outcome:
    def make(state: _Learned, number: int) -> tuple[Statistic, Source]:
        return statistic(state.model, number), chunk_subset(source, settings.images, settings.seed + number)

    def update(state: _Learned, sums: State, number: int) -> _Learned:
        with single_blas():
            return step(state, sums, number)

    end, records = engine.loop("round", _Learned(start), make, update, settings.rounds)
    return end.model, end.trace, records


def _started(settings: S3CSettings, atoms: Float64) -> SpikeSlab:
    units, inputs = settings.units, atoms.shape[1]
    return SpikeSlab(
        atoms[:units].copy(),
        np.full(units, float(settings.mu)),
        np.full(units, float(settings.alpha)),
        np.full(units, float(settings.bias)),
        np.full(inputs, float(settings.beta_start)),
    )


def _spike_slab(
    source: Source, settings: S3CSettings, engine: Engine, patches: PatchRows, atoms: Float64
) -> Outcome:
    closed, scalar = settings.m_step == "closed", settings.beta == "scalar"

    def statistic(model: SpikeSlab, number: int) -> Statistic:
        return SpikeSlabSums(patches, model.astype(np.float32), settings.schedule(), number + 1, closed)

    def step(state: _Learned, sums: State, number: int) -> _Learned:
        # the sums were made with the rounded parameters
        here = state.model.astype(np.float32).astype(np.float64)
        bounds = settings.bounds()
        if closed:
            model = closed_form(here, sums, scalar_beta=scalar, bounds=bounds)
        else:
            model = gradient_step(here, sums, settings.rates(number), scalar_beta=scalar, bounds=bounds)
        return _Learned(model, (*state.trace, float(sums["energy"]) / int(sums["n"])))

    return _rounds(source, settings, engine, _started(settings, atoms), statistic, step)


def _omp(
    source: Source, settings: S3CSettings, engine: Engine, patches: PatchRows, atoms: Float64
) -> Outcome:
    spares = atoms[settings.units :]

    def statistic(model: SpikeSlab, number: int) -> Statistic:
        return OmpSums(patches, model.atoms.astype(np.float32), number + 1)

    def step(state: _Learned, sums: State, number: int) -> _Learned:
        lengths = np.sqrt((sums["sums"] ** 2).sum(axis=1))
        used = (sums["counts"] > 0) & (lengths > 0)
        fresh = np.where(used[:, None], sums["sums"] / np.where(used, lengths, 1)[:, None], state.model.atoms)
        dead = np.flatnonzero(~used)
        # the spares take turns, a different part of them each round
        if len(dead) and len(spares):
            fresh[dead] = spares[(np.arange(len(dead)) + (number - 1) * len(dead)) % len(spares)]
        return _Learned(
            replace(state.model, atoms=fresh), (*state.trace, -float(sums["loss"]) / int(sums["n"]))
        )

    return _rounds(source, settings, engine, _started(settings, atoms), statistic, step)


def _sparse_coding(
    source: Source, settings: S3CSettings, engine: Engine, patches: PatchRows, atoms: Float64
) -> Outcome:
    def statistic(model: SpikeSlab, number: int) -> Statistic:
        atoms, penalty = model.atoms.astype(np.float32), settings.penalty / 2  # of half the squares
        return L1Sums(patches, atoms, penalty, False, "coordinate", GAP, number + 1, True)

    def step(state: _Learned, sums: State, number: int) -> _Learned:
        second, cross = sums["second"], sums["cross"]
        if state.second is not None and state.cross is not None:
            second, cross = second + FORGET * state.second, cross + FORGET * state.cross
        fresh = dictionary_step(state.model.atoms, second, cross)
        trace = (*state.trace, -2 * float(sums["loss"]) / int(sums["n"]))
        return _Learned(replace(state.model, atoms=fresh), trace, second, cross)

    return _rounds(source, settings, engine, _started(settings, atoms), statistic, step)
