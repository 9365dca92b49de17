"""Counts of tokens and of near words against an explicitly built D, and the laws of every statistic."""

import numpy as np
import pytest
import words.reference_words as oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from measured import on_threads
from toys import assert_same_bits, sum_of

from smtdist.errors import ConfigurationError, MemoryBudgetError, ModelError
from smtdist.kernels.tokens import BASIC, GIVEN, Lookup, Normalisation
from smtdist.statistics.word_pairs import TokenCounts, WordPairs, finish, most_frequent, most_pairs

law = settings(deadline=None, max_examples=60)
WORDS = ("a", "b", "c", ".", "'")
PIECES = [*"abcdA\"'.,(!;", "<br />", "<BR />", "\n", " ", "\t", "\r", "\x1c"]
RAGGED = st.lists(st.sampled_from([*PIECES, "é", "É", "\u00a0", "\u3000", "İ", "<br/>"]), max_size=40).map(
    "".join
)
SPACED = st.lists(st.sampled_from(["a", "b", "c", "d", "\n"]), max_size=30).map(" ".join)
texts = st.lists(st.one_of(RAGGED, SPACED), min_size=1, max_size=5)


def rows(texts):
    encoded = [text.encode() for text in texts]
    out = np.zeros((len(encoded), max(map(len, encoded)) + 1), np.uint8)
    for row, text in zip(out, encoded, strict=True):
        row[: len(text)] = np.frombuffer(text, np.uint8)
    return out


def statistic(window=2, unknown="place", rules=BASIC, **more):
    return WordPairs(WORDS, window, Normalisation(rules), 15, unknown, **more)


@law
@given(texts, st.integers(1, 4), st.sampled_from(["place", "skip"]), st.sampled_from([BASIC, GIVEN]))
def test_sums_are_those_of_an_explicit_d(drawn, window, unknown, rules):
    found = finish(sum_of(statistic(window, unknown, rules), rows(drawn)))
    activity, near, scatter = oracle.statistics(drawn, WORDS, window, unknown, rules)
    np.testing.assert_array_equal(found.activity, activity)
    np.testing.assert_array_equal(found.cooccurrence().toarray(), near)
    np.testing.assert_array_equal(found.context_scatter().toarray(), scatter)
    np.testing.assert_array_equal(found.degree(), near.sum(axis=1))
    assert (found.n_samples, found.n_positions) == (len(drawn), activity.sum())
    assert len(found.pair) <= most_pairs(activity, window)


@law
@given(texts, st.sampled_from([BASIC, GIVEN]), st.integers(1, 6))
def test_the_vocabulary_is_exact_and_its_ties_are_settled(drawn, rules, size):
    counts = TokenCounts(Normalisation(rules))
    state = sum_of(counts, rows(drawn))
    words, occurrences = oracle.vocabulary(drawn, size, rules)
    assert state["n_positions"] == sum(len(line) for text in drawn for line in oracle.tokens(text, rules))
    if words:
        found = most_frequent(state, size)
        assert list(found.words) == words
        np.testing.assert_array_equal(found.counts, occurrences)
    else:
        with pytest.raises(ModelError, match="frequent enough"):
            most_frequent(state, size)


@law
@given(texts, st.integers(0, 5))
def test_parts_of_the_rows_make_the_whole(drawn, cut):
    whole = sum_of(statistic(), rows(drawn))
    parts = [sum_of(statistic(rows=part), rows(drawn)) for part in ((0, cut), (cut, len(WORDS)))]
    for name in ("pair", "count"):
        np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), whole[name])


@pytest.mark.parametrize("threads", [1, 3])
def test_full_buffers_and_threads_change_nothing(monkeypatch, threads):
    from smtdist.kernels import pairs

    draw = np.random.default_rng(4)
    data = rows([" ".join(draw.choice(["a", "b", "c", ".", "x"], 200)) for _ in range(9)])
    want = sum_of(statistic(3), data)
    monkeypatch.setattr(pairs, "BUFFER_PAIRS", 700)
    monkeypatch.setattr(pairs, "CORNER", 2)
    with on_threads(threads):
        assert_same_bits(sum_of(statistic(3), data), want)


def test_words_of_one_hash_are_told_apart(monkeypatch):
    from smtdist.kernels import tokens

    one, other = Lookup.of(["cat", "dog"]), WORDS
    clash = Lookup(one.blob, one.offsets, np.full(2, one.hashes[0]), np.full(8, -1, np.int32))
    tokens.cpu.place_words(clash.table, clash.hashes, 2)
    text = np.frombuffer(b"cat dog", np.uint8)
    assert clash.encoded(text, Normalisation()).tolist() == [0, -1]  # a dog's own hash is another
    table = tokens.WordTable()
    blob, offsets = tokens.packed(["dog", "cat", "emu"])
    for start in (0, 1):  # words that claim one hash are two words, in one order
        hashes = np.full(3, 7, np.uint64)
        table = tokens.WordTable()
        order = [0, 1, 2] if start == 0 else [2, 1, 0]
        for word in order:
            part = blob[offsets[word] : offsets[word + 1]]
            table.add_words(part, np.array([0, len(part)]), hashes[:1], np.array([word + 1]))
        found = table.sorted()
        assert found[0].tobytes() == b"catdogemu"
        assert found[3].tolist() == [2, 1, 3]
    assert other == WORDS


def test_limits_are_kept_and_said():
    data = rows(["one two three four"])
    with pytest.raises(MemoryBudgetError, match="more than 3 different words"):
        sum_of(TokenCounts(Normalisation(), max_words=3), data)
    with pytest.raises(ConfigurationError, match="window is 0"):
        statistic(0)
    with pytest.raises(ConfigurationError, match="unknown is 'drop'"):
        statistic(1, "drop")
    with pytest.raises(ConfigurationError, match="not a normalisation"):
        Normalisation("english")
