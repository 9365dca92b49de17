"""Features of points: rows of numbers in, rows of features out, or of codes over given atoms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import ConfigurationError
from smtdist.kernels.l1 import sparse_codes
from smtdist.kernels.sparse_codes import omp_codes

Rows = NDArray[np.float64]

BLOCK_BYTES: Final = 2**26
REGULARISATION: Final = 1e-3
"""Share of its trace that is added to the diagonal of a local Gram matrix, as in scikit-learn."""


class Features(ABC):
    """What turns rows (m, p) into codes of values (m, K), the same bits beside whichever others; frozen and picklable.

    size : number of features, K. sparse : whether most entries of a code are exactly zero. ordered : whether codes have
    the same bits on any processor: they come from products by `smtdist.kernels.products`, sums in one order, roots and
    whole numbers alone, and neither from BLAS or LAPACK nor from exp, log and the like.
    """

    size: int
    sparse: bool = False
    ordered: bool = False

    @abstractmethod
    def __call__(self, points: Any) -> Any:
        """Return the codes of rows, (m, K), where they are placed."""

    @property
    def row_numbers(self) -> int:
        """float32 numbers that coding a row takes beside the row and its code."""
        return 0

    @property
    def held_bytes(self) -> int:
        """Bytes of what is held while coding."""
        return 0

    def few(self) -> Self:
        """Return a small one of the same kind, or itself where nothing is compiled."""
        return self

    def parts(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return the arrays that a dataclass of features is made of, by name, and everything else.

        >>> Quadratic(2).parts()
        ({}, {'n_inputs': 2})
        """
        every = {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]
        arrays = {name: value for name, value in every.items() if isinstance(value, np.ndarray)}
        return arrays, {name: value for name, value in every.items() if name not in arrays}


@dataclass(frozen=True, eq=False)
class OverPoints(Features):
    """Codes with an entry for each of K points (K, p)."""

    points: Rows

    @property
    def size(self) -> int:  # type: ignore[override]  # a field of the base class, computed here
        """Number of points."""
        return len(self.points)


@dataclass(frozen=True, eq=False)
class Landmarks(OverPoints):
    """One-hot codes: 1 for the nearest of K landmarks, the first of equally near ones (SMT 2023, figure 2).

    >>> Landmarks(np.array([[0.0], [2.0]]))(np.array([[0.4], [3.0]]))
    array([[1., 0.],
           [0., 1.]])
    """

    ordered = True

    def __call__(self, points: Rows) -> Rows:
        """Return one-hot codes."""
        codes = np.zeros((len(points), self.size))
        codes[np.arange(len(points)), squared_distances(points, self.points).argmin(axis=1)] = 1.0
        return codes

    def few(self) -> Self:
        """Return few landmarks."""
        return replace(self, points=self.points[:8])


@dataclass(frozen=True, eq=False)
class Interpolation(OverPoints):
    """Codes that rebuild a point from its k nearest landmarks, with weights that sum to 1 (locally linear landmarks).

    A point that is a landmark is that landmark.
    """

    neighbours: int
    regularisation: float = REGULARISATION

    def __call__(self, points: Rows) -> Rows:
        """Return interpolating codes, (m, K).

        >>> Interpolation(np.array([[0.0], [1.0], [5.0]]), 2, 1e-9)(np.array([[0.25], [5.0]])).round(6)
        array([[0.75, 0.25, 0.  ],
               [0.  , 0.  , 1.  ]])
        """
        distances = squared_distances(points, self.points)
        near = np.argsort(distances, axis=1, kind="stable")[:, : self.neighbours]
        weights = barycentric_weights(points, self.points[near], self.regularisation)
        own = np.take_along_axis(distances, near[:, :1], axis=1)[:, 0] == 0
        weights[own] = np.eye(1, self.neighbours)
        codes = np.zeros((len(points), self.size))
        np.put_along_axis(codes, near, weights, axis=1)
        return codes


@dataclass(frozen=True, eq=False)
class RadialBasis(OverPoints):
    """exp(-|x - c|² / (2 width²)) for K centres c."""

    width: float

    def __post_init__(self) -> None:
        _require_width(self.width)

    def __call__(self, points: Rows) -> Rows:
        """Return features in (0, 1], (m, K).

        >>> RadialBasis(np.array([[0.0], [2.0]]), 1.0)(np.array([[0.0]])).round(3)
        array([[1.   , 0.135]])
        """
        return np.exp(squared_distances(points, self.points) / (-2 * self.width**2))


@dataclass(frozen=True)
class RandomFourier(Features):
    """sqrt(2 / K) cos(w·x + b), with inner products near exp(-|x - y|² / (2 width²)) (Rahimi and Recht 2007)."""

    n_inputs: int
    size: int
    width: float
    seed: int = 0

    def __post_init__(self) -> None:
        _require_width(self.width)

    def __call__(self, points: Rows) -> Rows:
        """Return features in [-sqrt(2 / K), sqrt(2 / K)], (m, K).

        >>> z = RandomFourier(1, 10_000, 1.0)(np.array([[0.0], [2.0]]))
        >>> (z @ z.T).round(1)
        array([[1. , 0.1],
               [0.1, 1. ]])
        """
        draw = np.random.default_rng(self.seed)
        frequencies = draw.standard_normal((self.n_inputs, self.size)) / self.width
        phases = draw.uniform(0, 2 * np.pi, self.size)
        # einsum adds in one order, whatever the batch, where BLAS may not
        angles = np.einsum("ij,jk->ik", points, frequencies) + phases
        result: Rows = np.sqrt(2 / self.size) * np.cos(angles)
        return result


