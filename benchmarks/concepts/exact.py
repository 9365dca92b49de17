"""Whether an analogram is exact: the concepts that its edges cut are those that it was made of."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.concepts.analogram import concepts_of_graph
from smtdist.errors import DataError


def is_exact(graph: Any, concepts: NDArray[np.generic]) -> bool:
    """Tell whether S is read back from its analogram: a partial cube whose cuts are the concepts, up to order and sides."""
    s = np.asarray(concepts, np.uint8)
    try:
        nodes, cuts = concepts_of_graph(graph)
    except DataError:
        return False
    at = {point: i for i, node in enumerate(nodes) for point in graph.nodes[node]["points"]}
    found = cuts[[at[point] for point in range(len(s))]]
    return _sides(found) == _sides(s)


def _sides(concepts: NDArray[np.uint8]) -> list[bytes]:
    """Return the columns that are not constant, seen from the first point, in order."""
    turned = concepts ^ concepts[0]
    return sorted(column.tobytes() for column in np.ascontiguousarray(turned.T) if column.any())
