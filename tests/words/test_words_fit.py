"""Words from text to vectors on the engine: same bits for any workers, documents withdrawn, files, other embeddings."""

import gzip
from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
import scipy.sparse.csgraph
import words.reference_words as oracle
from executors import engine
from measured import measured

from examples.word_rivals import (
    GloveSettings,
    glove,
    positive_information,
    ppmi_svd,
)
from smtdist.data.text import TextSource
from smtdist.errors import ConfigurationError, ModelError
from smtdist.kernels.pairs import largest_part
from smtdist.models.words.fit import fit_words
from smtdist.models.words.model import WordSettings, rank_correlation, row_bounds, write_word2vec
from smtdist.solve import iterative
from smtdist.solve.iterative import smallest_components_sparse
from smtdist.statistics.word_pairs import WordSums

SETTINGS = WordSettings(vocabulary=60, window=3, n_components=5, max_words=4096)


def document(seed, size):
    """Sentences of words that go about in groups, so that words of a group are alike."""
    draw = np.random.default_rng(seed)
    groups = [[f"{kind}{number}" for number in range(8)] for kind in ("cat", "sea", "law", "sun")]
    lines, length = [], 0
    while length < size:
        group = groups[draw.integers(4)] + ["the", "of"]
        lines.append(
            " ".join(draw.choice(group, draw.integers(1, 30))) + ("." if draw.random() < 0.8 else "") + "\n"
        )
        length += len(lines[-1])
    return "".join(lines)


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents")
    texts = [30 * document(0, 300_000), document(1, 60_000), document(2, 30_000)]
    paths = []
    for number, text in enumerate(texts):
        paths.append(folder / f"{number}.txt.gz")
        paths[-1].write_bytes(gzip.compress(text.encode(), 1))
    return paths, texts


@pytest.fixture(scope="module")
def fitted(documents):
    model, records = fit_words(TextSource.open(documents[0]), SETTINGS, engine(1))
    assert [record["name"] for record in records] == ["vocabulary", "statistics", "solve"]
    return model


