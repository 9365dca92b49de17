"""Laws of kinds and verbs: each cell of their table runs, with the same bits from Python, or ends in its one sentence.

`LIVES` has models of each kind that is fitted, as words of a command. Plan, resume and watch are in `test_runs.py`, which stops
every fit and goes on with it; changes of sums on other executors are in `test_growing.py`.
"""

import contextlib
import json
import pickle
import re
import shutil
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import h5py
import numpy as np
import pytest
from arrays_in_files import read_array
from calling import arrays, call, refused, run, same, same_sums, sets, told
from every_kind import ESTIMATORS, FIRST, FIXTURES, OWN
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import smtdist
from benchmarks.same_bits.data import make_data
from docs import tables
from smtdist import configuration
from smtdist.cli import commands
from smtdist.errors import SmtdistError
from smtdist.evaluate.heads import OWN as HEADS
from smtdist.models import jobs, store
from smtdist.models.kinds import KINDS, of_sums
from smtdist.report.facts import facts_of

FILES = {kind: path.name for kind, path in FIRST.items()}
"""A file of each kind of model."""
BESIDE = {"representation": "rows-0.h5", "predictions": "predictions.h5"}
"""Files that are no models."""
CHANGES = ("update", "withdraw", "merge", "transform", "evaluate")

SMT = {"patch": 3, "dictionary": 12, "n_components": 4, "pool_size": 2, "context": 2, "threshold": 0.4}
CODED = {"patch": 4, "dictionary": 12, "n_components": 4, "pool_size": 2, "positions": 12, "stride": 2}
CODER = {"patch": 4, "n_atoms": 8, "rounds": 2, "images": 24}
CLIPS = {"patch": 4, "length": 4, "places": 2, "atoms": 12, "rounds": 1, "batch": 30, "n_components": 4}
KERNEL = {"noise": 0.4, "feature_map": "fourier", "n_features": 24, "n_components": 2}
SPECTRAL = {**KERNEL, "rounds": 4, "feature_map": "nystroem"}
DECODED = {**KERNEL, "rounds": 4, "feature_map": "relu", "kernel": "relu", "alpha": 0.1}
IMAGES = ["data/images.h5 --dataset 0/images", "data/images.h5 --dataset 2/images"]
COLOUR, TEXTS = "data/images.h5 --dataset colour/images", ["data/a.txt", "data/c.txt"]
ROWS, WIDE = (
    ["data/rows.h5 --dataset train/x", "data/rows.h5 --dataset test/x"],
    "data/tables.h5 --dataset z",
)
IN_GROUPS = "data/images.h5 --train train --test test --neighbours 5"
IN_ROWS = "data/rows.h5 --train train/x --test test/x --neighbours 5"


class Life(NamedTuple):
    """A fit, in words and in Python, and what is done with its model.

    data : samples of the fit, and more that are added and represented. other : samples that it does not take. judged : words
    of an evaluation. learnt : a code whose rounds the estimator takes in `settings`. fixed : why nothing is added to it.
    """

    model: str
    estimator: str
    settings: dict[str, Any]
    data: list[str]
    other: str = ""
    judged: str = ""
    learnt: str = ""
    fixed: str = ""

    def fit(self, out):
        """Return the words of the fit."""
        learnt = {"feature": self.learnt, "rounds": 2} if self.learnt else {}
        return f"fit {self.data[0]} --model {self.model} {sets(**self.settings, **learnt)} --out {out}"

    def fitted(self):
        """Fit in Python."""
        learnt = {"feature": self.learnt, "settings": {"rounds": 2}} if self.learnt else {}
        made = getattr(smtdist, self.estimator)(**self.settings, **learnt)
        return made.fit(place(self.data[0]), *labels_in(self.data[0]))


def place(words):
    """Return data of a command as Python names them: a path, or a path and a name in it."""
    path, *rest = words.split()
    name = "z" if path.startswith("rows-") else rest[-1] if rest else ""
    return (path, name) if name else path


