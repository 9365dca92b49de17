"""Spike-and-slab sparse coding: its parameters, the E-step of Algorithm 1 and the energy functional, on any device.

Equations are those of Goodfellow, Courville and Bengio (2012), "Large-scale feature learning with
spike-and-slab sparse coding". Units are rows here: `atoms` (N, D) holds the columns of W.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from smtdist.errors import ConfigurationError, DataError
from smtdist.kernels.cpu import spike_slab as cpu
from smtdist.kernels.device import array_module, is_host, like
from smtdist.kernels.products import Ordered
from smtdist.kernels.threads import even_ranges, run_ranges
from smtdist.kernels.types import Array

RISING: Final = 19
"""Iterations of `Schedule.rising`, the default."""
ITERATIONS: Final = 12
BLOCK: Final = 96
"""Units that move at once, where blocks take turns: few of them compete, and a product is still worth its name."""


def _rising(iterations: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    steps = range(iterations)
    h = tuple(round(min(0.2 + 0.5 * step / 12, 0.7), 3) for step in steps)
    return h, tuple(round(min(0.2 + 0.03 * step, 0.5), 3) if step else 0.7 for step in steps)


@dataclass(frozen=True)
class Schedule:
    """How the fixed point is damped: η of each iteration for ĥ and for ŝ, ρ, by how much a reflection may overshoot, and block.

    block 0 is Algorithm 1: all units at once, ŝ and then ĥ, each from the residual v - Wx of what is there.
    Otherwise so many units move at once (rounded up to 16) and blocks take turns, see `infer`.

    Without arguments it is `rising`.

    >>> Schedule() == Schedule.rising(), Schedule().iterations, Schedule.constant(0.5, 3).h
    (True, 19, (0.5, 0.5, 0.5))
    """

    h: tuple[float, ...] = _rising(RISING)[0]
    s: tuple[float, ...] = _rising(RISING)[1]
    rho: float = 0.5
    block: int = 0

    def __post_init__(self) -> None:
        if len(self.h) != len(self.s) or not self.h:
            raise ConfigurationError(
                f"The damping of h has {len(self.h)} steps and that of s {len(self.s)}; give one or more, as many of each."
            )
        if not all(0 < eta <= 1 for eta in (*self.h, *self.s)) or not 0 <= self.rho <= 1:
            raise ConfigurationError("Damping must lie above 0 and up to 1, rho from 0 to 1.")
        if self.block < 0:
            raise ConfigurationError(
                f"A block has {self.block} units; give 1 or more, or 0 for Algorithm 1."
            )

    @classmethod
    def constant(cls, eta: float, iterations: int, rho: float = 0.5) -> Schedule:
        """Return the printed schedule: one η for both, K iterations."""
        return cls((eta,) * iterations, (eta,) * iterations, rho)

    @classmethod
    def stepped(cls) -> Schedule:
        """Return the default before `rising`: ĥ's damping goes up in four steps to .4, ŝ's is .1 but for the first.

        It ends further from the optimum in as many iterations: with 400 units and patches of CIFAR-10 by 5 nats.
        """
        return cls((0.1,) * 8 + (0.2,) * 3 + (0.3,) * 3 + (0.4,) * 5, (0.7,) + (0.1,) * 18)

    @classmethod
    def rising(cls, iterations: int = RISING) -> Schedule:
        """Return dampings that rise, ĥ's from .2 to .7 and ŝ's to .5: slow while many units compete, fast once few are left.

        >>> Schedule.rising(3)
        Schedule(h=(0.2, 0.242, 0.283), s=(0.7, 0.23, 0.26), rho=0.5, block=0)
        """
        return cls(*_rising(iterations))

    @classmethod
    def in_blocks(cls, iterations: int = ITERATIONS, block: int = BLOCK) -> Schedule:
        """Return blocks in turn; dampings rise to .8, those of ĥ over all iterations: more of them end nearer the optimum.

        >>> Schedule.in_blocks(4)
        Schedule(h=(0.2, 0.4, 0.6, 0.8), s=(0.7, 0.7, 0.8, 0.8), rho=0.5, block=96)
        """
        steps = range(iterations)
        h = tuple(round(0.8 * (step + 1) / iterations, 3) for step in steps)
        s = tuple(round(min(0.6 + 0.1 * step, 0.8), 3) if step else 0.7 for step in steps)
        return cls(h, s, block=block)

    @property
    def iterations(self) -> int:
        """K."""
        return len(self.h)

    @property
    def products(self) -> int:
        """Products of n x N x D that an iteration takes."""
        return 2 if self.block else 4

    def blocks(self, units: int, inputs: int) -> list[slice]:
        """Return the units that move at once: whole vectors of 16, no more than there are inputs, and at least four blocks.

        More units than inputs cannot move at once and not get into each other's way: ŝ may grow without
        bound.

        >>> Schedule.in_blocks(3).blocks(70, 40)
        [slice(0, 16, None), slice(16, 32, None), slice(32, 48, None), slice(48, 64, None), slice(64, 70, None)]
        >>> [len(Schedule.in_blocks().blocks(units, 108)) for units in (10, 100, 400, 1600)]
        [1, 7, 5, 17]
        """
        vectors = -(-units // 16)
        most = max(1, min(-(-self.block // 16), vectors // 4, inputs // 16))
        size = 16 * -(-vectors // -(-vectors // most))
        return [slice(start, min(start + size, units)) for start in range(0, units, size)]


TILE_ELEMENTS: Final = 1 << 18
TILE_LEAST, TILE_MOST = 32, 256
"""Rows of a tile: about 2^18 numbers in each of its four arrays, which then stay near the core that works on them."""


@dataclass(frozen=True, eq=False)
class SpikeSlab:
    """Parameters of the model: p(h_i = 1) = σ(b_i), s_i ~ N(h_i μ_i, 1/α_i), v_d ~ N(W_d (h∘s), 1/β_d) (equation 1).

    atoms : (N, D) unit rows, the columns of W. mu, alpha, bias : (N,). beta : (D,), equal entries for a
        scalar β.
    """

    atoms: Array
    mu: Array
    alpha: Array
    bias: Array
    beta: Array

    @property
    def n_units(self) -> int:
        """N."""
        return int(self.atoms.shape[0])

    @property
    def n_inputs(self) -> int:
        """D."""
        return int(self.atoms.shape[1])

    @cached_property
    def gains(self) -> Array:
        """W_iᵀ β W_i, (N,)."""
        with np.errstate(
            invalid="ignore"
        ):  # OpenBLAS computes with what lies beyond short rows, too, and leaves it out
            return (self.atoms * self.atoms) @ self.beta

    @cached_property
    def gamma(self) -> Array:
        """Precision of an active slab under Q, α_i + W_iᵀ β W_i (equation 5), (N,)."""
        return self.alpha + self.gains

    @cached_property
    def offsets(self) -> Array:
        """b_i + ½ log α_i - ½ log(α_i + W_iᵀ β W_i), (N,)."""
        xp = array_module(self.alpha)
        return self.bias + (xp.log(self.alpha) - xp.log(self.gamma)) / 2

    def astype(self, dtype: Any) -> SpikeSlab:
        """Return the parameters in another type."""
        parts = {name: getattr(self, name).astype(dtype) for name in PARAMETERS}
        return SpikeSlab(**parts)

    def on(self, reference: Array) -> SpikeSlab:
        """Return the parameters where `reference` is, host or device."""
        if is_host(self.atoms) == is_host(reference):
            return self
        return SpikeSlab(**{name: like(reference, getattr(self, name)) for name in PARAMETERS})

    def rescaled(self) -> SpikeSlab:
        """Return the same distribution of v with unit atoms: W_i / c, μ_i c, α_i / c² with c = ‖W_i‖.

        s_i W_i is unchanged where s_i is multiplied by c, so the constraint on W costs nothing.

        >>> one = SpikeSlab(np.array([[3.0, 4.0]]), np.ones(1), np.ones(1), np.zeros(1), np.ones(2)).rescaled()
        >>> one.atoms.tolist(), one.mu.tolist(), one.alpha.tolist()
        ([[0.6, 0.8]], [5.0], [0.04])
        """
        xp = array_module(self.atoms)
        norms = xp.sqrt((self.atoms * self.atoms).sum(axis=1))
        norms = xp.where(norms > 0, norms, 1)
        return replace(
            self, atoms=self.atoms / norms[:, None], mu=self.mu * norms, alpha=self.alpha / norms**2
        )


PARAMETERS: Final = ("atoms", "mu", "alpha", "bias", "beta")


class Posterior(NamedTuple):
    """Q(h_i) = ĥ_i, Q(s_i | h_i) = N(h_i ŝ_i, (α_i + h_i W_iᵀ β W_i)⁻¹) for each row (equation 5)."""

    h: Array  # (n, N)
    s: Array  # (n, N)

    @property
    def mean(self) -> Array:
        """E_Q[h∘s], (n, N)."""
        return self.h * self.s


def tile_rows(n_units: int) -> int:
    """Return the rows that are worked on together; of N alone, so that bits do not follow memory or threads.

    >>> tile_rows(100), tile_rows(1600), tile_rows(8000)
    (256, 160, 32)
    """
    fitting = TILE_ELEMENTS // max(1, n_units) // 32 * 32
    return max(TILE_LEAST, min(TILE_MOST, fitting))


def infer(rows: Array, model: SpikeSlab, schedule: Schedule | None = None) -> Posterior:
    """Run the damped fixed point on rows (n, D), blocks of units in turn unless told otherwise; returns ĥ and ŝ, (n, N) each.

    float32 rows on the host take the compiled body, tile by tile on all threads; float64 rows and those on
    a device the generic one. Memory: the result, and 3 N + 2 D numbers for each row of a tile and thread.

    `Schedule()` is Algorithm 1, in parallel over all units: an iteration is four products of n x N x D.
    With a block so many units at once move to their best ŝ*, damped, and from the same residual to their
    best ĥ for that ŝ; the residual follows before the next block moves. A round of all blocks is two
    products, not four. Damping acts on the log odds of ĥ, log ĥ/(1 - ĥ) <- (1 - η) log ĥ/(1 - ĥ) + η
    (ĥ*'s), so that what is explained away falls by powers and not by shares. A block of one would be the
    sequential fixed point, one of all units a parallel one. The fixed points are the same.

    Reflections are clipped as printed, but where ŝ = 0 the printed rule would freeze it there (sign 0
    differs from every sign): it is left free.

    >>> model = SpikeSlab(np.eye(2), np.ones(2), np.ones(2), np.zeros(2), np.full(2, 50.0))
    >>> infer(np.array([[2.0, 0.0]]), model, Schedule.constant(0.7, 20)).h.round(2).tolist()
    [[1.0, 0.08]]
    >>> infer(np.array([[2.0, 0.0]]), model).h.round(2).tolist()
    [[1.0, 0.08]]
    """
    schedule = schedule or Schedule.in_blocks()
    _require_rows(rows, model)
    if is_host(rows) and rows.dtype == np.float32 and model.atoms.dtype == np.float32:
        return _infer_tiles(rows, model, schedule)
    return deque(iterate(rows, model, schedule), maxlen=1).pop()


def iterate(rows: Array, model: SpikeSlab, schedule: Schedule) -> Iterator[Posterior]:
    """Yield ĥ and ŝ after every iteration, by any array module, all rows at once."""
    xp = array_module(rows)
    model = model.on(rows)
    shape = (len(rows), model.n_units)
    h = xp.ascontiguousarray(xp.broadcast_to(sigmoid(model.bias), shape))
    s = xp.ascontiguousarray(xp.broadcast_to(model.mu, shape))
    walk = _iterate_blocks if schedule.block else _iterate_together
    return walk(rows, model, schedule, h, s)


def _iterate_together(
    rows: Array, model: SpikeSlab, schedule: Schedule, h: Array, s: Array
) -> Iterator[Posterior]:
    """Algorithm 1."""
    fits, pulls = Ordered(model.atoms), Ordered(model.atoms.T)
    for eta_h, eta_s in zip(schedule.h, schedule.s, strict=True):
        x = h * s
        pull = pulls((rows - fits(x)) * model.beta)
        s = s + eta_s * (_clipped(pull, x, s, model, slice(None), schedule.rho) - s)
        x = h * s
        pull = pulls((rows - fits(x)) * model.beta)
        h = h + eta_h * (sigmoid(_drive(pull, x, s, model, slice(None))) - h)
        yield Posterior(h, s)


def _iterate_blocks(
    rows: Array, model: SpikeSlab, schedule: Schedule, h: Array, s: Array
) -> Iterator[Posterior]:
    """Blocks in turn."""
    xp = array_module(rows)
    h, s, weighted = h.copy(), s.copy(), model.atoms * model.beta
    odds = xp.tile(xp.clip(model.bias, -cpu.MOST_ODDS, cpu.MOST_ODDS), (len(rows), 1))
    rest = rows * model.beta - Ordered(weighted)(h[:1] * s[:1])
    blocks = [
        (block, Ordered(model.atoms[block].T), Ordered(weighted[block]))
        for block in schedule.blocks(model.n_units, model.n_inputs)
    ]
    for eta_h, eta_s in zip(schedule.h, schedule.s, strict=True):
        for block, pulls, fits in blocks:
            slabs, x = s[:, block], h[:, block] * s[:, block]
            pull = pulls(rest)
            slabs = slabs + eta_s * (_clipped(pull, x, slabs, model, block, schedule.rho) - slabs)
            best = xp.clip(_drive(pull, x, slabs, model, block), -cpu.MOST_ODDS, cpu.MOST_ODDS)
            odds[:, block] += eta_h * (best - odds[:, block])
            h[:, block], s[:, block] = sigmoid(odds[:, block]), slabs
            rest -= fits(h[:, block] * slabs - x)
        yield Posterior(h.copy(), s.copy())


def _clipped(pull: Array, x: Array, s: Array, model: SpikeSlab, units: slice, rho: float) -> Array:
    """Return the best ŝ of each of some units, reflections clipped; pull is Wᵀβ(v - Wx)."""
    xp = array_module(pull)
    best = ((model.alpha * model.mu)[units] + pull + model.gains[units] * x) / model.gamma[units]
    reflected = (best * s < 0) & (xp.abs(best) > rho * xp.abs(s))
    return xp.where(reflected, -rho * s, best)


def _drive(pull: Array, x: Array, s: Array, model: SpikeSlab, units: slice) -> Array:
    """Return the log odds of the best ĥ of each of some units, given ŝ; pull is Wᵀβ(v - Wx)."""
    gains = model.gains[units]
    own = s * (pull + gains * x - gains * s / 2)
    return own + model.offsets[units] - model.alpha[units] / 2 * (s - model.mu[units]) ** 2


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + exp(-x)) without overflow.

    >>> sigmoid(np.array([-1000.0, 0.0, 1000.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    xp = array_module(x)
    small = xp.exp(-xp.abs(x))
    return xp.where(x >= 0, 1, small) / (1 + small)


def _infer_tiles(rows: Array, model: SpikeSlab, schedule: Schedule) -> Posterior:
    """The compiled body on all threads, a tile at a time."""
    n, units = len(rows), model.n_units
    padded = Padded(model)
    if schedule.block:
        padded.blocks(schedule)  # before threads ask for them
    h, s = np.empty((n, units), np.float32), np.empty((n, units), np.float32)

    def work(start: int, stop: int) -> None:
        # fresh memory costs more than a pass over it
        whole = Posterior(h[start:stop], s[start:stop]) if padded.width == units else None
        found = deque(iterate_tile(rows[start:stop], padded, schedule, whole), maxlen=1).pop()
        if whole is None:
            h[start:stop], s[start:stop] = found

    run_ranges(work, even_ranges(n, tile_rows(units)))
    return Posterior(h, s)


class Padded:
    """A float32 model on the host as the compiled steps take it: units padded to whole vectors, which never become active.

    atoms : (width, D). fits, pulls : what multiplies by them, and by their transpose. table : (9, width), see
    `parameter_table`. start : W of ĥ∘ŝ at the start, the same for all rows.
    """

    def __init__(self, model: SpikeSlab) -> None:
        self.model, self.width = model, cpu.padded(model.n_units)
        self.table = cpu.parameter_table(model, self.width)
        atoms = np.ascontiguousarray(model.atoms)
        empty = np.zeros((self.width - model.n_units, model.n_inputs), np.float32)
        self.atoms = np.concatenate([atoms, empty]) if len(empty) else atoms
        self.fits, self.pulls = Ordered(self.atoms), Ordered(self.atoms.T)
        self._blocks: dict[int, list[tuple[int, Ordered, Ordered]]] = {}
        start = (sigmoid(model.bias) * model.mu).astype(np.float32)
        self.start = Ordered(atoms)(start[None])[0]

    def blocks(self, schedule: Schedule) -> list[tuple[int, Ordered, Ordered]]:
        """Return the first unit of each block, and what multiplies by its W_iᵀ and by its rows β∘W_i; kept."""
        if schedule.block not in self._blocks:
            weighted = self.atoms * self.model.beta
            self._blocks[schedule.block] = [
                (block.start, Ordered(self.atoms[block].T), Ordered(weighted[block]))
                for block in schedule.blocks(self.width, self.model.n_inputs)
            ]
        return self._blocks[schedule.block]


def iterate_tile(
    rows: Array, padded: Padded, schedule: Schedule, into: Posterior | None = None
) -> Iterator[Posterior]:
    """Yield what `iterate` does, by the compiled body and this thread alone; each iteration overwrites the last.

    into : contiguous memory of ĥ and ŝ, (n, width) each.
    """
    model, table = padded.model, padded.table
    tile = np.ascontiguousarray(rows)
    shape = (len(tile), padded.width)
    h, s = into or (np.empty(shape, np.float32), np.empty(shape, np.float32))
    x = np.empty(shape, np.float32)
    residual = (tile - padded.start) * model.beta
    cpu.start(h, s, x, table)
    walk = _tile_blocks if schedule.block else _tile_together
    found = Posterior(h[:, : model.n_units], s[:, : model.n_units])
    return (found for _ in walk(tile, padded, schedule, h, s, x, residual))


def _tile_together(
    tile: Array, padded: Padded, schedule: Schedule, h: Array, s: Array, x: Array, residual: Array
) -> Iterator[None]:
    """Four products and two passes over the units, the first time three: it starts at the same ĥ∘ŝ in every row."""
    beta, table = padded.model.beta, padded.table
    for step, (eta_h, eta_s) in enumerate(zip(schedule.h, schedule.s, strict=True)):
        if step:
            _residual(tile, x, padded.fits, beta, residual)
        # x becomes W'β(v - Wx), then h∘s again
        padded.pulls(residual, x)
        cpu.update_s(h, s, x, table, np.float32(eta_s), np.float32(schedule.rho))
        _residual(tile, x, padded.fits, beta, residual)
        padded.pulls(residual, x)
        cpu.update_h(h, s, x, table, np.float32(eta_h))
        yield


def _tile_blocks(
    tile: Array, padded: Padded, schedule: Schedule, h: Array, s: Array, odds: Array, residual: Array
) -> Iterator[None]:
    """Two products in blocks, and one pass over the units; the residual goes along with ĥ∘ŝ."""
    table, rho = padded.table, np.float32(schedule.rho)
    change = np.empty_like(residual)
    parts: list[tuple[Array, int, Ordered, Ordered]] = []
    for first, pulls, fits in padded.blocks(schedule):
        size = pulls.shape[1]
        same = parts and parts[0][0].shape[1] == size
        parts.append((parts[0][0] if same else np.empty((len(tile), size), np.float32), first, pulls, fits))
    odds[:] = table[cpu.ROWS_OF_TABLE.index("odds")]
    for etas in zip(schedule.h, schedule.s, strict=True):
        eta_h, eta_s = map(np.float32, etas)
        for pull, first, pulls, fits in parts:
            # Wᵀβ(v - Wx) of the block, then what its ĥ∘ŝ gains
            pulls(residual, pull)
            cpu.update_block(h, s, odds, pull, table, first, eta_h, eta_s, rho)
            fits(pull, change)
            np.subtract(residual, change, out=residual)
        yield


def _residual(tile: Array, x: Array, fits: Ordered, beta: Array, out: Array) -> None:
    """β (v - Wx)."""
    fits(x, out)
    np.subtract(tile, out, out=out)
    np.multiply(out, beta, out=out)


def energy(rows: Array, posterior: Posterior, model: SpikeSlab) -> Array:
    """Return the energy functional E_Q[log p(v, h, s)] + H(Q) of every row, (n,); log p(v) less it is KL(Q ‖ P(h, s | v)).

    With x = ĥ∘ŝ, a_i = W_iᵀ β W_i and γ = α + a (terms of the slabs' variances cancel at the optimum of
    equation 5): ½ Σ log β_d - D/2 log 2π - ½ (v - Wx)ᵀβ(v - Wx) - ½ Σ a_i (ĥŝ² - x²)
    + Σ ĥ (b - ½ α (ŝ - μ)² + ½ log α/γ) - Σ log(1 + e^b) + Σ H(ĥ).
    Memory: five numbers a row and unit.
    """
    xp = array_module(rows)
    model = model.on(rows)
    h, s = posterior
    x = h * s
    error = rows - x @ model.atoms
    fixed = xp.log(model.beta).sum() / 2 - model.n_inputs / 2 * np.log(2 * np.pi)
    fixed = fixed - xp.logaddexp(0, model.bias).sum()
    fit = -(error * error) @ model.beta / 2
    spread = -(h * s * s - x * x) @ model.gains / 2
    slab = h * (model.offsets - model.alpha / 2 * (s - model.mu) ** 2)
    tiny = xp.finfo(h.dtype).tiny
    entropy = -(h * xp.log(xp.maximum(h, tiny)) + (1 - h) * xp.log(xp.maximum(1 - h, tiny)))
    return fixed + fit + spread + (slab + entropy).sum(axis=1)


def _require_rows(rows: Array, model: SpikeSlab) -> None:
    if rows.ndim != 2 or rows.shape[1] != model.n_inputs:
        raise DataError(
            f"Rows have the shape {tuple(rows.shape)}, but the model takes (rows, {model.n_inputs}); give whitened patches of "
            f"that size."
        )
