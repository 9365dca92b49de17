"""Keyed random numbers: what is drawn depends on the seed and on what it is for, never on who draws it or when."""

from __future__ import annotations

import threading
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels.cpu import jit

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_M1: Final = np.uint64(0xBF58476D1CE4E5B9)
_M2: Final = np.uint64(0x94D049BB133111EB)
_streams: Final = threading.local()


@jit.compiled
def mix(x: Any) -> Any:
    """Return the splitmix64 finaliser of a 64-bit word; compiled, for one word."""
    x = (x ^ (x >> np.uint64(30))) * _M1
    x = (x ^ (x >> np.uint64(27))) * _M2
    return x ^ (x >> np.uint64(31))


@jit.compiled
def key_of(seed: Any, step: Any) -> Any:
    """Return the key of a step of a seed: what all draws of one sweep or iteration share."""
    return mix(mix(np.uint64(seed) + _GOLDEN) ^ (np.uint64(step) * _GOLDEN + _M1))


@jit.compiled
def row_key(key: Any, row: Any) -> Any:
    """Return what all draws of a row share: the first of two rounds of splitmix64."""
    return mix(np.uint64(key) + np.uint64(row) * _GOLDEN) + _GOLDEN


@jit.compiled
def word_of(base: Any, column: Any) -> Any:
    """Return 64 random bits for a row's key and a column: the second round."""
    return mix(base + np.uint64(column) * np.uint64(0xD1342543DE82EF95))


@jit.compiled
def number_of(word: Any) -> Any:
    """Return a number in (0, 1) from the first 53 bits of a word, never 0 or 1."""
    return (np.float64(word >> np.uint64(11)) + 0.5) * (1.0 / 9007199254740992.0)


@jit.compiled
def _fill(key: Any, rows: Any, columns: Any, out: Any) -> None:
    for i in range(len(rows)):
        base = row_key(key, rows[i])
        for j in range(len(columns)):
            out[i, j] = number_of(word_of(base, columns[j]))


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
    >>> fresh = np.random.Generator(np.random.Philox(key=[7, 2]))
    >>> bool((normals(7, 2, 5) == fresh.standard_normal(5)).all())
    True
    """
    stream = getattr(_streams, "generator", None)
    if stream is None:
        stream = _streams.generator = np.random.Generator(np.random.Philox(key=[0, 0]))
    # a generator made anew would first ask the system for entropy that the key replaces
    stream.bit_generator.state = {
        "bit_generator": "Philox",
        "state": {
            "counter": np.zeros(4, np.uint64),
            "key": np.array([seed % 2**64, number % 2**64], np.uint64),
        },
        "buffer": np.zeros(4, np.uint64),
        "buffer_pos": 4,
        "has_uint32": 0,
        "uinteger": 0,
    }
    return np.asarray(stream.standard_normal(count))
