"""Analograms: the graph of a set of concepts, with hidden nodes, in which every edge is one concept (appendix A.3).

Global rule: hidden nodes are the intersections of differences between items; with item i as the centre,
those of items j and k meet in the majority of rows i, j and k. Local rule: between neighbours that differ
by several concepts a path is laid that takes supersets first. Concepts that are alike on all items become
the edges of one path.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csgraph

from smtdist.errors import ConfigurationError, DataError

MOST_NODES: Final = 2000
PRUNED_UP_TO: Final = 64


def analogram(concepts: NDArray[np.generic], *, most_nodes: int = MOST_NODES) -> Any:
    """Return the analogram of S (points, b) as a networkx graph.

    Nodes are tuples of 0/1 of the b concepts, with attributes `points` (rows of S that are there, none for
    a hidden node); edges carry `concept`, the column that changes along them. Constant columns appear on no
    edge. Always exact on trees; on other partial cubes the heuristic may leave distances too long. Raises
    DataError beyond `most_nodes`, and ConfigurationError without the extra `analogram`.

    >>> graph = analogram(np.eye(3))
    >>> len(graph), sorted(degree for _, degree in graph.degree)
    (4, [1, 1, 1, 3])
    """
    s = np.asarray(concepts, np.uint8)
    if s.ndim != 2 or not len(s):
        raise DataError(
            f"Concepts are rows of 0 and 1, found the shape {s.shape}; give at least one point."
        )
    columns, lengths = _classes(s)
    items = np.unique(s[:, columns], axis=0)
    if not _isometric(items):
        nodes = _with_hidden(items, most_nodes)
        items = _pruned(_with_paths(nodes, items, most_nodes), items)
    return _expanded(items, s, columns, lengths)


def _classes(s: NDArray[np.uint8]) -> tuple[NDArray[np.int64], list[list[int]]]:
    """Return one column for each class of columns that cut the points alike, and the columns of each class."""
    turned = s ^ s[0]
    classes: dict[bytes, list[int]] = {}
    for a in range(s.shape[1]):
        if turned[:, a].any():
            classes.setdefault(turned[:, a].tobytes(), []).append(a)
    members = list(classes.values())
    return np.array([columns[0] for columns in members], np.int64), members


def _with_hidden(items: NDArray[np.uint8], most: int) -> NDArray[np.uint8]:
    """Return the items and the majorities of all triples of them (global rule)."""
    found = [items]
    for i in range(len(items)):
        for j in range(i + 1, len(items)):
            total = items[i].astype(np.int8) + items[j] + items[j + 1 :]
            if len(total):
                found.append(np.unique((total >= 2).astype(np.uint8), axis=0))
        merged = np.unique(np.concatenate(found), axis=0)
        if len(merged) > most:
            raise DataError(
                f"The analogram needs more than {most:,} nodes; give fewer points, or sparser concepts."
            )
        found = [merged]
    return found[0]


def _with_paths(nodes: NDArray[np.uint8], items: NDArray[np.uint8], most: int) -> NDArray[np.uint8]:
    """Lay paths between neighbours that are more than one class apart, until distances are those of S (local rule)."""
    for _ in range(nodes.shape[1] + 1):
        apart = hamming(nodes)
        around = csgraph.shortest_path(apart == 1, unweighted=True)
        late = np.argwhere(np.triu(around > apart))
        if not len(late):
            break
        # neighbours only: pairs with no node between them
        between = (apart[late[:, 0]] + apart[late[:, 1]] == apart[late[:, 0], late[:, 1]][:, None]).sum(1)
        pairs = late[between == 2]
        if not len(pairs):
            # every gap has nodes in it: nothing the rules add would close it
            break
        new = [_path(nodes[u], nodes[v], items) for u, v in pairs]
        grown = np.unique(np.concatenate([nodes, *new]), axis=0)
        if len(grown) > most:
            raise DataError(
                f"The analogram needs more than {most:,} nodes; give fewer points, or sparser concepts."
            )
        if len(grown) == len(nodes):
            break
        nodes = grown
    return nodes


def _isometric(nodes: NDArray[np.uint8]) -> bool:
    """Tell whether distances along edges of one concept are those of S."""
    apart = hamming(nodes)
    return bool((csgraph.shortest_path(apart == 1, unweighted=True) == apart).all())


def _pruned(nodes: NDArray[np.uint8], items: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Leave out hidden nodes that distances do not need, one by one: the smaller graph is the better one."""
    if len(nodes) > PRUNED_UP_TO or not _isometric(nodes):
        return nodes
    seen = {row.tobytes() for row in items}
    at = 0
    while at < len(nodes):
        rest = np.delete(nodes, at, axis=0)
        if nodes[at].tobytes() not in seen and _isometric(rest):
            nodes = rest
        else:
            at += 1
    return nodes


def _path(u: NDArray[np.uint8], v: NDArray[np.uint8], items: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the nodes strictly between u and v: with u as centre, a concept is added once its supersets are there."""
    changing = np.flatnonzero(u != v)
    sizes = (items[:, changing] != u[changing]).sum(0)
    path, at = [], u.copy()
    for a in changing[np.argsort(-sizes, kind="stable")][:-1]:
        at = at.copy()
        at[a] ^= 1
        path.append(at)
    return np.array(path, np.uint8).reshape(-1, len(u))


def _expanded(
    nodes: NDArray[np.uint8], s: NDArray[np.uint8], columns: NDArray[np.int64], lengths: list[list[int]]
) -> Any:
    """Return the graph over all columns: an edge of a class is a path with an edge for each of its columns."""
    graph = networkx().Graph()
    full = np.tile(s[0], (len(nodes), 1))
    for c, members in enumerate(lengths):
        flipped = nodes[:, c] != s[0, columns[c]]
        full[np.ix_(flipped, members)] ^= 1
    names = [tuple(int(bit) for bit in row) for row in full]
    graph.add_nodes_from((name, {"points": []}) for name in names)
    for u, v in np.argwhere(np.triu(hamming(nodes) == 1)):
        members = lengths[int(np.flatnonzero(nodes[u] != nodes[v])[0])]
        at = full[u].copy()
        for a in members:
            at[a] ^= 1
            name = tuple(int(bit) for bit in at)
            if name not in graph:
                graph.add_node(name, points=[])
    every = list(graph.nodes)
    bits = np.array(every, np.uint8).reshape(len(every), -1)
    for i, j in np.argwhere(np.triu(hamming(bits) == 1)):
        graph.add_edge(every[i], every[j], concept=int(np.flatnonzero(bits[i] != bits[j])[0]))
    for point, row in enumerate(s):
        graph.nodes[tuple(int(bit) for bit in row)]["points"].append(point)
    return graph


def networkx() -> Any:
    """Return the package of graphs; ConfigurationError where it is not installed."""
    try:
        import networkx
    except ImportError:
        raise ConfigurationError("Analograms need networkx; install smtdist[analogram].") from None
    return networkx


def hamming(concepts: NDArray[np.generic], others: NDArray[np.generic] | None = None) -> NDArray[np.int64]:
    """Return the numbers of differing concepts between rows of S and of another (v, w)."""
    s = np.asarray(concepts, np.float64)
    t = s if others is None else np.asarray(others, np.float64)
    counts = s.sum(1)[:, None] + t.sum(1)[None] - 2 * s @ t.T
    return np.asarray(np.rint(counts), np.int64)
