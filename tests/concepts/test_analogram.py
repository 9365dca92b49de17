"""Analograms: trees come back exactly, partial cubes give their concepts, and where the rule does not suffice it is known."""

import itertools

import networkx as nx
import numpy as np
import pytest
import reference_concepts as oracle
from hypothesis import given, settings
from hypothesis import strategies as st

from replication.concepts.exact import concepts_of_graph, is_exact
from smtdist.concepts import objective
from smtdist.concepts.analogram import analogram, hamming
from smtdist.errors import DataError


def is_isometric(graph):
    nodes = list(graph.nodes)
    return (nx.floyd_warshall_numpy(graph, nodes) == hamming(np.array(nodes))).all()


def partial_cube(rng, dimension, size):
    """An isometric subgraph of a cube: grown from one corner by corners that keep it isometric."""
    have = [tuple([0] * dimension)]
    while len(have) < size:
        near = {
            tuple(v ^ (i == a) for i, v in enumerate(node)) for node in have for a in range(dimension)
        } - set(have)
        for node in rng.permutation(sorted(near)):
            grown = [*have, tuple(int(v) for v in node)]
            if isometric(grown):
                have = grown
                break
        else:
            break
    return np.array(have, np.uint8)


def isometric(nodes):
    edges = [
        (a, b)
        for a, b in itertools.combinations(nodes, 2)
        if sum(x != y for x, y in zip(a, b, strict=True)) == 1
    ]
    return np.array_equal(oracle.graph_distances(nodes, edges), hamming(np.array(nodes)))


def tree_concepts(tree, points):
    """The cuts of a tree's edges, seen by some of its vertices."""
    columns = []
    for edge in list(tree.edges):
        cut = tree.copy()
        cut.remove_edge(*edge)
        side = nx.node_connected_component(cut, edge[0])
        columns.append([int(point in side) for point in points])
    return np.array(columns, np.uint8).T.reshape(len(points), tree.number_of_edges())


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 60))
def test_trees_come_back_with_their_inner_nodes_hidden(seed, n):
    tree = nx.random_labeled_tree(n, seed=seed)
    leaves = [node for node in tree if tree.degree(node) == 1]
    S = tree_concepts(tree, leaves)
    graph = analogram(S)
    assert nx.is_isomorphic(graph, tree)
    assert is_exact(graph, S)
    assert is_isometric(graph)
    assert all(graph.edges[edge]["concept"] in range(n - 1) for edge in graph.edges)


def test_a_tree_of_200_nodes_comes_back():
    tree = nx.random_labeled_tree(200, seed=1)
    leaves = [node for node in tree if tree.degree(node) == 1]
    graph = analogram(tree_concepts(tree, leaves))
    assert nx.is_tree(graph)
    assert nx.faster_could_be_isomorphic(graph, tree)
    assert nx.is_isomorphic(graph, tree)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10**6), dimension=st.integers(1, 5), size=st.integers(2, 16))
def test_a_partial_cube_gives_its_concepts_and_back(seed, dimension, size):
    S = partial_cube(np.random.default_rng(seed), dimension, size)
    graph = analogram(S)
    nodes, cuts = concepts_of_graph(graph)
    np.testing.assert_array_equal(hamming(cuts), hamming(np.array(nodes)))
    assert is_exact(graph, S)


def test_with_half_the_nodes_hidden_the_rule_suffices_or_says_so():
    exact, total = 0, 60
    for seed in range(total):
        rng = np.random.default_rng(seed)
        full = partial_cube(rng, 4, 12)
        S = full[np.sort(rng.choice(len(full), len(full) // 2, replace=False))]
        graph = analogram(S)
        good = is_exact(graph, S)
        exact += good
        if good:
            assert is_isometric(graph)
    assert exact == total


def test_the_hexagon_is_the_graph_of_its_three_halves():
    circle = np.exp(1j * np.pi / 3 * np.arange(6))
    S, pi = objective.brute_force(np.stack([circle.real, circle.imag], 1))
    graph = analogram(S[:, np.argsort(-pi)[:3]])
    assert nx.is_isomorphic(graph, nx.cycle_graph(6))
    grid = np.array([[i > 0, i > 1, j > 0, j > 1] for i in range(3) for j in range(3)], np.uint8)
    assert nx.is_isomorphic(analogram(grid), nx.grid_2d_graph(3, 3))


def test_degenerate_solutions_have_the_same_distances():
    # figure 5: a tetrahedron is four single points around a hidden node, or three pairings on a cube less a corner
    sparse, heavy = objective.brute_force(np.eye(4))
    dense, light = objective.brute_force(np.eye(4), penalty=-1e-3)
    assert sorted(sparse.sum(0)) == [1, 1, 1, 1]
    assert sorted(dense.sum(0)) == [2, 2, 2]
    for S, pi in ((sparse, heavy), (dense, light)):
        D = ((S[:, None, :].astype(float) - S[None]) ** 2 @ pi).round(2)
        np.testing.assert_allclose(D, 2 - 2 * np.eye(4), atol=0.02)
    assert [len(analogram(S)) for S in (sparse, dense)] == [5, 7]
    # hierarchy: two pairs; the cut between the pairs is in both solutions
    tree = np.array([[1, 0, 1, 0, 0, 0], [1, 0, 0, 1, 0, 0], [0, 1, 0, 0, 1, 0], [0, 1, 0, 0, 0, 1]], float)
    for penalty in (1e-3, -1e-3):
        S, _ = objective.brute_force(tree, penalty=penalty)
        assert (0, 0, 1, 1) in {tuple(column ^ column[0]) for column in S.T}


def test_graphs_that_are_not_partial_cubes_are_refused():
    for graph, why in (
        (nx.cycle_graph(5), "bipartite"),
        (nx.complete_bipartite_graph(2, 3), "not a partial cube"),
    ):
        with pytest.raises(DataError, match=why):
            concepts_of_graph(graph)
    with pytest.raises(DataError, match="not connected"):
        concepts_of_graph(nx.empty_graph(2))
    with pytest.raises(DataError, match="no vertex"):
        concepts_of_graph(nx.Graph())
    with pytest.raises(DataError, match="more than 20 nodes"):
        analogram(np.random.default_rng(0).integers(0, 2, (20, 12)), most_nodes=20)
    assert len(analogram(np.zeros((3, 2)))) == 1
