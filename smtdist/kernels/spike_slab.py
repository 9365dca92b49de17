"""Spike-and-slab sparse coding: its parameters, the E-step of Algorithm 1 and the energy functional, on any device.

Equations are those of Goodfellow, Courville and Bengio (2012), "Large-scale feature learning with spike-and-slab sparse
coding". Units are rows here: `atoms` (N, D) holds the columns of W.
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
from smtdist.kernels.threads import even_ranges, run_ranges, single_blas
from smtdist.kernels.types import Array

H_DAMPING: Final = (0.1,) * 8 + (0.2,) * 3 + (0.3,) * 3 + (0.4,) * 5
S_DAMPING: Final = (0.7,) + (0.1,) * 18
"""The two schedules in use; the paper prints one η for both."""
TILE_ELEMENTS: Final = 1 << 18
TILE_LEAST, TILE_MOST = 32, 256
"""Rows of a tile: about 2^18 numbers in each of its four arrays, which then stay near the core that works on them."""


@dataclass(frozen=True, eq=False)
class SpikeSlab:
    """Parameters of the model: p(h_i = 1) = σ(b_i), s_i ~ N(h_i μ_i, 1/α_i), v_d ~ N(W_d (h∘s), 1/β_d) (equation 1).

    atoms : (N, D) unit rows, the columns of W. mu, alpha, bias : (N,). beta : (D,), equal entries for a scalar β.
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


@dataclass(frozen=True)
class Schedule:
    """How Algorithm 1 is damped: η of each iteration for ĥ and for ŝ, and ρ, by how much a reflection may overshoot.

    >>> Schedule().iterations, Schedule.constant(0.5, 3).h
    (19, (0.5, 0.5, 0.5))
    """

    h: tuple[float, ...] = H_DAMPING
    s: tuple[float, ...] = S_DAMPING
    rho: float = 0.5

    def __post_init__(self) -> None:
        if len(self.h) != len(self.s) or not self.h:
            raise ConfigurationError(
                f"The damping of h has {len(self.h)} steps and that of s {len(self.s)}; give one or more, as many of each."
            )
        if not all(0 < eta <= 1 for eta in (*self.h, *self.s)) or not 0 <= self.rho <= 1:
            raise ConfigurationError("Damping must lie above 0 and up to 1, rho from 0 to 1.")

    @classmethod
    def constant(cls, eta: float, iterations: int, rho: float = 0.5) -> Schedule:
        """Return the printed schedule: one η for both, K iterations."""
        return cls((eta,) * iterations, (eta,) * iterations, rho)

    @classmethod
    def rising(cls, iterations: int = 19) -> Schedule:
        """Return dampings that rise, ĥ's from .2 to .7 and ŝ's to .5: slow while many units compete, fast once few are left.

        In as many iterations it ends nearer the optimum than the schedules in use: with 400 units on patches of 6 x 6 by 6 nats.

        >>> Schedule.rising(3)
        Schedule(h=(0.2, 0.242, 0.283), s=(0.7, 0.23, 0.26), rho=0.5)
        """
        steps = range(iterations)
        h = tuple(round(min(0.2 + 0.5 * step / 12, 0.7), 3) for step in steps)
        s = tuple(round(min(0.2 + 0.03 * step, 0.5), 3) if step else 0.7 for step in steps)
        return cls(h, s)

    @property
    def iterations(self) -> int:
        """K."""
        return len(self.h)


def tile_rows(n_units: int) -> int:
    """Return the rows that are worked on together; of N alone, so that bits do not follow memory or threads.

    >>> tile_rows(100), tile_rows(1600), tile_rows(8000)
    (256, 160, 32)
    """
    fitting = TILE_ELEMENTS // max(1, n_units) // 32 * 32
    return max(TILE_LEAST, min(TILE_MOST, fitting))


def infer(rows: Array, model: SpikeSlab, schedule: Schedule | None = None) -> Posterior:
    """Run the parallel fixed point of Algorithm 1 on rows (n, D); returns ĥ and ŝ, (n, N) each.

    float32 rows on the host take the compiled body, tile by tile on all threads; float64 rows and those on a device the
    generic one. An iteration is four products of n x N x D. Memory: the result, and 2 N + 2 D numbers for each row of a
    tile and thread.

    Reflections are clipped as printed, but where ŝ = 0 the printed rule would freeze it there (sign 0 differs from every
    sign): it is left free.

    >>> model = SpikeSlab(np.eye(2), np.ones(2), np.ones(2), np.zeros(2), np.full(2, 50.0))
    >>> infer(np.array([[2.0, 0.0]]), model, Schedule.constant(0.7, 20)).h.round(2).tolist()
    [[1.0, 0.08]]
    """
    schedule = schedule or Schedule()
    _require_rows(rows, model)
    if is_host(rows) and rows.dtype == np.float32 and model.atoms.dtype == np.float32:
        return _infer_tiles(rows, model, schedule)
    return deque(iterate(rows, model, schedule), maxlen=1).pop()


