"""What is read from concepts: against direct evaluation, and on words where the files are there."""

import csv
import itertools

import h5py
import numpy as np
import pytest

from examples import concept_names as naming
from replication.concepts.squares import quadruplets
from smtdist.concepts import drawing, reading
from smtdist.concepts.analogram import analogram
from smtdist.concepts.estimator import BinaryConcepts
from smtdist.errors import ConfigurationError, DataError


def test_parallelism_is_the_cosine_of_differences_of_centroids():
    rng = np.random.default_rng(0)
    S, X = (rng.random((80, 5)) < 0.5).astype(np.uint8), rng.normal(size=(80, 4))
    found = reading.parallelism(S, X, count=100, smallest=1)
    assert len(found) == 10
    for pair in found:
        c = {
            (x, y): X[(S[:, pair.first] == x) & (S[:, pair.second] == y)].mean(0)
            for x, y in itertools.product((0, 1), repeat=2)
        }

        def cosine(u, v):
            return u @ v / np.linalg.norm(u) / np.linalg.norm(v)

        assert pair.first_cosine == pytest.approx(cosine(c[1, 0] - c[0, 0], c[1, 1] - c[0, 1]))
        assert pair.second_cosine == pytest.approx(cosine(c[0, 1] - c[0, 0], c[1, 1] - c[1, 0]))
    assert [pair.score for pair in found] == sorted((pair.score for pair in found), reverse=True)
    additive = reading.parallelism(S, S @ rng.normal(size=(5, 5)), smallest=30)
    assert additive == []
    only = reading.parallelism(S, X, only=np.array([1, 3]), smallest=1)
    assert [(pair.first, pair.second) for pair in only] == [(1, 3)]
    with pytest.raises(DataError, match="80 points"):
        reading.parallelism(S, X[:70])


def test_additive_concepts_are_parallel():
    cube = np.array([[i >> k & 1 for k in range(4)] for i in range(16)], np.uint8)
    X = cube @ np.random.default_rng(1).normal(size=(4, 6))
    assert reading.parallelism(cube, X, smallest=1)[0].score == pytest.approx(1)


def test_quadruplets_are_the_best_of_all():
    rng = np.random.default_rng(2)
    S = (rng.random((24, 9)) < 0.5).astype(np.uint8)
    found = quadruplets(S, 2, 5, nearest=24)
    kinds = [[i for i in range(24) if (S[i, 2], S[i, 5]) == k] for k in ((0, 0), (0, 1), (1, 0), (1, 1))]

    def changes(i, j, k, m):
        return int(sum((S[u] != S[v]).sum() for u, v in ((i, j), (i, k), (j, m), (k, m))))

    best = min(changes(*four) for four in itertools.product(*kinds))
    assert found[0].changes == best == changes(*found[0].points)
    assert all(one.changes == changes(*one.points) for one in found)
    assert quadruplets(np.zeros((4, 2), np.uint8), 0, 1) == []


def test_sub_concepts_partition_the_concepts_that_part_the_subset():
    rng = np.random.default_rng(3)
    S = (rng.random((30, 40)) < 0.4).astype(np.uint8)
    subset = [4, 7, 9, 20]
    kinds = reading.sub_concepts(S, subset)
    parting = [a for a in range(40) if 0 < S[subset, a].sum() < 4]
    assert sorted(a for kind in kinds for a in kind.concepts) == parting
    for kind in kinds:
        turned = S[:, kind.concepts] ^ S[4, kind.concepts]
        np.testing.assert_allclose(kind.values, turned.mean(1))
        assert tuple(kind.values[subset]) == kind.pattern
    with pytest.raises(ConfigurationError, match="two different points"):
        reading.sub_concepts(S, [1, 1])


