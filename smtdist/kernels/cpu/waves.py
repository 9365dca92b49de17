"""Cosine and sine at once, compiled: a feature map reads an angle and writes both while it is in a register."""

from __future__ import annotations

import numpy as np

from smtdist.kernels.cpu.jit import compiled
from smtdist.kernels.types import Array

# least maximum error on half a quarter turn either side: 5e-9, below float32's own
_S0, _S1 = np.float32(1.5707963705062866), np.float32(-0.6459634900093079)
_S2, _S3 = np.float32(0.07968022674322128), np.float32(-0.004602177068591118)
_C0, _C1 = np.float32(1.0), np.float32(-1.2337005138397217)
_C2, _C3, _C4 = (
    np.float32(0.25366920232772827),
    np.float32(-0.02086007222533226),
    np.float32(0.0009036316769197583),
)
_HALF, _ONE, _FOUR = np.float32(0.5), np.float32(1), np.float32(4)


@compiled
def waves(result: Array, scale: np.float32) -> None:
    """Replace angles in the right half of float32 rows (m, 2 k) by scaled sines, and fill the left half with cosines.

    Angles are in quarter turns: the nearest whole number is taken off without rounding, however large they
    are. What is not finite becomes NaN.
    """
    half = result.shape[1] // 2
    for i in range(result.shape[0]):
        row = result[i]
        for j in range(half):
            angle = row[half + j]
            whole = np.rint(angle)
            rest = angle - whole
            square = rest * rest
            sine = rest * (_S0 + square * (_S1 + square * (_S2 + square * _S3)))
            cosine = _C0 + square * (_C1 + square * (_C2 + square * (_C3 + square * _C4)))
            # the quarter 0 to 3: in odd ones sine and cosine change places, and each is negative in two
            quarter = whole - _FOUR * np.floor(whole / _FOUR)
            later = np.floor(quarter * _HALF)
            odd = quarter - later - later
            along = sine if odd < _HALF else cosine
            across = cosine if odd < _HALF else sine
            row[half + j] = scale * (along * (_ONE - later - later))
            turned = _ONE if quarter < _HALF or quarter > np.float32(2.5) else -_ONE
            row[j] = scale * (across * turned)
