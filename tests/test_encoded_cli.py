"""Encoded groups through the commands: the same settings at fit, transform and evaluate, and a resume."""

import h5py
import numpy as np
import pytest
from arrays_in_files import read_array
from calling import run, sets, told
from drawing import small_images
from encoding import pillow_bytes, write_encoded

import smtdist
from smtdist.data.opening import open_source

SMALL = sets(
    patch=3, feature="vq", context=2, dictionary=24, n_components=6, drop=1, pool_size=2, mean="global"
)
SMALL += " --set constant_patch=activate_best"
RESIZED = f"{SMALL} --set resize=8"
GROUPS = {"train": 300, "test": 40}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Larger images, encoded, beside plain ones of the size they are brought to."""
    path = tmp_path_factory.mktemp("encoded") / "data.h5"
    for group, count in GROUPS.items():
        labels = np.arange(count) % 3
        images = small_images(count, count, 12, 16)
        images[labels == 1, :6] = 255 - images[labels == 1, :6]
        blobs = [pillow_bytes(image, "PNG" if index % 2 else "JPEG") for index, image in enumerate(images)]
        write_encoded(path, blobs, group, labels, chunks=(1000,))
    for group in GROUPS:
        source = open_source(path, group, smtdist.Configuration(resize=8))
        with source.opened() as reader:
            images = reader.read(0, source.n_samples)
        with h5py.File(path, "a") as file:
            file[f"plain/{group}/images"], file[f"plain/{group}/labels"] = (
                images,
                file[f"{group}/labels"][()],
            )
    return path


@pytest.fixture(scope="module")
def model(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.h5"
    told("fit", data, "--dataset", "train", RESIZED, "--out", path)
    return path


def test_plan_counts_encoded_bytes(data):
    found = told("plan", data, "--dataset", "train", RESIZED)
    size = len(read_array(data, "train/bytes"))
    assert found["passes"][0]["read_bytes"] == size
    assert found["data"]["kind"] == "encoded"
    assert found["data"]["shape"] == [300, 8, 8, 1]


def test_evaluate_and_transform_take_the_settings_of_the_model(data, model, tmp_path):
    found, plain = (
        told("evaluate", model, data, "--train", train, "--test", test, "--neighbours", 5)
        for train, test in (("train", "test"), ("plain/train", "plain/test"))
    )
    assert found == plain
    assert found["top1"] > 0.5
    for name in ("test", "plain/test"):
        out = tmp_path / name.replace("/", "-")
        told("transform", model, data, "--dataset", name, "--out", out)
    with h5py.File(tmp_path / "test") as one, h5py.File(tmp_path / "plain-test") as other:
        assert np.array_equal(one["z"], other["z"])


def test_a_model_of_encoded_images_equals_one_of_plain_images(data, model, tmp_path):
    told("fit", data, "--dataset", "plain/train", SMALL, "--out", tmp_path / "m.h5")
    one, other = smtdist.load(model), smtdist.load(tmp_path / "m.h5")
    assert np.array_equal(one.components(), other.components())
    assert one.settings.resize == 8


def test_resume_opens_the_group_as_the_fit_did(data, tmp_path):
    folder, out = tmp_path / "c", tmp_path / "m.h5"
    asked = [data, "--dataset train", RESIZED, "--out", out, "--checkpoint", folder]
    first = told("fit", *asked)
    out.unlink()
    assert told("resume", folder)["fingerprint"] == first["fingerprint"]
    assert "another run" in run("fit", *asked, "--set crop=7 --overwrite", code=1)


@pytest.mark.parametrize(
    ("dataset", "setting", "sentence"),
    [
        ("plain/train/images", "resize=8", "holds plain images, but resize is for encoded ones"),
        ("plain/train", "crop=8", "plain/train/images holds plain images, but center_crop is"),
        ("train", "crop=13", "sample 0: the image is 16 x 12, too small for crop = 13"),
        ("trian", "crop=8", "has no dataset 'trian'"),
    ],
)
def test_bad_input_is_one_sentence(data, tmp_path, dataset, setting, sentence):
    error = run(
        "fit", data, "--dataset", dataset, SMALL, f"--set {setting}", "--out", tmp_path / "m.h5", code=1
    )
    assert sentence in " ".join(error.split())
    assert not list(tmp_path.iterdir())


def test_an_address_is_data_too(data, model, tmp_path):
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").pipe("/data.h5", data.read_bytes())
    url, folder, out = "memory://data.h5", tmp_path / "c", tmp_path / "m.h5"
    asked = ["--dataset", "train", RESIZED, "--out", out, "--checkpoint", folder]
    first = told("fit", url, *asked)
    assert np.array_equal(smtdist.load(out).components(), smtdist.load(model).components())
    out.unlink()
    assert told("resume", folder)["fingerprint"] == first["fingerprint"]
    error = run("fit", "memory://other.h5", *asked, "--overwrite", code=1)
    assert "memory://other.h5 does not exist" in " ".join(error.split())
