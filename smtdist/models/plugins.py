"""Models, heads, encoders, contexts and samples that packages bring, by entry points; read only for a name that is not ours."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from smtdist import configuration
from smtdist.errors import ConfigurationError

MODELS: Final = "smtdist.models"
"""Group of entry points that name models, such as subclasses of `smtdist.models.summed.SumModel`, by their kind."""
HEADS: Final = "smtdist.heads"
"""Group of entry points that name subclasses of `smtdist.evaluate.sum_head.SumHead`, by their `KIND`."""
ENCODERS: Final = "smtdist.encoders"
"""Group of entry points that name subclasses of `smtdist.codes.encoder.PatchEncoder`."""
CONTEXTS: Final = "smtdist.contexts"
"""Group of entry points that name contexts: functions (sites, columns, order) -> `smtdist.statistics.operators.Factors`."""

SITES: Final = "smtdist.sites"
"""Group of entry points that name subclasses of `smtdist.models.points.sites.SiteKind`."""


def brought(group: str, name: str, own: str = "") -> Any:
    """Return what an installed package brings under a name, None where none does.

    own : an attribute that has to be that name. Raises ConfigurationError where it is another, where two packages bring the
    name, or where it cannot be loaded.

    >>> brought(ENCODERS, "no such encoder") is None
    True
    """
    found = _named(group, name)
    if not found:
        return None
    if len({one.value for one in found}) > 1:
        raise ConfigurationError(
            f"{' and '.join(sorted(one.value for one in found))} are both called {name} in the group {group}; uninstall one of "
            f"the packages."
        )
    try:
        loaded = found[0].load()
    except Exception as error:  # whatever a package of somebody else raises when it is imported
        raise ConfigurationError(
            f"{found[0].value}, which is called {name} in the group {group}, cannot be loaded ({error!r}); fix or uninstall "
            f"the package."
        ) from error
    if own and getattr(loaded, own, None) != name:
        raise ConfigurationError(
            f"The entry point {name} of the group {group} is {loaded!r}, which has no {own} of that name; fix or uninstall its "
            f"package."
        )
    return loaded


def names(group: str) -> list[str]:
    """Return the names that installed packages bring in a group; loads nothing."""
    return sorted(entry_points(group=group).names)


def is_brought(group: str, name: str) -> bool:
    """Tell whether an installed package brings a name; loads nothing."""
    return bool(_named(group, name))


def is_learned(feature: str) -> bool:
    """Tell whether a feature is a learned code: one of ours, or of an encoder that another package brings.

    >>> is_learned("l1"), is_learned("gq"), is_learned("nonsense")
    (True, False, False)
    """
    if feature in configuration.BINARY:
        return False
    return feature in configuration.CODED or is_brought(ENCODERS, feature)


def _named(group: str, name: str) -> list[EntryPoint]:
    return list(entry_points(group=group, name=name))