def labels_in(path):
    """Return the labels of a file of representations; nothing for other data."""
    if not path.startswith("rows-"):
        return []
    return [read_array(path, "labels")]


ALONE = "holds a coder without an embedding; fit one on its codes"
EXACT = "The head is an exact kernel, to which no rows can be added"
HEAD = ["rows-0.h5", "rows-1.h5"]
LIVES = {
    "smt": Life("smt", "SMT", SMT, IMAGES, COLOUR, IN_GROUPS),
    "smt, vq": Life("smt", "SMT", {**SMT, "feature": "vq", "drop": 1}, IMAGES, COLOUR, IN_GROUPS),
    **{
        f"smt, {code}": Life("smt", "SMT", CODED, IMAGES, COLOUR, IN_GROUPS, learnt=code)
        for code in ("l1", "s3c", "omp")
    },
    "l1": Life("l1", "SparseCoding", CODER, IMAGES, COLOUR, IN_GROUPS, fixed=ALONE),
    "s3c": Life("s3c", "SpikeSlabCoder", CODER, IMAGES, COLOUR, IN_GROUPS, fixed=ALONE),
    "words": Life("words", "WordSMT", {"window": 2, "n_components": 3, "max_words": 4096}, TEXTS),
    "points": Life("points", "PointSMT", {"size": 12, "context": "noise", "n_components": 3}, ROWS, WIDE),
    "kernel-contrastive": Life("kernel-contrastive", "ContrastiveKernel", KERNEL, ROWS, WIDE, IN_ROWS),
    "kernel-spectral": Life("kernel-spectral", "SpectralContrastiveKernel", SPECTRAL, ROWS, WIDE, IN_ROWS),
    "kernel-autoencoder": Life("kernel-autoencoder", "KernelAutoencoder", DECODED, ROWS, WIDE, IN_ROWS),
    "kernel, exact": Life("kernel-contrastive", "ContrastiveKernel", {"noise": 0.4}, ROWS, WIDE, IN_ROWS),
    "concepts": Life("concepts", "BinaryConcepts", {"n_concepts": 4, "rank": 4, "sweeps": 3}, [WIDE]),
    "video": Life(
        "video",
        "VideoSMT",
        CLIPS,
        ["data/clips.h5 --clip one", "data/clips.h5 --dataset two"],
        judged="data/clips.h5 --clip two --sequences 4",
    ),
    "head": Life("head", "KernelHead", {}, HEAD, "rows-narrow.h5", "rows-1.h5", fixed=EXACT),
    "head, landmarks": Life("head", "RidgeHead", {"landmarks": 8}, HEAD, "rows-narrow.h5", "rows-1.h5"),
}
for name, row in OWN.items():
    made = [one for one, cls in ESTIMATORS.items() if getattr(cls, "MODEL", None) is row.imported()]
    if row == of_sums(name, row) and made:
        LIVES.setdefault(name, Life(name, made[0], {}, ROWS, WIDE, IN_ROWS))
for name, cls in HEADS.items():
    if name in jobs.names() and cls.__name__ in ESTIMATORS:
        LIVES.setdefault(name, Life(name, cls.__name__, {}, HEAD, "rows-narrow.h5", "rows-1.h5"))


@pytest.fixture(scope="module")
def at(tmp_path_factory):
    """A folder with data, and a file of each kind as an earlier version has written it."""
    folder = tmp_path_factory.mktemp("verbs")
    make_data(folder / "data")
    for path in FIXTURES:
        shutil.copy(path, folder)
    with h5py.File(folder / "data/tables.h5") as tables, h5py.File(folder / "data/rows.h5", "w") as rows:
        for group, name in (("train", "x"), ("test", "more")):
            rows[f"{group}/x"], rows[f"{group}/y"] = tables[name][()], np.arange(len(tables[name])) % 3
    with contextlib.chdir(folder):
        run("transform smt-gq.h5 data/images.h5 --dataset 1 --out rows-narrow.h5 --quiet")
    return folder


@pytest.fixture(autouse=True)
def here(at, monkeypatch):
    monkeypatch.chdir(at)


