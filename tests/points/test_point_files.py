"""Models of points as files and commands: every kind of features and neighbours, read again, asked about new points."""

import json

import h5py
import numpy as np
import pytest
from arrays_in_files import write_arrays
from calling import held, refused, run, same, told
from executors import engine

import smtdist
from examples.point_fits import fit_points
from smtdist.data.table import as_table
from smtdist.errors import ConfigurationError, DataError, ModelError
from smtdist.kernels.features import Landmarks
from smtdist.models import store
from smtdist.models.points.contexts import (
    locally_linear_context,
    nearest_neighbours,
    spread_points,
    temporal_context,
)
from smtdist.models.points.fit import PointModel
from smtdist.models.points.table import CONTEXTS, FEATURES, PointSettings, in_context
from smtdist.models.rows import embedded

POINTS = np.random.default_rng(0).uniform(-1, 1, (300, 3))
SMALL = PointSettings(size=25, neighbours=4, n_components=3, width=0.6)


@pytest.mark.parametrize("features", FEATURES)
def test_a_file_gives_the_model_back_and_embeds_new_points(features, tmp_path):
    settings = SMALL.replace(features=features, context="lle", n_components=2)
    model, _ = PointModel.fit(POINTS, settings, engine())
    store.save(model, tmp_path / "p.h5")
    found = store.load(tmp_path / "p.h5")
    assert (found.settings, found.n_inputs, found.provenance) == (settings, 3, model.provenance)
    new = np.random.default_rng(1).uniform(-1, 1, (40, 3))
    np.testing.assert_array_equal(found.transform(new), model.transform(new))
    assert found.transform(new).any()
    for name in ("moment", "scatter", "mean"):
        np.testing.assert_array_equal(getattr(found.means, name), getattr(model.means, name))
    np.testing.assert_array_equal(found.embedding.eigenvalues, model.embedding.eigenvalues)
    P, V = found.embedding.components, found.means.moment
    np.testing.assert_allclose(P @ V @ P.T, np.eye(2), atol=1e-9)


@pytest.mark.parametrize("context", CONTEXTS)
def test_settings_choose_the_neighbours(context):
    settings = SMALL.replace(context=context, order=2, lengths=(120, 180))
    model, (record, _) = PointModel.fit(POINTS, settings, engine())
    assert model.means.n_positions == (600 if context == "noise" else 300)
    assert record["n_samples"] == 300
    if context not in ("lle", "time"):
        return
    near = nearest_neighbours(POINTS, 4)
    given = locally_linear_context(POINTS, near) if context == "lle" else temporal_context((120, 180), 2)
    want, _ = fit_points(
        in_context(POINTS, given), Landmarks(spread_points(POINTS, 25)), engine(), order=2, n_components=3
    )
    np.testing.assert_array_equal(model.means.scatter, want.means.scatter)
    np.testing.assert_array_equal(model.embedding.components, want.embedding.components)


@pytest.mark.parametrize("context", CONTEXTS)
def test_components_that_say_nothing_are_warned_of(context):
    settings = {"size": 25, "neighbours": 4, "n_components": 3, "noise": 0.3, "context": context}
    with pytest.warns(UserWarning, match="^Component 1 is the same .* set second_moment to centred"):
        smtdist.PointSMT(**settings).fit(POINTS)
    settings["second_moment"] = "centred"
    assert smtdist.PointSMT(**settings).fit(POINTS).model_.advice() == []
    apart = np.concatenate([POINTS, POINTS + 9, POINTS - 9])
    with pytest.warns(UserWarning, match="^In 2 components neighbours do not differ, so any mixture"):
        smtdist.PointSMT(**settings, lengths=[300] * 3).fit(apart)


def test_new_points_are_embedded_in_any_pieces(monkeypatch):
    monkeypatch.setattr("smtdist.models.rows.RANGE", 256)
    model, _ = PointModel.fit(POINTS, SMALL, engine())
    new = np.random.default_rng(2).uniform(-1, 1, (1000, 3))
    pieces = dict(embedded(model, as_table(new), engine()))
    assert len(pieces) == 4
    np.testing.assert_array_equal(
        np.concatenate([pieces[at] for at in sorted(pieces)]), model.transform(new)
    )
    with pytest.raises(DataError, match="samples of 3 numbers"):
        list(embedded(model, as_table(new[:, :2]), engine()))


