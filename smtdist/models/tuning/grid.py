"""Which settings a tuning run tries: a grid of values, and every combination of them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from smtdist import configuration
from smtdist.configuration import Configuration
from smtdist.errors import ConfigurationError, equals, option

FIXED: Final = ("resize", "center_crop", "channels", "pixel_range", "keep_statistics")
"""Settings that say how data are read or what is stored: no choice that a validation part could make."""

Changes = dict[str, Any]


def parse_grid(texts: Sequence[str], *, learnt: bool = False) -> dict[str, list[Any]]:
    """Read `key=value,value,...` texts; values are JSON, and bare words are strings.

    Raises ConfigurationError for a key that is no setting (with the nearest known name), one that cannot
    vary or is named twice, and for a grid without values. Settings of `learnt` codes are checked where they
    are used.

    >>> parse_grid(["whitening_reg=0.001,0.01", "context_size=3,whole"])
    {'whitening_reg': [0.001, 0.01], 'context_size': [3, 'whole']}
    >>> parse_grid(["threshold=.2,.3"])
    {'threshold': [0.2, 0.3]}
    """
    grid: dict[str, list[Any]] = {}
    for text in texts:
        key, separator, values = text.partition("=")
        key = key.strip()
        if not separator or not values.strip():
            raise ConfigurationError(
                f"{option('grid')} takes key=value,value,..., not {text!r}; give at least one value."
            )
        if key in grid:
            raise ConfigurationError(f"{option('grid')} names {key} twice; give all its values at once.")
        try:
            several = json.loads(f"[{values}]")
        except json.JSONDecodeError:
            several = [configuration.parse_value(value.strip()) for value in values.split(",")]
        grid[key] = list(dict.fromkeys(several))
    return checked_grid(grid, learnt=learnt)


def checked_grid(grid: Mapping[str, Sequence[Any]], *, learnt: bool = False) -> dict[str, list[Any]]:
    """Return a grid of values, those of NumPy as Python's; ConfigurationError as of `parse_grid`."""
    if not learnt:
        grid = configuration.Configuration.named(grid)
    for key in grid:
        if key in FIXED:
            raise ConfigurationError(
                f"{key} cannot be tuned, since it says how data are read or stored; give it with {option('a parameter')}."
            )
        if key in configuration.VOTING:
            raise ConfigurationError(
                f"{key} says how neighbours vote, which needs no other fit; fit once, and try its values with smtdist "
                f"evaluate."
            )
        if not len(grid[key]) or isinstance(grid[key], str):
            raise ConfigurationError(f"{option('grid')} has no values of {key}; give a list of them.")
    if not grid:
        raise ConfigurationError(
            f"There is nothing to tune; give {option('grid')}, such as {option('grid')} whitening_reg=0.001,0.01."
        )
    return {
        key: [value.item() if isinstance(value, np.generic) else value for value in values]
        for key, values in grid.items()
    }


def every(grid: Mapping[str, Sequence[Any]]) -> list[Changes]:
    """Return every combination of the values of a grid, the last setting varying fastest."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def combinations(
    settings: Configuration, grid: Mapping[str, Sequence[Any]], n_atoms: int | None = None
) -> list[tuple[Changes, Configuration]]:
    """Return every combination of the grid's values, the last setting varying fastest, with the settings it makes.

    Components that do not vary are as many as there are atoms (`n_atoms`, else the dictionary's) at most.
    Raises ConfigurationError, before any data are read, for a value that a setting cannot have, and for more
    components than atoms.
    """
    found = []
    for changes in every(grid):
        one = settings.replace(**changes)
        atoms, asked = n_atoms or one.n_atoms, one.n_components + one.drop_components
        if "n_components" in changes and asked > atoms:
            raise ConfigurationError(
                f"With {as_text(changes)} n_components + drop_components is {asked}, more than the {atoms} atoms; "
                f"leave out that value, or raise n_atoms."
            )
        found.append((changes, one.replace(n_components=one.with_atoms(atoms).n_components)))
    return found


def as_text(changes: Mapping[str, Any]) -> str:
    """Write settings and their values, each marked for the reader's language."""
    return " ".join(equals(key, value) for key, value in changes.items())


def value_text(value: Any) -> str:
    """Write one value as it is given on the command line."""
    return value if isinstance(value, str) else json.dumps(value)
