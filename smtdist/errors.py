"""The errors a user meets. Each message is one sentence: where, what was found, what was expected, what to do.

Messages are written with the options of the command line, and `in_python` is the one place that says them in Python.
"""

import codecs
import re
import sys
import threading
import unicodedata
import warnings
from collections.abc import Callable
from typing import Any, Final

COMMAND_LINE: Final = threading.Event()
"""Set while a command runs: its options are not translated."""

_SWITCHES: Final = (
    *("overwrite", "append", "allow-repeats", "withdraw", "alone", "mirrored", "insecure"),
    *("plan", "json", "quiet"),
)
_NAMES: Final = {
    "components": "n_components",
    "workers": "n_workers",
    "from-model": "base",
    "with": "others",
    "cluster-config": "config",
    "set": "a parameter",
    "follow": "SMTDIST_FOLLOW",
    "dataset": "(path, dataset)",
}
_VALUES: Final = (
    r"\d[\d.,]*\b|N\b|tls://\S+|\b(?:knn|linear|svm|kernel|skip|raise|none|folders|embedding|codes|both|encoded|plain"
    r"|local|kubernetes|ssh|slurm|pbs|sge|lsf|oar|moab|time)\b"
)
_OPTION: Final = re.compile(rf"(?<![\w-])--(no-)?([a-z][a-z-]*)(?:[ =]({_VALUES}))?")
_COMMAND: Final = re.compile(r"`[^`]*`|smtdist [a-z]+(?: [A-Z]+)?(?: --[a-z-]+(?: [^\s;,]+)?)*")
_SETTING: Final = re.compile(r"(?<![\w?&/.-])([a-z_]{2,})=(?!value)([a-z]\w*)\b(?![(=.])")


def in_python(message: str) -> str:
    """Return a message with what Python calls the options of the command line; whole commands stay.

    >>> in_python("x.h5 exists already; choose another name or pass --overwrite.")
    'x.h5 exists already; choose another name or pass overwrite=True.'
    >>> in_python("use --metric kernel, --workers 2, --set grey=false or --components")
    'use metric="kernel", n_workers=2, grey=False or n_components'
    >>> in_python("allow that with --follow /data")
    'allow that with the environment variable SMTDIST_FOLLOW=/data'
    >>> in_python("make one with smtdist fit --model l1, or leave --atoms out")
    'make one with smtdist fit --model l1, or leave atoms out'
    """
    parts, at = [], 0
    for command in _COMMAND.finditer(message):
        parts += [_translated(message[at : command.start()]), command[0]]
        at = command.end()
    return "".join([*parts, _translated(message[at:])])


def _translated(text: str) -> str:
    text = re.sub(r"--set (?=[a-z_]+=)", "", text)
    text = re.sub(r"--follow (?=\S)", "the environment variable SMTDIST_FOLLOW=", text)
    return _SETTING.sub(_setting, _OPTION.sub(_option, text))


def _option(found: re.Match[str]) -> str:
    no, option, value = found.groups()
    name = _NAMES.get(option, option.replace("-", "_"))
    if no or option in _SWITCHES:
        return f"{name}={'False' if no else 'True'}"
    if value is None:
        return name
    return f"{name}={value}" if value[0].isdigit() or value == "N" else f'{name}="{value}"'


def _setting(found: re.Match[str]) -> str:
    name, value = found.groups()
    word = {"true": "True", "false": "False", "null": "None"}.get(value)
    return f"{name}={word}" if word else f'{name}="{value}"'


_PLURALS: Final = {"leaf": "leaves"}


def counted(count: int, noun: str) -> str:
    """Return a number with what is counted, as sentences say it.

    >>> counted(1, "worker"), counted(2_000, "class"), counted(2, "entry of a list"), counted(0, "leaf")
    ('1 worker', '2,000 classes', '2 entries of a list', '0 leaves')
    """
    if count == 1:
        return f"1 {noun}"
    head, of, rest = noun.partition(" of ")
    many = re.sub(r"(s|ch|x)$", r"\1e", re.sub(r"(?<![aeiou])y$", "ie", head)) + "s"
    return f"{count:,} {_PLURALS.get(head, many)}{of}{rest}"


MASK: Final = "***"
_SCHEME: Final = r"(?:(?<!file)://|(?<![\w.])(?!file:)[A-Za-z][A-Za-z0-9+-]*:/)"
"""How addresses go on: paths lose the second slash of one that is taken for a file."""
_USER: Final = re.compile(rf"({_SCHEME})[^\s/?#]*@")
_QUERY: Final = re.compile(rf"({_SCHEME}[^\s?#]*)[?#]\S*?(?=[.,;:)\]'\"]*(\s|$))")

