"""The elementwise steps of conjugate gradients in ŝ, fused and compiled for float32; sums over units are not taken here.

Arrays are (rows, units), the model's (units,). A loop writes one array only: LLVM then finds it safe to
take many at once.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from smtdist.kernels.cpu.jit import compiled
from smtdist.kernels.types import Array

SMALLEST: Final = np.float32(1e-30)
"""What a product ĥ γ that divides is taken for where it is less."""


@compiled
def begin(h: Array, s: Array, reach: Array, drive: Array, gains: Array, gamma: Array, rest: Array) -> None:
    """Set rest = c - A ŝ = ĥ (drive - reach + a ĥ ŝ - γ ŝ), from drive = Wᵀβv + αμ and reach = WᵀβW(ĥ∘ŝ)."""
    for row in range(h.shape[0]):
        for i in range(h.shape[1]):
            own = (gains[i] * h[row, i] - gamma[i]) * s[row, i]
            rest[row, i] = h[row, i] * (drive[row, i] - reach[row, i] + own)


@compiled
def prepare(h: Array, rest: Array, gamma: Array, ready: Array) -> None:
    """Set ready = rest / (ĥ γ), the residual divided by the diagonal of A."""
    for row in range(h.shape[0]):
        for i in range(h.shape[1]):
            own = h[row, i] * gamma[i]
            ready[row, i] = rest[row, i] / (own if own > SMALLEST else SMALLEST)


@compiled
def turn(h: Array, ready: Array, share: Array, direction: Array, x: Array) -> None:
    """Set p = ready + share p, a share for each row, and x = ĥ∘p."""
    for row in range(h.shape[0]):
        old = share[row]
        for i in range(h.shape[1]):
            direction[row, i] = ready[row, i] + old * direction[row, i]
        for i in range(h.shape[1]):
            x[row, i] = h[row, i] * direction[row, i]


@compiled
def move(h: Array, direction: Array, reached: Array, gains: Array, gamma: Array, moved: Array) -> None:
    """Set moved = A p, from reached = WᵀβW(ĥ∘p)."""
    for row in range(h.shape[0]):
        for i in range(h.shape[1]):
            own = (gamma[i] - gains[i] * h[row, i]) * direction[row, i]
            moved[row, i] = h[row, i] * (reached[row, i] + own)


@compiled
def advance(to: Array, step: Array, along: Array) -> None:
    """Add step along to an array, a step for each row."""
    for row in range(to.shape[0]):
        length = step[row]
        for i in range(to.shape[1]):
            to[row, i] += length * along[row, i]


@compiled
def less(drive: Array, reach: Array, prior: Array, out: Array) -> None:
    """Set out = drive - prior - reach = Wᵀβ(v - Wx)."""
    for row in range(out.shape[0]):
        for i in range(out.shape[1]):
            out[row, i] = drive[row, i] - prior[i] - reach[row, i]
