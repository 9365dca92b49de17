"""Whether an analogram is exact: the concepts that its edges cut are those that it was made of.

The way back from a partial cube, a graph whose distances are those of binary vectors, to the vectors. The
Djoković-Winkler relation puts edges of a partial cube in one class when they cut the vertices alike; each class is a concept.
Deza and Laurent (1997), chapter 19.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csgraph

from smtdist.concepts.analogram import hamming, networkx
from smtdist.errors import DataError


def concepts_of_graph(graph: Any) -> tuple[list[Hashable], NDArray[np.uint8]]:
    """Return the vertices and their concepts (v, b), one for each class of edges; the first vertex has none.

    Takes an edge (x, y), puts the vertices nearer to x on one side and those nearer to y on the other, and
    goes on with an edge that no cut crosses. Exact: a graph that is not a partial cube, whose Hamming
    distances would differ from its own, is a DataError. Memory: v² and v b numbers.

    >>> nodes, S = concepts_of_graph(networkx().cycle_graph(6))
    >>> S.shape, int((S[0] != S[3]).sum())
    ((6, 3), 3)
    """
    nodes = list(graph.nodes)
    if not nodes:
        raise DataError("The graph has no vertex; give one with at least one.")
    near = networkx().to_scipy_sparse_array(graph, nodes, weight=None)
    distances = csgraph.shortest_path(near, unweighted=True)
    if np.isinf(distances).any():
        raise DataError(
            "The graph is not connected, but concepts are cuts of a connected graph; join its parts."
        )
    place = {node: i for i, node in enumerate(nodes)}
    edges = [(place[x], place[y]) for x, y in graph.edges if x != y]
    sides: list[NDArray[np.uint8]] = []
    open_edges = np.array(edges, np.int64).reshape(-1, 2)
    while len(open_edges):
        x, y = open_edges[0]
        if (distances[x] == distances[y]).any():
            raise DataError("The graph is not a partial cube: it is not bipartite.")
        side = (distances[y] < distances[x]).astype(np.uint8)
        sides.append(side ^ side[0])
        crossing = side[open_edges[:, 0]] != side[open_edges[:, 1]]
        open_edges = open_edges[~crossing]
    concepts = np.stack(sides, 1) if sides else np.zeros((len(nodes), 0), np.uint8)
    if (hamming(concepts) != distances).any():
        raise DataError("The graph is not a partial cube: its distances are not those of binary vectors.")
    return nodes, concepts


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
