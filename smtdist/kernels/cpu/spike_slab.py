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

ROWS_OF_TABLE: Final = (
    "prior",
    "gains",
    "inverse",
    "mu",
    "half_alpha",
    "offset",
    "half_gains",
    "start",
    "odds",
)

# 2^f on [-½, ½], relative error 2e-7 (a Taylor series in f log 2 would need a term more)
_EXPONENTIAL: Final = (1.0000000, 0.69314718, 0.24022651, 0.05550411, 0.00961804, 0.00133336, 0.00015404)
MOST_ODDS: Final = 40.0
"""Log odds of ĥ are kept within ±40, so that what is shut may open again."""
_ROUND: Final = 12582912.0
"""1.5 x 2^23: adding and subtracting it rounds to a whole number."""


def padded(units: int) -> int:
    """Return the units rounded up to whole vectors.

    >>> padded(16), padded(17)
    (16, 32)
    """
    return -(-units // LANES) * LANES


def parameter_table(model: Any, width: int) -> Array:
    """Return what the steps need of each unit, float32 (9, width); padding never becomes active."""
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
        "odds": np.clip(model.bias, -MOST_ODDS, MOST_ODDS),
    }
    table = np.zeros((len(ROWS_OF_TABLE), width), np.float32)
    table[ROWS_OF_TABLE.index("offset")] = -80
    table[ROWS_OF_TABLE.index("odds")] = -MOST_ODDS
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


@compiled
def update_block(
    h: Array,
    s: Array,
    odds: Array,
    pull: Array,
    table: Array,
    first: int,
    eta_h: Array,
    eta_s: Array,
    rho: Array,
) -> None:
    """Damped steps of ŝ and of the log odds of ĥ, of units from `first` on; pull holds their Wᵀβ(v - Wx), then what ĥ∘ŝ gains."""
    rows, units = h.shape
    size = pull.shape[1]
    for row in range(rows):
        for unit in range(0, size, LANES):
            at, own = row * units + first + unit, row * size + unit
            step_block(h, s, odds, pull, table, at, own, first + unit, units, eta_h, eta_s, rho)


class _Lanes:
    """Sixteen units of arrays (rows, units) from place `at` on, as vectors, and their columns of a table."""

    def __init__(
        self, context: Any, builder: Any, signature: Any, arguments: Any, table: int, unit: Any, units: Any
    ) -> None:
        self.context, self.builder, self.signature, self.arguments = context, builder, signature, arguments
        self.table, self.unit, self.units = table, unit, units

    def place(self, array: int, at: Any) -> Any:
        kind = self.signature.args[array]
        return pointer(self.context, self.builder, kind, self.arguments[array], at, VECTOR)

    def load(self, array: int, at: Any) -> Any:
        return self.builder.load(self.place(array, at), align=4)

    def store(self, array: int, at: Any, value: Any) -> None:
        self.builder.store(value, self.place(array, at), align=4)

    def column(self, name: str) -> Any:
        builder = self.builder
        first = builder.mul(self.units, I64(ROWS_OF_TABLE.index(name)))
        return self.load(self.table, builder.add(first, self.unit))

    def moved_slab(self, s: Any, pull: Any, own: Any, eta: Any, rho: Any) -> Any:
        """ŝ after its damped, clipped step; own is a_i ĥ_i ŝ_i."""
        builder = self.builder
        best = builder.fadd(builder.fadd(self.column("prior"), pull), own)
        best = builder.fmul(best, self.column("inverse"))
        zero = _constant(0.0)
        limit = builder.fmul(builder.fsub(zero, rho), s)
        lowest = builder.select(builder.fcmp_ordered("<", best, limit), limit, best)
        highest = builder.select(builder.fcmp_ordered(">", best, limit), limit, best)
        clipped = builder.select(builder.fcmp_ordered(">", s, zero), lowest, best)
        clipped = builder.select(builder.fcmp_ordered("<", s, zero), highest, clipped)
        return builder.fadd(s, builder.fmul(eta, builder.fsub(clipped, s)))

    def drive(self, s: Any, pull: Any, own: Any) -> Any:
        """Return the log odds of the best ĥ; own is a_i ĥ_i ŝ_i of what the residual was taken from."""
        builder = self.builder
        pull = builder.fsub(builder.fadd(pull, own), builder.fmul(self.column("half_gains"), s))
        away = builder.fsub(s, self.column("mu"))
        drive = builder.fadd(builder.fmul(s, pull), self.column("offset"))
        return builder.fsub(drive, builder.fmul(self.column("half_alpha"), builder.fmul(away, away)))


