"""FOLDER/manifest.json: what a checkpoint is computed from, so that changed data or settings are refused by name.

The partial sums carry one hash of all this, which can only say that something is different. The manifest
says what.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from smtdist.data import checksums, identity
from smtdist.data.source import Source
from smtdist.data.writing import replace_durably
from smtdist.engine.checkpoint import sentence_for
from smtdist.errors import CheckpointError

NAME: Final = "manifest.json"
SCHEMA: Final = 2
"""1 had keys of other recipes in its partial sums."""
WEIGHTS: Final = "the second-order weights"
"""Given for second-order sums. A folder that lacks it was begun with coarser weights, and goes on with them."""
SHOWN: Final = 5
"""Differences that a sentence names."""


@dataclass(frozen=True)
class Facts:
    """What a run computes from: its data, its settings, and hashes of what else it was given, by name.

    `name` is what messages call the data, `names` what they call settings. All are plain JSON.
    """

    name: str
    data: dict[str, Any]
    settings: dict[str, Any]
    given: dict[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict, compare=False)

    @classmethod
    def of(
        cls,
        source: Source,
        settings: Any,
        given: dict[str, str] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> Facts:
        """Look at a source (a few chunks of it), and at settings or a table of them with the names of today by those in files."""
        if not isinstance(settings, dict):
            names, settings = settings.names_today(), settings.to_dict()
        plain = json.loads(json.dumps({"data": identity.data_facts(source), "settings": settings}))
        return cls(source.name, plain["data"], plain["settings"], given or {}, names or {})

    @property
    def digest(self) -> str:
        """A hash of them all: partial sums carry it, so that no other run takes them for its own."""
        plain = json.dumps([self.data, self.settings, self.given], sort_keys=True)
        return hashlib.blake2b(plain.encode(), digest_size=16).hexdigest()


def require_same(folder: Path, now: Facts) -> str:
    """Refuse a folder whose manifest has other facts, write the manifest of one that has none, and return the key of its sums.

    Where files were touched and nothing else is different the key is not that of `now`: who goes on then has to compare
    what is read with what was read. The caller holds the folder.
    """
    then = begun(folder)
    if then is None:
        write_json(folder / NAME, {"schema": SCHEMA, **vars(now)})
        return now.digest
    if WEIGHTS not in then.given:
        now = replace(now, given={name: value for name, value in now.given.items() if name != WEIGHTS})
    same = (then.settings, then.given) == (now.settings, now.given)
    if same and identity.only_touched(then.data, now.data):
        return then.digest
    found = [
        *identity.data_differences(then.data, now.data, now.name),
        *_changed(then.settings, now.settings, now.names),
    ]
    found += [
        f"{name} {'have' if name.endswith('s') else 'has'} changed"
        for name in sorted({*then.given, *now.given})
        if then.given.get(name) != now.given.get(name)
    ]
    if found:
        more = f" and {len(found) - SHOWN} more differences" if len(found) > SHOWN else ""
        raise CheckpointError(
            f"{folder} belongs to another run: {'; '.join(found[:SHOWN])}{more}; put it back as it was, or start a new fit "
            f"with another checkpoint folder."
        )
    return now.digest


def _changed(
    then: dict[str, Any], now: dict[str, Any], names: Mapping[str, str], of: str = ""
) -> list[str]:
    """Say which settings differ, by their names of today, after `of`, which says whose: those of several models are tables.

    >>> _changed({"ridge": 0.25, "grey": {"seed": 0}}, {"ridge": 0.3, "grey": {"seed": 5}}, {"ridge": "whitening_reg"})
    ['whitening_reg is 0.3, was 0.25', 'grey: seed is 5, was 0']
    """
    found = list[str]()
    for name in dict.fromkeys((*then, *now)):
        before, after = then.get(name, "unset"), now.get(name, "unset")
        if isinstance(before, dict) and isinstance(after, dict):
            found += _changed(before, after, names, f"{of}{name}: ")
        elif before != after:
            found.append(f"{of}{names.get(name, name)} is {after}, was {before}")
    return found


def begun(folder: Path) -> Facts | None:
    """Return what the run computes from that a folder belongs to; None where there is none yet."""
    path = folder / NAME
    try:
        content = read_json(path)
        require_schema(path, int(content["schema"]), SCHEMA, SCHEMA)
        return Facts(content["name"], content["data"], content["settings"], content["given"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}), so nothing says what this checkpoint was computed from; start the fit again "
            f"with another checkpoint folder."
        ) from error


def require_schema(path: Path, schema: int, least: int, most: int) -> None:
    """Refuse a file of a checkpoint folder that another version has written in a way that this one does not read."""
    if not least <= schema <= most:
        other = "a newer" if schema > most else "an earlier"
        raise CheckpointError(
            f"{path} was written by {other} smtdist (schema {schema}, this version has {most}); resume with that "
            f"version, or start the fit again with another checkpoint folder."
        )


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a small file of a checkpoint folder, whole or not at all."""
    with sentence_for(path.parent):
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        try:
            with os.fdopen(descriptor, "w") as file:
                json.dump({**content, checksums.KEY: checksums.plain_crc(content)}, file, indent=1)
            replace_durably(temporary, path)
        finally:
            Path(temporary).unlink(missing_ok=True)


def read_json(path: Path) -> dict[str, Any]:
    """Read such a file; ValueError where it is no JSON object, or not what was written."""
    try:
        content: Any = json.loads(path.read_text())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError("it is no JSON object")
    if checksums.is_altered(content):
        raise ValueError("it fails its checksum")
    return content