def test_search_understands_formulas_and_nothing_else():
    S = np.array(list(itertools.product((0, 1), repeat=3)), np.uint8)
    a, b, c = S.T.astype(bool)
    for query, want in (
        ("2", c),
        ("0 and not 1", a & ~b),
        ("has concept 0 and (1 or not 2)", a & (b | ~c)),
        ("not (0 or 1)", ~(a | b)),
    ):
        np.testing.assert_array_equal(reading.search(S, query), np.flatnonzero(want))
    for query, why in (
        ("3", "there are concepts 0 to 2"),
        ("0 and", "is not a formula"),
        ("__import__('os')", "use numbers"),
        ("0 < 1", "use numbers"),
        ("True", "use numbers"),
        ("", "is not a formula"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            reading.search(S, query)


def test_typical_members_lie_far_along_the_feature():
    rng = np.random.default_rng(4)
    S = (rng.random((60, 3)) < 0.5).astype(np.uint8)
    X = S @ np.diag([3.0, 2, 1]) + 0.1 * rng.normal(size=(60, 3))
    found = BinaryConcepts(n_concepts=3, weights="concept", penalty=0.0, rank=3).fit(X)
    for a in range(3):
        order = reading.typical_members(found.model_, X, a, count=60)
        values = (X - X.mean(0)) @ found.components_[a]
        assert set(order) == set(np.flatnonzero(found.concepts_[:, a]))
        assert (np.diff(values[order]) <= 1e-9).all()
    with pytest.raises(ConfigurationError, match="no concept 7"):
        reading.typical_members(found.model_, X, 7)


def test_names_are_the_labels_that_members_share():
    rng = np.random.default_rng(5)
    S = (rng.random((200, 4)) < 0.3).astype(np.uint8)
    labels = [
        {"all"} | ({"two"} if S[i, 2] else set()) | ({"not one"} if not S[i, 1] else set())
        for i in range(200)
    ]
    names = naming.names_by_enrichment(S, labels)
    assert [name.label for name in names[2]] == ["two"]
    assert names[2][0].inside
    assert [(name.label, name.inside) for name in names[1]] == [("not one", False)]
    assert names[0] == []
    with pytest.raises(DataError, match="labels of 3 points"):
        naming.names_by_enrichment(S, [[], [], []])
    assert naming.names_by_enrichment(S, [[]] * 200) == [[]] * 4


def test_figures_are_written_whole(tmp_path):
    drawing.draw_analogram(analogram(np.eye(4)), tmp_path / "a.png", names=list("abcd"))
    drawing.draw_projection(
        np.zeros(3), np.ones(3), tmp_path / "p.png", names={1: "one"}, labels=("x", "y")
    )
    for name in ("a.png", "p.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_words_for_kings_and_queens(real_data):
    with h5py.File(real_data("words.h5")) as file:
        keep = np.flatnonzero(file["is_person"][()] & (file["wordnet_count"][()] > 4))
        words, X = file["words"].asstr()[()][keep], file["vectors"][()][keep]
    with open(real_data("text/persons_hypernyms.csv")) as file:
        edges = [tuple(row) for row in list(csv.reader(file))[1:]]
    at = {str(word): i for i, word in enumerate(words)}
    royal = [at[word] for word in ("king", "queen", "man", "woman")]
    labels = naming.wordnet_labels([str(w) for w in words], edges)
    named = 0
    # how many concepts have a name differs from seed to seed, from none to a few of 40
    for seed in range(3):
        found = BinaryConcepts(
            n_concepts=40, rank=40, candidates=256, rounds=1, sweeps=25, random_state=seed
        ).fit(X)
        assert found.cka_ > 0.75
        kinds = reading.sub_concepts(found.concepts_, royal)
        assert {(0, 0, 1, 1), (0, 1, 0, 1)} <= {kind.pattern for kind in kinds}
        graph = analogram(found.concepts_[royal])
        assert sum(len(points) for _, points in graph.nodes(data="points")) == 4
        named += sum(bool(one) for one in naming.names_by_enrichment(found.concepts_, labels))
    assert named >= 3
