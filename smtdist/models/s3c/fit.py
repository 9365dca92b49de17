"""Fit a patch coder through the engine: whitening, a start, then rounds of E-step, sums and M-step."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.data.source import Source
from smtdist.data.subset import chunk_subset
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError
from smtdist.kernels.contrast import zca
from smtdist.kernels.spike_slab import SpikeSlab
from smtdist.kernels.threads import single_blas
from smtdist.models.s3c.model import PatchCoder, Record, patch_rows
from smtdist.models.s3c.mstep import closed_form, gradient_step
from smtdist.models.s3c.settings import S3CSettings, StartSettings
from smtdist.statistics.base import State, Statistic
from smtdist.statistics.patch_rows import PatchRows, RowMoments, RowSample
from smtdist.statistics.sparse_codes import CodeSums, OmpSums
from smtdist.statistics.spike_slab import SpikeSlabSums

Float64 = NDArray[np.float64]

LEAST_LENGTH = 0.1
"""Share of the median length below which a whitened patch is too flat to be an atom."""
SPARES, FEW = 0.25, 512
"""Patches drawn beyond one for each atom: a quarter more, or as many again up to 512. Some are flat, and atoms may die."""
FORGET = 0.9
"""What a round leaves of the sums of those before it, in sparse coding (Mairal et al. 2009)."""


def fit_coder(source: Source, settings: S3CSettings, engine: Engine) -> tuple[PatchCoder, list[Record]]:
    """Fit spike-and-slab sparse coding or a rival; returns it with the records of its passes.

    Passes: `whitening` (Σ x, Σ x xᵀ of contrast-normalised patches), `start` (a seeded sample of whitened ones), then `round-1`,
    `round-2`, ... over chunk rows drawn by (seed, round). All sums are floating point and meet along the fixed tree: the same
    bits for any number of workers, after losses and after a resume. Memory on a worker: the plan's, stated before each pass.
    """
    start = begun(source, settings, engine)
    fits = {"s3c": _spike_slab, "omp": _omp, "sc": _sparse_coding}
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
class Start:
    """What rounds begin with: how patches are made, the whitening, unit atoms with their spares, and two records."""

    patches: PatchRows
    mean: Float64
    whiten: Float64
    unwhiten: Float64
    atoms: Float64
    records: tuple[Record, Record]


def begun(source: Source, settings: StartSettings, engine: Engine) -> Start:
    """Run the passes `whitening` and `start`."""
    shape = _shape(source, settings)
    before = chunk_subset(source, settings.whiten_images, settings.seed)
    count = settings.patches or None
    bare = patch_rows(settings, shape, count)
    partial, whitening = engine.reduce("whitening", RowMoments(bare), before)
    if int(partial.state["n"]) < 2:
        raise DataError(f"{source.name} has a single patch; give more images.")
    with single_blas():
        mean, whiten, unwhiten = zca(
            partial.state["total"], partial.state["moment"], int(partial.state["n"]), settings.ridge
        )
    patches = replace(bare, mean=mean, whiten=whiten)
    # random atoms need no patches; two say how long one is
    wanted = _drawn(settings.units) if settings.start == "patches" else 2
    each = max(1, -(-4 * wanted // before.n_samples))
    found, start = engine.reduce("start", RowSample(patches, wanted, each), before)
    atoms = _distinct(found.state["rows"].astype(np.float64), settings, source.name)
    return Start(patches, mean, whiten, unwhiten, atoms, (whitening, start))


def origin(source: Source) -> dict[str, Any]:
    """Return what a model file says about its origin."""
    return {"source": source.describe(), "versions": _versions()}


def _drawn(units: int) -> int:
    return units + max(math.ceil(SPARES * units), min(units, FEW))


def _shape(source: Source, settings: StartSettings) -> tuple[int, int, int]:
    height, width, channels = source.shape[1:]
    if settings.patch > min(height, width):
        raise ConfigurationError(
            f"patch is {settings.patch}, but {source.name} has images of {height} x {width}; use a smaller patch."
        )
    if source.dtype == np.uint8 and settings.pixel_range not in (None, (0, 255)):
        raise ConfigurationError(f"{source.name} is uint8, which runs from 0 to 255; leave out pixel_range.")
    return height, width, channels


def _distinct(rows: Float64, settings: StartSettings, name: str) -> Float64:
    """Return unit atoms and their spares: drawn patches that are not flat, or random directions."""
    lengths = np.sqrt((rows * rows).sum(axis=1))
    rows = rows[lengths > LEAST_LENGTH * float(np.median(lengths))] if len(rows) else rows
    if settings.start == "random":
        size = (_drawn(settings.units), rows.shape[1])
        rows = np.random.default_rng(settings.seed).standard_normal(size)
    if len(rows) < settings.units:
        raise DataError(
            f"{name} has only {len(rows)} drawn patches that are not flat, fewer than the {settings.units} units asked "
            f"for; lower units, or give more images."
        )
    return np.asarray(rows / np.sqrt((rows * rows).sum(axis=1, keepdims=True)))


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

    end, records = engine.rounds("round", _Learned(start), make, update, settings.rounds)
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
        return CodeSums(patches, model.atoms.astype(np.float32), settings.penalty, number + 1)

    def step(state: _Learned, sums: State, number: int) -> _Learned:
        second, cross = sums["second"], sums["cross"]
        if state.second is not None and state.cross is not None:
            second, cross = second + FORGET * state.second, cross + FORGET * state.cross
        fresh = dictionary_step(state.model.atoms, second, cross)
        trace = (*state.trace, -float(sums["loss"]) / int(sums["n"]))
        return _Learned(replace(state.model, atoms=fresh), trace, second, cross)

    return _rounds(source, settings, engine, _started(settings, atoms), statistic, step)


def dictionary_step(atoms: Float64, second: Float64, cross: Float64, sweeps: int = 2) -> Float64:
    """Return atoms that lower Σ ‖x - Σ s_i W_i‖² within the unit ball, one after another (Mairal et al. 2009, algorithm 2).

    Brought to unit length afterwards, as the codes' penalty is on the same scale for all. Unused atoms stay.
    """
    fresh = atoms.copy()
    floor = 1e-10 * max(float(second.diagonal().max()), 1e-300)
    for _ in range(sweeps):
        for unit in range(len(fresh)):
            own = second[unit, unit]
            if own <= floor:
                continue
            moved = fresh[unit] + (cross[unit] - second[unit] @ fresh) / own
            fresh[unit] = moved / max(float(np.linalg.norm(moved)), 1e-12)
    return fresh


def _versions() -> dict[str, str]:
    return {"smtdist": version("smtdist"), "numpy": np.__version__, "python": platform.python_version()}