@pytest.fixture(scope="module", params=LIVES)
def life(request, at):
    """A model that a command has fitted, what was said of it, and the same from Python."""
    about, name = LIVES[request.param], request.param.replace(", ", "-")
    with contextlib.chdir(at):
        said = told(about.fit(f"fitted-{name}.h5"), "--quiet")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tests learn in two rounds
            fitted = about.fitted()
        smtdist.save(fitted, f"python-{name}.h5")
    paths = {
        "path": f"fitted-{name}.h5",
        "python": f"python-{name}.h5",
        "line": about.fit(f"fitted-{name}.h5"),
    }
    kind = store.kind_at(at / paths["path"])
    is_head = hasattr(fitted, "predict")
    return SimpleNamespace(**about._asdict(), **paths, kind=kind, said=said, fitted=fitted, is_head=is_head)


MODELS_HERE = [model for kind in OWN.values() for model in kind.fits]
ADD_LIFE = """{0} has no life; export its estimator in smtdist/__init__.pyi. Others than models of sums of rows need a row in
LIVES of tests/laws/test_verbs.py too; heads their name in `fits` of the row `head` in smtdist/models/kinds.py."""
ADD_FILE = """{0} has no file; add the command that writes one to MODELS of tests/fixtures/make_models.py, and run
python tests/fixtures/make_models.py."""


def test_every_model_that_is_fitted_lives_here():
    lived, fitted = ({one[at] for one in LIVES.values()} for at in (0, 1))
    lacking = [*(set(MODELS_HERE) - lived - {"omp", "sc"})]
    lacking += ({cls.__name__ for cls in HEADS.values()} | ESTIMATORS.keys()) - fitted
    assert not lacking, ADD_LIFE.format(lacking)
    without = OWN.keys() - FILES.keys() - {"encoder"}
    assert not without, ADD_FILE.format(without)


RECORD = {"name", "seconds", "n_samples", "n_positions", "read_bytes", "peak_bytes", "projected_bytes"}
"""What a fit says of each of its passes."""


def test_a_fit_is_the_same_from_python(life):
    same(arrays(life.path), arrays(life.python))
    one, other = (told("info", Path(path)) for path in (life.path, life.python))
    assert one["configuration"] == other["configuration"]
    assert one.keys() == other.keys()
    assert life.said["bytes"] == Path(life.path).stat().st_size
    assert life.said["model"] == str(Path(life.path).absolute())
    assert all(record.keys() >= RECORD for record in life.said["passes"])


def rows_of(samples):
    """Return the array that a command reads."""
    path, dataset = place(samples)
    return read_array(path, dataset)


def read_again(life):
    """Return the estimator that a file holds, or the fitted one where files hold models alone."""
    made = getattr(smtdist, life.estimator)
    reader = getattr(made, "from_file", getattr(made, "load", None))
    return reader(life.path) if reader else life.fitted


def test_an_estimator_is_kept_copied_and_shown(life, tmp_path):
    model, read = smtdist.load(life.path), read_again(life)
    if not life.is_head:  # an estimator itself, which scikit-learn shows
        assert re.fullmatch(rf"<{type(model).__name__}: .+>", repr(model))  # one line
        assert len(repr(model)) < 120
        assert model._repr_html_().startswith(f"<table><caption>{type(model).__name__}</caption>")
    if hasattr(read, "inverse_transform"):
        z = read.transform(rows_of(life.data[0]))
        np.testing.assert_array_equal(read.inverse_transform(z), life.fitted.inverse_transform(z))
    again = clone(read)
    asked = again.get_params()
    with pytest.raises((SmtdistError, NotFittedError), match="not fitted yet"):
        smtdist.save(again, tmp_path / "n.h5")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert again.fit(place(life.data[0]), *labels_in(life.data[0])) is again
    assert again.get_params() == asked
    for one in (again, pickle.loads(pickle.dumps(life.fitted))):
        same(saved(one, tmp_path / "m.h5"), arrays(life.path))


