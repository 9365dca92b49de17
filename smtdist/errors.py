"""The errors a user meets. Each message is one sentence: where, what was found, what was expected, what to do."""

import re
from typing import Final

MASK: Final = "***"
_USER: Final = re.compile(r"(?<!file)://[^\s/?#]*@")
_QUERY: Final = re.compile(r"((?<!file)://[^\s?#]*)[?#]\S*?(?=[.,;:)\]'\"]*(\s|$))")

_CONTROL: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def masked(text: str) -> str:
    """Return a text without the credentials in its addresses: user and password, and all that follows `?` or `#`.

    What is printed, or kept in a file, goes through here.

    >>> masked("http://me:secret@host/x.h5?X-Amz-Signature=secret cannot be reached")
    'http://***@host/x.h5?*** cannot be reached'
    """
    return _QUERY.sub(rf"\1?{MASK}", _USER.sub(f"://{MASK}@", text))


def visible(text: str) -> str:
    r"""Return a text whose control characters are written out, those that turn the direction of text included.

    Names in files may hold any; no terminal and no page gets them.

    >>> visible("a\x1b[31m.h5"), visible("two\nlines")
    ('a\\x1b[31m.h5', 'two\\nlines')
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class SmtdistError(Exception):
    """Anything that ends a run with a sentence instead of a traceback (exit code 1).

    The sentence has no credentials of addresses.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(masked(message))


class DataError(SmtdistError):
    """The input cannot be read or is not what was asked for."""


class MissingDatasetError(DataError):
    """A file has no dataset of that name."""


class UnreadableError(DataError):
    """Stored samples that a filter, a checksum or a decoder refuses: damage that every reader finds (may be skipped)."""


class UnreachableError(DataError):
    """A remote source that does not answer now, and may answer later (is tried again)."""


class TooLargeError(DataError, OverflowError):
    """Sums, or data, that are larger than any that can be counted."""


class ConfigurationError(SmtdistError, ValueError):
    """A setting, or a combination of settings, that has no meaning."""


class MemoryBudgetError(SmtdistError):
    """A pass would need more memory than a worker may use; the message has the numbers and the remedy.

    brief : the same without what is needed, for who states that for all passes together.
    """

    def __init__(self, message: str, brief: str = "") -> None:
        super().__init__(message)
        self.brief = brief


class ModelError(SmtdistError):
    """A model, statistics or representation file that cannot be used."""


class OutputExistsError(ModelError):
    """A file that would be written is there already."""


class CheckpointError(SmtdistError):
    """A checkpoint folder that does not belong to this run, or cannot be read or written."""


class ClusterLostError(SmtdistError):
    """The scheduler went away with all that the cluster held; what had been checkpointed can be resumed."""


class InterruptedRun(SmtdistError):
    """The run was asked to stop; what had been checkpointed can be resumed.

    `exit_code` follows the shell's convention: 128 + the signal's number (130 for SIGINT, 143 for SIGTERM).
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code
