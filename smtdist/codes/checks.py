"""Checks that settings of several kinds of models share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smtdist.errors import ConfigurationError


def require_choices(settings: Any, choices: Mapping[str, Any]) -> None:
    """Raise ConfigurationError for the first of the named settings that is none of its choices."""
    for name, known in choices.items():
        if getattr(settings, name) not in known:
            words = ", ".join("null" if choice is None else str(choice) for choice in known)
            raise ConfigurationError(f"{name} is {getattr(settings, name)!r}; it must be one of {words}.")


def require_whole(settings: Any, least: Mapping[str, int]) -> None:
    """Raise ConfigurationError for the first of the named settings that is no whole number of at least its least."""
    for name, lowest in least.items():
        value = getattr(settings, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
            raise ConfigurationError(
                f"{name} is {value!r}; it must be a whole number of at least {lowest}."
            )
