"""One document inside a file withdrawn: the bits of a fit of the file without it, with the vocabulary kept."""

import gzip
import json

import numpy as np
import pytest
from executors import engine

from smtdist.data.text import BLOCK, TextSource, line_bytes
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError, ModelError
from smtdist.models import store
from smtdist.models.merge import update
from smtdist.models.words.fit import fit_words, withdraw_lines, withdrawn_stretches
from smtdist.models.words.model import WordSettings

SETTINGS = WordSettings(vocabulary=60, window=3, n_components=5, max_words=4096)


@pytest.fixture(scope="module")
def lines():
    draw = np.random.default_rng(0)
    words = np.array([f"w{number}" for number in range(50)])
    return [
        " ".join(draw.choice(words[draw.integers(0, 30) :], draw.integers(0, 60))) + "\n"
        for _ in range(1200)
    ]


@pytest.fixture(scope="module")
def fitted(lines, tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "all.txt.gz"
    path.write_bytes(gzip.compress("".join(lines).encode()))
    source = TextSource.open(path)
    assert source.n_samples > 6
    return fit_words(source, SETTINGS, engine())[0], source


def fit_without(lines, ranges, model, folder):
    gone = {number for first, last in ranges for number in range(first, last + 1)}
    path = folder / "rest.txt"
    path.write_text("".join(line for number, line in enumerate(lines, 1) if number not in gone))
    return fit_words(TextSource.open(path), SETTINGS, engine(), vocabulary=model.vocabulary)[0]


def assert_same(one, other):
    for name in ("n_positions", "activity", "pair", "count"):
        np.testing.assert_array_equal(
            getattr(one.statistics, name), getattr(other.statistics, name), err_msg=name
        )
    np.testing.assert_array_equal(one.embedding.components, other.embedding.components)


@pytest.mark.parametrize(
    "ranges",
    [
        [(500, 502)],
        [(1, 400)],
        [(1100, 1200)],
        [(7, 7)],
        [(300, 310), (311, 340)],
        [(10, 900), (1000, 1001)],
        [(200, 800), (100, 250)],
    ],
    ids=str,
)
def test_lines_are_withdrawn_to_the_bit(lines, fitted, ranges, tmp_path):
    model, source = fitted
    left, _ = withdraw_lines(model, source, ranges, engine())
    assert_same(left, fit_without(lines, ranges, model, tmp_path))
    audit = left.provenance["audit"]
    assert [entry["action"] for entry in audit] == ["added", *["withdrawn"] * len(ranges)]
    assert str(ranges[0][0]) in audit[1]["source"]
    begin, end = json.loads(audit[1]["document"])["bytes"]
    first, last = ranges[0]
    assert "".join(lines).encode()[begin:end] == "".join(lines[first - 1 : last]).encode()


def test_documents_follow_one_another_through_files(lines, fitted, tmp_path):
    model, source = fitted
    for number, part in enumerate([(100, 130), (131, 160), (90, 99)]):
        model, _ = withdraw_lines(model, source, [part], engine())
        store.save(model, tmp_path / f"{number}.h5")
        model = store.load(tmp_path / f"{number}.h5")
    assert_same(model, fit_without(lines, [(90, 160)], model, tmp_path))
    with pytest.raises(ModelError, match="withdrawn already"):
        withdraw_lines(model, source, [(120, 140)], engine())
    # the whole file is not in any more, its lines are
    with pytest.raises(ModelError, match="not in the sums"):
        update(model, source, engine(), withdraw=True)
    with pytest.raises(ModelError, match="Nothing is left"):
        withdraw_lines(model, source, [(1, 1200)], engine())


def test_workers_change_nothing(fitted, cluster):
    model, source = fitted
    want, _ = withdraw_lines(model, source, [(50, 1000)], engine())
    found, _ = withdraw_lines(model, source, [(50, 1000)], Engine(cluster))
    assert_same(found, want)
    np.testing.assert_array_equal(found.statistics.origin.samples, want.statistics.origin.samples)


def test_what_is_not_in_is_refused(fitted, tmp_path):
    model, source = fitted
    for bad in ([(0, 3)], [(5, 4)], [(1199, 1201)], [(3000, 3001)]):
        with pytest.raises(DataError, match="has no lines"):
            withdraw_lines(model, source, bad, engine())
    other = tmp_path / "other.txt"
    other.write_text("never seen\n" * 9)
    with pytest.raises(ModelError, match="not in the sums"):
        withdraw_lines(model, TextSource.open(other), [(2, 3)], engine())
    with pytest.raises(ConfigurationError, match="one file"):
        withdraw_lines(model, TextSource.open([other, source.files[0].path]), [(2, 3)], engine())


def test_the_audit_tells_what_is_out():
    def entry(action, source, *stretch):
        about = (
            {"document": json.dumps({"path": "a", "text_bytes": 90, "bytes": stretch})} if stretch else {}
        )
        return {"action": action, "source": source, **about}

    audit = [
        entry("added", "a"),
        entry("withdrawn", "a, line 1", 0, 10),
        entry("withdrawn", "a, line 4", 30, 40),
    ]
    assert withdrawn_stretches(audit, "a", 90) == ((0, 10), (30, 40))
    assert withdrawn_stretches(audit, "a", 91) == withdrawn_stretches(audit, "b", 90) == ()
    back = [*audit, entry("added", "a, lines 1 to 3", 0, 5)]
    assert withdrawn_stretches(back, "a", 90) == ((5, 10), (30, 40))
    assert withdrawn_stretches([*audit, entry("added", "a")], "a", 90) == ()


def test_lines_are_found_by_their_numbers(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\n\nthree\nlast")
    source = TextSource.open(path)
    assert line_bytes(source, [(1, 1), (2, 3), (4, 4)]) == [(0, 4), (4, 11), (11, 15)]
    path.write_bytes(b"a\n" * 2**20)
    assert line_bytes(TextSource.open(path), [(2**19, 2**20)]) == [(2**20 - 2, 2**21)]
    with pytest.raises(DataError, match="has no lines"):
        line_bytes(TextSource.open(path), [(1, 2**20 + 1)])


def test_a_block_that_a_long_paragraph_fills_is_no_obstacle(tmp_path):
    path = tmp_path / "long.txt"
    parts = ["a b c\n" * 3000, "b c d " * (BLOCK // 4) + "\n", "c d e f a\n" * 3000]
    path.write_text("".join(parts))
    settings = WordSettings(vocabulary=6, window=2, n_components=2, max_words=4096)
    model, _ = fit_words(TextSource.open(path), settings, engine())
    left, _ = withdraw_lines(model, TextSource.open(path), [(3001, 3001)], engine())
    rest = tmp_path / "rest.txt"
    rest.write_text(parts[0] + parts[2])
    want, _ = fit_words(TextSource.open(rest), settings, engine(), vocabulary=model.vocabulary)
    assert_same(left, want)
