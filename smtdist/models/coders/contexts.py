"""Contexts of the patches of an image by name: ours, and those that other packages bring."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from smtdist.errors import ConfigurationError, called
from smtdist.models import plugins
from smtdist.solve.solution import Float64
from smtdist.statistics.operators import Factors, Operator, Whole, Window
from smtdist.statistics.patch_rows import PatchRows
from smtdist.statistics.sites import Group


def require_context(context: Any) -> None:
    """Refuse what names no context; loads nothing of other packages."""
    fine = (
        context in OURS or plugins.is_brought(plugins.CONTEXTS, context)
        if isinstance(context, str)
        else type(context) is int and context >= 1
    )
    if not fine:
        raise ConfigurationError(
            f"context_size is {context!r}; it must be a whole number of pixels of at least 1, {NAMED}, or the name of a context "
            f"that an installed package brings."
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
    return found(*lattice, order) if context in OURS else Brought.of(context, found, lattice, order)


@dataclass(frozen=True)
class Brought:
    """A context of another package, whose mistakes end in a sentence: it must return whole numbers of the right shape.

    name : of its entry point. made : what it returned. scale : of what it returned.
    """

    name: str
    made: Factors
    scale: int

    @classmethod
    def of(cls, name: str, found: Any, lattice: tuple[int, int], order: int) -> Operator:
        """Return the context over a lattice (sites, columns)."""
        made = called(f"The context {name}", found, *lattice, order)
        if isinstance(made, Whole):  # ours, in closed form
            return made
        if not isinstance(made, Factors):
            raise ConfigurationError(
                f"The context {name} returned {made!r}; it must return an object with own, factors, scale and row_numbers, as "
                f"smtdist.statistics.operators.Factors has them."
            )
        numbers = called(f"The context {name}", made.row_numbers, 1)
        if made.scale != int(made.scale) or made.scale < 1 or numbers != int(numbers) or numbers < 0:
            raise ConfigurationError(
                f"The context {name} has the scale {made.scale!r} and row_numbers(1) = {numbers!r}; they must be whole "
                f"numbers, of at least 1 and 0."
            )
        return cls(name, made, int(made.scale))

    def row_numbers(self, size: int) -> int:
        """Return the float32 numbers a row that factors of so many atoms take beside its code, and that checking one takes."""
        return int(self.made.row_numbers(size)) + 3 * size

    def own(self, codes: Float64) -> Float64:
        """Return the codes (n, K) of the sites that count in V, of codes (samples, sites, K)."""
        found: Float64 = called(f"The context {self.name}", self.made.own, codes)
        return self._checked("own", found, codes.shape[2])

    def factors(self, codes: Float64, group: Group) -> tuple[Float64, Float64]:
        """Return X and Y, (n, K), of codes (samples, sites, K)."""
        found = called(f"The context {self.name}", self.made.factors, codes, group)
        if not isinstance(found, tuple) or len(found) != 2:
            raise ConfigurationError(f"The factors of the context {self.name} are not a pair (X, Y).")
        left, right = (self._checked("factors", one, codes.shape[2]) for one in found)
        if left.shape != right.shape:
            raise ConfigurationError(
                f"The factors of the context {self.name} have the shapes {left.shape} and {right.shape}; they must be the same."
            )
        return left, right

    def _checked(self, what: str, found: Float64, width: int) -> Float64:
        if getattr(found, "ndim", 0) != 2 or found.shape[1] != width:
            raise ConfigurationError(
                f"{what} of the context {self.name} has the shape {getattr(found, 'shape', None)}; it must have {width} "
                f"columns, "
                f"as the codes have."
            )
        if not (found == np.rint(found)).all():
            raise ConfigurationError(
                f"{what} of the context {self.name} has numbers that are not whole; round them to the grid of the codes."
            )
        return found


def _whole(sites: int, columns: int, order: int) -> Operator:
    """All positions of an image are neighbours: in closed form at the first order, as a window without end at the second."""
    return {1: Whole()}.get(order) or Window(sites, columns, None, order)


OURS: Final[dict[str, Callable[[int, int, int], Operator]]] = {"whole": _whole}
"""Contexts by name, beside numbers of pixels."""
NAMED: Final = ", ".join(f'"{name}"' for name in OURS)
"""Them, in sentences."""
