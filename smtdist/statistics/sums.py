"""Finished statistics: the named sums of a fit, stored with as few K x K arrays as possible, opened whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels.scatter import mirror_upper
from smtdist.statistics.base import State
from smtdist.statistics.cooccurrence import SECOND_ORDER_SCALE, CodeSums
from smtdist.statistics.origin import Additive, Origin

_MATRICES = ("second_moment", "context_scatter", "cooccurrence")


@dataclass(frozen=True)
class Statistics(Additive):
    """Sums over samples of the codes A: counts, A 1, A Aᵀ, A D Dᵀ Aᵀ, A W Aᵀ; raw, not divided by N.

    `matrices` holds the independent ones, in full (both triangles), by their public names; what is missing follows:
    the second moment of one-hot codes is diag(activity), and with equal degrees everywhere (`equal_degree`)
    context_scatter = degree A Aᵀ - cooccurrence. `scatter_scale` divides context_scatter (2^20 for second order).

    Statistics add and subtract, bit for bit: `a + b` are those of the samples of both, `a - b` those of `a` without
    the samples of `b`. `origin` knows which samples are in, and refuses what has no meaning (ModelError).
    Memory: a result holds as many K x K arrays as its operands, of 8 bytes an entry.
    """

    _unnamed: ClassVar[str] = (
        "These statistics do not name their samples, so they cannot be added or subtracted; fit again to have them do."
    )

    n_samples: int
    n_positions: int
    activity: NDArray[np.int64]
    matrices: dict[str, NDArray[np.integer]]
    one_hot: bool
    order: int
    full_degree: int  # neighbours of a position that has all of them
    equal_degree: (
        int | None
    )  # full_degree where all positions have so many neighbours and codes are first-order "gq"
    degree_activity: NDArray[np.int64] | None  # Σ deg(i) a_i, of one-hot first-order codes
    origin: Origin | None = None  # None: read from a file that did not name its samples

    def _combined(self, other: Self, sign: int, origin: Origin) -> Self:
        matrices: dict[str, NDArray[np.integer]] = {
            name: _sum(self.matrices[name], other.matrices[name], sign)
            for name in ("second_moment", "cooccurrence")
            if name in self.matrices
        }
        equal_degree = self.equal_degree
        if "context_scatter" in self.matrices or "context_scatter" in other.matrices:
            matrices["context_scatter"] = _sum(self.context_scatter, other.context_scatter, sign)
            equal_degree = None
            if self.order == 1 and _follows(matrices, self.full_degree):
                # the few positions that lacked neighbours are gone: the form that a fit of the rest has
                del matrices["context_scatter"]
                equal_degree = self.full_degree
        weighted = self.degree_activity
        if weighted is not None and other.degree_activity is not None:
            weighted = weighted + sign * other.degree_activity
        return type(self)(
            n_samples=self.n_samples + sign * other.n_samples,
            n_positions=self.n_positions + sign * other.n_positions,
            activity=self.activity + sign * other.activity,
            matrices=matrices,
            one_hot=self.one_hot,
            order=self.order,
            full_degree=self.full_degree,
            equal_degree=equal_degree,
            degree_activity=weighted,
            origin=origin,
        )

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


def _sum(left: NDArray[np.integer], right: NDArray[np.integer], sign: int) -> NDArray[np.int64]:
    """Return left ± right in int64; what could pass 2^63 is an error, not another number."""
    if _magnitude(left) + _magnitude(right) >= 2**63:
        raise OverflowError("the sums of both exceed 64 bits")
    result = left.astype(np.int64)
    (np.add if sign > 0 else np.subtract)(result, right, out=result)
    return result


def _magnitude(matrix: NDArray[np.integer]) -> int:
    return max(int(matrix.max()), -int(matrix.min()))


def _follows(matrices: dict[str, NDArray[np.integer]], degree: int) -> bool:
    """Tell whether context_scatter is degree A Aᵀ - cooccurrence, row by row to hold no third matrix."""
    rows = zip(matrices["context_scatter"], matrices["second_moment"], matrices["cooccurrence"], strict=True)
    return all(np.array_equal(scatter, degree * moment - near) for scatter, moment, near in rows)


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
    degree = sums.full_degree
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
        full_degree=degree,
        equal_degree=equal_degree,
        degree_activity=degree_activity,
    )
