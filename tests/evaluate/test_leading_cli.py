"""`evaluate --leading`: what the oracle finds in the directions of the oracle, said to people and to scripts."""

import numpy as np
import pytest
import reference
from arrays_in_files import read_array, write_labelled
from calling import call, refused, run, sets, told
from drawing import small_images


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """A file of labelled images, a model of them, and what both groups are by it."""
    folder = tmp_path_factory.mktemp("leading")
    rows, labels = {}, np.arange(190) % 3
    images = small_images(150, 190, 8, 8)[..., 0]
    images[labels == 1, :4] //= 2
    images[labels == 2] = images[labels == 2, :, ::-1] // 3
    write_labelled(folder / "data.h5", images, labels, {"train": 150, "test": 40})
    settings = sets(patch=3, feature="vq", dictionary=24, n_components=6, pool_size=2)
    run("fit", folder / "data.h5", "--dataset train/images -q", settings, "--out", folder / "model.h5")
    for group in ("train", "test"):
        transform = [folder / "model.h5", folder / "data.h5", f"--dataset {group}/images -q --out"]
        run("transform", *transform, folder / f"{group}.h5")
        rows[group] = tuple(read_array(folder / f"{group}.h5", name) for name in ("z", "labels"))
    return folder, rows


def asked(folder, words):
    """Return the words of an evaluation."""
    return f"evaluate {folder}/model.h5 {folder}/data.h5 --train train --test test --neighbours 5 {words}"


@pytest.mark.parametrize(("count", "whiten"), [(4, 0.25), (12, 1.0)])
def test_neighbours_vote_in_leading_directions(given, count, whiten):
    folder, rows = given
    (train_z, train_y), (test_z, test_y) = rows["train"], rows["test"]
    seen = [reference.leading(train_z, z, count, whiten) for z in (train_z, test_z)]
    expected = reference.soft_knn(seen[0], train_y, seen[1], 5, 0.03, "exp")
    found = told(asked(folder, f"--leading {count} --whiten {whiten}"))
    assert found["top1"] == np.mean(expected == test_y)
    assert found["leading"] == {"directions": count, "whiten": whiten}


def test_the_directions_are_told_and_wrong_ones_refused(given):
    folder, _ = given
    result = call(asked(folder, "--leading 4"))
    assert "4 leading directions" in " ".join(result.stdout.split())
    assert "Compared in 4 of" in " ".join(result.stderr.split())
    assert told(asked(folder, ""))["leading"] is None
    for words, code, sentence in (
        ("--whiten 0.5", 2, "needs --leading"),
        ("--leading 4 --whiten 2", 2, "at least 0 and at most 1"),
        ("--leading 1000000", 1, "there are at most"),
    ):
        refused(asked(folder, words), folder, sentence, code)


def test_directions_that_cannot_be_are_refused_before_anything_is_represented(given, monkeypatch):
    folder, _ = given
    monkeypatch.setattr("smtdist.evaluate.run.as_planned", None)
    refused(asked(folder, "--leading 1000000"), folder, "there are at most")
    monkeypatch.setattr("smtdist.evaluate.run.leading_bytes", lambda *_: 2**50)
    refused(asked(folder, "--leading 4"), folder, "ask for fewer directions")
