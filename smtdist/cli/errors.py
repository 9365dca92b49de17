"""How commands fail: wrong usage, and whether to show tracebacks."""

import threading
from typing import Final

from smtdist.errors import SmtdistError

DEBUG: Final = threading.Event()
"""Set by --debug: show the traceback of an error."""


class WrongUsage(SmtdistError):
    """Options that have no meaning, alone or together (exit code 2)."""
