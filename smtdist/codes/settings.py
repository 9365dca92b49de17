"""Settings of coders: what all of them are told, shared checks, and JSON."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from smtdist.codes.checks import require_choices, require_whole
from smtdist.errors import ConfigurationError
from smtdist.settings import is_number


@dataclass(frozen=True)
class Settings:
    """Settings that are changed by name, and written as JSON."""

    OF: ClassVar[str] = "a model"
    CHOICES: ClassVar[dict[str, tuple[Any, ...]]] = {}
    BEFORE: ClassVar[dict[str, Any]] = {}
    """What settings that files lack were, where their default is another one."""

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
            return cls().replace(**cls.BEFORE | json.loads(text))
        except (ValueError, TypeError) as error:
            raise ConfigurationError(f"These are not settings of {cls.OF} ({error}).") from error


class PatchSettings(Settings):
    """What every coder of patches is told; each is a dataclass that has these as fields of its own, with defaults."""

    CHOICES: ClassVar[dict[str, tuple[Any, ...]]] = {
        "start": ("patches", "random"),
        "flip": (True, False),
        "grey": (True, False),
    }

    units: int
    patch: int
    contrast_bias: float
    ridge: float
    patches: int
    images: int
    whiten_images: int
    start: str
    pooling: tuple[int, ...]
    pixel_range: tuple[float, float] | None
    flip: bool
    grey: bool
    seed: int

    def __post_init__(self) -> None:
        require_choices(self, self.CHOICES)
        require_whole(
            self, {"units": 1, "patch": 1, "patches": 0, "images": 0, "whiten_images": 0, "seed": 0}
        )
        require_numbers(self, ("contrast_bias", "ridge"))
        if not self.pooling or not all(isinstance(grid, int) and grid >= 1 for grid in self.pooling):
            raise ConfigurationError(f"pooling is {self.pooling!r}; give grids such as [3] or [1, 2, 3].")
        require_pairs(self, ("pixel_range",))

    @property
    def width(self) -> int:
        """Entries of a code, K."""
        return self.units


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
