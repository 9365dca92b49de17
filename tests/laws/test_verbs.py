"""Laws of kinds and verbs: each cell of the table runs or ends in its one sentence, and earlier spellings mean today's verbs."""

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from typer.testing import CliRunner

import smtdist
from benchmarks.same_bits.data import make_data
from smtdist.cli import commands
from smtdist.cli.app import app
from smtdist.errors import SmtdistError
from smtdist.models import jobs
from smtdist.models.kinds import KINDS

MODELS = Path(__file__).parents[1] / "fixtures" / "models"
FILES = {
    **{
        "words": "words.h5",
        "points": "points.h5",
        "kernel": "kernel-spectral.h5",
        "concepts": "concepts.h5",
    },
    **{"s3c": "s3c.h5", "sparse": "coded-l1.h5", "joined": "joined.h5", "video": "video.h5"},
    **{"head": "head-landmarks.h5", "smt": "smt-gq.h5"},
}
"""A file of each kind."""
CHANGES = ("update", "withdraw", "merge", "transform", "evaluate")


@pytest.fixture(scope="module")
def at(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verbs")
    make_data(folder / "data")
    for name in FILES.values():
        shutil.copy(MODELS / name, folder)
    return folder


def run(words):
    return CliRunner().invoke(
        app, [str(word) for word in (words.split() if isinstance(words, str) else words)]
    )


def test_every_kind_that_is_fitted_has_a_file_here():
    own = {
        name for name, kind in KINDS.items() if kind.home.startswith("smtdist.")
    }  # other tests bring kinds
    assert own - FILES.keys() == {"encoder"}


@pytest.mark.parametrize(
    ("kind", "verb"), [(kind, verb) for kind in FILES for verb in CHANGES if verb not in jobs.verbs(kind)]
)
def test_a_verb_that_a_kind_lacks_is_one_sentence_in_both_languages(kind, verb, at, monkeypatch):
    monkeypatch.chdir(at)
    path, before = FILES[kind], {one.name: one.stat().st_mtime_ns for one in at.iterdir()}
    data = "data/tables.h5 --dataset x"
    line = {
        "merge": f"merge {path} {path} --out OUT",
        "evaluate": f"evaluate {path} data/tables.h5 --train x --test x",
    }.get(verb, f"{verb} {path} {data} --out OUT")
    done = run(line)
    sentence = f"There is no {verb} of a {KINDS[kind].called}: {jobs.LACKING[verb]}."
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == f"smtdist: {sentence}\n"
    rows = np.zeros((4, 3))
    calls = {
        "update": lambda: smtdist.update(path, rows),
        "withdraw": lambda: smtdist.update(path, rows, withdraw=True),
        "merge": lambda: smtdist.merge([path, path]),
    }
    if verb in calls:
        with pytest.raises(SmtdistError) as raised:
            calls[verb]()
        assert str(raised.value) == sentence
    assert {one.name: one.stat().st_mtime_ns for one in at.iterdir()} == before


@pytest.mark.parametrize("model", jobs.names())
def test_settings_of_every_model_are_listed(model):
    listed = json.loads(run(f"settings {model} --json").stdout)["settings"]
    assert listed.keys() == jobs.declared(model).keys()
    short, whole = (run(f"settings {model} {more}").stdout for more in ("", "--all"))
    assert len(short.splitlines()) <= len(whole.splitlines())


def test_concepts_show_about_ten_settings():
    shown = run("settings concepts --json").stdout
    basic = [
        name for name, field in jobs.declared("concepts").items() if not field.metadata["setting"].advanced
    ]
    assert 8 <= len(basic) <= 12
    assert len(json.loads(shown)["settings"]) > 25
    assert "advanced settings more: smtdist settings concepts --all" in run("settings concepts").stdout


EARLIER = {
    "words data/a.txt --window 2 --components 3 --max-words 4096": "fit data/a.txt --model words --set window=2 "
    "--set n_components=3 --set max_words=4096",
    "points fit data/tables.h5 --dataset x --size 9 --components 3": "fit data/tables.h5 --dataset x --model points "
    "--set size=9 --set n_components=3",
    "kernel fit data/tables.h5 --dataset x --set noise=0.3": "fit data/tables.h5 --dataset x --model kernel-contrastive "
    "--set noise=0.3",
    "concepts data/tables.h5 --dataset z --n-concepts 3 --set sweeps=4": "fit data/tables.h5 --dataset z --model concepts "
    "--set n_concepts=3 --set max_iter=4",
    "words data/c.txt --model words.h5": "update words.h5 data/c.txt",
    "update words.h5 data/a.txt --withdraw --lines 4-30": "withdraw words.h5 data/a.txt --lines 4-30",
    "points transform points.h5 data/tables.h5 --dataset more": "transform points.h5 data/tables.h5 --dataset more",
}


def arrays(path):
    with h5py.File(path) as file:
        found = {}
        file.visititems(
            lambda name, item: found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None
        )
    return found


@pytest.mark.parametrize("earlier", EARLIER)
def test_earlier_spellings_give_the_same_bits_and_go_on(earlier, at, tmp_path, monkeypatch):
    monkeypatch.chdir(at)
    kept = [] if "transform" in earlier else ["--checkpoint", tmp_path / "c"]
    first = [*earlier.split(), "--out", tmp_path / "1.h5", "--quiet"]
    assert run([*first, *kept]).exit_code == 0
    done = run([*EARLIER[earlier].split(), "--out", tmp_path / "2.h5", "--quiet"])
    assert done.exit_code == 0, done.output
    one, other = arrays(tmp_path / "1.h5"), arrays(tmp_path / "2.h5")
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    if not kept:
        return
    # a folder that an earlier version began has the words of the command line
    begun = json.loads((tmp_path / "c" / "run.json").read_text())
    assert begun["verb"] == EARLIER[earlier].split()[0]
    words = [str(word) for word in [*first, *kept]]
    about = {"schema": 3, "command": words, "folder": begun["folder"]}
    (tmp_path / "c" / "run.json").write_text(json.dumps(about))
    (tmp_path / "1.h5").unlink()
    done = run(["resume", tmp_path / "c", "--quiet"])
    assert done.exit_code == 0, done.output
    again = arrays(tmp_path / "1.h5")
    for name in one:
        np.testing.assert_array_equal(one[name], again[name], err_msg=name)


def test_every_earlier_spelling_is_a_verb_of_today():
    for now in commands.EARLIER.values():
        assert now.split()[0] in commands.COMMANDS