def test_a_fit_replaces_nothing_unasked_and_is_quiet_where_asked(life, at):
    before = arrays(life.path)
    refused(life.line, at, "exists already; choose another name or pass --overwrite")
    with pytest.raises(SmtdistError, match=r"exists already; choose another name or pass overwrite=True"):
        smtdist.save(life.fitted, life.path)
    done = call(life.line, "--overwrite --quiet")
    assert (done.exit_code, done.stderr) == (0, "")
    assert life.path in "".join(done.stdout.split())
    same(arrays(life.path), before)
    assert not list(at.rglob("*.tmp"))


def test_a_plan_is_that_of_python(life):
    """Other kinds are planned by commands alone."""
    if not hasattr(life.fitted, "plan"):
        pytest.skip("has no plan in Python")
    planned = told(life.line.replace("fit", "plan", 1), "--no-calibrate")
    found = getattr(smtdist, life.estimator)(**life.fitted.get_params()).plan(
        place(life.data[0]), calibrate=False
    )
    assert [cost.name for cost in found.costs] == [cost["name"] for cost in planned["passes"]]
    assert found.seconds is None
    assert repr(found).startswith(f"<FitPlan: {planned['total']['passes']} passes, ")
    assert found._repr_html_().count("<tr>") == 1 + len(found.costs)
    with pytest.raises(SmtdistError, match=r"it would fit with|needs"):
        life.fitted.plan(place(life.data[0]), memory="64MiB", calibrate=False)


@pytest.mark.parametrize("workers", [False, True])
def test_a_plan_refuses_what_does_not_fit(life, workers):
    """Into the memory of one process, or of the driver beside a worker that has plenty."""
    line = f"{life.line.replace('fit', 'plan', 1)} --no-calibrate"
    if call(line).exit_code == 2:
        pytest.skip("has no plan")
    given = "--workers 1 --memory 64GB --driver-memory 30MB" if workers else "--memory 30MB"
    done = call(f"{line} {given}")
    if workers and "takes one process" in done.stderr:
        pytest.skip("has no workers")
    assert done.exit_code == 1, done.output
    said = " ".join(done.stderr.split())
    assert re.search(
        r"driver|may be used" if workers else r"may use|may be used|fit into the 28\.6 MiB", said
    ), said
    assert "Traceback" not in said


def table_cell(kind, verb):
    """Return what the documentation's table says of a verb of a kind: "yes", which models have it, or nothing."""
    return tables.model_row(kind).strip("|").split("|")[2 + jobs.VERBS.index(verb)].strip()


def need(life, verb):
    """Skip what a model has not: its sentence is tested below."""
    if not (cell := table_cell(life.kind, verb)) or (life.fixed and cell != "yes"):
        pytest.skip(f"has no {verb}")


def test_the_table_of_verbs_says_what_can_be_updated(life, tmp_path, at):
    for verb in ("update", "withdraw"):
        cell = table_cell(life.kind, verb)
        assert cell == ("" if verb not in jobs.verbs(life.kind) else KINDS[life.kind].only.get(verb, "yes"))
        if life.fixed:
            refused([verb, life.path, life.data[-1], "--out", tmp_path / "o.h5"], at, life.fixed)
            assert cell not in ("", "yes")
    grows = hasattr(life.fitted, "partial_fit")
    assert grows == hasattr(life.fitted, "withdraw")
    assert grows == (
        table_cell(life.kind, "update") == "yes" or not (life.fixed or not table_cell(life.kind, "update"))
    )


SWAPPED = [
    (kind, verb) for kind in FILES for verb in CHANGES if verb != "merge" and verb in jobs.verbs(kind)
]


@pytest.mark.parametrize(("kind", "verb"), SWAPPED)
def test_a_model_behind_its_data_is_asked_for_first(kind, verb, at):
    for data in ("data/images.h5", "data/a.txt", "rows-1.h5"):
        end = {"transform": "--dataset x --out o.h5", "evaluate": "--train a --test b"}.get(
            verb, "--dataset x"
        )
        sentence = f"{data} is no model, and {FILES[kind]} is one; name the model first: smtdist {verb} {FILES[kind]} {data}."
        refused(f"{verb} {data} {FILES[kind]} {end}", at, sentence, code=2)


