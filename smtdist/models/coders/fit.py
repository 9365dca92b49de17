"""The fit of a coder of patches, whatever its code: whitening, atoms that start from patches, and what the code learns."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, TypeVar

from smtdist.codes.coder import Coder, Record
from smtdist.codes.encoder import PatchEncoder
from smtdist.data.source import Source
from smtdist.engine.manifest import Facts
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError
from smtdist.models.coders.start import STEPS, begun, origin

C = TypeVar("C", bound=Coder)


def fit_coder(cls: type[C], source: Source, settings: Any, engine: Engine) -> tuple[C, list[Record]]:
    """Fit a coder; returns it with the records of its passes.

    Passes: `whitening` (Σ x, Σ x xᵀ of contrast-normalised patches), `start` (a seeded sample of whitened
    ones), then those that the code needs (`Coder.learn`).
    """
    with engine.run(STEPS, lambda: coder_facts(cls, source, settings)):
        start = begun(source, settings, engine)
        learnt, records = cls.learn(start, settings, engine)
    if issubclass(cls, PatchEncoder) and set(learnt.get("arrays", {})) != set(cls.ARRAYS):
        raise ConfigurationError(
            f"The encoder {cls.NAME} has learned {', '.join(sorted(learnt.get('arrays', {}))) or 'no arrays'}, but its ARRAYS "
            f"name {', '.join(sorted(cls.ARRAYS)) or 'none'}; they must be the same."
        )
    made: Any = cls
    coder = made(
        settings,
        start.patches.shape,
        start.mean,
        start.whiten,
        start.unwhiten,
        **learnt,
        provenance=origin(source),
    )
    return coder, [*start.records, *records]


def coder_facts(cls: type[Coder], source: Source, settings: Any) -> Facts:
    """Return what a checkpoint of `fit_coder` depends on."""
    named = {"encoder": cls.NAME} if issubclass(cls, PatchEncoder) else {}
    return Facts.of(source, {**named, **asdict(settings)})
