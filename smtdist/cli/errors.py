"""The one error that the command line adds."""

from smtdist.errors import SmtdistError


class WrongUsage(SmtdistError):
    """Options that have no meaning, alone or together (exit code 2)."""
