"""Checks that settings of several kinds of models share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final, get_args, get_type_hints

from smtdist.errors import ConfigurationError, SmtdistError
from smtdist.settings import is_number, is_whole


def require_choices(settings: Any, choices: Mapping[str, Any]) -> None:
    """Raise ConfigurationError for the first of the named settings that is none of its choices."""
    for name, known in choices.items():
        if getattr(settings, name) not in known:
            words = ", ".join("null" if choice is None else str(choice) for choice in known)
            wanted = "true or false" if set(known) == {True, False} else f"one of {words}"
            raise ConfigurationError(f"{name} is {getattr(settings, name)!r}; it must be {wanted}.")


def require_whole(settings: Any, least: Mapping[str, int]) -> None:
    """Raise ConfigurationError for the first of the named settings that is no whole number of at least its least."""
    for name, lowest in least.items():
        value = getattr(settings, name)
        if not is_whole(value) or value < lowest:
            raise ConfigurationError(
                f"{name} is {value!r}; it must be a whole number of at least {lowest}."
            )


_KINDS: Final[dict[type, tuple[str, Callable[[Any], bool]]]] = {
    bool: ("true or false", lambda value: isinstance(value, bool)),
    int: ("a whole number", lambda value: type(value) is int),
    float: ("a number", is_number),
    str: ("a word", lambda value: isinstance(value, str)),
}


def require_kinds(settings: Any) -> None:
    """Raise ConfigurationError for the first setting that is annotated bool, int, float or str and is something else.

    Settings that are annotated with one of these or None may be None, too.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Asked:
    ...     twice: bool = False
    >>> require_kinds(Asked("maybe"))
    Traceback (most recent call last):
    smtdist.errors.ConfigurationError: twice is 'maybe'; it must be true or false.
    """
    hints = get_type_hints(type(settings))
    for one in dataclasses.fields(settings):
        value = getattr(settings, one.name)
        kinds = set(get_args(hints[one.name]) or [hints[one.name]])
        optional = type(None) in kinds
        kinds.discard(type(None))
        if len(kinds) != 1 or not kinds <= set(_KINDS) or (optional and value is None):
            continue
        what, fine = _KINDS[kinds.pop()]
        if not fine(value):
            raise ConfigurationError(
                f"{one.name} is {value!r}; it must be {what}{', or none' if optional else ''}."
            )


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