def saved(model, path):
    """Return the arrays of a model of Python."""
    smtdist.save(model, path, overwrite=True)
    return arrays(path)


def test_what_is_added_is_withdrawn_again(life, tmp_path, at):
    need(life, "update")
    _, more = life.data
    both, back, own, other = (tmp_path / f"{name}.h5" for name in ("both", "back", "own", "python"))
    said = told("update", life.path, more, "--quiet --out", both)
    assert [entry["action"] for entry in said["audit"]] == ["added", "added"]
    said = told("withdraw", both, more, "--quiet --out", back)
    assert [entry["action"] for entry in said["audit"]] == ["added", "added", "withdrawn"]
    same_sums(back, life.path)
    grown = smtdist.update(life.path, place(more))
    same(saved(grown, other), arrays(both))
    same(saved(smtdist.update(grown, place(more), withdraw=True), other), arrays(back))
    shutil.copy(life.path, own)
    run("update", own, more, "--quiet")
    same(arrays(own), arrays(both))
    estimator = read_again(life)
    assert estimator.partial_fit(place(more), *labels_in(more)) is estimator
    same(saved(estimator, other), arrays(both))
    same(saved(estimator.withdraw(place(more), *labels_in(more)), other), arrays(back))
    refused(["update", own, more, "--overwrite --out", own], at, "leave out --out to replace it")


def test_what_would_count_twice_or_was_never_added_is_refused(life, tmp_path, at):
    need(life, "update")
    first, more = (data.replace("--clip", "--dataset") for data in life.data)
    out = ["--quiet --out", tmp_path / "out.h5"]
    for verb, samples, said in (
        ("update", first, "in the sums already"),
        ("withdraw", more, "not in the sums"),
    ):
        refused([verb, life.path, samples, *out], at, said)
        with pytest.raises(SmtdistError, match=said) as caught:
            smtdist.update(life.path, place(samples), withdraw=verb == "withdraw")
        assert "--" not in str(caught.value)
    twice = told("update", life.path, first, "--allow-repeats", *out)
    assert twice["n_repeated"] > 0 or life.is_head
    if life.other:
        refused(["update", life.path, life.other, *out, "--overwrite"], at, ".")


def test_a_finished_change_is_not_gone_on_with(life, tmp_path, at):
    need(life, "update")
    own = shutil.copy(life.path, tmp_path / "own.h5")
    for verb in ("update", "withdraw"):
        run(verb, own, life.data[-1], "--quiet --checkpoint", tmp_path / verb)
        before = arrays(own)
        refused(["resume", tmp_path / verb], at, f"The {verb} that was begun in {tmp_path / verb} is done")
        same(arrays(own), before)


def test_models_are_merged(life, tmp_path, at):
    need(life, "update")
    need(life, "merge")
    _, more = life.data
    alone, total, rest, both, other = (
        tmp_path / f"{name}.h5" for name in ("alone", "sum", "rest", "both", "python")
    )
    run("update", life.path, more, "--alone --quiet --out", alone)
    run("update", life.path, more, "--quiet --out", both)
    assert told("merge", life.path, alone, "--out", total)["bytes"] == total.stat().st_size
    same(arrays(total), arrays(both))
    assert "withdrawn" in run("merge", both, "--subtract", alone, "--out", rest)
    same_sums(rest, life.path)
    merged = smtdist.merge([life.path, smtdist.update(life.fitted, place(more), alone=True)])
    same(saved(merged, other), arrays(total))
    same(saved(smtdist.merge([merged], subtract=[alone]), other), arrays(rest))
    if hasattr(life.fitted, "n_components"):
        run("merge", life.path, "--set n_components=2 --overwrite --out", total)
        same(saved(smtdist.merge([life.path], n_components=2), other), arrays(total))
    out = ["--out", tmp_path / "out.h5"]
    refused(["merge", life.path, alone, alone, *out], at, "pass --allow-repeats")
    refused(["merge", life.path, "--subtract", alone, *out], at, "are not in the sums")
    refused(["merge", life.path, "none.h5", *out], at, "There is no model file")
    refused(["update", life.path, more, "--alone"], at, "give --out", code=2)


