"""Models of the same images side by side: "original + greyscale" of SMT 2023, section 3."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from smtdist.configuration import Configuration
from smtdist.data.adapted import Scaling
from smtdist.data.source import Source
from smtdist.engine.manifest import Facts
from smtdist.engine.passes import Engine
from smtdist.models.records import Record
from smtdist.models.represent import Representer, TakesImages
from smtdist.models.transform import Represents


@dataclass(frozen=True)
class Joined(TakesImages):
    """Models that represent the same images; the representation is those of all, one after the other.

    parts : the models. The first says how neighbours vote and what becomes of encoded images. names : theirs in a
    file, where they were fitted together.
    """

    STORED_AS: ClassVar[str] = "joined"

    parts: tuple[Represents, ...]
    names: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Of the samples that the first was fitted on."""
        return self.parts[0].fingerprint

    @property
    def asked(self) -> str:
        """The settings of the first, as JSON."""
        return self.parts[0].asked

    @property
    def scaling(self) -> Scaling:
        """What becomes of encoded images before patches are taken."""
        return self.parts[0].scaling

    @property
    def votes(self) -> Configuration:
        """How neighbours vote where nothing else is asked for."""
        return self.parts[0].votes

    @property
    def dtype(self) -> str:
        """Of the numbers of a representation."""
        return self.parts[0].dtype

    @property
    def positions(self) -> int:
        """Patches of an image, as often as a model codes it."""
        return sum(part.positions for part in self.parts)

    def require_images(self, source: Source) -> None:
        """Refuse images of another shape than one of the models was fitted on."""
        for part in self.parts:
            part.require_images(source)

    def representation_shape(
        self, n_components: int | None = None, drop: int | None = None
    ) -> tuple[int, ...]:
        """Return (features,), those of all models; with so many components of each."""
        return (sum(math.prod(part.representation_shape(n_components, drop)) for part in self.parts),)

    def representer(
        self, source: Source, engine: Engine, n_components: int | None = None, drop: int | None = None
    ) -> Concatenate:
        """Return what represents a batch of images by all models, within a worker's budget."""
        how = source, engine, n_components, drop
        return Concatenate(tuple(part.representer(*how) for part in self.parts), self.dtype)

    @property
    def provenance(self) -> dict[str, Any]:
        """Where the first model comes from: all are of the same samples."""
        found: dict[str, Any] = self.first.provenance
        return found

    @property
    def first(self) -> Any:
        """The first model."""
        return self.parts[0]

    @property
    def statistics(self) -> Any:
        """The sums of the first model."""
        return self.first.statistics

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


def side_by_side(model: Represents, others: Sequence[Represents]) -> Represents:
    """Return models as one, the first with others after it; the model itself where there are none."""
    if not others:
        return model
    return Joined(tuple(part for one in (model, *others) for part in parts_of(one)))


def parts_of(model: Represents) -> tuple[Represents, ...]:
    """Return the models that a representation is made by, in their order."""
    return model.parts if isinstance(model, Joined) else (model,)


def each(model: Represents, change: Callable[[Any], Any]) -> Any:
    """Return a model changed, each of its parts by itself where it has several."""
    return model.each(change) if isinstance(model, Joined) else change(model)


@dataclass(frozen=True)
class Concatenate:
    """The representations of several models side by side, (B, features)."""

    parts: tuple[Representer, ...]
    dtype: str

    @property
    def batch(self) -> int:
        """Images that every part can take at once."""
        return min(part.batch for part in self.parts)

    @property
    def threads(self) -> int:
        """Threads of a task."""
        return self.parts[0].threads

    @property
    def working_bytes(self) -> int:
        """What the part that needs most needs: they follow one another."""
        return max(part.working_bytes for part in self.parts)

    def __call__(self, images: NDArray[np.generic]) -> NDArray[np.floating[Any]]:
        """Represent a batch (B, H, W, C), read and decoded once for all models."""
        flat = [part(images).reshape(len(images), -1) for part in self.parts]
        return np.concatenate(flat, axis=1, dtype=self.dtype)
