"""Contexts of the patches of an image by name: ours, and those that other packages bring."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from smtdist.errors import ConfigurationError
from smtdist.models import plugins
from smtdist.statistics.operators import Factors, Operator, Whole, Window
from smtdist.statistics.patch_rows import PatchRows


def require_context(context: Any) -> None:
    """Refuse what names no context; loads nothing of other packages."""
    fine = (
        context in OURS or plugins.is_brought(plugins.CONTEXTS, context)
        if isinstance(context, str)
        else _is_reach(context)
    )
    if not fine:
        raise ConfigurationError(
            f'context is {context!r}; it must be a whole number of pixels of at least 1, "whole", or the name of a context that '
            f"an installed package brings."
        )


def operator_of(context: int | str, patches: PatchRows, order: int) -> Operator:
    """Return the operator D of a context over the drawn patches of an image."""
    lattice = patches.drawn, patches.grid[1]
    if isinstance(context, int):
        return Window(*lattice, context, order)
    found = OURS.get(context) or plugins.brought(plugins.CONTEXTS, context)
    if context not in OURS and patches.drawn < patches.positions and not getattr(found, "DRAWN", False):
        raise ConfigurationError(
            f"The context {context} takes all positions of an image, but positions asks for {patches.drawn} of "
            f"{patches.positions}; leave positions out."
        )
    made = found(*lattice, order)
    if not isinstance(made, Whole | Factors):
        raise ConfigurationError(
            f"The context {context} returned {made!r}; it must return an object with own, factors, scale and row_numbers, as "
            f"smtdist.statistics.operators.Factors has them."
        )
    return made


def _is_reach(context: Any) -> bool:
    return type(context) is int and context >= 1


def _whole(sites: int, columns: int, order: int) -> Operator:
    """All positions of an image are neighbours: in closed form at the first order, as a window without end at the second."""
    return {1: Whole()}.get(order) or Window(sites, columns, None, order)


OURS: Final[dict[str, Callable[[int, int, int], Operator]]] = {"whole": _whole}
"""Contexts by name, beside numbers of pixels."""
