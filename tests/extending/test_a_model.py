"""A new model in one file of 80 lines and one entry point has every verb, in Python and from the command line."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
from arrays_in_files import read_array, write_labelled
from brought import install, lived, require_resumable, run
from calling import told
from sklearn.base import clone

import smtdist
from docs import tables
from smtdist.errors import DataError, ModelError, SmtdistError
from smtdist.models import jobs
from smtdist.models.kinds import KINDS
from smtdist.report.checking import checked

FILE = Path(__file__).with_name("principal_components.py")
FIT = "--model pca --set n_components=3"
RNG = np.random.default_rng(0)
ROWS = {name: RNG.normal(size=(400, 5)) @ RNG.normal(size=(5, 5)) + 3.0 for name in "ab"}


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """The model, of which no more is known than its entry point; data with labels in the present folder."""
    install(monkeypatch, tmp_path, "smtdist.models", "pca", "principal_components:Pca")
    monkeypatch.delitem(KINDS, "pca", raising=False)
    monkeypatch.delitem(sys.modules, FILE.stem, raising=False)
    monkeypatch.syspath_prepend(str(FILE.parent))
    monkeypatch.chdir(tmp_path)
    rows = np.concatenate(list(ROWS.values()))
    write_labelled("d.h5", rows, (rows[:, 0] > 3).astype(int), dict.fromkeys("ab", 400), ("z", "labels"))


@pytest.fixture
def pca(installed):
    return importlib.import_module(FILE.stem)


@pytest.mark.parametrize("file", [FILE, FILE.with_name("nearest_mean.py")])
def test_a_model_or_a_head_is_one_file_of_80_lines_which_the_docs_show(file):
    text = file.read_text()
    assert len(text.splitlines()) <= 80
    assert f"```python\n{text}```\n" in (Path(__file__).parents[2] / "docs/extending.md").read_text()


def test_in_python(pca):
    fitted = clone(pca.PCA(n_components=3)).fit(ROWS["a"])
    mean = ROWS["a"].mean(axis=0)
    values = np.linalg.svd(ROWS["a"] - mean)[1][:3] ** 2 / 400
    np.testing.assert_allclose(fitted.mean_, mean, atol=1e-5)
    np.testing.assert_allclose(fitted.variances_, values, rtol=1e-3)
    z = fitted.transform(ROWS["b"])
    assert z.shape == (400, 3)
    np.testing.assert_array_equal(fitted.transform(ROWS["b"][7:8]), z[7:8])
    np.testing.assert_allclose(pca.PCA(whiten=True).fit_transform(ROWS["a"]).var(axis=0), 1, rtol=1e-3)
    before = fitted.model_
    grown = fitted.partial_fit(ROWS["b"]).model_
    both = smtdist.merge([before, smtdist.update(before, ROWS["b"], alone=True)])
    back = smtdist.update(grown, ROWS["b"], withdraw=True)
    for name in ("mean", "components", "variances"):
        np.testing.assert_array_equal(getattr(grown, name), getattr(both, name))
        np.testing.assert_array_equal(getattr(before, name), getattr(back, name))
    assert smtdist.merge([before], n_components=2).components.shape == (2, 5)
    assert fitted.save("p.h5") == Path("p.h5").stat().st_size
    np.testing.assert_array_equal(smtdist.load("p.h5").components, fitted.components_)
    assert pca.PCA.from_file("p.h5").n_components == 3
    assert [verdict.state for verdict in checked(Path("p.h5"))] == ["whole"]
    altered = Path("p.h5").read_bytes().replace(fitted.mean_.tobytes()[:8], b"\1" * 8)
    Path("altered.h5").write_bytes(altered)
    assert [verdict.state for verdict in checked(Path("altered.h5"))] == ["wrong"]
    with pytest.raises(ModelError, match=r"not a complete pca model \(.*mean fails its checksum"):
        smtdist.load("altered.h5")
    labels = [(rows[:, 0] > 3).astype(int) for rows in ROWS.values()]
    assert fitted.evaluate(ROWS["a"], labels[0], ROWS["b"], labels[1]).top1 > 0.7
    with pytest.raises(
        SmtdistError, match=r"bits is -1; it must be a whole number of at least 0 and at most 30"
    ):
        pca.PCA(bits=-1).fit(ROWS["a"])
    with pytest.raises(ModelError, match="are in the sums already"):
        smtdist.update(grown, ROWS["b"])
    with pytest.raises(DataError, match="takes samples of 5 numbers"):
        smtdist.update(grown, np.zeros((4, 3)))


def test_from_the_command_line(installed):
    listed = told("settings pca")["settings"]
    assert (listed.keys(), listed["bits"]["default"]) == ({"n_components", "whiten", "bits"}, 16)
    passes = lived(FIT, "a/z", "b/z")
    assert [one["name"] for one in passes] == ["statistics", "solve"]
    for one in passes:
        assert one["peak_bytes"] <= one["projected_bytes"]
    run("watch c --quiet")
    run("merge a.h5 --set whiten=true --out white.h5")
    np.testing.assert_array_equal(read_array("z.h5", "z"), smtdist.load("ab.h5").transform(ROWS["b"]))
    assert told("evaluate ab.h5 d.h5 --train a/z --test b/z")["top1"] > 0.7
    run("evaluate ab.h5 d.h5 --train a/z --test b/z --plan")
    about = told("info ab.h5")
    assert (about["kind"], about["n_samples"], about["configuration"]["bits"]) == ("pca", 800, 16)


def test_killed_and_resumed_it_is_the_same(installed):
    require_resumable(f"fit d.h5 --dataset a/z {FIT}")


def test_its_row_in_the_docs(installed):
    jobs.kind_of("pca")
    cells = tables.model_row("pca").strip("| ").split(" | ")
    assert cells[:2] == ["pca model", "`pca`"]
    assert jobs.verbs("pca") == set(jobs.VERBS) - {"tune", "export"}
    assert cells[2:].count("yes") == len(jobs.VERBS) - 2


def test_a_file_of_it_without_its_package_is_refused_and_said(pca, monkeypatch):
    pca.PCA().fit(ROWS["a"]).save("p.h5")
    monkeypatch.delitem(KINDS, "pca")
    Path("brought-1.0.dist-info/entry_points.txt").write_text("")
    with pytest.raises(ModelError, match=r"p\.h5 holds a pca model, which no installed package brings"):
        smtdist.load("p.h5")
