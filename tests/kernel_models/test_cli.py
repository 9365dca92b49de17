"""Kernel models from the command line: what a plan says of their fits, and what goes wrong."""

import numpy as np
import pytest
from arrays_in_files import write_arrays, write_labelled
from calling import refused, run, sets, told


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernel") / "data.h5"
    generator = np.random.default_rng(0)
    labels = np.arange(690) % 3
    rows = np.eye(3, 5)[labels] * 3 + 0.4 * generator.standard_normal((690, 5))
    return write_labelled(path, rows.astype(np.float32), labels, {"train": 600, "test": 90}, ("x", "y"))


CONTRASTIVE = "--dataset train/x --model kernel-contrastive --quiet"
FEATURES = sets(features="fourier", n_features=128, noise=0.4)


@pytest.fixture(scope="module")
def model(data):
    """A model of three classes that are far apart."""
    out = data.with_name("k.h5")
    run("fit", data, CONTRASTIVE, FEATURES, "--set n_components=3 --out", out)
    return out


def test_a_representation_is_searched_for_concepts_and_judged(data, model, tmp_path):
    z, concepts = tmp_path / "z.h5", tmp_path / "c.h5"
    points, head = tmp_path / "p.h5", tmp_path / "h.h5"
    run("fit", data, "--dataset train/x --model points --set n_atoms=30 --quiet --out", points)
    for embeds in (points, model):
        run("transform", embeds, data, "--dataset train/x --overwrite --quiet --out", z)
        run("fit", z, "--model head --overwrite --quiet --out", head)
        assert min(told("evaluate", one, z, "--quiet")["top1"] for one in (head, z)) > 0.9
    found = told("fit", z, "--model concepts --set n_concepts=3 --quiet --out", concepts)
    # three well separated classes are three concepts: a member tells its class
    assert found["cka"] > 0.5
    assert told("info", concepts)["n_points"] == 600
    judging = ["evaluate", model, data, "--train train/x --test test/x --quiet"]
    assert told(*judging, "--neighbours 5")["top1"] > 0.9
    planned = told(*judging, "--neighbours 5 --plan")
    assert [one["name"] for one in planned["stages"]] == ["transform", "knn"]
    assert "linear (C =" in run(*judging, "--metric linear")
    for words, sentence in (
        ("--components 1", "A kernel model is evaluated on one file"),
        ("--whiten 0.9", "needs --leading"),
        ("--leading 2", "no second model"),
    ):
        refused([*judging, words], tmp_path, sentence, 2)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ("--set kernel=sigmoid", "The kernel sigmoid is indefinite on these rows"),
        ("--set features=fourier --set kernel=ntk", "The kernel ntk has no fourier features"),
        ("--set triplets=given", "are not three times as many"),
    ],
)
def test_what_goes_wrong_is_one_sentence(changes, sentence, data, tmp_path):
    refused(["fit", data, CONTRASTIVE, changes, "--out", tmp_path / "k.h5"], tmp_path, sentence)


@pytest.mark.parametrize("verb", ["fit", "plan"])
def test_an_exact_model_starts_no_workers(verb, data, tmp_path):
    out = ["--out", tmp_path / "k.h5"] * (verb == "fit")
    for given in ("--workers 2", "--cluster local"):
        words = [verb, data, CONTRASTIVE, given, *out]
        refused(words, tmp_path, "An exact model takes one process; set feature_map, or leave out", code=2)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (5,), ()])
def test_what_has_no_rows_is_not_taken_for_images(shape, tmp_path):
    write_arrays(tmp_path / "x.h5", {"x": np.zeros(shape)})
    words = ["fit", tmp_path / "x.h5", "--dataset x --model kernel-contrastive --out", tmp_path / "k.h5"]
    refused(words, tmp_path, "rows of numbers must be (points, dimensions)")


@pytest.mark.parametrize(
    ("changes", "sentences"),
    [
        (sets(features="fourier", n_features=1000000), ("The kernel model needs", "lower n_features")),
        (f"{FEATURES} --memory 16MB", ("may use 15.3 MiB",)),
        ("--set copies=100000", ("The exact kernel model needs",)),
        (
            sets(features="nystroem", n_features=2048),
            ("drawn from a pool of 1024; raise negative_pool_size",),
        ),
    ],
)
def test_plan_refuses_what_cannot_fit(changes, sentences, data):
    said = run("plan", data, CONTRASTIVE, changes, code=1)
    assert all(sentence in said for sentence in sentences)