@vector_operation
def step_s(
    _typing: Any, h: Any, s: Any, x: Any, table: Any, at: Any, unit: Any, units: Any, eta: Any, rho: Any
) -> Any:
    """One vector of `update_s`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        at, unit, units = arguments[4:7]
        lanes = _Lanes(context, builder, signature, arguments, 3, unit, units)
        eta = splat(builder, arguments[7], LANES)
        rho = splat(builder, arguments[8], LANES)
        h, s, pull = (lanes.load(array, at) for array in range(3))
        own = builder.fmul(lanes.column("gains"), builder.fmul(h, s))
        s = lanes.moved_slab(s, pull, own, eta, rho)
        lanes.store(1, at, s)
        lanes.store(2, at, builder.fmul(h, s))
        return context.get_dummy_value()

    return types.void(
        h, s, x, table, types.intp, types.intp, types.intp, types.float32, types.float32
    ), generate


@vector_operation
def step_h(
    _typing: Any, h: Any, s: Any, x: Any, table: Any, at: Any, unit: Any, units: Any, eta: Any
) -> Any:
    """One vector of `update_h`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        at, unit, units = arguments[4:7]
        lanes = _Lanes(context, builder, signature, arguments, 3, unit, units)
        eta = splat(builder, arguments[7], LANES)
        h, s, pull = (lanes.load(array, at) for array in range(3))
        own = builder.fmul(lanes.column("gains"), builder.fmul(h, s))
        best = _sigmoid(builder, lanes.drive(s, pull, own))
        h = builder.fadd(h, builder.fmul(eta, builder.fsub(best, h)))
        lanes.store(0, at, h)
        lanes.store(2, at, builder.fmul(h, s))
        return context.get_dummy_value()

    return types.void(h, s, x, table, types.intp, types.intp, types.intp, types.float32), generate


@vector_operation
def step_block(
    _typing: Any,
    h: Any,
    s: Any,
    odds: Any,
    pull: Any,
    table: Any,
    at: Any,
    own_at: Any,
    unit: Any,
    units: Any,
    eta_h: Any,
    eta_s: Any,
    rho: Any,
) -> Any:
    """One vector of `update_block`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        at, own_at, unit, units = arguments[5:9]
        lanes = _Lanes(context, builder, signature, arguments, 4, unit, units)
        eta_h, eta_s, rho = (splat(builder, each, LANES) for each in arguments[9:12])
        h, s, odds = (lanes.load(array, at) for array in range(3))
        pull, x = lanes.load(3, own_at), builder.fmul(h, s)
        own = builder.fmul(lanes.column("gains"), x)
        s = lanes.moved_slab(s, pull, own, eta_s, rho)
        best = _within(builder, lanes.drive(s, pull, own), MOST_ODDS)
        odds = builder.fadd(odds, builder.fmul(eta_h, builder.fsub(best, odds)))
        h = _sigmoid(builder, odds)
        for array, value in enumerate((h, s, odds)):
            lanes.store(array, at, value)
        lanes.store(3, own_at, builder.fsub(builder.fmul(h, s), x))
        return context.get_dummy_value()

    whole, real = types.intp, types.float32
    return types.void(h, s, odds, pull, table, whole, whole, whole, whole, real, real, real), generate


def _within(builder: Any, value: Any, most: float) -> Any:
    """Return a vector kept within ± most."""
    high, low = _constant(most), _constant(-most)
    value = builder.select(builder.fcmp_ordered(">", value, high), high, value)
    return builder.select(builder.fcmp_ordered("<", value, low), low, value)


def _constant(value: float) -> Any:
    return ir.Constant(VECTOR, [value] * LANES)


def _sigmoid(builder: Any, drive: Any) -> Any:
    """Return 1 / (1 + 2^(-drive / log 2)), the power as a polynomial times a shifted exponent."""
    drive = _within(builder, drive, 80.0)
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
