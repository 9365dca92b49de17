"""The elementwise steps of Algorithm 1, fused and compiled for float32, sixteen units at a time."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types

from smtdist.kernels.cpu.jit import I32, I64, LANES, compiled, pointer, splat, vector_operation
from smtdist.kernels.types import Array

F32: Final = ir.FloatType()
VECTOR: Final = ir.VectorType(F32, LANES)
WHOLE: Final = ir.VectorType(I32, LANES)

ROWS_OF_TABLE: Final = ("prior", "gains", "inverse", "mu", "half_alpha", "offset", "half_gains", "start")

# 2^f on [-½, ½], relative error 2e-7 (a Taylor series in f log 2 would need a term more)
_EXPONENTIAL: Final = (1.0000000, 0.69314718, 0.24022651, 0.05550411, 0.00961804, 0.00133336, 0.00015404)
_ROUND: Final = 12582912.0
"""1.5 x 2^23: adding and subtracting it rounds to a whole number."""


def padded(units: int) -> int:
    """Return the units rounded up to whole vectors.

    >>> padded(16), padded(17)
    (16, 32)
    """
    return -(-units // LANES) * LANES


def parameter_table(model: Any, width: int) -> Array:
    """Return what the steps need of each unit, float32 (8, width); padding never becomes active."""
    alpha, mu = model.alpha.astype(np.float64), model.mu.astype(np.float64)
    start = 1 / (1 + np.exp(-np.clip(model.bias.astype(np.float64), -700, 700)))
    columns = {
        "prior": alpha * mu,
        "gains": model.gains,
        "inverse": 1 / model.gamma.astype(np.float64),
        "mu": mu,
        "half_alpha": alpha / 2,
        "offset": model.offsets,
        "half_gains": model.gains / 2,
        "start": start,
    }
    table = np.zeros((len(ROWS_OF_TABLE), width), np.float32)
    table[ROWS_OF_TABLE.index("offset")] = -80
    for at, name in enumerate(ROWS_OF_TABLE):
        table[at, : model.n_units] = columns[name]
    return table


@compiled
def start(h: Array, s: Array, x: Array, table: Array) -> None:
    """Set ĥ = σ(b), ŝ = μ, x = ĥ∘ŝ."""
    for row in range(h.shape[0]):
        for unit in range(h.shape[1]):
            h[row, unit] = table[7, unit]
            s[row, unit] = table[3, unit]
            x[row, unit] = table[7, unit] * table[3, unit]


@compiled
def update_s(h: Array, s: Array, x: Array, table: Array, eta: Array, rho: Array) -> None:
    """Damped, clipped step of ŝ; x holds Wᵀβ(v - Wx) at first and ĥ∘ŝ in the end."""
    rows, units = h.shape
    for row in range(rows):
        for unit in range(0, units, LANES):
            step_s(h, s, x, table, row * units + unit, unit, units, eta, rho)


@compiled
def update_h(h: Array, s: Array, x: Array, table: Array, eta: Array) -> None:
    """Damped step of ĥ; x holds Wᵀβ(v - Wx) at first and ĥ∘ŝ in the end."""
    rows, units = h.shape
    for row in range(rows):
        for unit in range(0, units, LANES):
            step_h(h, s, x, table, row * units + unit, unit, units, eta)


class _Lanes:
    """Sixteen units of the arrays, as vectors."""

    def __init__(self, context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        self.context, self.builder, self.signature, self.arguments = context, builder, signature, arguments

    def place(self, array: int, at: Any) -> Any:
        kind = self.signature.args[array]
        return pointer(self.context, self.builder, kind, self.arguments[array], at, VECTOR)

    def load(self, array: int) -> Any:
        return self.builder.load(self.place(array, self.arguments[4]), align=4)

    def store(self, array: int, value: Any) -> None:
        self.builder.store(value, self.place(array, self.arguments[4]), align=4)

    def column(self, name: str) -> Any:
        builder = self.builder
        first = builder.mul(self.arguments[6], I64(ROWS_OF_TABLE.index(name)))
        return builder.load(self.place(3, builder.add(first, self.arguments[5])), align=4)


@vector_operation
def step_s(
    _typing: Any, h: Any, s: Any, x: Any, table: Any, at: Any, unit: Any, units: Any, eta: Any, rho: Any
) -> Any:
    """One vector of `update_s`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lanes = _Lanes(context, builder, signature, arguments)
        eta, rho = splat(builder, arguments[7], LANES), splat(builder, arguments[8], LANES)
        h, s, pull = lanes.load(0), lanes.load(1), lanes.load(2)
        own = builder.fmul(lanes.column("gains"), builder.fmul(h, s))
        best = builder.fadd(builder.fadd(lanes.column("prior"), pull), own)
        best = builder.fmul(best, lanes.column("inverse"))
        zero = _constant(0.0)
        limit = builder.fmul(builder.fsub(zero, rho), s)
        lowest = builder.select(builder.fcmp_ordered("<", best, limit), limit, best)
        highest = builder.select(builder.fcmp_ordered(">", best, limit), limit, best)
        clipped = builder.select(builder.fcmp_ordered(">", s, zero), lowest, best)
        clipped = builder.select(builder.fcmp_ordered("<", s, zero), highest, clipped)
        s = builder.fadd(s, builder.fmul(eta, builder.fsub(clipped, s)))
        lanes.store(1, s)
        lanes.store(2, builder.fmul(h, s))
        return context.get_dummy_value()

    return types.void(
        h, s, x, table, types.intp, types.intp, types.intp, types.float32, types.float32
    ), generate


