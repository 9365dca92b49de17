"""Models of words from the command line: lines that are withdrawn, what is asked of a model, and pictures of that."""

import pytest
from calling import refused, run, told
from PIL import Image

from examples import word_picture as drawn
from examples.word_picture import draw_words
from smtdist.errors import ModelError
from smtdist.models import store

LINES = "the cat sat on the mat .\na dog sat on the rug .\nthe dog and the cat ran .\n"
SMALL = "--model words --set n_components=3 --set max_words=4096 --quiet"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two texts, and models of the first and of both."""
    at = tmp_path_factory.mktemp("words")
    (at / "a.txt").write_text(LINES * 30)
    (at / "b.txt").write_text(LINES[25:] * 20)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(at)
        run(f"fit a.txt {SMALL} --out once.h5")
        run(f"fit a.txt b.txt {SMALL} --set window=2 --out both.h5")
    return at


@pytest.fixture(autouse=True)
def here(made, monkeypatch):
    monkeypatch.chdir(made)


def test_a_model_is_asked_what_is_near():
    near = told("near both.h5 cat")["near"]["cat"]
    assert len(near["nearest"]) == 10
    assert near["beside"][0]["word"] == "the"
    assert "dog, nearest:" in run("near both.h5 dog --count 2")


def test_a_plan_says_what_sums_of_a_vocabulary_will_take():
    costs = told(f"plan a.txt {SMALL}")["passes"]
    assert costs[1]["state_bytes"] >= 16 * told("info once.h5")["n_pairs"]
    said = run("plan b.txt --model words --from-model once.h5")
    assert "What the fit will cost" in said
    assert "How long it takes is not planned for models of this kind." in said


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            f"fit a.txt {SMALL} --from-model once.h5 --set window=3 --out m.h5",
            2,
            "so others (n_components, max_words, window) cannot be set",
        ),
        (f"fit a.txt {SMALL} --set tokens=french --out m.h5", 2, "one of basic_english, given"),
        (f"fit a.txt {SMALL} --set n_components=50 --out m.h5", 1, "fewer components"),
        ("withdraw once.h5 a.txt --lines a-b", 2, "not a range of lines"),
        ("withdraw once.h5 a.txt --lines 999", 1, "lines"),
        ("near once.h5 emu", 1, "not among the"),
    ],
)
def test_what_has_no_meaning_is_one_sentence(made, words, code, said):
    refused(words, made, said, code)


def test_lines_of_a_file_are_withdrawn_by_number(tmp_path):
    left = told("withdraw both.h5 a.txt --lines 4-6 --lines 9 --quiet --out", tmp_path / "c.h5")
    (tmp_path / "a.txt").write_text(LINES * 28 + "".join(LINES.splitlines(True)[:2]))
    fit = ["fit", tmp_path / "a.txt", "b.txt --model words --from-model both.h5 --quiet --out"]
    want = told(*fit, tmp_path / "d.h5")
    for name in ("n_words", "n_positions", "n_pairs", "n_apart", "rank"):
        assert left[name] == want[name]
    audit = left["audit"]
    assert [entry["action"] for entry in audit] == ["added", "withdrawn", "withdrawn"]
    assert audit[1]["source"].endswith("a.txt, lines 4 to 6")
    assert audit[2]["source"].endswith("a.txt, line 9")


def test_near_words_are_drawn(tmp_path):
    drawn.main(["once.h5", "cat", "dog", "mat", "--out", str(tmp_path / "near.svg")])
    picture = (tmp_path / "near.svg").read_text()
    assert picture.count("<!-- cat -->") >= 1
    assert "<!-- times beside it -->" in picture
    with pytest.raises(ModelError, match="not among the"):
        drawn.main(["once.h5", "emu", "--out", "x.png"])


def test_the_most_frequent_words_may_be_left_out_of_those_beside(tmp_path):
    model = store.load("once.h5")
    common = sorted(model.vocabulary.words, key=lambda word: -model.vocabulary.counts[model.number(word)])[
        :3
    ]
    every = [near.word for near in model.most_cooccurring("cat", 99)]
    assert set(common[:2]) & set(every)
    assert [near.word for near in model.most_cooccurring("cat", 99, common=3)] == [
        word for word in every if word not in common
    ]
    draw_words(model, ["cat", "dog"], tmp_path / "narrow.png", "png", panel=(4.0, 3.0), common=3)
    with Image.open(tmp_path / "narrow.png") as picture:
        assert picture.size == (880, 330)
