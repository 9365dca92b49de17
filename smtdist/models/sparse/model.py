"""A fitted dictionary: whitening, atoms, and the codes and features of an image."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import ModelError
from smtdist.kernels.device import place, to_host
from smtdist.kernels.grid_pool import grid_pool, n_cells
from smtdist.kernels.l1 import sparse_codes
from smtdist.kernels.pursuit import linear_features, omp_codes
from smtdist.kernels.sparse_codes import split_signs
from smtdist.models.s3c.model import ROWS, patch_rows
from smtdist.models.sparse.settings import SparseSettings
from smtdist.statistics.patch_rows import PatchRows

Float64 = NDArray[np.float64]
Float32 = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class SparseCoder:
    """A fitted sparse coder.

    Attributes
    ----------
    settings : what was asked for. shape : (height, width, channels) of an image.
    mean, whiten, unwhiten : (p,), (p, p), (p, p) of contrast-normalised patches.
    atoms : (K, p) unit rows in whitened space: the columns of Φ.
    trace : of each round, the mean objective of a patch before its step. active : atoms of a patch in the last round.
    """

    settings: SparseSettings
    shape: tuple[int, int, int]
    mean: Float64
    whiten: Float64
    unwhiten: Float64
    atoms: Float64
    trace: tuple[float, ...] = ()
    active: float = 0.0
    provenance: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def patches(self) -> PatchRows:
        """How its patches are made."""
        return patch_rows(self.settings, self.shape, None, self.mean, self.whiten)

    @cached_property
    def dictionary(self) -> Float32:
        """Φ, (p, K) float32."""
        return np.ascontiguousarray(self.atoms.T, np.float32)

    @property
    def feature_shape(self) -> tuple[int, int]:
        """(cells, features of a cell)."""
        return n_cells(self.settings.pooling), self.settings.width

    @property
    def row_numbers(self) -> int:
        """Numbers that coding a patch takes beside the patch."""
        return 4 * self.settings.width

    @property
    def dictionary_bytes(self) -> int:
        """Bytes of the atoms, and of ΦᵀΦ while coding."""
        return int(2 * self.atoms.nbytes + 4 * len(self.atoms) ** 2)

    def rows(self, images: NDArray[np.generic]) -> Float32:
        """Return all whitened patches of images (m, H, W, C), (m positions, p)."""
        images = self._checked(images)
        places = np.tile(np.arange(self.patches.positions), (len(images), 1))
        return self.patches.rows(images, places)

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

    def represent(self, images: NDArray[np.generic]) -> Float32:
        """Return pooled features of images (m, H, W, C), (m, cells, width) float32."""
        images = self._checked(images)
        rows, columns = self.patches.grid
        step = max(1, ROWS // self.patches.positions)
        parts = []
        for start in range(0, len(images), step):
            part = images[start : start + step]
            maps = self.code(self.rows(part)).reshape(len(part), rows, columns, -1)
            parts.append(to_host(grid_pool(maps, self.settings.pooling)))
        return np.concatenate(parts)

    def filters(self) -> Float64:
        """Return atoms as patches of pixels, (K, patch, patch, channels): taken back through the whitening."""
        return self._patches(self.atoms @ self.unwhiten)

    def whitened_filters(self) -> Float64:
        """Return atoms as they are, as patches of whitened pixels, (K, patch, patch, channels)."""
        return self._patches(self.atoms)

    def _patches(self, atoms: Float64) -> Float64:
        side = self.settings.patch
        return atoms.reshape(-1, side, side, self.shape[2])

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

    def _checked(self, images: NDArray[np.generic]) -> NDArray[np.generic]:
        images = images[..., None] if images.ndim == 3 else images
        if images.shape[1:] != self.shape:
            raise ModelError(
                f"The model takes images of (height, width, channels) = {self.shape}, these are {images.shape[1:]}; give images "
                f"like those it was fitted on."
            )
        return images
