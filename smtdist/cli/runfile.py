"""CHECKPOINT/run.json: the command that began a run, so that `resume`, at the end, needs nothing but the folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer
from typer.main import get_command

from smtdist.cli import options as opt
from smtdist.cli.commands import COMMANDS, WORDS
from smtdist.engine.outlets import STANDARD_ERROR
from smtdist.errors import MASK, CheckpointError, masked

NAME: Final = "run.json"
SCHEMA: Final = 3
"""1 and 2 held settings of a fit of images."""
OF_ONE_CALL: Final = {"--checkpoint": 1, "--events": 1, "--json": 0, "--quiet": 0, "-q": 0, "--debug": 0}
"""Options that are those of the present command, with the number of their values."""
PLACE: Final = {
    "--workers": 1,
    "--cluster": 1,
    "--max-workers": 1,
    "--cluster-config": 1,
    "--tls": 1,
    "--memory": 1,
    "--insecure": 0,
}
"""Options that say where the work is done: a resumed run has all of them anew, or those of before."""


@dataclass(frozen=True)
class Command:
    """Words of a command line after `smtdist`, and the folder that relative paths begin in."""

    words: tuple[str, ...]
    folder: Path

    def again(self, checkpoint: Path, more: Sequence[str], moved: bool) -> list[str]:
        """Return the words that go on with the run in a folder, with options of the present call behind them.

        moved : whether these say where the work is done.

        >>> begun = Command(("fit", "a.h5", "--json", "--workers", "2", "--checkpoint=c"), Path("/"))
        >>> begun.again(Path("/c"), ["--workers", "4"], True)
        ['fit', 'a.h5', '--workers', '4', '--checkpoint', '/c']
        """
        left_out = OF_ONE_CALL | (PLACE if moved else {})
        kept, skip = list[str](), 0
        for word in self.words:
            option, joined, _ = word.partition("=")
            if skip:
                skip -= 1
            elif option in left_out:
                skip = 0 if joined else left_out[option]
            else:
                kept.append(word)
        return [*kept, *more, "--checkpoint", str(checkpoint)]


def _is_resumed(words: Sequence[str]) -> bool:
    """Tell whether `resume` may repeat a command: a folder from elsewhere must not make it do anything else."""
    command = COMMANDS.get(words[0]) if words else None
    return command is not None and not {"", *words[1:2]}.isdisjoint(command.resumed)


def write_command(checkpoint: Path) -> bool:
    """Write the command under way, whole or not at all; without a command line nothing. Return whether it can be resumed.

    Credentials in addresses are not kept, so that such a command must be started again.
    """
    from smtdist.engine import manifest

    given = WORDS.get()
    words = tuple(masked(word) for word in given)
    if words:
        manifest.write_json(checkpoint / NAME, {"schema": SCHEMA, "command": words, "folder": os.getcwd()})
    return bool(words) and words == given


def read_command(checkpoint: Path) -> Command:
    """Read the command that a checkpoint folder was begun with; CheckpointError where there is none to go on with."""
    from smtdist.engine import folder as folders
    from smtdist.engine import manifest

    path = checkpoint / NAME
    if not path.is_file():
        raise CheckpointError(
            f"{checkpoint} is not a checkpoint of a command: it has no {NAME}; give the folder that was given as --checkpoint. "
            f"To continue a run of a Python program, start the program again."
        )
    folders.require_own(checkpoint)
    try:
        content = manifest.read_json(path)
        schema = int(content["schema"])
        words = content.get("command")
        folder = content.get("folder")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}); start the fit again with another checkpoint folder."
        ) from error
    if schema != SCHEMA:
        other = "a newer" if schema > SCHEMA else "an earlier"
        raise CheckpointError(
            f"{path} was written by {other} smtdist (schema {schema}, this version has {SCHEMA}); resume with that version, "
            f"or start the fit again with another checkpoint folder."
        )
    given = tuple(words) if isinstance(words, list) and all(isinstance(word, str) for word in words) else ()
    if not isinstance(folder, str) or not _is_resumed(given):
        raise CheckpointError(
            f"{path} names no command that can be resumed; start the fit again with another checkpoint folder."
        )
    if any(f"://{MASK}@" in word or f"?{MASK}" in word for word in given):
        raise CheckpointError(
            f"The command of the run in {checkpoint} has an address with credentials, which are not stored; start that "
            f"command again with the same --checkpoint."
        )
    if not Path(folder).is_dir():
        raise CheckpointError(
            f"The run in {checkpoint} was started in {folder}, which does not exist; make that folder, or start the command "
            f"again with the same --checkpoint."
        )
    return Command(given, Path(folder))


def resume(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT", help="Folder that was given as --checkpoint.")
    ],
    where: opt.Where = opt.HERE,
    on_bad_chunk: opt.OnBadChunk = None,
    solve_on: opt.SolveOn = None,
    overwrite: opt.Overwrite = False,
    json: opt.Json = False,
) -> None:
    """Continue a stopped run from its checkpoint folder; the result is the same as without the stop.

    The command that started the run is repeated with its options. Options that you give here replace them, so
    that the run can continue with other workers or on another cluster.
    """
    from smtdist.cli.app import app

    events, cluster = where.events, where.cluster
    given = {
        "--workers": where.workers,
        "--memory": where.memory,
        "--on-bad-chunk": on_bad_chunk,
        "--solve-on": solve_on,
        "--events": events if events in (None, STANDARD_ERROR) else events.absolute(),
    }
    words = [part for option, value in given.items() if value is not None for part in (option, str(value))]
    words += cluster.words() if cluster is not None else []
    flags = {"--overwrite": overwrite, "--quiet": where.quiet, "--json": json}
    words += [flag for flag, wanted in flags.items() if wanted]
    begun = read_command(checkpoint)
    again = begun.again(checkpoint.resolve(), words, moved=where.workers is not None or cluster is not None)
    with contextlib.chdir(begun.folder), get_command(app).make_context("smtdist", again) as context:
        context.command.invoke(context)
