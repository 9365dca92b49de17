"""Samples of another kind, whose rows are embedded by features: what a package that brings them derives from.

A package names its class as an entry point of the group `smtdist.sites`; a fit of points with the setting
`sites` of that name finds it. The page "Extending" of the documentation has an example;
`smtdist.testing` checks that a class keeps its promises.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from smtdist.data.source import Source
from smtdist.errors import ConfigurationError, DataError
from smtdist.models import plugins
from smtdist.models.rows import table_of
from smtdist.settings import Settings
from smtdist.statistics.operators import Factors
from smtdist.statistics.sites import ROWS, Group

ROWS_OF_TABLES = "rows"
"""The name of what is not brought: each row of a table is one site, with neighbours that `context` names."""


class SiteKind(Settings, ABC):
    """Which rows of numbers a sample has, and which of them are compared.

    A subclass declares its settings with `smtdist.settings.setting`, which a fit takes. `NAME` is that of its entry point.
    """

    NAME: ClassVar[str]

    def opened(self, data: Sequence[str], dataset: str | None) -> Source:
        """Return the samples of files: by default the rows of one table."""
        return table_of(data, dataset)

    @abstractmethod
    def rows(self, samples: NDArray[np.generic]) -> NDArray[np.float64]:
        """Return the rows of samples (m, ...), as (m, sites, p): the same numbers for a sample beside whichever others."""

    @abstractmethod
    def operator(self, sites: int, order: int) -> Factors:
        """Return the differences of the rows of a sample that are compared; ConfigurationError for an order without any."""


@dataclass(frozen=True)
class RowsOfSamples:
    """The rows of samples of a kind, `sites` of each, `width` numbers long."""

    kind: SiteKind
    sites: int
    width: int

    def groups(self, images: NDArray[np.generic], numbers: int) -> Iterator[Group]:
        """Yield the rows of whole samples, about two thousand at a time."""
        step = max(1, ROWS // self.sites)
        for start in range(0, len(images), step):
            part = images[start : start + step]
            rows = rows_of(self.kind, part)
            if rows.shape[1:] != (self.sites, self.width):
                raise DataError(
                    f"{self.kind.NAME} makes {rows.shape[1:]} (rows, numbers) of a sample, the model takes "
                    f"{self.sites, self.width}; give samples like those it was fitted on."
                )
            places = np.tile(np.arange(self.sites), (len(part), 1))
            yield Group(rows.reshape(-1, self.width), self.sites, places=places)

    def group_bytes(self, numbers: int) -> int:
        """Return the bytes of two thousand rows, or of one sample's."""
        return max(ROWS, self.sites) * (4 * numbers + 24 * self.width) + 2**26


def rows_of(kind: SiteKind, samples: NDArray[np.generic]) -> NDArray[np.float64]:
    """Return the rows of samples, (m, sites, p); ConfigurationError for what no rows are."""
    try:
        found = np.asarray(kind.rows(samples), np.float64)
    except (ArithmeticError, IndexError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{kind.NAME} cannot make rows of samples of {' x '.join(map(str, samples.shape[1:]))} numbers with these settings "
            f"({error}); change them, or fix it."
        ) from error
    if found.ndim != 3 or len(found) != len(samples) or 0 in found.shape or not np.isfinite(found).all():
        raise ConfigurationError(
            f"{kind.NAME} makes rows of the shape {found.shape} of {len(samples)} samples; it must be (samples, sites, "
            f"numbers), "
            f"all of them finite. Fix it."
        )
    return found


def require_sites(name: str) -> None:
    """Refuse what no package brings; loads nothing."""
    if name != ROWS_OF_TABLES and not plugins.is_brought(plugins.SITES, name):
        raise ConfigurationError(
            f'sites is {name!r}; it must be "{ROWS_OF_TABLES}", or the name of a kind of samples that an installed package '
            f"brings."
        )


def site_kind(name: str, settings: Mapping[str, Any]) -> SiteKind | None:
    """Return the kind of samples of a name, with settings of its own; None for the rows of tables."""
    if name == ROWS_OF_TABLES:
        if settings:
            raise ConfigurationError(
                f"{', '.join(settings)} cannot be set: rows of tables have options of their own; use those."
            )
        return None
    require_sites(name)
    cls = plugins.brought(plugins.SITES, name)
    if not (isinstance(cls, type) and issubclass(cls, SiteKind)) or getattr(cls, "NAME", None) != name:
        raise ConfigurationError(
            f"The entry point {name} of the group {plugins.SITES} is {cls!r}, no subclass of "
            f"smtdist.models.points.sites.SiteKind with that NAME; fix or uninstall its package."
        )
    if plain := cls.undeclared():
        raise ConfigurationError(
            f"{name} has settings that are not declared with smtdist.settings.setting: {', '.join(plain)}; fix its package."
        )
    return cls(**settings)