def represented(life, samples):
    """Return the representation of samples from Python."""
    if life.is_head:
        return life.fitted.predict_proba(place(samples))
    return np.asarray(life.fitted.transform(rows_of(samples)))


def test_samples_are_transformed_as_in_python(life, tmp_path, at):
    need(life, "transform")
    _, more = life.data
    out, name = tmp_path / "z.h5", "probability" if life.is_head else "z"
    line = ["transform", life.path, more, "--quiet --out"]
    said, found = told(*line, out), arrays(out)
    rows = len(found[name])
    expected = represented(life, more).reshape(rows, -1).astype(found[name].dtype)
    np.testing.assert_array_equal(found[name].reshape(rows, -1), expected)
    assert (said["n_samples"], said["bytes"]) == (rows, out.stat().st_size)
    refused([*line, out], at, "exists already")
    refused([*line, life.path], at, "is read by this command")
    refused(["transform", life.path, life.other, "--out", tmp_path / "y.h5"], at, "give ")
    run(*line, out, "--overwrite")
    same(arrays(out), found)
    assert [path.name for path in tmp_path.iterdir()] == ["z.h5"]


def judged(life):
    """Return an evaluation from Python."""
    if hasattr(life.fitted, "judge"):
        return life.fitted.judge(place(life.data[1]), sequences=4)
    if life.is_head:
        return {"top1": life.fitted.score(place(life.judged), *labels_in(life.judged))}
    if life.judged == IN_ROWS:
        with h5py.File("data/rows.h5") as file:
            given = [file[f"{group}/{name}"][()] for group in ("train", "test") for name in "xy"]
    else:
        given = [part for group in ("train", "test") for part in (("data/images.h5", group), None)]
    return life.fitted.evaluate(*given, neighbours=5).to_dict()


def test_an_evaluation_is_that_of_python(life):
    need(life, "evaluate")
    found = told("evaluate", life.path, life.judged, "--quiet")
    expected = json.loads(json.dumps(judged(life)))
    assert {name: found[name] for name in expected} == expected
    assert run("evaluate", life.path, life.judged, "--quiet")


def test_a_grid_is_tuned_as_in_python(life, tmp_path):
    if life.model != "smt":
        pytest.skip("has no tune")
    learnt = {"feature": life.learnt, "rounds": 2} if life.learnt else {}
    grid = "--grid n_components=2,4 --grid ridge=0.1,0.2 --neighbours 5 --quiet"
    found = told(
        "tune data/images.h5 --train train --validation test", sets(**life.settings, **learnt), grid
    )
    expected = smtdist.tune(
        smtdist.SMT(**life.fitted.get_params()),
        {"n_components": [2, 4], "ridge": [0.1, 0.2]},
        ("data/images.h5", "train"),
        validation=(("data/images.h5", "test"), None),
        neighbours=5,
    )
    assert found["trials"] == json.loads(json.dumps(expected.to_dict()["trials"]))
    assert len(found["trials"]) == 4
    assert found["best"]["top1"] == max(one["top1"] for one in found["trials"]) == expected.best_score
    # the best is what a fit with its settings and an evaluation find
    fixed = sets(
        **{name: value for name, value in life.settings.items() if name != "n_components"}, **learnt
    )
    run(
        "fit data/images.h5 --dataset train/images", fixed, found["set"], "--quiet --out", tmp_path / "m.h5"
    )
    judged = told("evaluate", tmp_path / "m.h5", life.judged, "--quiet")
    assert (
        abs(judged["top1"] - found["best"]["top1"]) < 1.5 / judged["n_test"]
    )  # a tie that rounding breaks


