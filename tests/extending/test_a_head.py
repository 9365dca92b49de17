"""A new head in one file of 80 lines and one entry point has every verb of a head, in Python and from the command line."""

import importlib
import json
import sys
from pathlib import Path

import calling
import numpy as np
import pytest
from arrays_in_files import read_array
from brought import install, require_resumable, run
from calling import same_sums, told
from sklearn.base import clone

import smtdist
from docs import tables
from smtdist.errors import DataError, ModelError, SmtdistError
from smtdist.models import jobs, readout, transform

FILE = Path(__file__).with_name("nearest_mean.py")
FIT = "fit a.h5 --model nearest-mean --set shrink=0.1"
RNG = np.random.default_rng(0)
CENTRES = 3 * RNG.normal(size=(3, 6))
LABELS = {name: RNG.integers(0, 3, 300) for name in "abc"}
ROWS = {name: CENTRES[labels] + RNG.normal(size=(300, 6)) for name, labels in LABELS.items()}


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """The head, of which no more is known than its entry point; representations in the present folder."""
    install(monkeypatch, tmp_path, "smtdist.heads", "nearest-mean", "nearest_mean:NearestMean")
    monkeypatch.delitem(sys.modules, FILE.stem, raising=False)
    monkeypatch.syspath_prepend(str(FILE.parent))
    monkeypatch.chdir(tmp_path)
    parts = readout.layout_to_plain(readout.whole_row(6))
    about = {"configuration": "{}", "skipped": "[]", "identity": "x", "parts": json.dumps(parts)}
    for name, rows in ROWS.items():
        transform.save_representation(
            f"{name}.h5", [(0, rows)], len(rows), (6,), "float64", about, labels=LABELS[name]
        )


@pytest.fixture
def nearest(installed):
    return importlib.import_module(FILE.stem)


def test_in_python(nearest):
    (rows, labels), (more, others) = ((ROWS[name], LABELS[name]) for name in "ab")
    head = clone(nearest.NearestMean()).fit(rows, labels)
    means = np.array([rows[labels == label].mean(axis=0) for label in range(3)])
    np.testing.assert_allclose(head.means_, means, atol=1e-5)
    distances = ((more[:, None] - means) ** 2).sum(axis=2)
    np.testing.assert_array_equal(head.predict(more), distances.argmin(axis=1))
    np.testing.assert_allclose(head.predict_proba(more).sum(axis=1), 1)
    before = head.means_.copy()
    head.partial_fit(more, others)
    whole = nearest.NearestMean().fit(np.concatenate([rows, more]), np.concatenate([labels, others]))
    np.testing.assert_array_equal(head.means_, whole.means_)
    with pytest.raises(ModelError, match="are in the sums already"):
        head.partial_fit(more, others)
    head.withdraw(more, others)
    np.testing.assert_array_equal(head.means_, before)
    head.save("h.h5")
    again = smtdist.load("h.h5")
    np.testing.assert_array_equal(again.decision_function(more), head.decision_function(more))
    np.testing.assert_array_equal(again.partial_fit(more, others).means_, whole.means_)
    with pytest.raises(SmtdistError, match=r"shrink is 2; it must be a number of at least 0 and at most 1"):
        nearest.NearestMean(shrink=2).fit(rows, labels)
    with pytest.raises(DataError, match=r"Fewer than two classes would be left"):
        head.withdraw(rows[labels != 0], labels[labels != 0])


def test_from_the_command_line(installed):
    assert told("settings nearest-mean")["settings"].keys() == {"unit", "shrink", "bits", "mirrored"}
    assert "A head has no plan" in calling.run(f"plan {FIT[4:]}", code=2)
    for one in told(f"{FIT} --checkpoint c --out a-head.h5 -q")["passes"]:
        assert one["peak_bytes"] <= one["projected_bytes"]
    run("watch c --quiet")
    run("update a-head.h5 b.h5 --out ab.h5")
    run("withdraw ab.h5 b.h5 --out back.h5")
    same_sums("a-head.h5", "back.h5")
    run("transform ab.h5 c.h5 --out p.h5")
    run("transform ab.h5 c.h5 --csv --out p.csv")
    np.testing.assert_array_equal(read_array("p.h5", "label"), smtdist.load("ab.h5").predict(ROWS["c"]))
    assert told("evaluate ab.h5 c.h5 -q")["top1"] > 0.9
    assert "nearest-mean" in run("evaluate ab.h5 c.h5")
    run("report ab.h5 --out r.html")
    about = told("info ab.h5")
    assert (about["kind"], about["head"], about["n_samples"]) == ("head", "nearest-mean", 600)
    assert "nearest-mean" in run("info ab.h5")
    run("check ab.h5")
    assert "A head cannot be merged" in calling.run("merge ab.h5 a-head.h5 --out m.h5", code=1)


def test_killed_and_resumed_it_is_the_same(installed):
    require_resumable(FIT)


def test_its_row_in_the_docs(installed):
    assert jobs.kind_of("nearest-mean").called == "head"
    assert tables.model_row("head").startswith("| head | `head`, `nearest-mean` |")


def test_a_file_of_it_without_its_package_is_refused_and_said(nearest):
    nearest.NearestMean().fit(ROWS["a"], LABELS["a"]).save("h.h5")
    Path("brought-1.0.dist-info/entry_points.txt").write_text("")
    with pytest.raises(
        ModelError, match=r"unknown kind, 'nearest-mean'; install .* the package that brings it"
    ):
        smtdist.load("h.h5")
