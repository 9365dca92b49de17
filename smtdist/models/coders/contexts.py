"""Contexts of the patches of an image by name: ours, and those that other packages bring."""

from __future__ import annotations

from typing import Any

from smtdist.errors import ConfigurationError
from smtdist.models.plugins import CONTEXTS, brought, is_brought
from smtdist.statistics.operators import Operator, Whole, Window
from smtdist.statistics.patch_rows import PatchRows


def require_context(context: Any) -> None:
    """Refuse what names no context; loads nothing of other packages."""
    if context == "whole" or (type(context) is int and context >= 1):
        return
    if not isinstance(context, str) or not is_brought(CONTEXTS, context):
        raise ConfigurationError(
            f'context is {context!r}; it must be a whole number of pixels of at least 1, "whole", or the name of a context that '
            f"an installed package brings."
        )


def operator_of(context: int | str, patches: PatchRows, order: int) -> Operator:
    """Return the operator D of a context over the drawn patches of an image."""
    if context == "whole" and order == 1:
        return Whole()
    if context == "whole" or isinstance(context, int):
        reach = None if isinstance(context, str) else context
        return Window(patches.drawn, patches.grid[1], reach, order)
    made: Operator = brought(CONTEXTS, context)(patches.drawn, patches.grid[1], order)
    return made
