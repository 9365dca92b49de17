"""What figure 2 of SMT 2018 shows, in numbers: Zernike polynomials, angular frequency, recovery of sparse functions."""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from smtdist.kernels import features as feature_kernels
from smtdist.models.functional.disc import Triangulated, spacing
from smtdist.models.functional.inverse import recover_codes
from smtdist.solve.solution import Float64

RINGS, ANGLES, RADIUS = 24, 128, 0.95
PENALTY: Final = 1e-3
APART: Final = 4.0
"""Least distance of two points of a sparse function, in landmarks' spacings: nearer ones are one cluster to the eye."""


def zernike(points: Float64, order: int) -> Float64:
    """Return the Zernike polynomials up to an order at points of the disc, ((n + 1)(n + 2) / 2, m), by order and frequency.

    Z_n^m = R_n^|m|(r) cos(m θ) for m >= 0, R_n^|m|(r) sin(|m| θ) for m < 0.

    >>> zernike(np.array([[1.0, 0.0]]), 2).ravel().tolist()
    [1.0, 0.0, 1.0, 0.0, 1.0, 1.0]
    """
    r, angle = np.hypot(*points.T), np.arctan2(points[:, 1], points[:, 0])
    rows = []
    for n in range(order + 1):
        rows += [
            _radial(n, abs(m), r) * (np.cos(m * angle) if m >= 0 else np.sin(-m * angle))
            for m in range(-n, n + 1, 2)
        ]
    return np.array(rows)


