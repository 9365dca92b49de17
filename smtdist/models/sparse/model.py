"""A fitted dictionary: whitening, atoms, and the codes and features of an image."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from smtdist.kernels.device import place
from smtdist.kernels.l1 import sparse_codes
from smtdist.kernels.pursuit import linear_features, omp_codes
from smtdist.kernels.sparse_codes import split_signs
from smtdist.models.coders.coder import Coder, Float32, Float64
from smtdist.models.sparse.settings import SparseSettings


@dataclass(frozen=True, eq=False)
class SparseCoder(Coder):
    """A fitted sparse coder.

    Attributes
    ----------
    settings, shape, mean, whiten, unwhiten : as of every `smtdist.models.coders.coder.Coder`.
    atoms : (K, p) unit rows in whitened space: the columns of Φ.
    trace : of each round, the mean objective of a patch before its step. active : atoms of a patch in the last round.
    """

    settings: SparseSettings
    atoms: Float64
    trace: tuple[float, ...] = ()
    active: float = 0.0
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def basis(self) -> Float64:
        """The columns of Φ as rows, (K, p)."""
        return self.atoms

    @property
    def size(self) -> int:  # type: ignore[override]  # a field of the base class, computed here
        """Atoms K: a transform embeds L1 codes as they are, with their signs, whatever features are pooled."""
        return len(self.atoms)

    def __call__(self, rows: Float32) -> Any:
        """Return L1 codes of whitened patches (n, p), (n, K)."""
        return self.infer(rows)[0]

    def few(self) -> SparseCoder:
        """Return the same with few atoms."""
        atoms = self.atoms[:8]
        return replace(self, settings=self.settings.replace(units=len(atoms)), atoms=atoms)

    @cached_property
    def dictionary(self) -> Float32:
        """Φ, (p, K) float32."""
        return np.ascontiguousarray(self.atoms.T, np.float32)

    @property
    def row_numbers(self) -> int:
        """Numbers that coding a patch takes beside the patch."""
        return 4 * self.settings.width

    @property
    def held_bytes(self) -> int:
        """Bytes of the atoms, and of ΦᵀΦ while coding."""
        return int(2 * self.atoms.nbytes + 4 * len(self.atoms) ** 2)

    def infer(self, rows: Float32, start: Any = None) -> tuple[Any, Any, Any]:
        """Return L1 codes of whitened patches (n, p), their relative duality gaps and iterations, where they are placed."""
        wanted = self.settings
        return sparse_codes(
            self.dictionary, place(rows), wanted.penalty, positive=wanted.positive, method=wanted.method,
            gap=wanted.gap, start=start,
        )  # fmt: skip

    def code(self, rows: Float32) -> Any:
        """Return the features of whitened patches (n, p), (n, width); both signs side by side where codes have signs."""
        wanted = self.settings
        if wanted.feature == "omp":
            return split_signs(omp_codes(self.dictionary, place(rows), wanted.k))
        if wanted.feature == "linear":
            found = linear_features(self.dictionary, place(rows), wanted.threshold, positive=wanted.positive)
        else:
            found = self.infer(rows)[0]
        return found if wanted.positive else split_signs(found)

    def summary(self) -> dict[str, Any]:
        """Return what is asked of a fitted coder first, as plain JSON."""
        units, inputs = self.atoms.shape
        found: dict[str, Any] = {
            "units": units,
            "inputs": inputs,
            "overcompleteness": units / inputs,
            "rounds": len(self.trace),
        }
        if self.trace:
            tenth = max(1, len(self.trace) // 10)
            found |= {
                "objective_first": self.trace[0],
                "objective": float(np.mean(self.trace[-tenth:])),
                "active": self.active,
            }
        return found
