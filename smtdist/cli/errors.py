"""How commands fail: wrong usage, and whether to show tracebacks.

What the command line alone shows to be wrong is wrong usage, exit code 2: a setting or option that there is not, that has no
such value, or that does not go with another. What only the data or a file show is a failure, exit code 1, also where another
setting would do: a patch larger than the images, more components than the codes span.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from smtdist.errors import ConfigurationError, SmtdistError, UnsuitableError

DEBUG: Final = threading.Event()
"""Set by --debug: show the traceback of an error."""


class WrongUsage(SmtdistError):
    """Options that have no meaning, alone or together (exit code 2)."""

    __str__ = Exception.__str__  # its words are those of the command line


@contextmanager
def usage(*others: type[Exception]) -> Iterator[None]:
    """Turn a ConfigurationError, and errors of other types, into wrong usage with the same sentence."""
    errors: tuple[type[Exception], ...] = (ConfigurationError, *others)
    try:
        yield
    except UnsuitableError:  # only the data show it
        raise
    except errors as error:
        raise WrongUsage(str(error)) from error
