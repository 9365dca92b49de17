"""How commands fail: wrong usage, and whether to show tracebacks."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from smtdist.errors import ConfigurationError, SmtdistError

DEBUG: Final = threading.Event()
"""Set by --debug: show the traceback of an error."""


class WrongUsage(SmtdistError):
    """Options that have no meaning, alone or together (exit code 2)."""


@contextmanager
def usage(*others: type[Exception]) -> Iterator[None]:
    """Turn a ConfigurationError, and errors of other types, into wrong usage with the same sentence."""
    errors: tuple[type[Exception], ...] = (ConfigurationError, *others)
    try:
        yield
    except errors as error:
        raise WrongUsage(str(error)) from error
