"""Other E-steps for spike-and-slab sparse coding: one unit after another, by conjugate gradients, and by enumeration."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

import numpy as np

from smtdist.errors import ConfigurationError
from smtdist.kernels.cpu import spike_slab as cpu
from smtdist.kernels.cpu.jit import compiled
from smtdist.kernels.device import array_module, to_host
from smtdist.kernels.spike_slab import Padded, Posterior, SpikeSlab, sigmoid
from smtdist.kernels.threads import even_ranges, run_ranges
from smtdist.kernels.types import Array

MOST_UNITS: Final = 14
"""Units of which all 2^N states are still enumerated."""
ROWS: Final = 16
SMALLEST: Final = np.float32(1e-30)
"""What a product ĥ γ that divides is taken for where it is less."""


def sequential(rows: Array, model: SpikeSlab, sweeps: int = 20) -> Posterior:
    """Update ŝ_i, then ĥ_i, for one unit after another: KL(Q ‖ P) never rises (section 4), on the host.

    rows : (n, D), any device; results are NumPy arrays of their type. Cost: sweeps x n x N x 2 D, without
        BLAS.

    >>> model = SpikeSlab(np.eye(2), np.ones(2), np.ones(2), np.zeros(2), np.full(2, 50.0))
    >>> sequential(np.array([[2.0, 0.0]]), model, 1).h.round(2).tolist()
    [[1.0, 0.08]]
    """
    if sweeps < 1:
        raise ConfigurationError(f"There are {sweeps} sweeps; at least one is needed.")
    return deque(iterate_sequential(rows, model, sweeps), maxlen=1).pop()


def iterate_sequential(
    rows: Array, model: SpikeSlab, sweeps: int, damping: float = 1.0
) -> Iterator[Posterior]:
    """Yield ĥ and ŝ after every sweep; `damping` below 1 takes only part of each step of ĥ."""
    rows = np.ascontiguousarray(to_host(rows))
    model = model.on(rows).astype(rows.dtype)
    shape = (len(rows), model.n_units)
    h = np.broadcast_to(sigmoid(model.bias), shape).copy()
    s = np.broadcast_to(model.mu, shape).copy()
    residual = rows - (h * s) @ model.atoms
    parts = (model.atoms, model.beta, model.mu, model.alpha, model.gains, model.gamma, model.offsets)
    for _ in range(sweeps):

        def work(start: int, stop: int) -> None:
            here = slice(start, stop)
            _sweep(h[here], s[here], residual[here], *parts, damping)

        run_ranges(work, even_ranges(len(rows), ROWS))
        yield Posterior(h.copy(), s.copy())


def iterate_conjugate(
    rows: Array,
    model: SpikeSlab,
    damping: tuple[float, ...],
    steps: int = 3,
    *,
    preconditioned: bool = False,
) -> Iterator[Posterior]:
    """Yield ĥ and ŝ after every iteration of the first method of section 4: conjugate gradients in ŝ, then damped ĥ.

    Given ĥ the terms of the KL divergence in ŝ are ½ ŝᵀAŝ - cᵀŝ with A = ĥWᵀβWĥ + diag(ĥ(1 - ĥ)a + ĥα) and
    c = ĥ∘(Wᵀβv + αμ), for each row its own. A times a vector is two products, no Hessian is formed. `steps`
    are taken in each iteration, from the last ŝ. `preconditioned` divides by the diagonal ĥγ of A, which
    the paper does not. WᵀβW(ĥ∘ŝ) goes along with ŝ, so that the step of ĥ costs no product: an iteration is
    2 + 2 steps of n x N x D.
    """
    xp = array_module(rows)
    model = model.on(rows).astype(rows.dtype)
    transposed, gains, alpha = (model.atoms * model.beta).T, model.gains, model.alpha
    shape = (len(rows), model.n_units)
    h = xp.ascontiguousarray(xp.broadcast_to(sigmoid(model.bias), shape))
    s = xp.ascontiguousarray(xp.broadcast_to(model.mu, shape))
    from_rows = rows @ transposed
    drive, constant = from_rows + alpha * model.mu, alpha / 2
    tiny = xp.finfo(rows.dtype).tiny
    for eta in damping:
        reach = ((h * s) @ model.atoms) @ transposed
        diagonal = h * (1 - h) * gains + h * alpha
        scale = xp.maximum(h * model.gamma, tiny) if preconditioned else None
        rest = h * (drive - reach) - diagonal * s
        direction = ready = rest if scale is None else rest / scale
        old = (rest * ready).sum(axis=1, keepdims=True)
        for step in range(steps):
            reached = ((h * direction) @ model.atoms) @ transposed
            moved = h * reached + diagonal * direction
            length = old / xp.maximum((direction * moved).sum(axis=1, keepdims=True), tiny)
            s = s + length * direction
            reach = reach + length * reached
            if step + 1 < steps:
                rest = rest - length * moved
                ready = rest if scale is None else rest / scale
                new = (rest * ready).sum(axis=1, keepdims=True)
                direction = ready + new / xp.maximum(old, tiny) * direction
                old = new
        pull = from_rows - reach + gains * h * s
        best = s * (pull - gains * s / 2) + model.offsets - constant * (s - model.mu) ** 2
        h = h + eta * (sigmoid(best) - h)
        yield Posterior(h, s)


def iterate_conjugate_tile(
    rows: Array, padded: Padded, damping: tuple[float, ...], steps: int = 3, *, preconditioned: bool = False
) -> Iterator[Posterior]:
    """Yield what `iterate_conjugate` does, by compiled steps and this thread alone; each iteration overwrites the last.

    The first iteration is 2 steps + 1 products, as ĥ∘ŝ is the same in every row.
    """
    model, atoms, table = padded.model, padded.atoms, padded.table
    prior, gains, inverse = table[0], table[1], table[2]
    gamma = 1 / np.where(inverse > 0, inverse, np.float32(1))
    shape = (len(rows), padded.width)
    h, s, x, reach, rest, direction, moved = (np.zeros(shape, np.float32) for _ in range(7))
    into = np.empty((len(rows), model.n_inputs), np.float32)
    weighted = np.ascontiguousarray((atoms * model.beta).T)
    ready = np.zeros(shape, np.float32) if preconditioned else rest
    drive = rows @ weighted + prior
    cpu.start(h, s, x, table)
    none = np.zeros(len(rows), np.float32)
    tiny = np.finfo(np.float32).tiny
    for number, eta in enumerate(damping):
        if number:
            np.multiply(h, s, out=x)
            np.matmul(np.matmul(x, atoms, out=into), weighted, out=reach)
        else:
            reach[:] = padded.start @ weighted
        _begin(h, s, reach, drive, gains, gamma, rest)
        old = share = length = none
        for step in range(steps):
            if step:
                _advance(rest, -length, moved)
            if preconditioned:
                _prepare(h, rest, gamma, ready)
            new = np.einsum("nu,nu->n", rest, ready)
            if step:
                share = new / np.maximum(old, tiny)
            old = new
            _turn(h, ready, share, direction, x)
            reached = np.matmul(np.matmul(x, atoms, out=into), weighted, out=x)
            _move(h, direction, reached, gains, gamma, moved)
            length = old / np.maximum(np.einsum("nu,nu->n", direction, moved), tiny)
            _advance(s, length, direction)
            _advance(reach, length, reached)
        _less(drive, reach, prior, x)
        cpu.update_h(h, s, x, table, np.float32(eta))
        yield Posterior(h[:, : model.n_units], s[:, : model.n_units])


def log_likelihood(rows: Array, model: SpikeSlab) -> Array:
    """Return log p(v) of every row, (n,), by enumerating all 2^N states of h; for N up to 14.

    p(v | h) = N(v; W (h∘μ), β⁻¹ + W diag(h/α) Wᵀ). Runs in float64 on the host. Less the energy functional
    it is the KL divergence of Q from the posterior.

    >>> model = SpikeSlab(np.ones((1, 1)), np.zeros(1), np.ones(1), np.full(1, -50.0), np.ones(1))
    >>> log_likelihood(np.zeros((1, 1)), model).round(6).tolist()
    [-0.918939]
    """
    if model.n_units > MOST_UNITS:
        raise ConfigurationError(
            f"The model has {model.n_units} units, 2^{model.n_units} states of h; at most {MOST_UNITS} are enumerated: compare "
            f"energy functionals instead."
        )
    rows = np.asarray(to_host(rows), np.float64)
    model = model.on(rows).astype(np.float64)
    terms = []
    for state in range(1 << model.n_units):
        on = (state >> np.arange(model.n_units)) & 1 == 1
        atoms = model.atoms[on]
        cover = np.diag(1 / model.beta) + (atoms.T / model.alpha[on]) @ atoms
        away = rows - model.mu[on] @ atoms
        _, size = np.linalg.slogdet(2 * np.pi * cover)
        prior = np.where(on, model.bias, 0).sum() - np.logaddexp(0, model.bias).sum()
        terms.append(prior - size / 2 - (away * np.linalg.solve(cover, away.T).T).sum(axis=1) / 2)
    total: Array = np.logaddexp.reduce(terms, axis=0)
    return total


@compiled
def _sweep(
    h: Array,
    s: Array,
    residual: Array,
    atoms: Array,
    beta: Array,
    mu: Array,
    alpha: Array,
    gains: Array,
    gamma: Array,
    offsets: Array,
    damping: float,
) -> None:
    """Take every unit of every row in order: the best ŝ_i, then the best ĥ_i; the residual v - Wx follows."""
    inputs = atoms.shape[1]
    for row in range(h.shape[0]):
        for unit in range(h.shape[1]):
            pull = h[row, unit] * s[row, unit] * gains[unit]
            for d in range(inputs):
                pull += residual[row, d] * beta[d] * atoms[unit, d]
            best = (alpha[unit] * mu[unit] + pull) / gamma[unit]
            drive = best * (pull - gains[unit] * best / 2) + offsets[unit]
            drive -= alpha[unit] / 2 * (best - mu[unit]) ** 2
            active = 1 / (1 + np.exp(-drive)) if drive >= 0 else np.exp(drive) / (1 + np.exp(drive))
            active = h[row, unit] + damping * (active - h[row, unit])
            change = h[row, unit] * s[row, unit] - active * best
            for d in range(inputs):
                residual[row, d] += change * atoms[unit, d]
            h[row, unit] = active
            s[row, unit] = best


# The elementwise steps of conjugate gradients in ŝ, fused and compiled for float32; sums over units are not taken here.
# Arrays are (rows, units), the model's (units,). A loop writes one array only: LLVM then finds it safe to take many at once.


@compiled
def _begin(h: Array, s: Array, reach: Array, drive: Array, gains: Array, gamma: Array, rest: Array) -> None:
    """Set rest = c - A ŝ = ĥ (drive - reach + a ĥ ŝ - γ ŝ), from drive = Wᵀβv + αμ and reach = WᵀβW(ĥ∘ŝ)."""
    for row in range(h.shape[0]):
        for i in range(h.shape[1]):
            own = (gains[i] * h[row, i] - gamma[i]) * s[row, i]
            rest[row, i] = h[row, i] * (drive[row, i] - reach[row, i] + own)


@compiled
def _prepare(h: Array, rest: Array, gamma: Array, ready: Array) -> None:
    """Set ready = rest / (ĥ γ), the residual divided by the diagonal of A."""
    for row in range(h.shape[0]):
        for i in range(h.shape[1]):
            own = h[row, i] * gamma[i]
            ready[row, i] = rest[row, i] / (own if own > SMALLEST else SMALLEST)


@compiled
def _turn(h: Array, ready: Array, share: Array, direction: Array, x: Array) -> None:
    """Set p = ready + share p, a share for each row, and x = ĥ∘p."""
    for row in range(h.shape[0]):
        old = share[row]
        for i in range(h.shape[1]):
            direction[row, i] = ready[row, i] + old * direction[row, i]
        for i in range(h.shape[1]):
            x[row, i] = h[row, i] * direction[row, i]


@compiled
def _move(h: Array, direction: Array, reached: Array, gains: Array, gamma: Array, moved: Array) -> None:
    """Set moved = A p, from reached = WᵀβW(ĥ∘p)."""
    for row in range(h.shape[0]):
        for i in range(h.shape[1]):
            own = (gamma[i] - gains[i] * h[row, i]) * direction[row, i]
            moved[row, i] = h[row, i] * (reached[row, i] + own)


@compiled
def _advance(to: Array, step: Array, along: Array) -> None:
    """Add step along to an array, a step for each row."""
    for row in range(to.shape[0]):
        length = step[row]
        for i in range(to.shape[1]):
            to[row, i] += length * along[row, i]


@compiled
def _less(drive: Array, reach: Array, prior: Array, out: Array) -> None:
    """Set out = drive - prior - reach = Wᵀβ(v - Wx)."""
    for row in range(out.shape[0]):
        for i in range(out.shape[1]):
            out[row, i] = drive[row, i] - prior[i] - reach[row, i]
