"""Colour and grey side by side: the bits of two models, through fit, file, update, merge, transform and evaluate."""

import numpy as np
import pytest
from arrays_in_files import write_labelled
from calling import arrays, run, told

import smtdist
from smtdist.configuration import JOINED, presets
from smtdist.data.array import as_source
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, ModelError
from smtdist.models import loading, store
from smtdist.models.fit import fit, fit_joined
from smtdist.models.joined import Joined, side_by_side
from smtdist.models.merge import fit_alone, update
from smtdist.models.readout import layout_of, width, with_readout
from smtdist.models.transform import represented

IMAGES = np.random.default_rng(3).integers(0, 256, (40, 9, 9, 3), dtype=np.uint8)
SMALL = {"dictionary": 24, "n_components": 5, "drop": 1, "threshold": 0.1, "neighbours": 3}
SETTINGS = {name: one.replace(**SMALL) for name, one in presets("cifar10-gq-joined").items()}
FLAGS = ["--preset", "cifar10-gq-joined", *(f"--set={name}={value}" for name, value in SMALL.items())]


def engine(folder=None):
    return Engine(SerialExecutor(1), checkpoint=folder)


@pytest.fixture(scope="module")
def together():
    return fit_joined(as_source(IMAGES[:30]), SETTINGS, engine())[0]


@pytest.fixture(scope="module")
def apart():
    return [fit(as_source(IMAGES[:30]), one, engine())[0] for one in SETTINGS.values()]


@pytest.fixture
def data(tmp_path):
    return write_labelled(tmp_path / "d.h5", IMAGES, np.arange(40) % 2, {"train": 30, "test": 10})


def require_equal(joined, models):
    for part, model in zip(joined.parts, models, strict=True):
        assert np.array_equal(part.components(), model.components())
        for name, sums in model.statistics.matrices.items():
            assert np.array_equal(part.statistics.matrices[name], sums)


def test_models_fitted_together_have_the_bits_of_models_fitted_apart(together, apart, tmp_path):
    require_equal(together, apart)
    store.save(together, tmp_path / "j.h5")
    kept = smtdist.load(tmp_path / "j.h5")
    assert isinstance(kept, Joined)
    assert kept.names == ("colour", "grey")
    require_equal(kept, apart)


@pytest.mark.parametrize("features", [None, "both"])
def test_their_representation_is_those_of_both_one_after_the_other(together, apart, features):
    source = as_source(IMAGES[30:])

    def seen(model):
        return with_readout(model, features, n_components=3, mirrored=features is not None)

    found = represented(seen(together), source, engine())
    each = [represented(seen(model), source, engine()) for model in apart]
    assert np.array_equal(found, np.concatenate([one.reshape(len(one), -1) for one in each], axis=1))
    assert width(layout_of(seen(together))) == found.shape[1]


def test_they_grow_and_merge_as_each_does_alone(together, apart):
    more = as_source(IMAGES[30:])
    require_equal(update(together, more, engine())[0], [update(one, more, engine())[0] for one in apart])
    other = fit_alone(together, more, engine())[0]
    require_equal(smtdist.merge([together, other]), [update(one, more, engine())[0] for one in apart])
    assert [one.settings.n_components for one in smtdist.merge([together], n_components=2).parts] == [2, 2]
    with pytest.raises(
        ModelError, match=r"The second model does not hold models side by side .*colour, grey"
    ):
        smtdist.merge([together, apart[0]])


def test_one_command_fits_both_and_others_take_the_file(data, tmp_path):
    model, train = tmp_path / "j.h5", ["--train", "train", "--test", "test"]
    fitted = told("fit", data, "--dataset", "train/images", *FLAGS, "--out", model, "-q")
    assert list(fitted["models"]) == ["colour", "grey"]
    assert [one["name"] for one in fitted["passes"]][4:6] == ["grey-whitening", "grey-dictionary"]
    for name, one in zip(fitted["models"], smtdist.load(model).parts, strict=True):
        store.save(one, tmp_path / f"{name}.h5")
    beside = [tmp_path / "colour.h5", "--with", tmp_path / "grey.h5"]
    for metric in ("knn", "kernel"):
        ask = [data, *train, "--metric", metric, "-q"]
        both, apart = (told("evaluate", *words, *ask) for words in ([model], beside))
        assert {**both, "model": ""} == {**apart, "model": ""}
    rows = []
    for words in ([model], [tmp_path / "colour.h5"], [tmp_path / "grey.h5"], beside):
        transform = [words[0], data, "--dataset test/images -q --overwrite --out", tmp_path / "z.h5"]
        run("transform", *transform, *words[1:])
        rows.append(arrays(tmp_path / "z.h5")["z"])
    for row in (rows[0], rows[3]):
        np.testing.assert_array_equal(row, np.hstack(rows[1:3]))
    assert list(told("info", model)["models"]) == ["colour", "grey"]
    assert list(told("plan", data, "--dataset", "train/images", *FLAGS, "--no-calibrate")["models"])
    run("update", model, data, "--dataset", "test/images", "-q", "--out", tmp_path / "more.h5")
    run("check", model)
    run("report", model, "--out", tmp_path / "r.html")
    assert "Dictionary (grey)" in (tmp_path / "r.html").read_text()


def test_what_needs_one_model_says_so(data, together, tmp_path):
    path = tmp_path / "j.h5"
    store.save(together, path)
    with pytest.raises(ModelError, match=r"2 models side by side \(colour, grey\), and one is needed"):
        loading.load_transform(path)
    assert "models side by side has no format of other programs" in run(
        "export", path, "--format", "onnx", "--out", tmp_path / "e.onnx", code=1
    )
    with pytest.raises(
        ConfigurationError, match=r"joined`, .* with n_atoms=2048, whitening_covariance=data \(colour"
    ):
        smtdist.SMT.from_preset("cifar10-gq-joined")
    np.save(tmp_path / "atoms.npy", np.ones((2, 108)))
    words = ["fit", data, "--dataset", "train/images", *FLAGS, "--atoms", tmp_path / "atoms.npy"]
    assert "leave out --atoms" in run(*words, "--out", tmp_path / "k.h5", code=2)


def test_models_side_by_side_lie_side_by_side_whatever_they_are_given_in(together, apart):
    assert side_by_side(apart[0], []) is apart[0]
    assert side_by_side(together, apart).parts == (*together.parts, *apart)
    assert {one.base for one in JOINED.values()} <= smtdist.PRESETS.keys()
