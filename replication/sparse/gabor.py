"""How much of an atom a Gabor function explains, fitted by least squares."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

Float64 = NDArray[np.float64]

WIDTHS: Final = (0.12, 0.25)
"""Widths of the envelope that fits start from, as shares of the side."""
LEAST_WIDTH: Final = 0.5
"""Pixels; a narrower envelope would fit any single pixel."""
NAMES: Final = ("row", "column", "log_across", "log_along", "angle", "frequency")


def gabor_fits(patches: NDArray[Any]) -> tuple[Float64, Float64]:
    """Return R² of the best Gabor function of each patch (n, side, side), and its parameters (n, 6).

    g(u, v) = exp(-½ (u'²/σ₁² + v'²/σ₂²)) (c cos 2π f u' + s sin 2π f u'), u' and v' along and across the angle; c and s follow by
    linear least squares, the other six by `scipy.optimize.least_squares` from the peak of the Fourier amplitude and the centre of
    energy, from two widths; widths are kept between half a pixel and the side, frequencies below 0.5 a pixel. Patches are taken
    less their mean, and R² is 1 - Σ rest² / Σ patch². Parameters: row, column, log σ₁, log σ₂, angle, frequency.

    >>> v, u = np.mgrid[:12, :12] - 5.5
    >>> found, _ = gabor_fits((np.exp(-(u**2 + v**2) / 8) * np.cos(2 * np.pi * 0.2 * u))[None])
    >>> bool(found[0] > 0.99)
    True
    """
    shares, parameters = np.zeros(len(patches)), np.zeros((len(patches), len(NAMES)))
    for at, patch in enumerate(np.asarray(patches, np.float64)):
        shares[at], parameters[at] = _fit(patch - patch.mean())
    return shares, parameters


def _fit(patch: Float64) -> tuple[float, Float64]:
    side = patch.shape[0]
    total = float((patch * patch).sum())
    if total <= 0:
        return 0.0, np.zeros(len(NAMES))
    grid = np.mgrid[:side, :side].astype(np.float64)
    lower = [-0.5, -0.5, np.log(LEAST_WIDTH), np.log(LEAST_WIDTH), -4 * np.pi, 0.0]
    upper = [side - 0.5, side - 0.5, np.log(side), np.log(side), 4 * np.pi, 0.5]
    best: tuple[float, Float64] = (-np.inf, np.zeros(len(NAMES)))
    for width in WIDTHS:
        found = least_squares(
            _rest,
            np.clip(_guess(patch, grid, width * side), lower, upper),
            bounds=(lower, upper),
            args=(patch, grid),
            max_nfev=60,
        )
        share = 1 - 2 * float(found.cost) / total
        if share > best[0]:
            best = share, found.x
    return best


def _guess(patch: Float64, grid: Float64, width: float) -> Float64:
    energy = patch * patch
    centre = (grid * energy).sum(axis=(1, 2)) / energy.sum()
    size = 4 * patch.shape[0]
    amplitude = np.abs(np.fft.rfft2(patch, (size, size)))
    row, column = np.unravel_index(int(amplitude.argmax()), amplitude.shape)
    down, across = np.fft.fftfreq(size)[row], np.fft.rfftfreq(size)[column]
    start = [*centre, np.log(width), np.log(width), np.arctan2(down, across), np.hypot(down, across)]
    return np.asarray(start)


def _rest(parameters: Float64, patch: Float64, grid: Float64) -> Float64:
    row, column, along, across, angle, frequency = parameters
    down, right = grid[0] - row, grid[1] - column
    u = np.cos(angle) * right + np.sin(angle) * down
    v = np.cos(angle) * down - np.sin(angle) * right
    envelope = np.exp(-0.5 * (u * u * np.exp(-2 * along) + v * v * np.exp(-2 * across)))
    phase = 2 * np.pi * frequency * u
    a, b = (envelope * np.cos(phase)).ravel(), (envelope * np.sin(phase)).ravel()
    y = patch.ravel()
    # two linear amplitudes by their normal equations, a hair regular where the sine vanishes
    aa, bb, ab = a @ a + 1e-9, b @ b + 1e-9, a @ b
    det = aa * bb - ab * ab
    c, s = (bb * (a @ y) - ab * (b @ y)) / det, (aa * (b @ y) - ab * (a @ y)) / det
    return np.asarray(y - c * a - s * b)
