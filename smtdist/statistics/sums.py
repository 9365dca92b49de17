"""Finished statistics: the named sums of a fit, stored with as few K x K arrays as possible, opened whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels.scatter import mirror_upper
from smtdist.statistics.base import State
from smtdist.statistics.cooccurrence import SECOND_ORDER_SCALE, CodeSums, full_degree

_MATRICES = ("second_moment", "context_scatter", "cooccurrence")


@dataclass(frozen=True)
class Statistics:
    """Sums over samples of the codes A: counts, A 1, A Aᵀ, A D Dᵀ Aᵀ, A W Aᵀ; raw, not divided by N.

    `matrices` holds the independent ones, in full (both triangles), by their public names; what is missing follows:
    the second moment of one-hot codes is diag(activity), and with equal degrees everywhere (`equal_degree`)
    context_scatter = degree A Aᵀ - cooccurrence. `scatter_scale` divides context_scatter (2^20 for second order).
    """

    n_samples: int
    n_positions: int
    activity: NDArray[np.int64]
    matrices: dict[str, NDArray[np.integer]]
    one_hot: bool
    order: int
    equal_degree: int | None
    degree_activity: NDArray[np.int64] | None  # Σ deg(i) a_i, of one-hot first-order codes

    @property
    def scatter_scale(self) -> int:
        """Divide `context_scatter` by this to get A D Dᵀ Aᵀ."""
        return SECOND_ORDER_SCALE if self.order == 2 else 1

    @property
    def derived(self) -> list[str]:
        """Names of the matrices that follow from the stored ones."""
        return [name for name in _MATRICES if name not in self.matrices]

    @property
    def second_moment(self) -> NDArray[np.integer]:
        """A Aᵀ, (K, K)."""
        return np.diag(self.activity) if self.one_hot else self.matrices["second_moment"]

    @property
    def cooccurrence(self) -> NDArray[np.integer]:
        """A W Aᵀ with W the symmetric 0/1 neighbour relation without self, (K, K)."""
        return self.matrices["cooccurrence"]

    @property
    def context_scatter(self) -> NDArray[np.integer]:
        """A D Dᵀ Aᵀ times `scatter_scale`, (K, K)."""
        if "context_scatter" in self.matrices:
            return self.matrices["context_scatter"]
        result = -self.cooccurrence.astype(np.int64)
        if self.degree_activity is not None:
            result[np.diag_indices_from(result)] += self.degree_activity
        else:
            assert self.equal_degree is not None
            result += self.equal_degree * self.second_moment.astype(np.int64)
        return result


def finish(sums: CodeSums, state: State) -> Statistics:
    """Turn the raw sums of a pass into named, full matrices; consumes `state` to save memory."""
    one_hot = sums.encoder.feature == "vq"
    activity = state["activity"]
    matrices: dict[str, NDArray[np.integer]] = {}
    second = None if one_hot else mirror_upper(state.pop("second_moment"))
    if "outer" in state:
        cooccurrence = mirror_upper(state.pop("outer"))
        if second is None:
            cooccurrence[np.diag_indices_from(cooccurrence)] -= activity.astype(cooccurrence.dtype)
        else:
            cooccurrence -= second.astype(cooccurrence.dtype, copy=False)
    else:
        cooccurrence = mirror_upper(state.pop("windows"))
    degree = full_degree(sums.context, sums.encoder.whitener.geometry.positions)
    deficit = state.pop("deficit", None)
    equal_degree: int | None = degree
    degree_activity = None
    if sums.order == 2:
        matrices["context_scatter"] = mirror_upper(state.pop("scatter"))
        equal_degree = None
    elif one_hot:
        degree_activity = degree * activity
        if deficit is not None:
            degree_activity -= deficit
        equal_degree = None
    elif deficit is not None and np.any(deficit):
        scatter = degree * second.astype(np.int64) - mirror_upper(deficit) - cooccurrence  # type: ignore[union-attr]
        matrices["context_scatter"] = scatter
        equal_degree = None
    if second is not None:
        matrices["second_moment"] = second
    matrices["cooccurrence"] = cooccurrence
    return Statistics(
        n_samples=int(state["n_samples"]),
        n_positions=int(state["n_positions"]),
        activity=activity.astype(np.int64),
        matrices=matrices,
        one_hot=one_hot,
        order=sums.order,
        equal_degree=equal_degree,
        degree_activity=degree_activity,
    )