@vector_operation
def step_h(_typing: Any, h: Any, s: Any, x: Any, table: Any, at: Any, unit: Any, units: Any, eta: Any) -> Any:
    """One vector of `update_h`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lanes = _Lanes(context, builder, signature, arguments)
        eta = splat(builder, arguments[7], LANES)
        h, s, pull = lanes.load(0), lanes.load(1), lanes.load(2)
        pull = builder.fadd(pull, builder.fmul(lanes.column("gains"), builder.fmul(h, s)))
        pull = builder.fsub(pull, builder.fmul(lanes.column("half_gains"), s))
        away = builder.fsub(s, lanes.column("mu"))
        drive = builder.fadd(builder.fmul(s, pull), lanes.column("offset"))
        drive = builder.fsub(drive, builder.fmul(lanes.column("half_alpha"), builder.fmul(away, away)))
        best = _sigmoid(builder, drive)
        h = builder.fadd(h, builder.fmul(eta, builder.fsub(best, h)))
        lanes.store(0, h)
        lanes.store(2, builder.fmul(h, s))
        return context.get_dummy_value()

    return types.void(h, s, x, table, types.intp, types.intp, types.intp, types.float32), generate


def _constant(value: float) -> Any:
    return ir.Constant(VECTOR, [value] * LANES)


def _sigmoid(builder: Any, drive: Any) -> Any:
    """Return 1 / (1 + 2^(-drive / log 2)), the power as a polynomial times a shifted exponent."""
    high, low = _constant(80.0), _constant(-80.0)
    drive = builder.select(builder.fcmp_ordered(">", drive, high), high, drive)
    drive = builder.select(builder.fcmp_ordered("<", drive, low), low, drive)
    power = builder.fmul(drive, _constant(float(np.float32(-1.4426950408889634))))
    magic = _constant(_ROUND)
    whole = builder.fsub(builder.fadd(power, magic), magic)
    part = builder.fsub(power, whole)
    value = _constant(float(np.float32(_EXPONENTIAL[-1])))
    for coefficient in _EXPONENTIAL[-2::-1]:
        value = builder.fadd(builder.fmul(value, part), _constant(float(np.float32(coefficient))))
    exponent = builder.add(builder.fptosi(whole, WHOLE), ir.Constant(WHOLE, [127] * LANES))
    scale = builder.bitcast(builder.shl(exponent, ir.Constant(WHOLE, [23] * LANES)), VECTOR)
    one = _constant(1.0)
    return builder.fdiv(one, builder.fadd(one, builder.fmul(value, scale)))


@compiled
def sweep(
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
