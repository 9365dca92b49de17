"""How commands fail: wrong usage, and whether to show tracebacks.

What the command line alone shows to be wrong is wrong usage, exit code 2: a setting or option that there is not, that has no
such value, or that does not go with another. What only the data or a file show is a failure, exit code 1, also where another
setting would do: a patch larger than the images, more components than the codes span.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from smtdist.errors import ConfigurationError, SmtdistError, UnsuitableError, sentence_of

DEBUG: Final = threading.Event()
"""Set by --debug: show the traceback of an error."""

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


def in_shell(kind: str, name: str, value: str) -> str:
    """Return what is marked in the words of the command line."""
    value = {"True": "true", "False": "false", "None": "null"}.get(value, value.strip('"'))
    if kind != "option":
        return f"{'--set ' * (kind == 'set')}{name}={value}"
    name = _OPTIONS.get(name, name.replace("_", "-"))
    if value in ("true", "false"):
        return f"--{'no-' * (value == 'false')}{name}"
    return f"--{name} {value}".rstrip()


class WrongUsage(SmtdistError):
    """Options that have no meaning, alone or together (exit code 2)."""


@contextmanager
def usage(*others: type[Exception]) -> Iterator[None]:
    """Turn a ConfigurationError, and errors of other types, into wrong usage with the same sentence."""
    errors: tuple[type[Exception], ...] = (ConfigurationError, *others)
    try:
        yield
    except UnsuitableError:  # only the data show it
        raise
    except errors as error:
        raise WrongUsage(sentence_of(error)) from error