_FOLDERS: Final = re.compile(r"(?<![^\s(,'\"])/(?:[^/:,\s][^/:,]*/)*(?=[^/:,\s])")
_CONTROL: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
"""Not the two joiners, which words of some languages need."""


def masked(text: str) -> str:
    r"""Return a text without the credentials in its addresses: user and password, and all that follows `?` or `#`.

    What is printed, or kept in a file, goes through here. Files keep text in UTF-8, so the bytes of a name that is
    in no UTF-8 are written out.

    >>> masked("http://me:secret@host/x.h5?X-Amz-Signature=secret cannot be reached")
    'http://***@host/x.h5?*** cannot be reached'
    >>> masked("caf\udce9.h5")
    'caf\\udce9.h5'
    """
    text = text.encode(errors="backslashreplace").decode()
    return _QUERY.sub(rf"\1?{MASK}", _USER.sub(rf"\1{MASK}@", text))


def visible(text: str) -> str:
    r"""Return a text whose control characters are written out, those that turn the direction of text, or
    that nobody sees, included.

    Names in files may hold any; no terminal and no page gets them.

    >>> visible("a\x1b[31m.h5"), visible("two\nlines")
    ('a\\x1b[31m.h5', 'two\\nlines')
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


PLAIN: Final = "smtdist.plain"
"""A way to treat what an encoding lacks, for streams: plain letters, or else the number of the character."""
_LETTERS: Final = {
    "\N{EN DASH}": "-",
    "\N{EM DASH}": "-",
    "\N{MINUS SIGN}": "-",
    "\N{MULTIPLICATION SIGN}": "x",
    "\N{ALMOST EQUAL TO}": "~",
    "\N{GREEK SMALL LETTER LAMDA}": "lambda",
    **dict(zip("▁▂▃▄▅▆▇█░", "_.-:=+*#.", strict=True)),
}


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Return plain letters for what an encoding lacks.

    >>> "0–255, λ = ½ σ² für \u65e5".encode("ascii", PLAIN)
    b'0-255, lambda = 1/2 sigma2 f\\\\xfcr \\\\u65e5'
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_letters, error.object[error.start : error.end])), error.end


def _letters(character: str) -> str:
    near = unicodedata.normalize("NFKD", character).replace("\N{FRACTION SLASH}", "/")
    # a letter with an accent stands in names, which are other names without it
    if character in _LETTERS or (near[0].isascii() and not any(map(unicodedata.combining, near))):
        return _LETTERS.get(character, near.encode("ascii", "ignore").decode())
    name = unicodedata.name(character, "")
    if name.startswith("GREEK") and " LETTER " in name:
        return name.split()[-1].lower()
    return character.encode("ascii", "backslashreplace").decode()


codecs.register_error(PLAIN, _plain)


def without_folders(text: str) -> str:
    """Return a text with the names of files in place of their absolute paths: where a file lies is of one machine alone.

    >>> without_folders("/home/me/data.h5:train/images"), without_folders("https://host/a/data.h5:x")
    ('data.h5:train/images', 'https://host/a/data.h5:x')
    """
    return _FOLDERS.sub("", text)


class SmtdistError(Exception):
    """Anything that ends a run with a sentence instead of a traceback (exit code 1).

    The sentence has no credentials of addresses.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(masked(message))

    def __str__(self) -> str:
        """Return the sentence, with the words of Python, or of the command line while a command runs."""
        message = super().__str__()
        return message if COMMAND_LINE.is_set() else in_python(message)


class DataError(SmtdistError):
    """The input cannot be read or is not what was asked for."""


class DataWarning(UserWarning):
    """The input can be read, and something in it may not be what was meant."""


def warn(sentence: str, kind: type[Warning]) -> None:
    """Warn; the warning names the line outside smtdist that asked for what is warned of."""
    calls, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("smtdist."):
        calls, frame = calls + 1, frame.f_back
    warnings.warn(sentence, kind, stacklevel=calls)


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


class UnsuitableError(ConfigurationError):
    """Settings that have a meaning, but not for these data."""


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
    `at_once`: it was asked a second time, and nothing more is stored.
    """

    def __init__(self, message: str, exit_code: int, at_once: bool = False) -> None:
        super().__init__(message)
        self.exit_code, self.at_once = exit_code, at_once


def called(what: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function of another package returns; where it fails, ConfigurationError with its error.

    >>> called("mine", lambda sites: 1 / sites, 0)
    Traceback (most recent call last):
    smtdist.errors.ConfigurationError: mine failed (ZeroDivisionError('division by zero')); fix or uninstall its package.
    """
    try:
        return function(*arguments)
    except (SmtdistError, MemoryError):
        raise
    except Exception as error:  # whatever it raises
        raise ConfigurationError(f"{what} failed ({error!r}); fix or uninstall its package.") from error
