"""How straight trajectories are: second differences and angles between steps (SMT 2018, eq. 7)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import DataError


@dataclass(frozen=True)
class Straightness:
    """Of sequences: how far points lie from the middle of those before and after them, and how steps turn.

    second_difference : mean of ‖b_t - (b_{t-1} + b_{t+1}) / 2‖² over the variance of b about its mean: 0 on
        a straight steady path, 1.5 for independent points.
    bend : the same over the mean square of a step: 0 on a straight steady path, 3/4 for independent points,
        ½ where one step says nothing of the next, 1 for a point that goes to and fro. What stands still or
        lies far from the mean does not count in its favour.
    angle : mean angle in degrees between one step and the next: 0 on a straight path, 120 for independent
        points.
    """

    second_difference: float
    bend: float
    angle: float

    def to_dict(self) -> dict[str, float]:
        """Return all three as plain JSON."""
        return {"second_difference": self.second_difference, "bend": self.bend, "angle": self.angle}


def straightness(sequences: NDArray[np.floating]) -> Straightness:
    """Return the straightness of sequences (n, T, d), T of at least 3; sequences that never move have no angle.

    >>> straightness(np.array([[[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]])).angle
    90.0
    """
    if sequences.ndim != 3 or sequences.shape[1] < 3 or len(sequences) == 0:
        raise DataError(
            f"Sequences are (n, T, d) with T of at least 3; these have the shape {sequences.shape}."
        )
    rows = sequences.astype(np.float64)
    bent = rows[:, 1:-1] - (rows[:, :-2] + rows[:, 2:]) / 2
    spread = rows - rows.mean(axis=(0, 1))
    variance = float((spread * spread).sum()) / (rows.shape[0] * rows.shape[1])
    if not variance > 0:
        raise DataError("The sequences never change, so they have no straightness; give others.")
    second = float((bent * bent).sum()) / (bent.shape[0] * bent.shape[1])
    steps = np.diff(rows, axis=1)
    lengths = np.linalg.norm(steps, axis=2)
    pace = float((lengths**2).mean())
    both = lengths[:, :-1] * lengths[:, 1:]
    # steps of next to no length have a direction of rounding noise
    moving = both > 1e-12 * variance
    cosine = np.einsum("ijk,ijk->ij", steps[:, :-1], steps[:, 1:])[moving] / both[moving]
    angle = float(np.degrees(np.arccos(np.clip(cosine, -1, 1))).mean()) if moving.any() else 0.0
    return Straightness(second / variance, second / pace if pace > 0 else 0.0, angle)
