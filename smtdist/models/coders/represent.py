"""What represents a batch of images by a coder of patches, or by a transform on one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.codes.coder import ROWS, Coder
from smtdist.configuration import Configuration
from smtdist.data.source import Source
from smtdist.data.views import Scaling
from smtdist.engine import plan as pass_plan
from smtdist.engine.memory import BUDGET_SHARE, readable
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, MemoryBudgetError, ModelError, command
from smtdist.models.readout import ImageTransform, with_changes
from smtdist.models.represent import Representer

BATCH: Final = 64
"""Images that are handed over at a time; the coder takes them in groups of its own."""


@dataclass(frozen=True)
class RepresentPatches(Representer):
    """Pooled features of images (B, H, W, C), (B, ...) float32, by the codes of their patches.

    model : a coder, or a transform on one.
    """

    model: Any

    def __call__(self, images: NDArray[np.generic]) -> NDArray[np.floating[Any]]:
        """Represent a batch."""
        found: NDArray[np.floating[Any]] = self.model.represent(images)
        return found


def representer(model: Any, source: Source, engine: Engine) -> RepresentPatches:
    """Return what represents a batch of whole groups of the coder; refuse what a worker has no memory for."""
    positions = model.patches.positions
    group = max(1, ROWS // positions)
    # a block that is read, a group's patches, what coding them takes, and what is held
    numbers = model.row_numbers + 6 * model.patches.n_inputs
    reading = pass_plan.block_samples(source) * source.sample_bytes + source.reader_bytes
    needed = reading + 4 * max(ROWS, positions) * numbers + model.held_bytes
    budget = int(BUDGET_SHARE * engine.executor.limit_bytes())
    if needed > budget:
        raise MemoryBudgetError(
            f"Coding a group of images needs {readable(needed)}, more than the {readable(budget)} a worker may use; use "
            f"fewer units or larger workers."
        )
    batch, threads = group * max(1, BATCH // group), engine.executor.threads()
    return RepresentPatches(model, batch=batch, threads=threads, working_bytes=needed)


class Unscaled(ImageTransform):
    """What coders of patches and transforms on them have in common as what represents images."""

    dtype = "float32"
    votes = Configuration()
    """How neighbours vote where nothing else is asked for."""
    coder: Coder

    @property
    def scaling(self) -> Scaling:
        """Encoded images are taken as they are."""
        return Scaling(self.coder.shape)

    def require_images(self, source: Source) -> None:
        """Refuse images of another shape than the coder was fitted on."""
        shape = self.coder.shape
        if tuple(source.shape[1:]) != shape:
            raise ModelError(
                f"The model takes images of (height, width, channels) = {shape}, {source.name} has {source.shape[1:]}; give "
                f"images like those it was fitted on."
            )


@dataclass(frozen=True)
class Pooled(Unscaled):
    """A coder alone as what represents images: its pooled features, without an embedding."""

    coder: Coder
    fingerprint = ""  # not known: coders learn from some of the samples

    @property
    def asked(self) -> str:
        """The settings, as JSON."""
        return self.coder.settings.to_json()

    @property
    def positions(self) -> int:
        """Of an image."""
        return self.coder.patches.positions

    def with_changes(self, changes: Mapping[str, Any]) -> Pooled:
        """Return the coder with other settings of how its features are pooled."""
        return Pooled(with_changes(self.coder, changes))

    def require_ready(self, path: str | os.PathLike[str], *, embedded: bool = False) -> None:
        """Refuse a coder where an embedding is needed."""
        if embedded:
            raise ModelError(
                f"{path} holds a coder without an embedding; fit one on its codes with {command('fit', 'from-model', path)}."
            )

    def with_components(self, n_components: int | None, drop: int | None) -> Pooled:
        """Refuse to choose among components: a coder has none."""
        if n_components is not None or drop is not None:
            raise ConfigurationError(
                "A coder has no components, only the transform on one; leave components and drop out."
            )
        return self

    def representation_shape(self) -> tuple[int, ...]:
        """Return the shape of the pooled features of an image."""
        return self.coder.feature_shape

    def representer(self, source: Source, engine: Engine) -> RepresentPatches:
        """Return what represents a batch of images within a worker's budget."""
        return representer(self.coder, source, engine)


def representing(model: Any) -> Any:
    """Return what represents images by a model: a transform itself, or the pooled features of a coder."""
    return Pooled(model) if isinstance(model, Coder) else model
