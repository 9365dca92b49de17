"""Models of the same images side by side: "original + greyscale" of SMT 2023, section 3."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from smtdist.data.source import Source
from smtdist.engine.manifest import Facts
from smtdist.engine.passes import Engine
from smtdist.models.provenance import Record
from smtdist.models.readout import ImageTransform, OnAnother
from smtdist.models.represent import Representer


@dataclass(frozen=True)
class Joined(OnAnother):
    """Models that represent the same images; the representation is those of all, one after the other.

    parts : the models. The first says how neighbours vote and what becomes of encoded images. names : theirs in a
    file, where they were fitted together.
    """

    STORED_AS: ClassVar[str] = "joined"

    parts: tuple[ImageTransform, ...]
    names: tuple[str, ...] = ()

    @property
    def positions(self) -> int:
        """Patches of an image, as often as a model codes it."""
        return sum(part.positions for part in self.parts)

    def require_images(self, source: Source) -> None:
        """Refuse images of another shape than one of the models was fitted on."""
        for part in self.parts:
            part.require_images(source)

    def representation_shape(self) -> tuple[int, ...]:
        """Return (features,), those of all models."""
        return (sum(math.prod(part.representation_shape()) for part in self.parts),)

    def representer(self, source: Source, engine: Engine) -> Concatenate:
        """Return what represents a batch of images by all models, within a worker's budget."""
        parts = tuple(part.representer(source, engine) for part in self.parts)
        return Concatenate(
            *(parts, self.dtype),
            batch=min(part.batch for part in parts),  # that every part can take
            threads=parts[0].threads,
            working_bytes=max(part.working_bytes for part in parts),  # they follow one another
        )

    @property
    def members(self) -> tuple[ImageTransform, ...]:
        """The models."""
        return self.parts

    @property
    def provenance(self) -> dict[str, Any]:
        """Where the first model comes from: all are of the same samples."""
        found: dict[str, Any] = self.model.provenance
        return found

    @property
    def model(self) -> Any:  # type: ignore[override]  # a field of others that stand on one
        """The first model."""
        return self.parts[0]

    @property
    def statistics(self) -> Any:
        """The sums of the first model."""
        return self.model.statistics

    def summary(self) -> dict[str, Any]:
        """Return figures of each model, as JSON."""
        parts: Any = zip(self.names, self.parts, strict=True)
        return {"models": {name: part.summary() for name, part in parts}}

    def facts(self, source: Source) -> Facts:
        """Return what a checkpoint of sums of a source depends on."""
        parts: Any = self.parts
        each: dict[str, Facts] = dict(zip(self.names, (part.facts(source) for part in parts), strict=True))
        given = {f"{name}: {what}": one for name, of in each.items() for what, one in of.given.items()}
        settings = {name: of.settings for name, of in each.items()}
        return replace(each[self.names[0]], settings=settings, given=given)

    def in_turn(
        self, change: Callable[[Any], tuple[Any, list[Record]]], source: Source, engine: Engine
    ) -> tuple[Joined, list[Record]]:
        """Return the models changed, each by one pass over a source."""
        parts = dict(zip(self.names, self.parts, strict=True))
        facts, steps = lambda: self.facts(source), ["statistics", "solve"]
        return in_stages(self.names, steps, facts, engine, lambda name: change(parts[name]))

    def with_changes(self, changes: Mapping[str, Any]) -> Joined:
        """Return the models with other settings, each by itself."""
        return self.each(lambda part: part.with_changes(changes))

    def each(self, change: Callable[[Any], Any]) -> Joined:
        """Return the models changed, each by itself."""
        return replace(self, parts=tuple(map(change, self.parts)))


def in_stages(
    names: Sequence[str],
    steps: Sequence[str],
    facts: Callable[[], Facts],
    engine: Engine,
    make: Callable[[str], tuple[Any, list[Record]]],
) -> tuple[Joined, list[Record]]:
    """Make models one after the other, as one run whose passes have the names of the models before theirs."""
    parts, records = list[Any](), list[Record]()
    with engine.run([f"{name}-{step}" for name in names for step in steps], facts):
        for name in names:
            with engine.staged(name):
                model, some = make(name)
            parts.append(model)
            records += [{**one, "name": f"{name}-{one['name']}"} for one in some]
    return Joined(tuple(parts), tuple(names)), records


def side_by_side(model: ImageTransform, others: Sequence[ImageTransform]) -> ImageTransform:
    """Return models as one, the first with others after it; the model itself where there are none."""
    if not others:
        return model
    return Joined(tuple(part for one in (model, *others) for part in one.members))


@dataclass(frozen=True)
class Concatenate(Representer):
    """The representations of several models side by side, (B, features)."""

    parts: tuple[Representer, ...]
    dtype: str

    def __call__(self, images: NDArray[np.generic]) -> NDArray[np.floating[Any]]:
        """Represent a batch (B, H, W, C), read and decoded once for all models."""
        flat = [part(images).reshape(len(images), -1) for part in self.parts]
        return np.concatenate(flat, axis=1, dtype=self.dtype)
