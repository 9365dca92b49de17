"""The fit of a coder of patches, whatever its code: whitening, atoms that start from patches, and what the code learns."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

from smtdist.codes.coder import Coder, Record
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
    with engine.run(STEPS, lambda: Facts.of(source, cls.facts(settings))):
        start = begun(source, settings, engine)
        found: Any = cls.learn(start, settings, engine)
    if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], dict)):
        raise ConfigurationError(
            f"{cls.__name__}.learn returned {type(found).__name__}; it must return what it has learnt, by names of fields, and "
            f"the records of its passes."
        )
    learnt, records = found
    known = {field.name for field in fields(cls)}
    if not known.issuperset(learnt):
        raise ConfigurationError(
            f"{cls.__name__}.learn returned {', '.join(sorted(set(learnt) - known))}, which {cls.__name__} has no field for."
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
