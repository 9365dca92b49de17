"""Partial cubes: graphs whose distances are those of binary vectors, and the vectors (appendix A.3).

The Djoković-Winkler relation puts edges of a partial cube in one class when they cut the vertices alike;
each class is a concept. Deza and Laurent (1997), chapter 19.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import ConfigurationError, DataError


def networkx() -> Any:
    """Return the package of graphs; ConfigurationError where it is not installed."""
    try:
        import networkx
    except ImportError:
        raise ConfigurationError("Analograms need networkx; install smtdist[analogram].") from None
    return networkx


def distances_of(graph: Any, nodes: list[Hashable]) -> NDArray[np.int64]:
    """Return the numbers of edges between nodes (v, v); DataError where the graph is not connected."""
    place = {node: i for i, node in enumerate(nodes)}
    found = np.full((len(nodes), len(nodes)), -1, np.int64)
    for node, lengths in networkx().all_pairs_shortest_path_length(graph):
        for other, length in lengths.items():
            found[place[node], place[other]] = length
    if (found < 0).any():
        raise DataError(
            "The graph is not connected, but concepts are cuts of a connected graph; join its parts."
        )
    return found


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
    distances = distances_of(graph, nodes)
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


def hamming(concepts: NDArray[np.generic], others: NDArray[np.generic] | None = None) -> NDArray[np.int64]:
    """Return the numbers of differing concepts between rows of S and of another (v, w)."""
    s = np.asarray(concepts, np.float64)
    t = s if others is None else np.asarray(others, np.float64)
    counts = s.sum(1)[:, None] + t.sum(1)[None] - 2 * s @ t.T
    return np.asarray(np.rint(counts), np.int64)
