"""Keyed random numbers: what is drawn depends on the seed and on what it is for, never on who draws it or when."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels.cpu.jit import compiled

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_M1: Final = np.uint64(0xBF58476D1CE4E5B9)
_M2: Final = np.uint64(0x94D049BB133111EB)


@compiled
def mix(x: Any) -> Any:
    """Return the splitmix64 finaliser of a 64-bit word; compiled, for one word."""
    x = (x ^ (x >> np.uint64(30))) * _M1
    x = (x ^ (x >> np.uint64(27))) * _M2
    return x ^ (x >> np.uint64(31))


@compiled
def key_of(seed: Any, step: Any) -> Any:
    """Return the key of a step of a seed: what all draws of one sweep or iteration share."""
    return mix(mix(np.uint64(seed) + _GOLDEN) ^ (np.uint64(step) * _GOLDEN + _M1))


@compiled
def unit(key: Any, row: Any, column: Any) -> Any:
    """Return a number in (0, 1) for (key, row, column): 53 bits of two rounds of splitmix64, never 0 or 1."""
    word = mix(
        mix(np.uint64(key) + np.uint64(row) * _GOLDEN)
        + np.uint64(column) * np.uint64(0xD1342543DE82EF95)
        + _GOLDEN
    )
    return (np.float64(word >> np.uint64(11)) + 0.5) * (1.0 / 9007199254740992.0)


@compiled
def _fill(key: Any, rows: Any, columns: Any, out: Any) -> None:
    for i in range(len(rows)):
        for j in range(len(columns)):
            out[i, j] = unit(key, rows[i], columns[j])


def uniforms(
    seed: int, step: int, rows: NDArray[np.int64], columns: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return numbers in (0, 1) keyed by (seed, step, row, column): (rows, columns).

    >>> a = uniforms(1, 2, np.arange(4), np.arange(3))
    >>> bool((a[1:3] == uniforms(1, 2, np.arange(1, 3), np.arange(3))).all())
    True
    """
    out = np.empty((len(rows), len(columns)))
    _fill(np.uint64(key_of(seed, step)), np.asarray(rows, np.int64), np.asarray(columns, np.int64), out)
    return out


def normals(seed: int, number: int, count: int) -> NDArray[np.float64]:
    """Return `count` normal deviates of the stream (seed, number); the same on every machine with this NumPy.

    >>> bool((normals(0, 5, 3) == normals(0, 5, 4)[:3]).all())
    True
    """
    return np.random.Generator(np.random.Philox(key=[seed % 2**64, number])).standard_normal(count)
