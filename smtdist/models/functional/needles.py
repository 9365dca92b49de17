"""Dictionary elements as needles: place, orientation and length of each (SMT 2018, supplement E)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import ConfigurationError
from smtdist.solve.solution import Float64

PADDED: Final = 4
"""The Fourier amplitude is looked at on a grid so many times as fine as the patch gives."""
HALF_WIDTH: Final = 0.5
"""Share of the envelope's peak above which it counts: what lies below is noise of the whole patch."""


@dataclass(frozen=True)
class Needles:
    """Of K patches of side p, in pixels and radians.

    centre : (K, 2) row and column of the envelope's middle. orientation : (K,) of the stripes, in [0, π), 0
    along columns (to the right), from the peak of the Fourier amplitude, across which they run. length :
    (K,) standard deviation of the envelope along
    its long axis. frequency : (K,) of the peak, in cycles a pixel. fit : (K,) R² of a Gaussian with the
        envelope's moments.
    """

    centre: Float64
    orientation: Float64
    length: Float64
    frequency: Float64
    fit: Float64


def needles(dictionary: Float64) -> Needles:
    """Return the needles of atoms (K, p²), square patches: Gaussian envelope and Fourier peak.

    The envelope is the modulus of the analytic signal along the direction of the peak (half of the Fourier
    plane is kept, and doubled); the Gaussian has the mean and the covariance of its square above half of
    its peak's height.
    """
    count, pixels = dictionary.shape
    side = int(np.sqrt(pixels))
    if side * side != pixels:
        raise ConfigurationError(f"Atoms have {pixels} pixels, which is no square patch; give (K, p²).")
    patches = dictionary.reshape(count, side, side).astype(np.float64)
    spectrum, (down, across) = _spectrum(patches)
    amplitude = np.abs(spectrum).reshape(count, -1)
    amplitude[:, 0] = 0.0  # the mean is no stripe
    peak = amplitude.argmax(axis=1)
    u, v = down.ravel()[peak], across.ravel()[peak]
    envelope = _envelope(spectrum, u, v, down, across)[:, :side, :side]
    centre, covariance = _moments(envelope)
    values = np.linalg.eigvalsh(covariance)
    orientation = np.mod(np.arctan2(u, v) + np.pi / 2, np.pi)
    return Needles(
        centre,
        orientation,
        np.sqrt(np.maximum(values[:, 1], 0.0)),
        np.hypot(u, v),
        _fit(envelope, centre, covariance),
    )


def _spectrum(patches: Float64) -> tuple[NDArray[np.complex128], tuple[Float64, Float64]]:
    side = patches.shape[1]
    spectrum = np.fft.fft2(patches, s=(PADDED * side, PADDED * side))
    frequency = np.fft.fftfreq(PADDED * side)
    down, across = np.meshgrid(frequency, frequency, indexing="ij")
    return spectrum, (down, across)


def _envelope(
    spectrum: NDArray[np.complex128], u: Float64, v: Float64, down: Float64, across: Float64
) -> Float64:
    result = np.empty(spectrum.shape)
    for row, to, first, second in zip(spectrum, result, u, v, strict=True):
        towards = down * first + across * second
        kept = np.where(towards > 0, 2.0, np.where(towards == 0, 1.0, 0.0))
        to[...] = np.abs(np.fft.ifft2(row * kept))
    return result


def _moments(envelope: Float64) -> tuple[Float64, Float64]:
    side = envelope.shape[1]
    peak = envelope.max(axis=(1, 2), keepdims=True)
    weights = np.where(envelope >= HALF_WIDTH * peak, envelope, 0.0) ** 2
    weights /= np.maximum(weights.sum(axis=(1, 2), keepdims=True), 1e-300)
    place = np.arange(side, dtype=np.float64)
    row = np.einsum("kij,i->k", weights, place)
    column = np.einsum("kij,j->k", weights, place)
    away = place[None, :] - row[:, None], place[None, :] - column[:, None]
    covariance = np.empty((len(envelope), 2, 2))
    covariance[:, 0, 0] = np.einsum("kij,ki->k", weights, away[0] ** 2)
    covariance[:, 1, 1] = np.einsum("kij,kj->k", weights, away[1] ** 2)
    covariance[:, 0, 1] = covariance[:, 1, 0] = np.einsum("kij,ki,kj->k", weights, away[0], away[1])
    # a Gaussian cut off at half of its height, squared, has this share of its own variance in every direction: undone here
    return np.stack([row, column], axis=1), covariance / CUT_SHARE


CUT_SHARE: Final = float(0.5 * (1 - 2 * np.log(1 / HALF_WIDTH) * HALF_WIDTH**2 / (1 - HALF_WIDTH**2)))
"""Variance along an axis of exp(-r²) within r² < c = 2 ln 2, in units of that of exp(-r² / 2): ½ (1 - c e^-c / (1 - e^-c))."""


def _fit(envelope: Float64, centre: Float64, covariance: Float64) -> Float64:
    """Return R² of the best multiple of the Gaussian with these moments."""
    side = envelope.shape[1]
    place = np.arange(side, dtype=np.float64)
    ridge = 0.05 * np.eye(2)
    inverse = np.linalg.inv(covariance + ridge)
    away = np.stack(np.meshgrid(place, place, indexing="ij"), axis=-1)[None] - centre[:, None, None]
    gauss = np.exp(-0.5 * np.einsum("kija,kab,kijb->kij", away, inverse, away))
    scale = (envelope * gauss).sum(axis=(1, 2)) / (gauss * gauss).sum(axis=(1, 2))
    rest = ((envelope - scale[:, None, None] * gauss) ** 2).sum(axis=(1, 2))
    spread = ((envelope - envelope.mean(axis=(1, 2), keepdims=True)) ** 2).sum(axis=(1, 2))
    result: Float64 = 1 - rest / np.maximum(spread, 1e-300)
    return result
