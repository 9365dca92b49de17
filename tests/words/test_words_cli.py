"""Models of words from the command line: files of text, lines of them, and what is asked of a model."""

import json
from itertools import pairwise

import pytest
from matplotlib.figure import Figure
from PIL import Image
from typer.testing import CliRunner

from examples import word_picture as drawn
from examples.word_picture import draw_words
from smtdist.cli.app import app
from smtdist.errors import ModelError
from smtdist.models import store
from smtdist.models.words.model import Near

LINES = "the cat sat on the mat .\na dog sat on the rug .\nthe dog and the cat ran .\n"
SMALL = "--model words --set n_components=3 --set max_words=4096 --quiet"


def run(words, code=0):
    result = CliRunner().invoke(app, words.split())
    assert result.exit_code == code, result.output
    return result.stderr if code else result.stdout


def found(words):
    return json.loads(run(f"{words} --json"))


@pytest.fixture
def texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text(LINES * 30)
    (tmp_path / "b.txt").write_text(LINES[25:] * 20)
    return tmp_path


def test_texts_are_fitted_asked_withdrawn_merged_and_exported(texts):
    both = found(f"fit a.txt b.txt {SMALL} --set window=2 --out words.h5")
    assert [record["name"] for record in both["passes"]] == ["vocabulary", "statistics", "solve"]
    assert both["n_words"] == 11
    near = found("near words.h5 cat")["near"]["cat"]
    assert len(near["nearest"]) == 10
    assert near["beside"][0]["word"] == "the"
    assert "dog, nearest:" in run("near words.h5 dog --count 2")
    run("export words.h5 --format word2vec --out v.txt")
    assert (texts / "v.txt").read_text().startswith("11 3\n")
    rest = found("withdraw words.h5 b.txt --out rest.h5 --quiet")
    alone = found(f"fit a.txt {SMALL} --set window=2 --out alone.h5")
    for name in ("n_words", "n_positions", "n_pairs", "n_components"):
        assert rest[name] == alone[name]
    run("fit b.txt --model words --from-model alone.h5 --out b.h5 --quiet")
    assert found("merge alone.h5 b.h5 --out both.h5")["n_pairs"] == both["n_pairs"]
    assert found("merge both.h5 --subtract b.h5 --out c.h5")["n_positions"] == alone["n_positions"]
    costs = found(f"plan a.txt {SMALL}")["passes"]
    assert [cost["name"] for cost in costs] == ["vocabulary", "statistics", "solve"]
    assert costs[1]["state_bytes"] >= 16 * alone["n_pairs"]
    assert "What the fit will cost" in run("plan b.txt --model words --from-model alone.h5")


def test_text_counts_twice_where_it_is_meant_to(texts):
    once = found(f"fit a.txt {SMALL} --out once.h5")
    assert "allow" in run("update once.h5 a.txt --out twice.h5 --quiet", code=1)
    twice = found("update once.h5 a.txt --out twice.h5 --quiet --allow-repeats")
    assert twice["n_positions"] == 2 * once["n_positions"]
    merged = found("merge once.h5 once.h5 --allow-repeats --out m.h5")
    assert merged["n_positions"] == twice["n_positions"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            f"fit a.txt {SMALL} --from-model once.h5 --set window=3 --out m.h5",
            2,
            "so others (n_components, max_words, window) cannot be set",
        ),
        (f"fit a.txt {SMALL} --set tokens=french --out m.h5", 2, "one of basic_english, given"),
        (f"fit none.txt {SMALL} --out m.h5", 1, "does not exist"),
        (f"fit a.txt {SMALL} --from-model none.h5 --out m.h5", 1, "no model file"),
        (f"fit a.txt {SMALL} --set n_components=50 --out m.h5", 1, "fewer components"),
        (f"fit a.txt {SMALL} --out /nowhere/m.h5", 1, "does not exist"),
        (f"fit a.txt {SMALL} --dataset x --out m.h5", 2, "takes no"),
        ("withdraw once.h5 a.txt --lines a-b", 2, "not a range of lines"),
        ("withdraw once.h5 a.txt --lines 3-1", 2, "not a range of lines"),
        ("withdraw once.h5 a.txt --lines 999", 1, "lines"),
        ("transform once.h5 a.txt --out m.h5", 1, "There is no transform of a model of words"),
        ("evaluate once.h5 a.txt", 1, "There is no evaluate of a model of words"),
        ("near once.h5 emu", 1, "not among the"),
    ],
)
def test_what_has_no_meaning_is_one_sentence(texts, words, code, said):
    run(f"fit a.txt {SMALL} --out once.h5")
    before = (texts / "once.h5").read_bytes()
    err = run(words, code=code)
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert not (texts / "m.h5").exists()
    assert (texts / "once.h5").read_bytes() == before


def test_lines_of_a_file_are_withdrawn_by_number(texts):
    run(f"fit a.txt b.txt {SMALL} --set window=2 --out words.h5")
    left = found("withdraw words.h5 a.txt --lines 4-6 --lines 9 --out c.h5 --quiet")
    (texts / "a.txt").write_text(LINES * 28 + "".join(LINES.splitlines(True)[:2]))
    want = found("fit a.txt b.txt --model words --from-model words.h5 --out d.h5 --quiet")
    for name in ("n_words", "n_positions", "n_pairs", "n_apart", "rank"):
        assert left[name] == want[name]
    audit = left["audit"]
    assert [entry["action"] for entry in audit] == ["added", "withdrawn", "withdrawn"]
    assert audit[1]["source"].endswith("a.txt, lines 4 to 6")
    assert audit[2]["source"].endswith("a.txt, line 9")


def test_near_words_are_drawn(texts):
    run(f"fit a.txt {SMALL} --out words.h5")
    drawn.main(["words.h5", "cat", "dog", "mat", "--out", "near.svg"])
    picture = (texts / "near.svg").read_text()
    assert picture.count("<!-- cat -->") >= 1
    assert "<!-- times beside it -->" in picture
    with pytest.raises(ModelError, match="not among the"):
        drawn.main(["words.h5", "emu", "--out", "x.png"])


def test_the_most_frequent_words_may_be_left_out_of_those_beside(texts):
    run(f"fit a.txt {SMALL} --out words.h5")
    model = store.load("words.h5")
    common = sorted(model.vocabulary.words, key=lambda word: -model.vocabulary.counts[model.number(word)])[
        :3
    ]
    every = [near.word for near in model.most_cooccurring("cat", 99)]
    assert set(common[:2]) & set(every)
    assert [near.word for near in model.most_cooccurring("cat", 99, common=3)] == [
        word for word in every if word not in common
    ]
    draw_words(model, ["cat", "dog"], "narrow.png", "png", panel=(4.0, 3.0), common=3)
    with Image.open("narrow.png") as picture:
        assert picture.size == (880, 330)


def test_words_that_are_never_beside_it_are_written_inside_the_panel():
    figure = Figure(dpi=110)
    axis = figure.subplots()
    axis.set_ylim(-0.4, 9)
    drawn._label(axis, [Near(f"word{number}", 0.5, 0) for number in range(9)], figure.dpi / 72)
    feet = sorted(
        text.xyann[1] + axis.transData.transform((0.5, 0))[1] * 72 / figure.dpi for text in axis.texts
    )
    assert feet[0] > axis.bbox.y0 * 72 / figure.dpi
    assert min(above - foot for foot, above in pairwise(feet)) >= drawn.LINE
