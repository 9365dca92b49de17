"""How commands fail, in the words of the command line.

What the command line alone shows to be wrong is wrong usage, exit code 2: a setting or option that there is not, that has no
such value, or that does not go with another. What only the data or a file show is a failure, exit code 1, also where another
setting would do: a patch larger than the images, more components than the codes span.
"""

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import typer

from smtdist.errors import ConfigurationError, SmtdistError, UnsuitableError, sentence_of

_OPTIONS: Final = {
    "n_components": "components",
    "n_workers": "workers",
    "base": "from-model",
    "others": "with",
    "config": "cluster-config",
    "(path, dataset)": "dataset",
    "a parameter": "set",
    "the environment variable SMTDIST_FOLLOW": "follow",
}
"""Options that are not called as the parameters of Python."""


UsageError: Any = typer.BadParameter.__mro__[1]
"""That of Typer, or of Click, as the version has it."""


def as_typed(value: object) -> str:
    """Return a value, or a text that names values, with the words for values that the command line takes.

    >>> as_typed(None), as_typed("a number, or None"), as_typed([True, "null_tolerance"])
    ('none', 'a number, or none', "[true, 'null_tolerance']")
    """
    return re.sub(r"\b(None|True|False)\b", lambda found: found[0].lower(), str(value))


def in_shell(kind: str, name: str, value: str) -> str:
    """Return what is marked in the words of the command line, as a shell takes it."""
    if kind == "words":
        return as_typed(name)
    value = value and shlex.quote(as_typed(value.strip('"')))
    if kind != "option":
        return f"{'--set ' * (kind == 'set')}{name}={value}"
    name = _OPTIONS.get(name, name.replace("_", "-"))
    if value in ("true", "false"):
        return f"--{'no-' * (value == 'false')}{name}"
    return f"--{name} {value}".rstrip()


class WrongUsage(SmtdistError):
    """Options that have no meaning, alone or together (exit code 2)."""


def of_usage(error: Any) -> str:
    """Return what a parser says of a command line as one sentence, with what to do."""
    path = error.ctx.command_path if error.ctx else "smtdist"
    wrong = re.sub(r"'(-[^\s']*)'", r"\1", error.format_message()).rstrip(".")
    remedy = f"{path} --help lists what there is."
    if strange := getattr(error, "option_name", "") if hasattr(error, "possibilities") else "":
        wrong = f"There is no option {strange}"
        remedy = f"did you mean {error.possibilities[0]}?" if error.possibilities else remedy
    return f"{wrong}; {remedy}"


@contextmanager
def usage() -> Iterator[None]:
    """Turn a ConfigurationError into wrong usage with the same sentence."""
    try:
        yield
    except UnsuitableError:  # only the data show it
        raise
    except ConfigurationError as error:
        raise WrongUsage(sentence_of(error)) from error
