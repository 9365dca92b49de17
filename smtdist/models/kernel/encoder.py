"""z = Wᵀ φ(x): a fitted map, by kernel values of rows it remembers or by explicit features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from smtdist.engine.memory import BUDGET_SHARE, memory_limit, readable
from smtdist.errors import DataError, MemoryBudgetError, ModelError, counted, equals
from smtdist.kernels.gram import Kernel
from smtdist.solve.solution import Float64


@dataclass(frozen=True, eq=False)
class KernelEncoder:
    """z* = Cᵀ k(R, x*): rows R (m, d) with coefficients C (m, h).

    Theorem 3 has C = (A₁, -A₂, A₂) for R = (X, X⁺, X⁻), A₁ and A₂ the halves of A; Theorems 4 and 5 have C
    = K⁻¹ Zᵀ. The decoder of Theorem 5 is one, too: R is the bottleneck Z, and C = (K_Z + λ I)⁻¹ X. Memory: m values
    for each row that is embedded.
    """

    kernel: Kernel
    rows: Float64
    coefficients: Float64

    def __call__(self, rows: NDArray[np.generic]) -> Float64:
        """Embed rows (n, d): returns (n, h)."""
        require_rows(rows, self.rows.shape[1])
        return np.asarray(self.kernel(np.asarray(rows, np.float64), self.rows) @ self.coefficients)


def require_rows(rows: NDArray[np.generic], features: int | None = None, name: str = "The data") -> None:
    """Refuse what are not finite rows of numbers, or rows of another length."""
    if rows.ndim != 2 or rows.dtype.kind not in "biuf":
        raise DataError(
            f"{name} have the type {rows.dtype} and the shape {rows.shape}; give real numbers (samples, features)."
        )
    if 0 in rows.shape:
        raise DataError(f"{name} have the shape {rows.shape}; give at least one sample with one feature.")
    if features is not None and rows.shape[1] != features:
        raise ModelError(
            f"{name} have {counted(rows.shape[1], 'feature')}, the model takes {features}; give rows like those it was fitted on."
        )
    if not np.isfinite(rows).all():
        row, column = map(int, np.argwhere(~np.isfinite(rows))[0])
        raise DataError(
            f"{name}, row {row}, column {column}: {rows[row, column]} was found where a finite number is needed; "
            f"repair or leave out that row."
        )


FEWER_SAMPLES: Final = f"set {equals('features', 'auto')}, or give fewer samples"
FEWER_FEATURES: Final = "lower n_features"


def require_memory(rows: int, squares: int, remedy: str = FEWER_SAMPLES) -> None:
    """Refuse a model whose `squares` matrices of rows x rows float64 exceed this process's budget."""
    needed, budget = 8 * squares * rows**2, int(BUDGET_SHARE * memory_limit())
    if needed > budget:
        raise MemoryBudgetError(
            f"The {'exact ' if remedy == FEWER_SAMPLES else ''}kernel model needs {readable(needed)} for matrices of "
            f"{rows:,} x {rows:,}, but {readable(budget)} may be used; {remedy}."
        )