@dataclass(frozen=True)
class Quadratic(Features):
    """All x_i and all x_i x_j with i <= j: the expansion of slow feature analysis (Wiskott and Sejnowski 2002)."""

    ordered = True

    n_inputs: int

    @property
    def size(self) -> int:  # type: ignore[override]  # a field of the base class, computed here
        """d + d (d + 1) / 2."""
        return self.n_inputs * (self.n_inputs + 3) // 2

    def __call__(self, points: Rows) -> Rows:
        """Return the expansion.

        >>> Quadratic(2)(np.array([[2.0, 3.0]]))
        array([[2., 3., 4., 6., 9.]])
        """
        first, second = np.triu_indices(self.n_inputs)
        return np.concatenate([points, points[:, first] * points[:, second]], axis=1)


def squared_distances(points: Rows, others: Rows) -> Rows:
    """Return |x - y|² of every pair, (m, K), each summed in one order. Memory: besides the result 64 MiB.

    >>> squared_distances(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0], [0.0, 1.0]]))
    array([[25.,  1.]])
    """
    result = np.empty((len(points), len(others)))
    step = min(max(1, len(points)), max(1, BLOCK_BYTES // (8 * max(1, others.size))))
    room = np.empty((step, *others.shape))  # one for all blocks: a new one would be made beside the last
    for start in range(0, len(points), step):
        block = points[start : start + step, None, :]
        difference = np.subtract(block, others, out=room[: len(block)])
        np.einsum("ijk,ijk->ij", difference, difference, out=result[start : start + step])
    return result


def barycentric_weights(points: Rows, near: Rows, regularisation: float = REGULARISATION) -> Rows:
    """Return the weights that rebuild points from their neighbours and sum to 1 (Roweis and Saul 2000).

    points (m, d), near (m, k, d); `regularisation` times the trace is added to the diagonal of each Gram
    matrix.

    >>> barycentric_weights(np.array([[1.0]]), np.array([[[0.0], [4.0]]]), 1e-9).round(6)
    array([[0.75, 0.25]])
    """
    offset = near - points[:, None, :]
    gram = np.einsum("ijk,ilk->ijl", offset, offset)
    trace = np.trace(gram, axis1=1, axis2=2)
    ridge = np.where(trace > 0, regularisation * trace, regularisation)
    k = near.shape[1]
    gram[:, np.arange(k), np.arange(k)] += ridge[:, None]
    weights = np.linalg.solve(gram, np.ones((len(points), k, 1)))[..., 0]
    result: Rows = weights / weights.sum(axis=1, keepdims=True)
    return result


def _require_width(width: float) -> None:
    if not width > 0:
        raise ConfigurationError(f"width is {width}; give a length above 0.")


GAP: Final = 1e-6
"""Relative duality gap of L1 codes: points are few, and their sums are exact to 2^-20."""


@dataclass(frozen=True, eq=False)
class _OverAtoms(OverPoints):
    """Codes over K atoms, the unit directions of `points` (K, p)."""

    ordered = True

    @property
    def sparse(self) -> bool:  # type: ignore[override]
        """Most entries are exactly zero."""
        return True

    @property
    def atoms(self) -> Rows:
        """Unit rows, (K, p)."""
        return directions(self.points)

    def few(self) -> Self:
        """Return few atoms."""
        return replace(self, points=self.points[:8])


@dataclass(frozen=True, eq=False)
class Threshold(_OverAtoms):
    """1 for every atom whose cosine with the row is at least `threshold` (f_gq of SMT 2023, section 3).

    >>> Threshold(np.eye(2), 0.7)(np.array([[1.0, 1.0], [1.0, 0.0]]))
    array([[1., 1.],
           [1., 0.]])
    """

    threshold: float

    def __call__(self, points: Rows) -> Rows:
        """Return codes of rows, (m, K)."""
        # of unit rows |x - c|² = 2 - 2 cos
        near = squared_distances(directions(points), self.atoms) <= 2 - 2 * self.threshold
        return near.astype(np.float64)


@dataclass(frozen=True, eq=False)
class PositiveCodes(_OverAtoms):
    """argmin over a >= 0 of ½ ‖x - Φ a‖² + λ Σ a of whole rows (SMT 2018, eq. 10)."""

    penalty: float

    def __call__(self, points: Rows) -> Rows:
        """Return codes of rows, (m, K).

        >>> PositiveCodes(np.eye(2), 0.5)(np.array([[2.0, -1.0]])).round(3)
        array([[1.5, 0. ]])
        """
        found, _, _ = sparse_codes(
            np.ascontiguousarray(self.atoms.T), np.asarray(points, np.float64), self.penalty, gap=GAP
        )
        return np.asarray(found, np.float64)


@dataclass(frozen=True, eq=False)
class Pursuit(_OverAtoms):
    """At most k atoms by orthogonal matching pursuit (Pati et al. 1993); signed."""

    k: int

    def __post_init__(self) -> None:
        if not 1 <= self.k <= min(self.points.shape):
            raise ConfigurationError(
                f"k is {self.k}; a code of {self.points.shape[0]} atoms of {self.points.shape[1]} numbers takes 1 to "
                f"{min(self.points.shape)}."
            )

    def __call__(self, points: Rows) -> Rows:
        """Return codes of rows, (m, K).

        >>> Pursuit(np.eye(3), 2)(np.array([[1.0, -3.0, 0.5]]))
        array([[ 1., -3.,  0.]])
        """
        found = omp_codes(np.ascontiguousarray(self.atoms.T), np.asarray(points, np.float64), self.k)
        return np.asarray(found, np.float64)


def directions(rows: Rows) -> Rows:
    """Return rows brought to unit length; a row of zeros stays."""
    lengths = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    return np.asarray(rows / np.where(lengths > 0, lengths, 1))
