"""What a search for concepts leaves: S, its weights and features, and the sums that new points need."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from smtdist.concepts.descent import Sweep
from smtdist.concepts.keyed import key_of
from smtdist.concepts.objective import Moments, centred
from smtdist.concepts.rows import infer
from smtdist.concepts.scores import Coordinates
from smtdist.concepts.settings import ConceptSettings
from smtdist.concepts.state import prices_of
from smtdist.data.netcdf import Group
from smtdist.data.showing import Shown
from smtdist.errors import ModelError
from smtdist.models import store
from smtdist.models.store import Array, alike

Matrix = NDArray[np.float64]
INFERENCE_PASSES = 40

_OF_CONCEPTS: Final = {
    "concepts": Array(("point", "concept"), "1 where the point is a member", "1"),
    "weight": Array(("concept",), "π, XXᵀ ~ Σ π s sᵀ", "1"),
    "size": Array(("concept",), "members", "points"),
    "dense": Array(("concept",), "1 on the dense side of the split", dtype="uint8"),
    "feature": Array(("concept", "dimension"), "columns of W, X - mean ≈ (S - mean) Wᵀ"),
}
_SUMS: Final = {
    "together": Array(("concept", "concept_"), units="points"),
    "crossed": Array(("component", "concept"), units="grid steps"),
    "total": Array(("component",), units="grid steps"),
}
_COORDINATES: Final = {
    "mean": Array(("dimension",)),
    "axes": Array(("dimension", "component")),
    "singular": Array(("component",)),
    "grid": Array(("component",), "steps a unit of X"),
}
_SWEEPS: Final = {
    **alike(("temperature", "loss", "objective", "cka"), "sweep", dtype="f8"),
    **alike(("flips", "at_once", "projected"), "sweep", dtype="i8"),
}
_GROUPS: Final[Mapping[str, store.Arrays]] = {
    "": _OF_CONCEPTS,
    "sums": _SUMS,
    "coordinates": _COORDINATES,
    "sweeps": _SWEEPS,
}
_NUMBERS: Final = {"cka": "cka", "loss": "loss", "unit": "unit_weight"}
"""Fields that are numbers, and the attributes that hold them."""


@dataclass(frozen=True)
class Ending:
    """How a search ended.

    Attributes
    ----------
    n_iter : sweeps of the start that was kept, of rejection the iterations of a candidate.
    converged : whether the last sweep, without noise and with the weights fitted before it, flipped no member.
    gap : relative fall of the objective in the last sweep, 0 where it flipped none.
    """

    n_iter: int
    converged: bool
    gap: float


@dataclass
class ConceptModel(Shown):
    """Concepts of p points and everything that follows from them.

    Attributes
    ----------
    concepts : (p, b) uint8, 1 for members; the sparse side of each.
    weights : (b,) π of equation (1).
    features : (n, b) W, X̄ ≈ S̄ Wᵀ.
    state sums : `together` SᵀS (b, b), `crossed` (scores)ᵀS (r, b) on the grid, `total` (r,); whole numbers.
    cka : centred kernel alignment of SΠSᵀ with XXᵀ (equation 2).
    """

    STORED_AS: ClassVar[str] = "concepts"

    settings: ConceptSettings
    concepts: NDArray[np.uint8]
    weights: Matrix
    features: Matrix
    together: Matrix
    crossed: Matrix
    total: Matrix
    coordinates: Coordinates
    cka: float
    loss: float
    unit: float  # of temperature and penalty, `unit_weight`
    history: list[Sweep] = field(default_factory=list)
    provenance: dict[str, Any] = field(default_factory=dict)
    ending: Ending | None = None  # None in files of earlier versions

    @property
    def points(self) -> int:
        """Points, p."""
        return len(self.concepts)

    @property
    def members(self) -> NDArray[np.int64]:
        """Members of each concept (b,)."""
        return np.asarray(np.rint(np.diag(self.together)), np.int64)

    def summary(self) -> dict[str, Any]:
        """Return the figures that a person asks for first, as plain JSON."""
        found = {"n_concepts": self.n_concepts, "n_samples": self.points, "cka": self.cka}
        return found | ({} if self.ending is None else vars(self.ending))

    @property
    def advice(self) -> str:
        """What to do where the search fell short, in one sentence; empty where it did not."""
        if self.ending is not None and not self.ending.converged:
            gap = self.ending.gap
            fall = f"{100 * gap:.2g} %" if gap else "too little to be seen"
            return (
                f"The search for concepts had not converged after {self.ending.n_iter:,} sweeps, the last of which lowered the "
                f"objective by {fall}; raise max_iter."
            )
        if self.cka < self.settings.way.aligned:
            return (
                f"The concepts that rejection found align with the data by {self.cka:.2f} only; use the method hybrid, or set "
                f"rank to the number of components that are not noise."
            )
        return ""

    @property
    def n_concepts(self) -> int:
        """Concepts, b."""
        return len(self.weights)

    @property
    def dense(self) -> NDArray[np.bool_]:
        """Which concepts are dense, after Figure 4b (b,)."""
        return np.asarray(self.members > split_sizes(self.members))

    def reconstruct(self, concepts: NDArray[np.generic] | None = None) -> Matrix:
        """Return X̂ = mean + (S - mean of S) Wᵀ for rows of S (m, b), the fitted ones by default: (m, n)."""
        s = self.concepts if concepts is None else np.asarray(concepts)
        if s.ndim != 2 or s.shape[1] != self.n_concepts:
            raise ModelError(
                f"The array has the shape {s.shape}, but rows of {self.n_concepts} concepts are needed."
            )
        return self.coordinates.mean + (s - self.members / self.points) @ self.features.T

    def transform(self, rows: NDArray[np.generic]) -> NDArray[np.uint8]:
        """Return the concepts of new points (m, n): (m, b), each by the row's problem beside all p fitted points.

        Equations (4), (9), (10) with the fitted sums held; annealed from T = 1 with draws that depend on
        the settings' seed only, so that a point's concepts do not depend on which points come with it.
        Memory: m (r + b) numbers.
        """
        x = self.coordinates.of(rows)
        s = np.zeros((len(x), self.n_concepts), np.uint8)
        size = self.unit
        temperatures = np.append(0.8 ** np.arange(INFERENCE_PASSES), np.zeros(5))
        infer(
            np.ascontiguousarray(x),
            s,
            self.together,
            np.diag(self.together).copy(),
            self.crossed,
            self.total,
            1 / self.coordinates.grid**2,
            self.weights,
            self.points,
            temperatures,
            prices_of(self.weights, self.settings.penalty, size, self.settings.weighted_penalty),
            1 / (self.points * size * size),
            np.uint64(key_of(self.settings.random_state, 10**6)),
        )
        return s

    def stored(self) -> Iterator[tuple[str, Group]]:
        """Yield what its file holds.

        The root has concepts, weights, sizes and features; `/sums` what new points need, in whole steps of the scores' grids;
        `/coordinates` how rows become scores; `/sweeps` the way there.
        """
        values = {"concepts": self.concepts, "weight": self.weights, "size": self.members}
        attributes = {
            **store.version(self.STORED_AS),
            "configuration": self.settings.to_json(),
            "provenance": json.dumps(self.provenance),
            **{attribute: getattr(self, name) for name, attribute in _NUMBERS.items()},
            "ending": json.dumps(None if self.ending is None else vars(self.ending)),
            "versions": json.dumps({name: version(name) for name in ("smtdist", "numpy", "numba")}),
        }
        values |= {"dense": self.dense, "feature": self.features.T}
        yield "", store.packed(_OF_CONCEPTS, values, attributes)
        yield "sums", store.packed(_SUMS, vars(self))
        yield "coordinates", store.packed(_COORDINATES, vars(self.coordinates))
        columns = {name: [getattr(sweep, name) for sweep in self.history] for name in _SWEEPS}
        yield "sweeps", store.packed(_SWEEPS, columns)

    @classmethod
    def restored(cls, file: Any, statistics: bool) -> Self:
        """Read what `stored` yielded, also in an earlier version."""
        store.require(file, _GROUPS)
        ending = json.loads(file.attrs.get("ending", "null"))  # none before schema 2
        numbers: dict[str, Any] = store.arrays_in(file["sums"], _SUMS)
        numbers |= {name: float(np.ravel(file.attrs[about])[0]) for name, about in _NUMBERS.items()}
        concepts, members = file["concepts"][()], np.diag(numbers["together"])
        if concepts.dtype != np.uint8 or concepts.max(initial=0) != 1 or (concepts.sum(0) != members).any():
            raise ValueError("the concepts are not those that the sums are of")
        columns = [file["sweeps"][name][()].tolist() for name in _SWEEPS]
        return cls(
            settings=ConceptSettings.from_json(str(file.attrs["configuration"])),
            concepts=concepts,
            weights=store.finite(file, "weight"),
            features=store.finite(file, "feature").T.copy(),
            coordinates=Coordinates(**store.arrays_in(file["coordinates"], _COORDINATES)),
            **numbers,
            history=[Sweep(**dict(zip(_SWEEPS, row, strict=True))) for row in zip(*columns, strict=True)],
            provenance=json.loads(file.attrs["provenance"]),
            ending=None if ending is None else Ending(**ending),
        )


def split_sizes(members: NDArray[np.integer]) -> float:
    """Return the size that best splits concepts into sparse and dense: two means of log sizes, exactly (Otsu).

    >>> split_sizes(np.array([1, 2, 2, 3, 400, 500])) > 3
    True
    """
    sizes = np.sort(np.log(np.maximum(members, 1)))
    if len(sizes) < 2 or sizes[0] == sizes[-1]:
        return float(np.exp(sizes[-1])) if len(sizes) else 0.0
    left = np.arange(1, len(sizes))
    sums = np.cumsum(sizes)
    low, high = sums[:-1] / left, (sums[-1] - sums[:-1]) / (len(sizes) - left)
    between = left * (len(sizes) - left) * (high - low) ** 2
    cut = int(np.argmax(between))
    return float(np.exp((sizes[cut] + sizes[cut + 1]) / 2))


def features_of(sums: Moments, weights: Matrix, how: str, ridge: float = 1e-8) -> Matrix:
    """Return W (n, b) after the fit: X̄ ≈ S̄ Wᵀ.

    "least_squares": W = X̄ᵀS̄ (S̄ᵀS̄ + ridge)⁻¹. "procrustes": W = R Π^½ with R = argmin ‖X̄ - S̄Π^½Rᵀ‖ of
    orthonormal columns (rows, where b > n), from the SVD of X̄ᵀS̄Π^½. Memory: a few b x b.
    """
    inner, crossed, _ = centred(sums)
    if how == "least_squares":
        largest = float(np.diag(inner).max(initial=1.0))
        solved = np.linalg.solve(inner + ridge * largest * np.eye(len(inner)), crossed)
        return np.asarray(solved.T)
    root = np.sqrt(weights)
    left, _, right = np.linalg.svd(crossed.T * root, full_matrices=False)
    return np.asarray((left @ right) * root)
