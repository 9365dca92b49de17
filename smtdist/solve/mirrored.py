"""The eigenproblem of a dictionary that is closed under mirroring: two problems of half the size.

Where mirror images are in the sums, C and V do not change when the halves of the atoms are exchanged: they are
[[S, T], [T, S]]. Rows (p, p) / √2 of P then see S + T alone, and rows (p, -p) / √2 see S - T.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import ConfigurationError
from smtdist.solve.generalized import smallest_components, smallest_components_of_tiles
from smtdist.solve.pencil import Means
from smtdist.solve.solution import Solution
from smtdist.solve.streamed import Streamed


def smallest_mirrored(
    context_scatter: NDArray[Any],
    moment: NDArray[Any],
    n_components: int,
    *,
    null_tolerance: float | None = None,
) -> Solution:
    """Solve the problem of `smallest_components`, (K, K) matrices as above, in a quarter of its time.

    Components are even or odd: their second half is the first, or minus the first. Null spaces are those of
    the two problems. Where one of these has too few dimensions the whole problem is solved.

    >>> C, V = (np.kron(np.ones((2, 2)), np.diag(one)) + np.eye(4) for one in ([1.0, 3.0], [0.0, 0.0]))
    >>> found = smallest_mirrored(C, V, 2)
    >>> np.round(found.eigenvalues, 6).tolist(), np.round(found.components[0] ** 2, 6).tolist()
    ([1.0, 1.0], [0.5, 0.0, 0.5, 0.0])
    """
    half, parts = len(moment) // 2, list[Solution]()
    for sign in (1.0, -1.0):
        scatter, own = (one[:half, :half] + sign * one[:half, half:] for one in (context_scatter, moment))
        wanted = min(n_components, int((np.diagonal(own) > 0).sum()))
        try:
            if wanted:
                parts.append(smallest_components(scatter, own, wanted, null_tolerance=null_tolerance))
        except ConfigurationError:
            break
    if len(parts) < 2:
        return smallest_components(context_scatter, moment, n_components, null_tolerance=null_tolerance)
    return joined(parts[0], parts[1], n_components)


def smallest_mirrored_of_tiles(
    context_scatter: Streamed,
    moment: Streamed,
    n_components: int,
    *,
    null_tolerance: float | None = None,
    means: Means | None = None,
) -> Solution:
    """Solve the problem of `smallest_components_of_tiles` for matrices as above, in a quarter to a half of its time.

    Both halves keep a factor in files, if there are `means`. Raises Unsuitable where one of the two problems is.
    """
    even, odd = (
        smallest_components_of_tiles(
            context_scatter.half(sign),
            moment.half(sign),
            n_components,
            null_tolerance=null_tolerance,
            means=None if means is None else replace(means, files=partial(means.files, part=part)),
        )
        for sign, part in ((1.0, "even"), (-1.0, "odd"))
    )
    return joined(even, odd, n_components)


def joined(even: Solution, odd: Solution, n_components: int) -> Solution:
    """Return the solution of the whole problem from those of S + T and S - T."""
    rows = np.concatenate(
        [np.hstack([even.components, even.components]), np.hstack([odd.components, -odd.components])]
    )
    eigenvalues, residuals = (
        np.concatenate([getattr(one, name) for one in (even, odd)]) for name in ("eigenvalues", "residuals")
    )
    first = np.argsort(eigenvalues, kind="stable")[:n_components]
    # a row of V is zero in both or in the second alone, where an atom is its own mirror image
    dead = np.tile(even.dead, 2)
    return Solution(
        rows[first] / np.sqrt(2), eigenvalues[first], residuals[first], even.rank + odd.rank, dead
    )
