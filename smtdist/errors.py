"""The errors a user meets. Each message is one sentence: where, what was found, what was expected, what to do.

A message marks the parameters that it names (`option`, `equals`, `set_to`). Each face says these in its own words
(`rendered`): `str(error)` in those of Python, the command line in its own (`smtdist.cli.errors`).
"""

import codecs
import re
import shlex
import sys
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

_BEGIN, _NEXT, _END = "\ufdd0", "\ufdd1", "\ufdd2"
"""Around the kind, name and value of what is marked. Unicode keeps them for a program's own use; in names they mean nothing."""
_KINDS: Final = ("option", "equals", "set", "words")
Words = Callable[[str, str, str], str]


def option(name: str, value: object = "", kind: str = "option") -> str:
    """Return a parameter of Python, or one and its value, marked. A value in capitals is the reader's to choose.

    >>> rendered(f"choose another name, or pass {option('overwrite', True)} or {option('metric', 'knn')}")
    'choose another name, or pass overwrite=True or metric="knn"'
    """
    text = f'"{value}"' if isinstance(value, str) and value and not value.isupper() else str(value)
    return f"{_BEGIN}{kind}{_NEXT}{name}{_NEXT}{text}{_END}"


equals: Final = partial(option, kind="equals")
"""Returns a setting and its value, marked."""
set_to: Final = partial(option, kind="set")
"""Returns a setting and its value, marked as what to give."""


def in_words(text: str) -> str:
    """Return a text that names values of Python, such as None, marked."""
    return option(text, kind="words")


def in_python(kind: str, name: str, value: str) -> str:
    """Return what is marked in the words of Python."""
    return f"{name}={value}" if value else name


def rendered(sentence: str, words: Words = in_python) -> str:
    """Return a sentence with what it marks as `words` say a kind, a name, and a value as Python writes it, or ""."""
    said, *parts = sentence.split(_BEGIN)
    for part in parts:
        inside, _, after = part.partition(_END)
        mark = inside.split(_NEXT)
        # a name of the user's may hold any character
        known = len(mark) == 3 and mark[0] in _KINDS
        said += words(*mark) + after if known else _BEGIN + part
    return said


def command(words: str, name: str, value: object = "") -> str:
    """Return a whole command with an option, which both faces say as it is typed."""
    return f"smtdist {words} --{name} {value and shlex.quote(str(value))}".rstrip()


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
_USER: Final = re.compile(rf"({_SCHEME})(?:[^\s/?#]*|[^\s/?#@:]*:(?!:|\d+/)(?:(?!://)[^@\n])*)@")
"""Secrets may hold `/`, `?`, `#` and spaces; behind a port and a slash they are a path."""
_QUERY: Final = re.compile(rf"({_SCHEME}[^\s?#]*)[?#]\S*?(?=[.,;:)\]'\"]*(\s|$))")

_FOLDERS: Final = re.compile(r"(?<![^\s(,'\"])/(?:[^/:,\s][^/:,]*/)*(?=[^/:,\s])")
_CONTROL: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f\ufdd0-\ufdef]"
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
        """Return the sentence, in the words of Python."""
        return rendered(self.sentence)

    @property
    def sentence(self) -> str:
        """The sentence as it was written, for a face, or for the sentence of another error."""
        return super().__str__()


class DataError(SmtdistError):
    """The input cannot be read or is not what was asked for."""


class DataWarning(UserWarning):
    """The input can be read, and something in it may not be what was meant."""


class DeviceWarning(UserWarning):
    """A GPU is not used, or is slow, or one of several does all the work."""


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


class DeviceError(SmtdistError):
    """A GPU, its driver or a library of it failed."""


_DEVICE_FAULTS: Final = (
    "OutOfMemoryError",
    "CUDARuntimeError",
    "CUDADriverError",
    "CUBLASError",
    "CUSOLVERError",
    "CUSPARSEError",
    "NVRTCError",
    "CompileException",
)
"""What CuPy raises, by name: where there is no CuPy there are no such classes."""
_NO_MEMORY: Final = re.compile(
    "ErrorMemoryAllocation|ERROR_OUT_OF_MEMORY|ALLOC_FAILED|CUBLAS_STATUS_NOT_INITIALIZED"
)
"""How CUDA, and its libraries that take memory beside CuPy's pool, say that a GPU has none left."""


def _device_fault(error: BaseException) -> str:
    """Return which of CuPy's errors it is, "" for any other."""
    kinds = (kind.__name__ for kind in type(error).__mro__ if kind.__module__.startswith("cupy"))
    return next((name for name in kinds if name in _DEVICE_FAULTS), "")


def device_is_full(error: BaseException) -> bool:
    """Tell whether an error says that a GPU has no memory left."""
    name = _device_fault(error)
    return name == "OutOfMemoryError" or bool(name and _NO_MEMORY.search(str(error)))


@contextmanager
def device_faults() -> Iterator[None]:
    """Turn what CuPy raises in the block into sentences."""
    try:
        yield
    except Exception as error:
        name, cpu = _device_fault(error), "set CUDA_VISIBLE_DEVICES=-1 to use the CPU"
        if not name:
            raise
        said = f"{name}: {(str(error).strip() or 'without a word').splitlines()[0].rstrip('.')}"
        if device_is_full(error):
            raise MemoryBudgetError(
                f"The GPU has no memory left ({said}); end other programs that use it, take fewer workers for each GPU, or a "
                f"smaller dictionary, or {cpu}."
            ) from error
        if name in ("NVRTCError", "CompileException"):
            raise DeviceError(
                f"CUDA code cannot be compiled for this GPU ({said}); install the CuPy that fits the driver, smtdist[cuda] or "
                f"smtdist[cuda12], or {cpu}."
            ) from error
        raise DeviceError(
            f"The GPU failed ({said}), perhaps in work that began before; set CUDA_LAUNCH_BLOCKING=1 and start again to find "
            f"the cause, or {cpu}."
        ) from error


def sentence_of(error: BaseException) -> str:
    """Return what an error says, with its marks where it is one of ours; its type where it says nothing."""
    return getattr(error, "sentence", str(error)) or type(error).__name__


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
