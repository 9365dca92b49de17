"""Analograms: trees recovered with their inner nodes hidden, and partial cubes with half their nodes unobserved.

python -m replication.concepts.analograms --trees 200 --cubes 200 --json results
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from benchmarks.record import write_record
from replication.concepts.exact import is_exact
from smtdist.concepts.analogram import _classes, _isometric, _with_hidden, analogram, hamming
from smtdist.errors import DataError


def cuts_of_tree(tree: Any, points: list[int]) -> NDArray[np.uint8]:
    """Return the concept of each edge of a tree, as its points see it."""
    columns = []
    for edge in list(tree.edges):
        tree.remove_edge(*edge)
        side = nx.node_connected_component(tree, edge[0])
        tree.add_edge(*edge)
        columns.append([int(point in side) for point in points])
    return np.array(columns, np.uint8).T.reshape(len(points), -1)


def random_partial_cube(rng: np.random.Generator, dimension: int, size: int) -> NDArray[np.uint8]:
    """Grow an isometric subgraph of a cube corner by corner."""
    nodes = np.zeros((1, dimension), np.uint8)
    while len(nodes) < size:
        near = np.unique(
            (nodes[:, None] ^ np.eye(dimension, dtype=np.uint8)).reshape(-1, dimension), axis=0
        )
        near = near[hamming(near, nodes).min(1) > 0]
        for at in rng.permutation(len(near)):
            grown = np.vstack([nodes, near[at]])
            apart = hamming(grown)
            # the new corner needs, towards every node, a neighbour that is nearer
            beside = apart[-1, :-1] == 1
            if (apart[:-1][beside].min(0)[:-1] == apart[-1, :-1] - 1).all():
                nodes = grown
                break
        else:
            break
    return nodes


def partial_cubes(dimension: int, size: int, share: float, count: int) -> dict[str, Any]:
    """Hide nodes of partial cubes and count what the rules bring back of the concepts, and of the graph itself.

    `global_rule` counts where majorities of triples alone leave all distances right, `exact` where S is read back after both
    rules, `same_graph` where the nodes are those that were hidden, not one more or less, up to concepts that no longer differ.
    """
    counts = dict.fromkeys(("global_rule", "exact", "same_graph", "fewer_nodes", "refused"), 0)
    for seed in range(count):
        rng = np.random.default_rng(seed)
        full = random_partial_cube(rng, dimension, size)
        chosen = rng.choice(len(full), max(2, round(share * len(full))), replace=False)
        seen = full[np.sort(chosen)]
        try:
            graph = analogram(seen)
        except DataError:
            counts["refused"] += 1
            continue
        counts["global_rule"] += _isometric(
            _with_hidden(np.unique(seen[:, _classes(seen)[0]], axis=0), 10**6)
        )
        counts["exact"] += is_exact(graph, seen)
        nodes = np.array(list(graph.nodes), np.uint8)
        counts["same_graph"] += {row.tobytes() for row in nodes} == {row.tobytes() for row in full}
        counts["fewer_nodes"] += len(nodes) < len(full)
    row = {"dimension": dimension, "nodes": size, "observed": share, "cubes": count, **counts}
    row["share_not_exact"] = 1 - counts["exact"] / count
    row["share_beyond_global_rule"] = 1 - counts["global_rule"] / count
    row["share_other_graph"] = 1 - counts["same_graph"] / count
    print(row, flush=True)
    return row


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Count what comes back exactly."""
    started, trees = time.perf_counter(), 0
    for seed in range(options.trees):
        n = 2 + int(np.random.default_rng(seed).integers(options.largest - 1))
        tree = nx.random_labeled_tree(n, seed=seed)
        leaves = [node for node in tree if tree.degree(node) == 1]
        trees += nx.is_isomorphic(analogram(cuts_of_tree(tree, leaves)), tree)
    tree_seconds = time.perf_counter() - started
    rows = [partial_cubes(one[0], one[1], one[2], options.cubes) for one in options.shapes]
    return {
        "trees": options.trees,
        "largest_tree": options.largest,
        "trees_recovered": trees,
        "tree_seconds": tree_seconds,
        "cubes": options.cubes,
        "partial_cubes": rows,
    }


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trees", type=int, default=200)
    parser.add_argument("--largest", type=int, default=200)
    parser.add_argument("--cubes", type=int, default=200)
    parser.add_argument("--small", action="store_true", help="the smallest cubes only")
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    options.shapes = (
        [(3, 6, 0.5)]
        if options.small
        else [
            *[(d, n, 0.5) for d, n in ((3, 6), (4, 12), (5, 20), (6, 30), (8, 40), (10, 24))],
            *[(d, n, 0.25) for d, n in ((5, 20), (6, 30), (8, 40))],
        ]
    )
    result = run(options)
    print({key: value for key, value in result.items() if key != "partial_cubes"})
    if options.json:
        write_record(options.json, "concepts-analograms", result)
    return result


if __name__ == "__main__":
    main()