EXPORTS = {"words": ("word2vec", "v.txt"), "smt": ("onnx", "m.onnx")}


@pytest.mark.parametrize("kind", FILES)
def test_a_model_is_exported_or_says_why_not(kind, tmp_path, at):
    form, name = EXPORTS.get(kind, ("onnx", "m.onnx"))
    line = ["export", FILES[kind], f"--format {form} --out", tmp_path / name]
    if kind not in EXPORTS:
        done = call(*line)
        assert done.exit_code in (1, 2), done.output
        with pytest.raises(SmtdistError) as caught:
            smtdist.export(FILES[kind], tmp_path / name)
        assert done.stderr == f"smtdist: {caught.value}\n"
        assert not list(tmp_path.iterdir())
        return
    if form == "onnx":
        pytest.importorskip("onnx")
    assert told(*line)["bytes"] == (tmp_path / name).stat().st_size
    smtdist.export(FILES[kind], tmp_path / f"python-{name}")
    assert (tmp_path / name).read_bytes() == (tmp_path / f"python-{name}").read_bytes()
    refused(line, at, "exists already")
    run(*line, "--overwrite")


@pytest.mark.parametrize("kind", [*FILES, *BESIDE])
def test_a_file_is_told_of_reported_and_checked(kind, tmp_path, at):
    path = Path({**FILES, **BESIDE}[kind])
    facts = told("info", path)
    assert facts == json.loads(json.dumps(facts_of(path)))
    assert (facts["kind"], facts["bytes"]) == (store.kind_at(path), path.stat().st_size)
    shown = run("info", path)
    fields = [jobs.declared(one) for one in KINDS[kind].fits or ("points",)]
    names = {field.metadata["setting"].stored: name for one in fields for name, field in one.items()}
    assert set(facts["configuration"]) <= set(shown.split()) - (names.keys() - names.values())
    page, other = tmp_path / "r.html", tmp_path / "python.html"
    assert told("report", path, "--quiet --out", page)["bytes"] == page.stat().st_size
    smtdist.write_report(path, other)
    assert page.read_text() == other.read_text()
    refused(["report", path, "--out", page], at, "exists already")
    refused(["report", path, "--out r.txt"], at, "let it end in .html", code=2)
    (verdict,) = told("check", path)["files"]  # files of earlier versions say nothing of themselves
    assert verdict["state"] in ("whole", "no checksums")


READS = (
    *(
        "update FILE x.h5",
        "withdraw FILE x.h5",
        "merge FILE --out o.h5",
        "info FILE",
        "near FILE a",
        "search FILE 1",
    ),
    *("transform FILE x.h5 --dataset x --out o.h5", "evaluate FILE x.h5 --train a --test b"),
    *("export FILE --format onnx --out o.onnx", "report FILE --out o.html", "filters FILE --out o.png"),
    "fit data/images.h5 --dataset 0 --from-model FILE --out o.h5",
    "fit data/a.txt --model words --from-model FILE --out o.h5",
)


@pytest.mark.parametrize("command", READS)
def test_a_model_that_is_not_there_is_one_sentence(command, at):
    refused(command.replace("FILE", "none.h5"), at, "There is no ")


def data_of(model):
    """Return samples that a model takes, as words."""
    alike = jobs.kind_of(model).fits
    found = [one.data[0] for one in LIVES.values() if one.model in alike]
    assert found, ADD_LIFE.format(model)
    return found[0]


