"""Learned codes of patches, alone and embedded, from the command line."""

import numpy as np
import pytest
from arrays_in_files import read_array, write_labelled
from calling import run, sets, told
from drawing import small_images
from PIL import Image


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("s3c")
    rng = np.random.default_rng(0)
    labels, images = np.arange(180) % 3, small_images(1, 180, 10, 10)
    # classes differ in how stripes run
    stripes = (np.arange(10) % 3 * 60).astype(np.uint8)
    images[labels == 0] = stripes[None, :, None, None]
    images[labels == 1] = stripes[None, None, :, None]
    noise = rng.integers(0, 40, images.shape, dtype=np.uint8)
    write_labelled(folder / "d.h5", images // 2 + noise, labels, {"train": 120, "test": 60})
    return folder / "d.h5"


@pytest.fixture(autouse=True)
def where(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


SET = sets(units=12, patch=4, rounds=4, pooling="[1,2]", images=100)
TRAIN, TEST = "--dataset train/images --out", "--dataset test/images --out"
JUDGED = "--train train --test test -q"


def test_few_labels_and_pictures(data):
    run(f"fit {data} --model s3c {TRAIN} m.h5 {SET} -q")
    sweep = f"evaluate m.h5 {data} {JUDGED} --metric svm --labels 6 --labels 60 --draws 2 --folds 2"
    assert [each["labels"] for each in told(sweep)["sweep"]] == [6, 60]
    assert "Accuracy with few labels" in run(sweep)
    run("filters m.h5 --out f.png")
    with Image.open("f.png") as picture:
        # four by three filters of four pixels, a gap between, each pixel four wide
        assert picture.size == (4 * (4 * 5 - 1), 4 * (3 * 5 - 1))


@pytest.mark.parametrize("model", ["s3c", "l1"])
def test_features_can_change_after_the_fit_and_nothing_else(data, model):
    run(f"fit {data} --model {model} {TRAIN} m.h5 {SET} -q")
    change = f"transform m.h5 {data} -q {TEST}"
    both = "both" if model == "s3c" else "linear"
    found = told(f"{change} a.h5 --set feature={both} --set pooling=[3]")
    assert found["n_features"] == 9 * (24 if model == "s3c" else 12)
    assert np.isfinite(read_array("a.h5", "z")).all()
    assert "n_atoms cannot change after the fit" in run(f"{change} b.h5 --set units=3", code=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--set feature=s3c --set mean=patch", "no setting 'mean' of SMT with code=s3c"),
        ("--set feature=omp --set alpha=2", "There is no setting 'alpha' of SMT with code=omp"),
        ("--set feature=l1 --preset mnist-vq", "code=l1 cannot be combined with --preset"),
        ("--model omp --atoms a.npy", "A fit of omp takes no --atoms; leave it out"),
        ("--set feature=l2", "must be one of gq, vq"),
    ],
)
def test_what_a_fit_on_floats_does_not_take(data, tmp_path, arguments, message):
    assert message in run(f"fit {data} {TRAIN} m.h5 {arguments} -q", code=2)
    assert not list(tmp_path.iterdir())


BEYOND = "A pooling window of 8 (stride 2) does not fit 7 x 7"


def test_an_embedding_of_a_coder_needs_pools_that_fit(data, tmp_path):
    run(f"fit {data} --model s3c {TRAIN} coder.h5 {SET} -q")
    embed = f"fit {data} --from-model coder.h5 {TRAIN} m.h5 --set pool_size=8 -q --checkpoint c"
    assert BEYOND in run(embed, code=1)
    assert list(tmp_path.iterdir()) == [tmp_path / "coder.h5"]
    said = run(f"evaluate coder.h5 {data} --train test --test train --neighbours 61 -q", code=1)
    assert "There are 60 training samples, fewer than 61 neighbours" in said


def test_a_coder_is_embedded_and_evaluated(data):
    run(f"fit {data} --model l1 {TRAIN} m.h5 {SET} -q")
    embed = f"fit {data} --from-model m.h5 {TRAIN}"
    found = told(f"{embed} s.h5 -q {sets(n_components=4, pool_size=3, positions=20)}")
    assert found["n_components"] == 4
    for name, metric in (("m.h5", "knn"), ("s.h5", "knn"), ("s.h5", "linear")):
        judged = told(f"evaluate {name} {data} {JUDGED} --metric {metric}")
        assert judged["top1"] > 0.8
    change = f"transform s.h5 {data} -q {TEST} z.h5"
    assert told(f"{change} --set pool_stride=3")["n_features"] == 4 * 4
    said = run(f"{change} --overwrite --set stride=2", code=2)
    assert "stride cannot change after the fit; pool_size, pool_stride can" in said


def test_a_learned_code_says_how_it_was_learned_and_stays(data):
    asked = sets(feature="l1", patch=4, dictionary=12, rounds=2, n_components=5, drop=1)
    said = " ".join(run(f"fit {data} {TRAIN} m.h5 {asked} -q").split())
    assert "over the last tenth of 2 rounds; raise max_iter." in said
    said = run(f"fit {data} {TRAIN} f.h5 --from-model m.h5 {sets(patch=4, n_components=3)}", code=2)
    kept = "--from-model keeps the code with its whitening and dictionary, so its settings (patch_size)"
    assert kept in said
    assert "fewer than the 100000 atoms" in run(
        f"fit {data} {TRAIN} f.h5 --model s3c --set units=100000", code=1
    )
    assert "needs" in run(f"plan {data} --dataset train/images {asked} --memory 64MB", code=1)
