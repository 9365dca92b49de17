"""A fitted patch coder: whitening, parameters, and the features of an image."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import ModelError
from smtdist.kernels.device import place, to_host
from smtdist.kernels.grid_pool import grid_pool, n_cells
from smtdist.kernels.sparse_codes import soft_threshold, sparse_code, split_signs
from smtdist.kernels.spike_slab import SpikeSlab, infer
from smtdist.models.s3c.settings import PatchSettings, S3CSettings
from smtdist.statistics.patch_rows import PatchRows

Float64 = NDArray[np.float64]
Float32 = NDArray[np.float32]
Record = dict[str, Any]

ROWS = 2048
"""Patches that are coded together, in whole images."""


@dataclass(frozen=True, eq=False)
class PatchCoder:
    """A fitted coder.

    Attributes
    ----------
    settings : what was asked for. shape : (height, width, channels) of an image.
    mean, whiten, unwhiten : (p,), (p, p), (p, p) of contrast-normalised patches.
    parameters : of spike-and-slab sparse coding in float64; of its rivals only the atoms matter.
    trace : of each round, the mean energy functional (rivals: minus the loss) of a patch before its step.
    """

    settings: S3CSettings
    shape: tuple[int, int, int]
    mean: Float64
    whiten: Float64
    unwhiten: Float64
    parameters: SpikeSlab
    trace: tuple[float, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def patches(self) -> PatchRows:
        """How its patches are made."""
        return patch_rows(self.settings, self.shape, None, self.mean, self.whiten)

    @cached_property
    def _fast(self) -> SpikeSlab:
        return self.parameters.astype(np.float32)

    @property
    def feature_shape(self) -> tuple[int, int]:
        """(cells, features of a cell)."""
        return n_cells(self.settings.pooling), self.settings.width

    @property
    def row_numbers(self) -> int:
        """Numbers that coding a patch takes beside the patch: ĥ, ŝ, products and features."""
        return 3 * self.parameters.n_units + self.settings.width

    @property
    def dictionary_bytes(self) -> int:
        """Bytes of the atoms."""
        return int(self.parameters.atoms.nbytes)

    def rows(self, images: NDArray[np.generic]) -> Float32:
        """Return all whitened patches of images (m, H, W, C), (m positions, p)."""
        images = self._checked(images)
        places = np.tile(np.arange(self.patches.positions), (len(images), 1))
        return self.patches.rows(images, places)

    def code(self, rows: Float32) -> Any:
        """Return the features of whitened patches (n, p), (n, width), where they are placed."""
        settings, model, placed = self.settings, self._fast, place(rows)
        feature = settings.resolved_feature
        if settings.model == "omp":
            return split_signs(soft_threshold(placed, model.atoms, settings.threshold))
        if settings.model == "sc":
            return split_signs(sparse_code(placed, model.atoms, settings.penalty))
        found = infer(placed, model.on(placed), settings.schedule())
        if feature == "h":
            return found.h
        if feature == "hs":
            return found.mean
        if feature == "signs":
            return split_signs(found.mean)
        return np.concatenate([to_host(found.h), to_host(found.mean)], axis=1)

    def represent(self, images: NDArray[np.generic]) -> Float32:
        """Return pooled features of images (m, H, W, C), (m, cells, width) float32.

        Memory: features of `ROWS` patches, or of those of one image, and the result.
        """
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
        """Return atoms as patches of pixels, (N, patch, patch, channels): W taken back through the whitening."""
        side = self.settings.patch
        atoms: Float64 = self.parameters.atoms @ self.unwhiten
        return atoms.reshape(-1, side, side, self.shape[2])

    def summary(self) -> dict[str, Any]:
        """Return what is asked of a fitted coder first, as plain JSON."""
        found: dict[str, Any] = {
            "model": self.settings.model,
            "units": self.parameters.n_units,
            "inputs": self.parameters.n_inputs,
            "rounds": len(self.trace),
        }
        name = "energy" if self.settings.model == "s3c" else "objective"
        if self.trace:
            tenth = max(1, len(self.trace) // 10)
            found[f"{name}_first"] = self.trace[0]
            found[name] = float(np.mean(self.trace[-tenth:]))
        if self.settings.model == "s3c":
            parameters = self.parameters
            found |= {
                "prior_active": float((1 / (1 + np.exp(-parameters.bias))).mean()),
                "beta": float(parameters.beta.mean()),
                "alpha": float(np.median(parameters.alpha)),
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


def patch_rows(
    settings: PatchSettings,
    shape: tuple[int, int, int],
    count: int | None,
    mean: Float64 | None = None,
    whiten: Float64 | None = None,
) -> PatchRows:
    """Return how patches are made: as settings say, `count` of each image."""
    return PatchRows(
        shape,
        settings.patch,
        count,
        settings.contrast_bias,
        settings.seed,
        mean,
        whiten,
        settings.pixel_range,
    )
