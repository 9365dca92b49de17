"""Points embedded by the sparse manifold transform: one pass over points and their neighbours, then a solve."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from smtdist.data.neighbours import NeighbourSource, NoisePairs
from smtdist.data.table import as_table
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError
from smtdist.kernels.features import Features
from smtdist.models.points.contexts import Context
from smtdist.solve.generalized import smallest_components, solve_bytes
from smtdist.solve.solution import Float64, Solution
from smtdist.statistics.operators import Listed
from smtdist.statistics.sites import Neighbourhoods
from smtdist.statistics.values import SecondOrder, ValueSums, finish

if TYPE_CHECKING:
    from smtdist.models.points.table import PointSettings

MOMENTS = ("second", "centred")
FINE = 2**20
"""Steps of a feature between 0 and 1: features of points are known exactly."""


@dataclass(frozen=True)
class PointModel:
    """Features f, and P with P V Pᵀ = I that minimises ‖PAD‖² (SMT 2023, eq. 3).

    `settings`, `n_inputs` (numbers of a point) and `provenance` are known where a table was fitted from settings.
    """

    features: Features
    sums: SecondOrder
    embedding: Solution
    settings: PointSettings | None = None
    n_inputs: int = 0
    provenance: dict[str, Any] = field(default_factory=dict)

    def transform(self, points: Any) -> Float64:
        """Return P f(x) of every point, (N, L); new points are as good as those of the fit."""
        rows = np.asarray(points, np.float64)
        result: Float64 = self.features(rows) @ self.embedding.components.T
        return result

    def summary(self) -> dict[str, Any]:
        """Return the figures that a person asks for first, as plain JSON."""
        return {
            "n_positions": self.sums.n_positions,
            "n_inputs": self.n_inputs,
            "n_features": self.features.size,
            "n_components": len(self.embedding.eigenvalues),
            "rank": self.embedding.rank,
            "eigenvalues": self.embedding.eigenvalues.tolist(),
            "fingerprint": self.provenance.get("fingerprint", ""),
        }

    def transform_codes(self, codes: NDArray[np.float64]) -> Float64:
        """Return P a of features, (N, L)."""
        result: Float64 = codes @ self.embedding.components.T
        return result


def fit_points(
    source: NeighbourSource | NoisePairs,
    features: Features,
    engine: Engine,
    *,
    order: int = 1,
    n_components: int,
    moment: str = "second",
) -> tuple[PointModel, list[dict[str, Any]]]:
    """Sum over points and their neighbours in one pass and solve; return the records of both too.

    `moment`: V is the "second" moment, or "centred" about the mean feature, in which the constant has no part, as in slow
    feature analysis. Noisy pairs count both points in V. Memory: as the pass states, on the driver some 6 K x K arrays.

    >>> from smtdist.engine.executor import SerialExecutor
    >>> from smtdist.kernels.features import Quadratic
    >>> from smtdist.models.points.contexts import temporal_context
    >>> t = np.linspace(0, 2 * np.pi, 400)
    >>> x = np.stack([np.sin(t) + np.cos(11 * t) ** 2, np.cos(11 * t)], axis=1)
    >>> source = in_context(x, temporal_context([400]))
    >>> model, _ = fit_points(source, Quadratic(2), Engine(SerialExecutor()), n_components=1, moment="centred")
    >>> abs(np.corrcoef(model.transform(x)[:, 0], np.sin(t))[0, 1]).round(3)
    np.float64(1.0)
    """
    if moment not in MOMENTS:
        raise ConfigurationError(f"moment is {moment!r}; choose {' or '.join(MOMENTS)}.")
    context = Listed(order, pairs=isinstance(source, NoisePairs))
    sums = ValueSums(Neighbourhoods(source.shape[3] - 1), features, context, FINE)
    with engine.run(("points", "solve")):
        partial, record = engine.reduce("points", sums, source)
        found = finish(partial.state, sums).means()
        embedding, solved = solved_points(found, moment, n_components, engine)
    return PointModel(features, found, embedding), [record, solved]


def solved_points(
    found: SecondOrder, moment: str, n_components: int, engine: Engine
) -> tuple[Solution, dict[str, Any]]:
    """Solve for P with the second or the centred moment as V, as a step of the run; return its record too."""

    def solved() -> Solution:
        return smallest_components(found.scatter, found.constraint(moment), n_components)

    return engine.solve("solve", solved, solve_bytes(len(found.mean), False, n_components))


def noisy_pairs(points: Any, noise: float, seed: int = 0) -> NoisePairs:
    """Return two noisy copies of every point, as neighbours; `points` are as in `smtdist.data.table.as_table`.

    >>> noisy_pairs(np.zeros((10, 3)), 0.1).shape
    (10, 1, 2, 4)
    """
    return NoisePairs(as_table(points), noise, seed)


def in_context(points: Any, context: Context) -> NeighbourSource:
    """Return points with their neighbours; `points` are as in `smtdist.data.table.as_table`.

    >>> from smtdist.models.points.contexts import temporal_context
    >>> in_context(np.zeros((10, 3)), temporal_context([10])).shape
    (10, 1, 2, 4)
    """
    return NeighbourSource.of(points, context.numbers, context.weights)
