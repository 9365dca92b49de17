"""How rows of sequences become codes: a whitening, a dictionary by block descent (supplement A), and sparse codes (SMT 2018)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from smtdist.data.source import Source
from smtdist.data.views import chunk_subset
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError
from smtdist.kernels import contrast, l1
from smtdist.kernels import sparse_codes as quick_codes
from smtdist.kernels.features import Features
from smtdist.kernels.products import Ordered
from smtdist.models.functional.settings import FunctionalSettings
from smtdist.models.provenance import Record
from smtdist.solve.solution import Float64
from smtdist.statistics.base import State, Statistic
from smtdist.statistics.rows import RowDraw
from smtdist.statistics.sequences import DictionarySums, FrameMoments
from smtdist.statistics.sites import Sequences

GAP: Final = 1e-3
"""Relative duality gap of codes that are summed: their grid is 2^-16 wide."""
RIDGE: Final = 1e-2
"""Ridge of ZCA as a share of the mean variance of a pixel."""
FORGET: Final = 0.9
"""What a round leaves of the sums of those before it (Mairal et al. 2009)."""
SPARES: Final = 2.0
"""Patches drawn for each atom: half of them may be flat, and the rest replace atoms that nothing uses."""


@dataclass(frozen=True, eq=False)
class Whitening:
    """x = (raw - mean) W, rows (m, d), and its inverse: ZCA, or W = I / rms where frames are whitened before patches are cut."""

    mean: Float64
    whiten: Float64
    unwhiten: Float64

    def __call__(self, rows: Float64) -> Float64:
        """Return whitened rows."""
        result: Float64 = Ordered(self.whiten)(rows - self.mean)
        return result

    def back(self, rows: Float64) -> Float64:
        """Return raw rows of whitened ones.

        >>> scaled = Whitening(np.ones(2), np.eye(2) / 4, np.eye(2) * 4)
        >>> scaled.back(scaled(np.array([[3.0, 5.0]]))).tolist()
        [[3.0, 5.0]]
        """
        result: Float64 = rows @ self.unwhiten + self.mean
        return result


def fit_whitening(
    source: Source,
    engine: Engine,
    kind: str = "zca",
    ridge: float = RIDGE,
    *,
    through: Callable[[Float64], Float64] | None = None,
    width: int | None = None,
) -> tuple[Whitening, Float64, Record]:
    """Learn a whitening of rows in one pass; return it, the covariance of raw rows (for PCA), and the record.

    kind : "zca", (Σ + ridge · mean variance · I)^(-1/2), or "scale", one number that brings the mean
    variance to 1. `through` makes other rows of `width` numbers of raw ones: the layers below.
    """
    if kind not in ("zca", "scale"):
        raise ConfigurationError(f"The whitening is {kind!r}; choose zca or scale.")
    taken = Sequences.of(source)
    width = taken.width if width is None else width
    partial, record = engine.reduce("whitening", FrameMoments(width, through, taken.marked), source)
    count = int(partial.state["n"])
    total = partial.state["total"]
    moment = partial.state["moment"]
    mean = total / count
    covariance = moment / count - np.outer(mean, mean)
    level = float(covariance.trace()) / width
    if not level > 0:
        raise DataError(f"{source.name} has patches without any variance; give other clips.")
    if kind == "scale":
        scaled = np.eye(width) / np.sqrt(level)
        return Whitening(mean, scaled, np.eye(width) * np.sqrt(level)), covariance, record
    mean, whiten, unwhiten = contrast.zca(total, moment, count, ridge * level)
    return Whitening(mean, whiten, unwhiten), covariance, record


@dataclass(frozen=True, eq=False)
class SparseCoder(Features):
    """Positive sparse codes of rows: argmin over a >= 0 of ½ ‖x - Φ a‖² + λ Σ a, x whitened (SMT 2018, eq. 10).

    dictionary : Φ (d, K). Codes are computed in float32, to a relative duality gap of `gap`.
    """

    dictionary: Float64
    penalty: float
    whitening: Whitening | None = None
    gap: float = GAP
    ordered = True

    @property
    def size(self) -> int:  # type: ignore[override]  # a field of the base class, computed here
        """Number of atoms, K."""
        return int(self.dictionary.shape[1])

    def whitened(self, rows: Float64) -> Float64:
        """Return rows as the dictionary sees them."""
        return rows if self.whitening is None else self.whitening(rows)

    def __call__(self, points: Float64) -> Float64:
        """Return codes of raw rows (m, d), (m, K)."""
        x = self.whitened(points).astype(np.float32)
        codes, _, _ = l1.sparse_codes(self.dictionary.astype(np.float32), x, self.penalty, gap=self.gap)
        return np.asarray(codes, np.float64)


@dataclass(frozen=True)
class _Learned:
    atoms: Float64  # (K, d)
    second: Float64 | None = None
    cross: Float64 | None = None
    trace: tuple[float, ...] = ()


def learn_dictionary(
    source: Source, whitening: Whitening, engine: Engine, settings: FunctionalSettings
) -> tuple[Float64, tuple[float, ...], list[Record]]:
    """Return unit atoms Φ (d, K), the objective of a row in each round, and the records of the passes.

    Starts from the busier half of patches drawn by hashes of (seed, sequence). A round codes `batch`
    sequences (whole chunk rows, drawn by hashes) and moves each atom in turn
    (`smtdist.kernels.sparse_codes.dictionary_step`) on fading sums; atoms that no code uses become patches
    that were drawn and not yet used. Memory: that of the pass (`DictionarySums`), and 3 K (K + d) float64.
    """
    atoms, seed = settings.n_atoms, settings.random_state
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
        coder = SparseCoder(state.atoms.T, settings.penalty, whitening)
        return DictionarySums(coder, taken.marked), chunk_subset(source, settings.batch, seed + number)

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

    end, records = engine.loop("dictionary", _Learned(unit[:atoms]), make, update, settings.max_iter)
    return np.ascontiguousarray(end.atoms.T), end.trace, [record, *records]
