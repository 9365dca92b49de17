"""Single frames of a video: the central part, pyramid down-sampling, and whitening in the Fourier domain (SMT 2018, D)."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import fft

from smtdist.errors import ConfigurationError, DataError

Frames = npt.NDArray[np.float32]

LOW_PASS: Final = 0.75
"""r₀ as a share of the Nyquist frequency: the paper's 48 of 64 cycles a frame of 128 pixels."""


def centre_crop(
    frames: npt.NDArray[np.generic], side: int | None, multiple: int = 1
) -> npt.NDArray[np.generic]:
    """Return the central square of frames (T, H, W): of that side, or the largest whose side is a multiple of `multiple`.

    A view. Raises DataError where the frames are smaller.

    >>> centre_crop(np.arange(12).reshape(1, 3, 4), 2).tolist()
    [[[1, 2], [5, 6]]]
    """
    height, width = frames.shape[1:3]
    wanted = min(height, width) // multiple * multiple if side is None else side
    if not 0 < wanted <= min(height, width):
        raise DataError(
            f"A square of {wanted} pixels does not fit into frames of {height} x {width}; ask for a smaller crop."
        )
    top, left = (height - wanted) // 2, (width - wanted) // 2
    return frames[:, top : top + wanted, left : left + wanted]


def down_sampled(frames: npt.NDArray[np.generic], levels: int) -> Frames:
    """Return frames (T, n, n) at half the size `levels` times: the low-pass residual of a steerable pyramid, in grey levels.

    The pyramid is pyrtools' in the Fourier domain (Simoncelli and Freeman 1995), as in the paper; its
    residual is on the scale of the pixels. n must be a multiple of 2^levels.
    """
    result = np.asarray(frames, np.float32)
    if levels == 0:
        return result
    side = result.shape[1]
    if result.shape[1] != result.shape[2] or side % 2**levels or side < 2 ** (levels + 2):
        raise ConfigurationError(
            f"Frames of {result.shape[1]} x {result.shape[2]} cannot be halved {levels} times by a pyramid; "
            f"crop them to a square whose side is a multiple of {2**levels}, of at least {2 ** (levels + 2)} pixels."
        )
    pyramid = _pyramid_class()
    small = np.empty((len(result), side >> levels, side >> levels), np.float32)
    for frame, to in zip(result, small, strict=True):
        bands = pyramid(frame.astype(np.float64), height=levels, order=0)
        to[...] = bands.pyr_coeffs["residual_lowpass"].real / 4**levels
    return small


def _pyramid_class() -> type:
    try:
        from pyrtools.pyramids import SteerablePyramidFreq
    except ImportError as error:
        raise ConfigurationError(
            "Down-sampling by a pyramid needs pyrtools; install smtdist[video], or leave the size as it is."
        ) from error
    return SteerablePyramidFreq  # type: ignore[no-any-return]


def whitening_mask(height: int, width: int, low_pass: float = LOW_PASS) -> npt.NDArray[np.float64]:
    """Return w(u, v) = r exp(-(r / r₀)⁴) over the real Fourier transform of a frame, r in units of the Nyquist frequency.

    >>> whitening_mask(4, 4)[0].round(4).tolist()
    [0.0, 0.4104, 0.0424]
    """
    down, across = 2 * fft.fftfreq(height)[:, None], 2 * fft.rfftfreq(width)
    r = np.hypot(down, across)
    result: npt.NDArray[np.float64] = r * np.exp(-((r / low_pass) ** 4))
    return result


def fourier_whitened(frames: npt.NDArray[np.generic], low_pass: float = LOW_PASS) -> Frames:
    """Return frames (T, H, W) whose amplitudes are multiplied with `whitening_mask`; natural ones fall as 1 / frequency.

    Memory: three arrays of a frame. The mean of a frame becomes 0.
    """
    height, width = frames.shape[1:]
    mask = whitening_mask(height, width, low_pass)
    result = np.empty(frames.shape, np.float32)
    for frame, to in zip(frames, result, strict=True):
        to[...] = fft.irfft2(fft.rfft2(frame.astype(np.float64)) * mask, s=(height, width))
    return result


def cuts_of(frames: npt.NDArray[np.generic], factor: float = 8.0, floor: float = 12.0) -> list[int]:
    """Return the first frames after hard cuts: where the mean change of a pixel is large by itself and beside its neighbours.

    A change counts that is above `floor` grey levels and above `factor` times the median of the eight
    changes around it.
    """
    if len(frames) < 3:
        return []
    change = np.array([_change(frames[at], frames[at + 1]) for at in range(len(frames) - 1)])
    found = []
    for at, value in enumerate(change):
        around = np.delete(change[max(0, at - 4) : at + 5], min(at, 4))
        if value > floor and value > factor * float(np.median(around)):
            found.append(at + 1)
    return found


def _change(frame: npt.NDArray[np.generic], after: npt.NDArray[np.generic]) -> float:
    return float(np.abs(after.astype(np.float32) - frame.astype(np.float32)).mean())
