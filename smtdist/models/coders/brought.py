"""Encoders of other packages: how they are fitted, and how their files are laid out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from smtdist.codes.coder import Record
from smtdist.codes.encoder import PatchEncoder
from smtdist.data.source import Source
from smtdist.engine.manifest import Facts
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError
from smtdist.models.coders.files import Format
from smtdist.models.coders.start import STEPS, begun, origin

KIND: Final = "encoder-"
"""Before the name of an encoder, the kind of its files."""


def fit_encoder(
    cls: type[PatchEncoder], source: Source, settings: Any, engine: Engine
) -> tuple[PatchEncoder, list[Record]]:
    """Whiten, draw atoms, and let the encoder learn; returns it with the records of all passes."""
    with engine.run(STEPS, lambda: Facts.of(source, {"encoder": cls.NAME, **asdict(settings)})):
        start = begun(source, settings, engine)
        atoms, arrays, records = cls.learn(start, source, settings, engine)
    held = (settings, start.patches.shape, start.mean, start.whiten, start.unwhiten)
    if set(arrays) != set(cls.ARRAYS):
        raise ConfigurationError(
            f"The encoder {cls.NAME} has learned {', '.join(sorted(arrays)) or 'no arrays'}, but its ARRAYS name "
            f"{', '.join(sorted(cls.ARRAYS)) or 'none'}; they must be the same."
        )
    return cls(*held, atoms, arrays, origin(source)), [*start.records, *records]


def format_of(cls: type[PatchEncoder]) -> Format[PatchEncoder]:
    """Return how files of an encoder are laid out."""

    def build(found: dict[str, Any], about: Mapping[str, Any]) -> PatchEncoder:
        return cls(
            cls.Settings.from_json(str(about["configuration"])),
            about["shape"],
            found["mean"],
            found["whiten"],
            found["unwhiten"],
            found["atoms"],
            {name: found[name] for name in cls.ARRAYS},
            json.loads(about["provenance"]),
        )

    return Format(
        kind=KIND + cls.NAME,
        schema=1,
        schema_name="encoder_schema",
        name=f"model of the encoder {cls.NAME}",
        command=f"smtdist fit --set feature={cls.NAME}",
        groups={"encoder": cls.ARRAYS} if cls.ARRAYS else {},
        parts=lambda coder: dict(coder.arrays),
        about=lambda coder: {
            "title": f"Encoder: {cls.NAME}",
            "provenance": json.dumps(coder.provenance),
        },
        build=build,
    )
