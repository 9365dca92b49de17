"""Which of the components that a model stores it represents by."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import ModelError, counted
from smtdist.solve.solution import Solution


class Chosen(Protocol):
    """Settings that say so."""

    @property
    def n_components(self) -> int: ...  # noqa: D102
    @property
    def drop_components(self) -> int: ...  # noqa: D102


def chosen_components(
    embedding: Solution, settings: Chosen, n_components: int | None = None, drop: int | None = None
) -> NDArray[np.float32]:
    """Return P without its first `drop` rows, transposed: (K, n_components) float32; by default as settings say.

    Any choice within the components stored is free after the fit; ModelError for another.
    """
    first = settings.drop_components if drop is None else drop
    count = settings.n_components if n_components is None else n_components
    stored = len(embedding.components)
    if count < 1 or first < 0 or first + count > stored:
        raise ModelError(
            f"The model stores {counted(stored, 'component')}, so {count} after dropping {first} cannot be taken; "
            f"ask for fewer, or fit with a larger n_components."
        )
    return np.ascontiguousarray(embedding.components[first : first + count].T, np.float32)


def summary_of(embedding: Solution | None, n_components: int, fingerprint: str) -> dict[str, Any]:
    """Return the figures of a transform of atoms that a person asks for first, as plain JSON."""
    if embedding is None:
        raise ModelError("The model has no embedding; fit it again.")
    return {
        "n_atoms": len(embedding.dead),
        "n_dead": embedding.n_dead,
        "rank": embedding.rank,
        "n_components": n_components,
        "fingerprint": fingerprint,
    }