def iterate(rows: Array, model: SpikeSlab, schedule: Schedule) -> Iterator[Posterior]:
    """Yield ĥ and ŝ after every iteration of Algorithm 1, by any array module, all rows at once."""
    xp = array_module(rows)
    model = model.on(rows)
    shape = (len(rows), model.n_units)
    h = xp.ascontiguousarray(xp.broadcast_to(sigmoid(model.bias), shape))
    s = xp.ascontiguousarray(xp.broadcast_to(model.mu, shape))
    prior, constant = model.alpha * model.mu, model.alpha / 2
    gains, gamma, offsets = model.gains, model.gamma, model.offsets
    for eta_h, eta_s in zip(schedule.h, schedule.s, strict=True):
        x = h * s
        pull = ((rows - x @ model.atoms) * model.beta) @ model.atoms.T + gains * x
        best = (prior + pull) / gamma
        reflected = (best * s < 0) & (xp.abs(best) > schedule.rho * xp.abs(s))
        clipped = xp.where(reflected, -schedule.rho * s, best)
        s = s + eta_s * (clipped - s)
        x = h * s
        pull = ((rows - x @ model.atoms) * model.beta) @ model.atoms.T + gains * x
        drive = s * (pull - gains * s / 2) + offsets - constant * (s - model.mu) ** 2
        h = h + eta_h * (sigmoid(drive) - h)
        yield Posterior(h, s)


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
    h, s = np.empty((n, units), np.float32), np.empty((n, units), np.float32)

    def work(start: int, stop: int) -> None:
        found = deque(iterate_tile(rows[start:stop], padded, schedule), maxlen=1).pop()
        h[start:stop], s[start:stop] = found

    with single_blas():
        run_ranges(work, even_ranges(n, tile_rows(units)))
    return Posterior(h, s)


class Padded:
    """A float32 model on the host as the compiled steps take it: units padded to whole vectors, which never become active.

    atoms : (width, D). table : (8, width), see `parameter_table`. x, error : ĥ∘ŝ at the start and W of it, the same for all rows.
    """

    def __init__(self, model: SpikeSlab) -> None:
        self.model, self.width = model, cpu.padded(model.n_units)
        self.table = cpu.parameter_table(model, self.width)
        atoms = np.ascontiguousarray(model.atoms)
        empty = np.zeros((self.width - model.n_units, model.n_inputs), np.float32)
        self.atoms = np.concatenate([atoms, empty]) if len(empty) else atoms
        self.start = (sigmoid(model.bias) * model.mu).astype(np.float32) @ model.atoms


def iterate_tile(rows: Array, padded: Padded, schedule: Schedule) -> Iterator[Posterior]:
    """Yield what `iterate` does, by the compiled body and this thread alone; each iteration overwrites the last.

    An iteration is four products and two passes over the units, the first one three: it starts at the same ĥ∘ŝ in every row.
    """
    model, atoms, table = padded.model, padded.atoms, padded.table
    tile = np.ascontiguousarray(rows)
    h, s, x = (np.empty((len(tile), padded.width), np.float32) for _ in range(3))
    residual = (tile - padded.start) * model.beta
    cpu.start(h, s, x, table)
    for step, (eta_h, eta_s) in enumerate(zip(schedule.h, schedule.s, strict=True)):
        if step:
            _residual(tile, x, atoms, model.beta, residual)
        # x becomes W'β(v - Wx), then h∘s again
        np.matmul(residual, atoms.T, out=x)
        cpu.update_s(h, s, x, table, np.float32(eta_s), np.float32(schedule.rho))
        _residual(tile, x, atoms, model.beta, residual)
        np.matmul(residual, atoms.T, out=x)
        cpu.update_h(h, s, x, table, np.float32(eta_h))
        yield Posterior(h[:, : model.n_units], s[:, : model.n_units])


def _residual(tile: Array, x: Array, atoms: Array, beta: Array, out: Array) -> None:
    """β (v - Wx)."""
    np.matmul(x, atoms, out=out)
    np.subtract(tile, out, out=out)
    np.multiply(out, beta, out=out)


def energy(rows: Array, posterior: Posterior, model: SpikeSlab) -> Array:
    """Return the energy functional E_Q[log p(v, h, s)] + H(Q) of every row, (n,); log p(v) less it is KL(Q ‖ P(h, s | v)).

    With x = ĥ∘ŝ, a_i = W_iᵀ β W_i and γ = α + a (terms of the slabs' variances cancel at the optimum of equation 5):
    ½ Σ log β_d - D/2 log 2π - ½ (v - Wx)ᵀβ(v - Wx) - ½ Σ a_i (ĥŝ² - x²)
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
    return fixed + fit + spread + (slab + _entropy(h)).sum(axis=1)


def _entropy(h: Array) -> Array:
    xp = array_module(h)
    tiny = xp.finfo(h.dtype).tiny
    return -(h * xp.log(xp.maximum(h, tiny)) + (1 - h) * xp.log(xp.maximum(1 - h, tiny)))


def _require_rows(rows: Array, model: SpikeSlab) -> None:
    if rows.ndim != 2 or rows.shape[1] != model.n_inputs:
        raise DataError(
            f"Rows have the shape {tuple(rows.shape)}, but the model takes (rows, {model.n_inputs}); give whitened patches of "
            f"that size."
        )