def assert_same_sums(one, other):
    for name in ("n_samples", "n_positions", "activity", "pair", "count"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def test_sums_of_a_fit_are_those_of_the_oracle(documents, fitted):
    paths, texts = documents
    model, _ = fit_words(TextSource.open(paths[1:]), SETTINGS, engine())
    words, counts = oracle.vocabulary(texts[1:], 60)
    assert list(model.vocabulary.words) == words
    np.testing.assert_array_equal(model.vocabulary.counts, counts)
    activity, near = oracle_counts(texts[1:], words, 3)
    np.testing.assert_array_equal(model.statistics.activity, activity)
    np.testing.assert_array_equal(model.statistics.cooccurrence().toarray(), near)


def oracle_counts(texts, words, window):
    """The counts alone, fast enough for a document: D is built explicitly in test_word_sums."""
    number = {word: at for at, word in enumerate(words)}
    activity, near = np.zeros(len(words), np.int64), np.zeros((len(words), len(words)), np.int64)
    for text in texts:
        for line in oracle.tokens(text):
            found = [number.get(token) for token in line]
            for place, word in enumerate(found):
                if word is not None:
                    activity[word] += 1
                    for other in (
                        found[max(0, place - window) : place] + found[place + 1 : place + 1 + window]
                    ):
                        if other is not None:
                            near[word, other] += 1
    return activity, near


def test_pairs_counted_in_parts_are_the_same(documents, fitted):
    settings = replace(SETTINGS, parts=3)
    bounds = row_bounds(fitted.vocabulary.counts, settings)
    assert bounds[0] == 0
    assert bounds[-1] == len(fitted.vocabulary)
    assert len(bounds) == 4
    model, records = fit_words(
        TextSource.open(documents[0]), settings, engine(), vocabulary=fitted.vocabulary
    )
    assert [(one["name"], one.get("rounds")) for one in records] == [("statistics", 3), ("solve", None)]
    assert_same_sums(model.statistics, fitted.statistics)


def test_words_of_a_group_are_nearest(documents, fitted):
    # four groups are told apart by three components; the others are noise
    settings = replace(fitted.settings, n_components=3)
    fitted, _ = fit_words(TextSource.open(documents[0]), settings, engine(), vocabulary=fitted.vocabulary)
    for word in ("cat0", "sea3", "law7", "sun5"):
        # words of all groups have no direction of their own
        near = [near.word for near in fitted.nearest(word, 12) if near.word not in ("the", "of", ".")]
        assert {name[:3] for name in near[:7]} == {word[:3]}
    beside = fitted.most_cooccurring("cat0", 3)
    row = fitted.statistics.cooccurrence().toarray()[fitted.number("cat0")]
    row[fitted.number("cat0")] = 0
    assert [near.times for near in beside] == sorted(row.tolist(), reverse=True)[:3]
    assert fitted.nearest("Cat0") == fitted.nearest("cat0")
    with pytest.raises(ModelError, match="'dog' is not among the"):
        fitted.nearest("dog")


@pytest.mark.parametrize("moment", ["second", "degree"])
def test_the_embedding_is_that_of_the_dense_problem(documents, fitted, moment):
    settings = fitted.settings.replace(moment=moment)
    model, _ = fit_words(
        TextSource.open(documents[0][1:]), settings, engine(), vocabulary=fitted.vocabulary
    )
    sums, P = model.statistics, model.embedding.components
    V = np.diag((sums.activity if moment == "second" else sums.degree()) / sums.n_positions)
    C = sums.context_scatter().toarray() / sums.n_positions
    values, vectors = scipy.linalg.eigh(C, V)
    np.testing.assert_allclose(model.embedding.eigenvalues, values[:6], atol=1e-9)
    np.testing.assert_allclose(P @ V @ P.T, np.eye(6), atol=1e-9)
    gaps = values[1:7] - values[:6]
    for row, vector in zip(P[gaps > 1e-3], vectors.T[:6][gaps > 1e-3], strict=True):
        assert abs(row @ V @ vector) == pytest.approx(1, abs=1e-6)
    assert model.embedding.residuals.max() < 1e-8


def test_words_that_are_near_no_other_take_no_part(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(document(5, 20_000) + "alone\n" * 40 + "he she\n" * 40)
    model, _ = fit_words(TextSource.open(path), SETTINGS, engine())
    for word in ("alone", "he", "she"):
        assert not model.vectors()[model.number(word)].any()
    assert model.embedding.n_dead == 3
    with pytest.raises(ConfigurationError, match="ask for fewer"):
        fit_words(TextSource.open(path), replace(SETTINGS, n_components=37), engine())


def test_word2vec_text_is_read_by_gensim(fitted, tmp_path):
    gensim = pytest.importorskip("gensim.models")
    path = tmp_path / "vectors.txt"
    write_word2vec(fitted, path)
    keyed = gensim.KeyedVectors.load_word2vec_format(path)
    assert list(keyed.index_to_key) == list(fitted.vocabulary.words)
    np.testing.assert_allclose(keyed["cat0"], fitted.vectors()[fitted.number("cat0")], rtol=1e-6)
    first = fitted.nearest("sea1", 3)
    assert [word for word, _ in keyed.most_similar("sea1", topn=3)] == [near.word for near in first]


def test_glove_descends_and_repeats(fitted):
    near = fitted.statistics.cooccurrence()
    settings = GloveSettings(n_components=8, sweeps=30)
    found = glove(near, settings)
    assert found.losses[-1] < 0.1 * found.losses[0]
    X = near.toarray().astype(float)
    weight = np.minimum(1, (X / 100) ** 0.75)
    with np.errstate(divide="ignore"):
        error = np.where(X > 0, found.words @ found.contexts.T - np.log(X), 0)
    error += np.where(X > 0, found.word_biases[:, None] + found.context_biases, 0)
    want = (weight * error**2).sum()  # each diagonal entry is taken twice, as both orders of one pair
    assert want == pytest.approx(found.losses[-1], rel=0.3)
    np.testing.assert_array_equal(found.words, glove(near, settings).words)
    assert not np.array_equal(found.words, glove(near, replace(settings, seed=1)).words)


def test_ppmi_svd_is_the_dense_decomposition(fitted):
    information = positive_information(fitted.statistics.cooccurrence()).toarray()
    X = fitted.statistics.cooccurrence().toarray().astype(float)
    with np.errstate(divide="ignore"):
        want = np.maximum(0, np.log(X * X.sum() / np.outer(X.sum(0), X.sum(0))))
    np.testing.assert_allclose(information, want, atol=1e-12)
    found = ppmi_svd(fitted.statistics, 4, power=1.0)
    u, s, _ = np.linalg.svd(want)
    np.testing.assert_allclose(found @ found.T, (u[:, :4] * s[:4] ** 2) @ u[:, :4].T, atol=1e-6)


def test_rank_correlation_takes_the_pairs_it_knows():
    vectors = np.array([[1.0, 0], [1, 0.1], [0, 1], [0, 0]])
    judged = [("a", "b", 9.0), ("a", "c", 1.0), ("a", "none", 5.0), ("b", "c", 2.0)]
    value, cosine, scores = rank_correlation(vectors, {"a": 0, "b": 1, "c": 2, "d": 3}, judged)
    assert value == pytest.approx(1.0)
    assert len(cosine) == len(scores) == 3


@pytest.mark.parametrize("seed", range(20))
def test_the_largest_part_of_a_graph_is_scipys(seed):
    draw = np.random.default_rng(seed)
    n = 30
    ends = np.sort(draw.integers(0, n, (draw.integers(1, 30), 2)), axis=1)
    pairs = np.unique(ends @ [n, 1])
    graph = scipy.sparse.coo_array((np.ones(len(pairs)), np.divmod(pairs, n)), shape=(n, n))
    _, labels = scipy.sparse.csgraph.connected_components(graph, directed=False)
    found = largest_part((pairs, np.ones(len(pairs), np.int64)), n)
    np.testing.assert_array_equal(found, labels == np.bincount(labels).argmax())


def test_more_components_than_words_are_refused():
    with pytest.raises(ConfigurationError, match="take part"):
        smallest_components_sparse(scipy.sparse.csr_array(np.eye(6)), np.ones(6), 6)


@pytest.mark.parametrize("entries", [1, 50, 10**6])
def test_row_sums_in_pieces_are_row_sums(entries, monkeypatch):
    monkeypatch.setattr(iterative, "ENTRIES", entries)
    matrix = scipy.sparse.random(80, 80, density=0.1, random_state=0, format="csr")
    matrix.data -= 0.5
    np.testing.assert_allclose(iterative._row_sums(matrix), np.abs(matrix.toarray()).sum(axis=1))


def test_the_solve_leaves_the_sums_and_takes_what_it_says():
    draw, n = np.random.default_rng(0), 3000
    pairs = np.unique(np.sort(draw.integers(0, n, (600_000, 2)), axis=1) @ [n, 1])
    counts = draw.integers(1, 9, len(pairs))
    sums = WordSums(1, 1, np.full(n, 9), pairs, counts)
    scatter = sums.context_scatter()
    before = scatter.copy()
    iterative.smallest_components_sparse(scatter, sums.degree(), 3)  # imports and the like
    found, peak = measured(lambda: iterative.smallest_components_sparse(scatter, sums.degree(), 3))
    assert peak < 25 * len(pairs) + 2**24  # the sums themselves take 24 bytes a pair
    assert (scatter != before).nnz == 0
    assert found.residuals.max() < 1e-8