def _radial(n: int, m: int, r: Float64) -> Float64:
    total = np.zeros_like(r)
    for k in range((n - m) // 2 + 1):
        under = factorial(k) * factorial((n + m) // 2 - k) * factorial((n - m) // 2 - k)
        total += (-1) ** k * factorial(n - k) / under * r ** (n - 2 * k)
    return total


def principal_cosines(first: Float64, second: Float64) -> Float64:
    """Return the cosines of the principal angles between the spans of rows, the largest first."""
    bases = [np.linalg.qr(rows.T)[0] for rows in (first, second)]
    return np.asarray(np.linalg.svd(bases[0].T @ bases[1], compute_uv=False))


def angular_energy(components: Float64, landmarks: Float64) -> tuple[NDArray[np.int64], Float64]:
    """Return for every functional the angular frequency |m| that holds most of its energy on the disc, and its share.

    The functional is interpolated between landmarks onto rings, and each ring is Fourier transformed.
    """
    r = RADIUS * (np.arange(RINGS) + 0.5) / RINGS
    angle = 2 * np.pi * np.arange(ANGLES) / ANGLES
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    grid = (r[:, None, None] * ring).reshape(-1, 2)
    values = (Triangulated(landmarks)(grid) @ components.T).T.reshape(len(components), RINGS, ANGLES)
    power = np.abs(np.fft.rfft(values, axis=2)) ** 2
    power[..., 1:-1] *= 2
    energy = np.einsum("ijk,j->ik", power, r)
    energy /= energy.sum(axis=1, keepdims=True)
    return energy.argmax(axis=1), energy.max(axis=1)


def sparse_points(count: int, functions: int, seed: int, least: float) -> Float64:
    """Draw functions of `count` points each, even over the disc and no two nearer than `least`, (functions, count, 2)."""
    draw = np.random.default_rng([seed, 2])
    found = np.zeros((functions, count, 2))
    for points in found:
        while True:
            angle = draw.uniform(0, 2 * np.pi, count)
            points[...] = np.sqrt(draw.uniform(size=(count, 1))) * np.stack(
                [np.cos(angle), np.sin(angle)], axis=1
            )
            apart = feature_kernels.squared_distances(points, points) + 4 * np.eye(count)
            if apart.min() >= least * least:
                break
    return found


def clusters(codes: Float64, landmarks: Float64, count: int, width: float) -> Float64:
    """Return the centres of the `count` heaviest clusters of a code, (count, 2): local means, as drawn in figure 2C.

    The heaviest neighbourhoods of radius `width` in turn; then every active landmark goes to its nearest
    centre, and centres to the mean of theirs, until nothing changes. Fewer active landmarks than clusters
    repeat the last.
    """
    active = np.flatnonzero(codes > 1e-3 * codes.max(initial=0.0))
    if not len(active):
        return np.zeros((count, 2))
    places, mass = landmarks[active], codes[active].astype(np.float64)
    left = mass.copy()
    near = feature_kernels.squared_distances(places, places) <= width * width
    centres: list[Float64] = []
    for _ in range(count):
        own = near[int((near @ left).argmax())] & (left > 0)
        if not own.any():
            centres.append(centres[-1])
            continue
        centres.append(left[own] @ places[own] / left[own].sum())
        left[own] = 0.0
    result = np.array(centres)
    for _ in range(20):
        own_centre = feature_kernels.squared_distances(places, result).argmin(axis=1)
        weights = np.bincount(own_centre, mass, count)
        moved = np.stack([np.bincount(own_centre, mass * axis, count) for axis in places.T], axis=1)
        fresh = np.where(weights[:, None] > 0, moved / np.maximum(weights, 1e-300)[:, None], result)
        if np.array_equal(fresh, result):
            break
        result = fresh
    return result


@dataclass(frozen=True)
class Recovery:
    """Sparse functions of the disc, (n, h, 2), their codes and recovered codes (n, K), and the centres found, (n, h, 2)."""

    points: Float64
    codes: Float64
    recovered: Float64
    centres: Float64

    @property
    def errors(self) -> Float64:
        """Distance of every point to the centre it is matched with, the sum of distances being the least, (n, h)."""
        distances = np.sqrt(((self.points[:, :, None] - self.centres[:, None]) ** 2).sum(axis=3))
        matched = [one[linear_sum_assignment(one)] for one in distances]
        return np.array(matched)


def recovery(
    components: Float64, landmarks: Float64, points: Float64, penalty: float = PENALTY
) -> Recovery:
    """Embed sparse functions, each a sum of the codes of its points, and recover them by equation 6."""
    functions, count, _ = points.shape
    parts = Triangulated(landmarks)(points.reshape(-1, 2))
    codes = parts.reshape(functions, count, -1).sum(axis=1)
    recovered = recover_codes(components, codes @ components.T, penalty)
    width = 1.5 * spacing(len(landmarks))
    centres = np.array([clusters(row, landmarks, count, width) for row in recovered])
    return Recovery(points, codes, recovered, centres)


def judged(
    components: Float64,
    landmarks: Float64,
    *,
    functions: int = 100,
    seed: int = 0,
    penalty: float = PENALTY,
) -> dict[str, Any]:
    """Return what figure 2 shows, in numbers.

    zernike_cosines : of the principal angles between functionals 1 to 10 and the Zernike polynomials of
        orders 0 to 3, at the
        landmarks. angular_frequency, angular_share : of every functional, see `angular_energy`.
    one_sparse, four_sparse : mean position error of recovered points by number of functionals, from 3 to
        all of them.
    """
    frequency, share = angular_energy(components, landmarks)
    gap = spacing(len(landmarks))
    result: dict[str, Any] = {
        "zernike_cosines": principal_cosines(components[:10], zernike(landmarks, 3)).tolist(),
        "angular_frequency": frequency.tolist(),
        "angular_share": share.tolist(),
        "landmark_spacing": gap,
        "functionals": list(range(3, len(components) + 1)),
    }
    for name, count in (("one_sparse", 1), ("four_sparse", 4)):
        points = sparse_points(count, functions, seed, APART * gap)
        result[name] = [
            float(recovery(components[:f], landmarks, points, penalty).errors.mean())
            for f in result["functionals"]
        ]
    return result
