"""CHECKPOINT/run.json: the verb that began a run and its options, so that `resume` needs nothing but the folder."""

from __future__ import annotations

import contextlib
import json as json_text
import os
from pathlib import Path
from typing import Any, Final

from smtdist.cli import options as opt
from smtdist.cli.commands import GIVEN, RESUMED, load, of_the_user, present
from smtdist.cli.errors import UsageError
from smtdist.engine.events import STANDARD_ERROR
from smtdist.errors import MASK, CheckpointError, masked

NAME: Final = "run.json"
SCHEMA: Final = 4
"""1 and 2 held settings of a fit of images, 3 the words of a command line."""
OF_ONE_CALL: Final = ("checkpoint", "events", "json", "quiet", "debug")
"""Options that are those of the present command."""


def _plain(value: Any) -> Any:
    """Return the value of an option as JSON has it, as it would be given again; `MASK` for what a file cannot keep."""
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, bool | int | float):
        return value
    try:
        str(value).encode()
    except UnicodeEncodeError:
        return MASK  # bytes that are no text
    return masked(str(value))


def write_command(checkpoint: Path, done: bool = False) -> bool:
    """Write the command under way, whole or not at all; without a command line nothing. Return whether it can be resumed.

    done : the model that it replaces is written, and there is nothing to go on with.
    Credentials in addresses are not kept, nor names that are not UTF-8, so that such a command must be started again.
    """
    from smtdist.engine import manifest

    given = GIVEN.get()
    if not given.verb:
        return False
    options = {name: _plain(value) for name, value in given.options.items()}
    content = {"schema": SCHEMA, "verb": given.verb, "options": options, "folder": os.getcwd()}
    content |= {"done": True} if done else {}
    manifest.write_json(checkpoint / NAME, content)
    return MASK not in json_text.dumps(options)


def read_command(checkpoint: Path) -> tuple[str, dict[str, Any], Path]:
    """Read the command that a checkpoint folder was begun with: its verb, its options, and where relative paths begin.

    CheckpointError where there is none to go on with.
    """
    from smtdist.engine import folder as folders
    from smtdist.engine import manifest

    path = checkpoint / NAME
    if not path.is_file():
        why = f"it has no {NAME}" if checkpoint.is_dir() else "there is no such folder"
        raise CheckpointError(
            f"{checkpoint} is not a checkpoint of a command: {why}; give the folder that was given as --checkpoint. "
            f"To continue a run of a Python program, or one that was ended as it began, start it again."
        )
    folders.require_own(checkpoint)
    try:
        content = manifest.read_json(path)
        schema, begun_in = int(content["schema"]), Path(content["folder"])
        manifest.require_schema(path, schema, 3, SCHEMA)
        if not begun_in.is_dir():
            raise CheckpointError(
                f"The run in {checkpoint} was started in {begun_in}, which does not exist; make that folder, or start the "
                f"command again with the same --checkpoint."
            )
        if schema == SCHEMA:
            verb, options = content["verb"], dict(content["options"])
        else:
            with contextlib.chdir(begun_in):  # where --follow begins
                verb, options = _parsed(content["command"])
    except (OSError, ValueError, KeyError, TypeError, UsageError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}); start the fit again with another checkpoint folder."
        ) from error
    # what the command does is the owner's to trust (SECURITY.md), but it is none that cannot be resumed
    if verb not in RESUMED:
        raise CheckpointError(
            f"{path} names no command that can be resumed; start the fit again with another checkpoint folder."
        )
    if content.get("done"):
        raise CheckpointError(f"The {verb} that was begun in {checkpoint} is done; its model is complete.")
    if MASK in json_text.dumps(options):
        raise CheckpointError(
            f"The command of the run in {checkpoint} has an address with credentials, or a name that is not UTF-8, which are "
            f"not stored; start that command again with the same --checkpoint."
        )
    return verb, options, begun_in


def _parsed(words: Any) -> tuple[str, dict[str, Any]]:
    """Return the verb and the options of a command line, as files of the schema before have it."""
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError("its command is no list of words")
    verb, *rest = present(words) or [""]
    if verb not in RESUMED or {"-h", "--help"} & {*rest}:
        return "", {}
    given = of_the_user(load(verb).make_context(verb, rest))
    return verb, {name: _plain(value) for name, value in given.items()}


def resume(
    checkpoint: Path,
    how: opt.How = opt.AS_USUAL,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Continue a stopped run from its checkpoint folder; the result is the same as without the stop.

    The command that started the run is repeated with its options. Options that you give here replace them, so
    that the run can continue with other workers or on another cluster.

    Example: smtdist resume checkpoint/
    """
    given = GIVEN.get().options
    # paths are relative to where this is called
    changes = {
        name: _plain(one.absolute() if isinstance(one, Path) and one != STANDARD_ERROR else one)
        for name, one in given.items()
    }
    verb, before, folder = read_command(checkpoint)
    # a run that is moved has all of where the work is done anew
    left_out = {*OF_ONE_CALL, *(opt.Where.__annotations__ if given.keys() & {"workers", "cluster"} else ())}
    options = {name: value for name, value in before.items() if name not in left_out} | changes
    options["checkpoint"], command = str(checkpoint.resolve()), load(verb)
    if strange := sorted(options.keys() - {parameter.name for parameter in command.params}):
        raise CheckpointError(
            f"The run names an option that {verb} does not have, {strange[0]}; start the command again with another "
            f"checkpoint folder."
        )
    with contextlib.chdir(folder):
        try:
            context = command.make_context(verb, [], default_map=options)
        except UsageError as error:
            raise CheckpointError(
                f"{checkpoint / NAME} has other options than {verb} takes ({error.format_message().rstrip('.')}); start "
                f"the command again with another checkpoint folder."
            ) from error
        with context:
            command.invoke(context)
