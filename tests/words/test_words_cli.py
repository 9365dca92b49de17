"""`words` as a script sees it."""

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


def run(*arguments, code=0):
    result = CliRunner().invoke(app, ["words", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.stdout, result.stderr


@pytest.fixture
def texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text(LINES * 30)
    (tmp_path / "b.txt").write_text(LINES[25:] * 20)
    return tmp_path


SMALL = ("--components", 3, "--max-words", 4096, "--quiet", "--workers", 0)


def test_words_fits_asks_updates_and_exports(texts):
    out, _ = run("a.txt", "b.txt", *SMALL, "--window", 2, "--near", "cat", "--json")
    result = json.loads(out)
    assert result["model"] == "words.h5"
    assert [record["name"] for record in result["passes"]] == ["vocabulary", "statistics", "solve"]
    assert result["n_words"] == 11
    assert len(result["near"]["cat"]["nearest"]) == 10
    assert result["near"]["cat"]["beside"][0]["word"] == "the"
    run_export = CliRunner().invoke(app, ["export", "words.h5", "--format", "word2vec", "--out", "v.txt"])
    assert run_export.exit_code == 0, run_export.output
    assert (texts / "v.txt").read_text().startswith("11 3\n")
    run("b.txt", "--model", "words.h5", "--withdraw", "--out", "rest.h5", "--quiet")
    rest = json.loads(run("--model", "rest.h5", "--json")[0])
    alone = json.loads(run("a.txt", *SMALL, "--window", 2, "--out", "alone.h5", "--json")[0])
    assert {**rest, "near": 0} == {name: alone[name] for name in rest} | {"near": 0}
    run("b.txt", "--from-model", "alone.h5", "--out", "b.h5", "--quiet")
    merged = json.loads(run("--model", "alone.h5", "--merge", "b.h5", "--out", "both.h5", "--json")[0])
    assert merged["n_pairs"] == result["n_pairs"]
    again = json.loads(run("--model", "both.h5", "--subtract", "b.h5", "--out", "c.h5", "--json")[0])
    assert again["n_positions"] == alone["n_positions"]
    planned = json.loads(run("a.txt", *SMALL, "--plan", "--json")[0])["passes"]
    assert [cost["name"] for cost in planned] == ["vocabulary", "statistics", "solve"]
    assert planned[1]["state_bytes"] >= 16 * alone["n_pairs"]
    assert "What the fit will cost" in run("b.txt", "--from-model", "alone.h5", "--plan")[0]
    shown, _ = run("--model", "alone.h5", "--near", "dog", "--count", 2)
    assert "dog, nearest:" in shown
    assert "11 words" in shown


def test_text_counts_twice_where_it_is_meant_to(texts):
    run("a.txt", *SMALL, "--out", "once.h5")
    again = ("a.txt", "--model", "once.h5", "--out", "twice.h5", "--json", "--quiet")
    assert "pass --allow-repeats" in run(*again, code=1)[1]
    once, twice = run("--model", "once.h5", "--json")[0], run(*again, "--allow-repeats")[0]
    assert json.loads(twice)["n_positions"] == 2 * json.loads(once)["n_positions"]
    merged = run("--model", "once.h5", "--merge", "once.h5", "--allow-repeats", "--out", "m.h5", "--json")[
        0
    ]
    assert json.loads(merged)["n_positions"] == json.loads(twice)["n_positions"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "Give text files"),
        (("--model", "x.h5", "--window", 3), 2, "Without text"),
        (("a.txt", "--withdraw"), 2, "--withdraw needs --model"),
        (("a.txt", "--model", "x.h5", "--window", 3), 2, "others (window) cannot be set"),
        (("a.txt", "--merge", "x.h5"), 2, "--merge"),
        (("a.txt", "--allow-repeats"), 2, "--allow-repeats"),
        (("--plan", "--model", "x.h5"), 2, "--plan needs the text"),
        (("a.txt", "--tokens", "french"), 2, "one of basic_english, given"),
        (("a.txt", "--lines", "1-2"), 2, "--withdraw"),
        (("a.txt", "--model", "x.h5", "--withdraw", "--lines", "a-b"), 2, "not a range of lines"),
        (("none.txt",), 1, "does not exist"),
        (("a.txt", "--model", "none.h5"), 1, "no model file"),
        (("a.txt", "--components", 50, "--quiet"), 1, "fewer components"),
        (("a.txt", "--out", "/nowhere/m.h5"), 1, "does not exist"),
    ],
)
def test_what_has_no_meaning_is_one_sentence(texts, arguments, code, said):
    out, err = run(*arguments, code=code)
    assert said in err
    assert out == ""
    assert len(err.strip().splitlines()) == 1
    assert not (texts / "words.h5").exists()


def test_an_existing_model_is_kept_and_help_has_an_example(texts):
    (texts / "words.h5").write_text("mine")
    _, err = run("a.txt", *SMALL, code=1)
    assert "exists already" in err
    assert (texts / "words.h5").read_text() == "mine"
    shown = run("--help")[0]
    assert "Example: smtdist words" in shown
    assert "--lines 120-480" in " ".join(shown.split())


def test_lines_of_a_file_are_withdrawn_by_number(texts):
    run("a.txt", "b.txt", *SMALL, "--window", 2)
    run(
        *[
            "a.txt",
            "--model",
            "words.h5",
            "--withdraw",
            "--lines",
            "4-6",
            "--lines",
            "9",
            "--out",
            "c.h5",
            "--quiet",
        ]
    )
    (texts / "a.txt").write_text(LINES * 28 + "".join(LINES.splitlines(True)[:2]))
    run("a.txt", "b.txt", "--from-model", "words.h5", "--out", "d.h5", "--quiet")
    left, want = (json.loads(run("--model", name, "--json")[0]) for name in ("c.h5", "d.h5"))
    assert {**left, "fingerprint": 0} == {**want, "fingerprint": 0}

    audit = store.load("c.h5").provenance["audit"]
    assert [entry["action"] for entry in audit] == ["added", "withdrawn", "withdrawn"]
    assert audit[1]["source"].endswith("a.txt, lines 4 to 6")
    assert audit[2]["source"].endswith("a.txt, line 9")


def test_near_words_are_drawn(texts):
    run("a.txt", *SMALL)
    drawn.main(["words.h5", "cat", "dog", "mat", "--out", "near.svg"])
    picture = (texts / "near.svg").read_text()
    assert picture.count("<!-- cat -->") >= 1
    assert "<!-- times beside it -->" in picture
    with pytest.raises(ModelError, match="not among the"):
        drawn.main(["words.h5", "emu", "--out", "x.png"])


def test_the_most_frequent_words_may_be_left_out_of_those_beside(texts):
    run("a.txt", *SMALL)
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
