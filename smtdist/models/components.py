"""Transforms of images by the codes of their patches: which of the components stored represent an image, and what is said."""

from __future__ import annotations

import os
from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from smtdist.data.source import Source
from smtdist.errors import DataError, ModelError, counted
from smtdist.kernels import convergence, representation
from smtdist.kernels.types import Geometry
from smtdist.models.merge import Transform
from smtdist.models.readout import ImageTransform


class PatchTransform(Transform, ImageTransform):
    """What transforms of images have in common, whatever their codes."""

    learned: ClassVar[bool] = False
    """Whether its code is learned from the images."""
    geometry: Geometry

    @property
    @abstractmethod
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the positions that are coded."""

    @property
    @abstractmethod
    def ending(self) -> convergence.Convergence | None:
        """How the rounds that learned its code ended; None where there were none."""

    @abstractmethod
    def pictures(self, atoms: NDArray[Any] | None = None) -> NDArray[np.float64]:
        """Return what entries of the code stand for as patches (n, patch, patch, channels); all by default."""

    def require_like(self, source: Source) -> None:
        """Refuse images that cannot be added to those of the fit."""
        try:
            self.require_images(source)
        except ModelError as error:
            raise DataError(error.sentence) from error

    def require_addable(self, other: PatchTransform, name: str) -> None:
        """Refuse a model, called `name`, of other images or patches."""
        if other.geometry != self.geometry:
            raise ModelError(
                f"{name} has images and patches of {tuple(other.geometry)} (height, width, channels, patch), the first "
                f"model of {tuple(self.geometry)}; fit one of them anew, with the sizes of the other."
            )

    def components(self, n_components: int | None = None, drop: int | None = None) -> NDArray[np.float32]:
        """Return P without its first `drop` rows, transposed: (K, n_components) float32.

        After the fit you can choose any of the components stored; the default is that of the settings.
        """
        stored = self.solution.components
        first = self.settings.drop_components if drop is None else drop
        count = self.settings.n_components if n_components is None else n_components
        if count < 1 or first < 0 or first + count > len(stored):
            raise ModelError(
                f"The model stores {counted(len(stored), 'component')}, so {count} after dropping {first} cannot be taken; "
                f"ask for fewer, or fit with a larger n_components."
            )
        return np.ascontiguousarray(stored[first : first + count].T, np.float32)

    @property
    def pooling(self) -> tuple[int, int]:
        """Side of a pooling window and step to the next, in positions."""
        made = self.settings
        return representation.asked_windows(*self.grid, made.pool_size, made.pool_stride)

    @property
    def window(self) -> tuple[int, int]:
        """Side of a pooling window and step to the next, in pixels."""
        (size, step), stride = self.pooling, self.settings.patch_stride
        return (size - 1) * stride + self.geometry.patch, step * stride

    def feature_shape(self, n_components: int) -> tuple[int, int, int]:
        """Return the shape of one image's representation: pooled rows, pooled columns, components."""
        return *representation.pooled_shape(*self.grid, *self.pooling), n_components

    def representation_shape(self) -> tuple[int, ...]:
        """Return the shape of one image's representation."""
        return self.feature_shape(self.components().shape[1])

    def with_components(self, n_components: int | None, drop: int | None) -> Self:
        """Return it with so many components, after those that are dropped; None leaves either as it was fitted."""
        given = {"n_components": n_components, "drop_components": drop}
        changes = {name: value for name, value in given.items() if value is not None}
        found: Self = replace(self, settings=self.settings.replace(**changes)) if changes else self  # type: ignore[type-var]
        return found

    def require_ready(self, path: str | os.PathLike[str], *, embedded: bool = False) -> None:
        """Refuse the model of a file that has no embedding yet."""
        if self.embedding is None:
            raise ModelError(f"{path} holds {self.holds} only; fit it first.")

    def summary(self) -> dict[str, Any]:
        """Return the figures that a person asks for first, as plain JSON."""
        if self.embedding is None:
            raise ModelError("The model has no embedding; fit it again.")
        return {
            "n_atoms": len(self.embedding.dead),
            "n_dead": self.embedding.n_dead,
            "rank": self.embedding.rank,
            "n_components": self.settings.n_components,
            "fingerprint": self.fingerprint,
            **convergence.facts_of(self.ending),
        }


def require_windows(settings: Any, rows: int, columns: int) -> None:
    """Refuse pooling windows that do not fit into so many positions, before any data are read."""
    asked = representation.asked_windows(rows, columns, settings.pool_size, settings.pool_stride)
    representation.pooled_shape(rows, columns, *asked)
