"""Analograms: trees recovered with their inner nodes hidden, and partial cubes with half their nodes unobserved.

python -m benchmarks.concepts.analograms --trees 200 --cubes 200 --json benchmarks/results
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from benchmarks.record import write_record
from smtdist.concepts.analogram import analogram, is_exact, stretch
from smtdist.concepts.partial_cube import hamming
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
        near = np.unique((nodes[:, None] ^ np.eye(dimension, dtype=np.uint8)).reshape(-1, dimension), axis=0)
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


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Count what comes back exactly."""
    started, trees = time.perf_counter(), 0
    for seed in range(options.trees):
        n = 2 + int(np.random.default_rng(seed).integers(options.largest - 1))
        tree = nx.random_labeled_tree(n, seed=seed)
        leaves = [node for node in tree if tree.degree(node) == 1]
        trees += nx.is_isomorphic(analogram(cuts_of_tree(tree, leaves)), tree)
    tree_seconds = time.perf_counter() - started
    rows = []
    for dimension, size in options.shapes:
        exact = isometric = refused = 0
        for seed in range(options.cubes):
            rng = np.random.default_rng(seed)
            full = random_partial_cube(rng, dimension, size)
            seen = full[np.sort(rng.choice(len(full), -(-len(full) // 2), replace=False))]
            try:
                graph = analogram(seen)
            except DataError:
                refused += 1
                continue
            exact += is_exact(graph, seen)
            isometric += stretch(graph) == 1
        rows.append(
            {
                "dimension": dimension,
                "nodes": size,
                "exact": exact,
                "isometric": isometric,
                "refused": refused,
            }
        )
        print(rows[-1], flush=True)
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
    options.shapes = [(3, 6)] if options.small else [(3, 6), (4, 12), (5, 20), (6, 30), (8, 40)]
    result = run(options)
    print({key: value for key, value in result.items() if key != "partial_cubes"})
    if options.json:
        write_record(options.json, "concepts-analograms", result)
    return result


if __name__ == "__main__":
    main()
