"""Whether files are what smtdist has written: models, representations, heads, predictions, manifests and checkpoints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from smtdist.data import checksums, hdf5, locations
from smtdist.engine import folder as folders
from smtdist.engine import stored
from smtdist.errors import SmtdistError, masked

WHOLE: Final = "whole"
WITHOUT: Final = "no checksums"
WRONG: Final = "wrong"
BLIND: Final = "no checksums (written before smtdist kept them, or by another program)"


class Verdict(NamedTuple):
    """What was found about a file: `state` is whole, no checksums or wrong, and `text` says more."""

    file: str
    state: str
    text: str


def checked(path: Path) -> Iterator[Verdict]:
    """Read a file, or the files of a checkpoint folder, and yield a verdict on each. Memory: 16 MiB, or a chunk."""
    if path.is_dir():
        inside = sorted(
            one
            for one in path.rglob("*")
            if one.suffix in (".h5", ".json") and one.is_file() and one.name != folders.RECORD
        )
        if not inside:
            yield Verdict(str(path), WRONG, "a folder without files of smtdist")
        for one in inside:
            yield from checked(one)
        return
    try:
        known, problem = _looked_at(path)
    except SmtdistError as error:
        known, problem = True, " ".join(error.sentence.split())
    except hdf5.DAMAGE as error:
        known, problem = True, f"it cannot be read ({type(error).__name__}: {hdf5.reason_of(error)})"
    name = masked(str(path))
    if problem:
        yield Verdict(name, WRONG, masked(problem))
    else:
        yield Verdict(name, *((WHOLE, WHOLE) if known else (WITHOUT, BLIND)))


def _looked_at(path: Path) -> tuple[bool, str]:
    """Return whether a file has checksums, and what is wrong with it."""
    locations.require_no_pipe(path)
    with open(path, "rb") as file:
        start = file.read(len(stored.MAGIC))
    if start == stored.MAGIC:
        return True, stored.damage_in(path)
    if path.suffix == ".json":
        content = json.loads(path.read_text())
        known = isinstance(content, dict) and checksums.KEY in content
        return known, "it fails its checksum" if known and checksums.is_altered(content) else ""
    if start and not b"\x89HDF".startswith(start[:4]):
        return (
            True,
            "it is not an HDF5 file, as models and other results are; smtdist check reads what smtdist has written",
        )
    with hdf5.open_file(path) as file:
        return file.sums != checksums.NONE, checksums.wrong_in(file)
