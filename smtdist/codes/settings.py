"""Settings of coders: what all of them are told, shared checks, and JSON."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

from smtdist.codes.checks import is_number
from smtdist.errors import ConfigurationError


class PatchSettings(Protocol):
    """How patches are made: what every coder of patches is told."""

    @property
    def patch(self) -> int: ...  # noqa: D102
    @property
    def contrast_bias(self) -> float: ...  # noqa: D102
    @property
    def seed(self) -> int: ...  # noqa: D102
    @property
    def flip(self) -> bool: ...  # noqa: D102
    @property
    def grey(self) -> bool: ...  # noqa: D102
    @property
    def pixel_range(self) -> tuple[float, float] | None: ...  # noqa: D102


class StartSettings(PatchSettings, Protocol):
    """How a fit begins: its whitening, and the patches that atoms start from."""

    @property
    def units(self) -> int: ...  # noqa: D102
    @property
    def ridge(self) -> float: ...  # noqa: D102
    @property
    def patches(self) -> int: ...  # noqa: D102
    @property
    def images(self) -> int: ...  # noqa: D102
    @property
    def whiten_images(self) -> int: ...  # noqa: D102
    @property
    def start(self) -> str: ...  # noqa: D102


class CoderSettings(PatchSettings, Protocol):
    """What a fitted coder is asked for."""

    @property
    def pooling(self) -> tuple[int, ...]: ...  # noqa: D102
    @property
    def width(self) -> int: ...  # noqa: D102
    def to_json(self) -> str: ...  # noqa: D102


@dataclass(frozen=True)
class Settings:
    """Settings that are changed by name, and written as JSON."""

    OF: ClassVar[str] = "a model"
    CHOICES: ClassVar[dict[str, tuple[Any, ...]]] = {}

    def replace(self, **changes: Any) -> Self:
        """Return settings with changes; an unknown name is a ConfigurationError. Lists become tuples."""
        known = {field.name for field in dataclasses.fields(self)}
        for name, value in changes.items():
            if name not in known:
                raise ConfigurationError(
                    f"There is no setting {name!r}; the settings of {self.OF} are {', '.join(sorted(known))}."
                )
            if isinstance(value, list):
                changes[name] = tuple(value)
        if isinstance(changes.get("pooling"), int):
            changes["pooling"] = (changes["pooling"],)
        return dataclasses.replace(self, **changes)

    def to_json(self) -> str:
        """Return the settings as JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read settings from JSON; ConfigurationError for what is none."""
        try:
            return cls().replace(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise ConfigurationError(f"These are no settings of {cls.OF} ({error}).") from error


def require_numbers(settings: Any, names: tuple[str, ...], *, above: bool = False) -> None:
    """Raise ConfigurationError for the first of the named settings that is no number of at least 0, or `above` 0.

    >>> from types import SimpleNamespace
    >>> require_numbers(SimpleNamespace(rate=0.1), ("rate",), above=True)
    """
    for name in names:
        value = getattr(settings, name)
        if not is_number(value) or value < 0 or (above and value == 0):
            floor = "above 0" if above else "of at least 0"
            raise ConfigurationError(f"{name} is {value!r}; it must be a number {floor}.")


def require_pairs(settings: Any, names: tuple[str, ...]) -> None:
    """Raise ConfigurationError for the first of the named settings that is neither None nor two numbers in order."""
    for name in names:
        pair = getattr(settings, name)
        two = isinstance(pair, tuple | list) and len(pair) == 2 and all(map(is_number, pair))
        if pair is not None and not (two and pair[0] < pair[1]):
            raise ConfigurationError(
                f"{name} is {pair!r}; it must be two numbers, the lower one first, such as [0,1]."
            )


def require_grids(pooling: Any) -> None:
    """Raise ConfigurationError for what are no pooling grids."""
    if not pooling or not all(isinstance(grid, int) and grid >= 1 for grid in pooling):
        raise ConfigurationError(f"pooling is {pooling!r}; give grids such as [3] or [1, 2, 3].")