@pytest.mark.parametrize("model", MODELS_HERE)
@pytest.mark.parametrize("verb", ["fit", "plan"])
def test_data_that_are_not_there_are_one_sentence(model, verb, at):
    about, data = jobs.kind_of(model), data_of(model)
    path, *rest = data.split(" ", 1)
    end = f"--model {model} --out o.h5"
    if verb == "fit":
        refused(f"fit {data} --model {model} --out words.h5", at, "exists already")
        refused(f"fit {data} --model {model} --out no/o.h5", at, "does not exist; make it first")
    refused(f"{verb} none.h5 {' '.join(rest)} {end}", at, "none.h5")
    if "dataset" in about.takes:
        refused(f"{verb} {path} --dataset nosuch {end}", at, "no dataset 'nosuch'")
    given = {
        "dataset": "x",
        "preset": "mnist-vq",
        "from_model": "smt-gq.h5",
        "below": "video.h5",
        "clip": "one",
    }
    for option in given.keys() - set(about.takes):
        word = f"--{option.replace('_', '-')}"
        sentence = f"A fit of {model} takes no {word}; leave it out."
        refused(f"{verb} {path} {end} {word} {given[option]}", at, sentence, code=2)
    if about.unplanned and verb == "plan":
        refused(f"plan {data} {end}", at, about.unplanned, code=2)


@pytest.mark.parametrize(
    ("kind", "verb"), [(kind, verb) for kind in FILES for verb in CHANGES if verb not in jobs.verbs(kind)]
)
def test_a_verb_that_a_kind_lacks_is_one_sentence_in_both_languages(kind, verb, at):
    path, data = FILES[kind], "data/tables.h5 --dataset x"
    line = {
        "merge": f"merge {path} {path} --out OUT",
        "evaluate": f"evaluate {path} data/tables.h5 --train x --test x",
    }.get(verb, f"{verb} {path} {data} --out OUT")
    sentence = f"A {KINDS[kind].called} {jobs.LACKING[verb]}."
    refused(line, at, sentence)
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


@pytest.mark.parametrize("model", MODELS_HERE)
def test_settings_of_every_model_are_listed(model):
    listed = told(f"settings {model}")["settings"]
    assert listed.keys() == jobs.declared(model).keys()
    short, whole = (run(f"settings {model} {more}") for more in ("", "--all"))
    assert len(short.splitlines()) <= len(whole.splitlines())
    assert not re.findall(
        r"\b(None|True|False|null)\b", whole
    )  # which the command line reads as none, true and false


@pytest.mark.parametrize("code", [*configuration.FEATURES, *configuration.CODED])
def test_settings_of_every_code_are_listed_alike(code):
    assert set(told(f"settings --code {code}")) == {"settings", "code"}
    listed = told(f"settings --feature {code}")["settings"]
    assert "code" not in listed
    assert listed.keys() >= {"n_atoms", "patch_size", "n_components"}


def test_concepts_show_about_ten_settings():
    basic = [
        name for name, field in jobs.declared("concepts").items() if not field.metadata["setting"].advanced
    ]
    assert 8 <= len(basic) <= 12
    assert len(told("settings concepts")["settings"]) > 25
    assert "advanced settings more: smtdist settings concepts --all" in run("settings concepts")


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


@pytest.mark.parametrize("earlier", EARLIER)
def test_earlier_spellings_give_the_same_bits_and_go_on(earlier, tmp_path):
    kept = [] if "transform" in earlier else ["--checkpoint", tmp_path / "c"]
    first = [*earlier.split(), "--out", tmp_path / "1.h5", "--quiet"]
    run(*first, *kept)
    run(*EARLIER[earlier].split(), "--out", tmp_path / "2.h5", "--quiet")
    other = arrays(tmp_path / "2.h5")
    same(arrays(tmp_path / "1.h5"), other)
    if not kept:
        return
    # a folder that an earlier version began has the words of the command line
    begun = json.loads((tmp_path / "c" / "run.json").read_text())
    assert begun["verb"] == EARLIER[earlier].split()[0]
    words = [str(word) for word in [*first, *kept]]
    about = {"schema": 3, "command": words, "folder": begun["folder"]}
    (tmp_path / "c" / "run.json").write_text(json.dumps(about))
    (tmp_path / "1.h5").unlink()
    run("resume --quiet", tmp_path / "c")
    same(arrays(tmp_path / "1.h5"), other)


def test_every_earlier_spelling_is_a_verb_of_today():
    for now in commands.EARLIER.values():
        assert now.split()[0] in commands.COMMANDS
