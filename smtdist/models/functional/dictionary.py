"""A dictionary of patches of sequences, by rounds of codes and block descent through the engine (SMT 2018, supplement A)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from smtdist.data.source import Source
from smtdist.data.views import chunk_subset
from smtdist.engine.passes import Engine
from smtdist.errors import DataError
from smtdist.kernels import sparse_codes as quick_codes
from smtdist.models.functional.fit import SparseCoder, Whitens
from smtdist.models.records import Record
from smtdist.solve.solution import Float64
from smtdist.statistics.base import State, Statistic
from smtdist.statistics.rows import RowDraw
from smtdist.statistics.sequences import DictionarySums
from smtdist.statistics.sites import Sequences

FORGET: Final = 0.9
"""What a round leaves of the sums of those before it (Mairal et al. 2009)."""
SPARES: Final = 2.0
"""Patches drawn for each atom: half of them may be flat, and the rest replace atoms that nothing uses."""


@dataclass(frozen=True)
class _Learned:
    atoms: Float64  # (K, d)
    second: Float64 | None = None
    cross: Float64 | None = None
    trace: tuple[float, ...] = ()


def learn_dictionary(
    source: Source,
    whitening: Whitens,
    engine: Engine,
    *,
    atoms: int,
    penalty: float,
    rounds: int = 20,
    batch: int = 1000,
    seed: int = 0,
) -> tuple[Float64, tuple[float, ...], list[Record]]:
    """Return unit atoms Φ (d, K), the objective of a row in each round, and the records of the passes.

    Starts from the busier half of patches drawn by hashes of (seed, sequence). A round codes `batch`
    sequences (whole chunk rows, drawn by hashes) and moves each atom in turn
    (`smtdist.kernels.sparse_codes.dictionary_step`) on fading sums; atoms that no code uses become patches
    that were drawn and not yet used. Memory: that of the pass (`DictionarySums`), and 3 K (K + d) float64.
    """
    drawn, record = engine.reduce(
        "start", RowDraw(int(SPARES * atoms), int(np.prod(source.shape[1:])), seed), source
    )
    taken = Sequences.of(source)
    # a sequence gives one patch: its frames are nearly the same
    first = drawn.state["rows"][:, : taken.width].astype(np.float64)
    white = whitening(first)
    lengths = np.linalg.norm(white, axis=1)
    busy = np.flatnonzero(lengths > max(float(np.median(lengths)) * 0.5, 1e-12))
    if len(busy) < atoms:
        raise DataError(
            f"{source.name} has only {len(busy)} drawn patches that are not flat, fewer than the {atoms} atoms asked for; "
            f"ask for fewer, or take more places in each window."
        )
    busy = busy[np.argsort(-lengths[busy], kind="stable")]
    unit = white[busy] / lengths[busy, None]
    spares = unit[atoms:]

    def make(state: _Learned, number: int) -> tuple[Statistic, Source]:
        coder = SparseCoder(state.atoms.T, penalty, whitening)
        return DictionarySums(coder, taken.marked), chunk_subset(source, batch, seed + number)

    def update(state: _Learned, sums: State, number: int) -> _Learned:
        second, cross = sums["second"], sums["cross"]
        if state.second is not None and state.cross is not None:
            second = second + FORGET * state.second
            cross = cross + FORGET * state.cross
        fresh = quick_codes.dictionary_step(state.atoms, second, cross, sweeps=1)
        dead = np.flatnonzero(second.diagonal() <= 1e-8 * second.diagonal().max(initial=0.0))
        if len(dead) and len(spares):
            fresh[dead] = spares[(np.arange(len(dead)) + (number - 1) * len(dead)) % len(spares)]
        loss = float(sums["loss"]) / max(1, int(sums["n"]))
        return replace(state, atoms=fresh, second=second, cross=cross, trace=(*state.trace, loss))

    end, records = engine.loop("dictionary", _Learned(unit[:atoms]), make, update, rounds)
    return np.ascontiguousarray(end.atoms.T), end.trace, [record, *records]