def test_what_has_no_meaning_is_refused():
    for changes, said in (
        ({"size": 301}, "300 points"),
        ({"n_components": 26}, "25 features"),
        ({"context": "time", "lengths": (10, 20)}, "add up to 30"),
        ({"features": "interpolation", "size": 3, "n_components": 2}, "3 landmarks"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            PointModel.fit(POINTS, SMALL.replace(**changes), engine())


def test_tables_of_numpy_are_those_of_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_arrays("t.h5", {"x": POINTS, "more": POINTS[:50] + 0.01})
    np.save("t.npy", POINTS)
    common = "--model points --set size=25 --set n_neighbors=4 --set n_components=3 --quiet --out"
    done = told(f"fit t.h5 --dataset x {common} p.h5")
    assert (done["n_features"], done["n_components"], done["n_inputs"]) == (25, 3, 3)
    assert "set second_moment to centred" in done["advice"][0]
    assert "25 features" in run(f"fit t.npy {common} q.h5")
    one, other = (store.load(name).embedding.components for name in ("p.h5", "q.h5"))
    np.testing.assert_array_equal(one, other)
    assert told("info p.h5")["features"] == "Landmarks"
    with smtdist.open_datatree("p.h5") as tree:
        assert tree["embedding/components"].shape == (3, 25)
    refused(f"fit t.h5 {common} r.h5", tmp_path, "dataset must name", 2)
    lengths = "it must be numbers of rows, as in 100,250,80"
    refused(f"fit t.npy {common} r.h5 --set lengths=a", tmp_path, lengths, 2)


def test_rows_that_are_not_finite_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = POINTS.copy()
    rows[7, 2] = np.nan
    np.save("t.npy", rows)
    fit = "fit t.npy --model points --set size=5 --set feature_map=rbf --out p.h5"
    refused(fit, tmp_path, "sample 7: column 2 is nan, but every number must be finite")


@pytest.mark.parametrize("order", [1, 2])
def test_sequences_are_withdrawn_whole_or_not_at_all(order, tmp_path, monkeypatch):
    """A part of a sequence would leave the difference to its neighbour behind."""
    monkeypatch.chdir(tmp_path)
    np.save("ab.npy", POINTS)
    np.save("a.npy", POINTS[:170])
    np.save("b.npy", POINTS[170:])
    fit = f"--model points --set feature_map=quadratic --set context=time --set difference_order={order} --set n_components=2"
    run(f"fit ab.npy {fit} --out one.h5")
    said = "1 of the 130 samples to withdraw are not in the sums"
    refused("withdraw one.h5 b.npy --out x.h5", tmp_path, said)
    run(f"fit ab.npy {fit} --set lengths=170,130 --out two.h5")
    run(f"fit a.npy {fit} --out a.h5")
    run("withdraw two.h5 b.npy --out back.h5")
    run("update a.h5 b.npy --out grown.h5")
    run("update a.h5 ab.npy --alone --out alone.h5")
    run("update a.h5 ab.npy --lengths 170,130 --alone --out alone-two.h5")
    sums = {path.stem: store.load(path).statistics for path in tmp_path.glob("*.h5")}
    for one, other in (("back", "a"), ("grown", "two"), ("alone", "one"), ("alone-two", "two")):
        same(held(sums[one]), held(sums[other]))
    np.save("c.npy", POINTS[:20])
    run("fit ab.npy --model points --set context=noise --set size=9 --set n_components=2 --out n.h5")
    refused("update n.h5 c.npy --lengths 20", tmp_path, "lengths are for sequences in time", 2)


def test_a_kind_of_samples_that_is_not_installed_is_named(tmp_path):
    model, _ = PointModel.fit(POINTS, SMALL, engine())
    store.save(model, tmp_path / "p.h5")
    with h5py.File(tmp_path / "p.h5", "r+") as file:
        about = json.loads(file.attrs["configuration"]) | {"sites": "windows"}
        file.attrs["configuration"] = json.dumps(about)
        del file.attrs["smtdist_checksums"]
    with pytest.raises(ModelError, match="of the kind windows, which no installed package brings; install"):
        store.load(tmp_path / "p.h5", kind="points")
