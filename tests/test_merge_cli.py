"""`merge` and `update`: samples that repeat or that supplied atoms, and settings of another solve."""

import h5py
import numpy as np
import pytest
from arrays_in_files import write_arrays
from calling import refused, run, same_sums, sets, told

SETTINGS = sets(patch=3, dictionary=10, n_components=3, threshold=0.4, pool_size=2)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """data.h5 with four pieces; base.h5 fitted on the first, others with its whitening and dictionary."""
    at = tmp_path_factory.mktemp("merge")
    images = np.random.default_rng(0).integers(0, 256, (80, 7, 7), dtype=np.uint8)
    pieces = {f"{number}/images": images[20 * number : 20 * number + 20] for number in range(4)}
    write_arrays(at / "data.h5", {**pieces, "all/images": images})
    fit = ["fit", at / "data.h5", "--dataset"]
    run(*fit, "0 --out", at / "base.h5", SETTINGS)
    for name in ("1", "2", "3", "all"):
        run(*fit, f"{name} --from-model {at}/base.h5 --out", at / f"{name}.h5")
    return at


@pytest.fixture(autouse=True)
def here(files, monkeypatch):
    monkeypatch.chdir(files)


def test_updates_and_merges_of_pieces_are_one_fit(tmp_path):
    out = tmp_path / "m.h5"
    assert len(told("merge base.h5 1.h5 2.h5 3.h5 --out", out)["audit"]) == 4
    same_sums(out, "all.h5")
    run("merge base.h5 --out", out, "--overwrite")
    for name in "123":
        said = told("update", out, f"data.h5 --dataset {name} --checkpoint", tmp_path / name)
        assert [record["name"] for record in said["passes"]] == ["statistics", "solve"]
    same_sums(out, "all.h5")
    said = told("merge all.h5 --subtract 2.h5 --subtract 3.h5 --overwrite --out", out)
    assert [(entry["action"], entry["n_samples"]) for entry in said["audit"]] == [
        ("added", 80),
        ("withdrawn", 20),
        ("withdrawn", 20),
    ]


def test_points_among_all_others_are_refused(tmp_path):
    for name in ("1", "2"):
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(int(name)).uniform(-1, 1, (150, 3)))
    run(
        "fit",
        tmp_path / "1.npy",
        "--model points --set size=12 --set n_components=3 --out",
        tmp_path / "p.h5",
    )
    words = ["update", tmp_path / "p.h5", tmp_path / "2.npy"]
    refused(words, tmp_path, "neighbours are among all points")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("merge all.h5 --subtract base.h5 --out m.h5", "supplied atoms"),
        ("withdraw base.h5 data.h5 --dataset 0", "supplied atoms"),
        ("merge base.h5 data.h5 --out m.h5", "not an smtdist model"),
        ("update base.h5 data.h5 --dataset 9 --out m.h5", "use one of"),
    ],
)
def test_what_has_no_meaning_is_refused(words, said, files):
    refused(words, files, said)


def test_single_repeats_are_added_and_counted_aloud(tmp_path):
    """One of 20 samples is 5 %; two are refused."""
    data = tmp_path / "more.h5"
    with h5py.File("data.h5") as file, h5py.File(data, "w") as more:
        first, second = (file[f"{number}/images"][()] for number in (0, 1))
        more["none/images"], more["one/images"] = second, np.concatenate([first[:1], second[1:]])
        more["two/images"] = np.concatenate([first[:2], second[2:]])
    out, said = ["--overwrite --out", tmp_path / "m.h5"], "in the sums already and counts twice now"
    assert said not in run("update base.h5", data, "--dataset none", *out)
    assert f"1 sample was {said}" in run("update base.h5", data, "--dataset one", *out)
    again = told("update base.h5", data, "--dataset one", *out)
    assert (again["n_repeated"], again["n_samples"]) == (1, 40)
    run("update base.h5", data, "--dataset one --alone --out", tmp_path / "one.h5")
    merged = run("merge base.h5", tmp_path / "one.h5", "--out", tmp_path / "both.h5")
    assert f"1 sample was {said}" in merged
    said = "2 of 20 samples are in the sums already"
    refused(["update base.h5", data, "--dataset two", *out], tmp_path, said)
    shown = run("update base.h5", data, "--dataset two --allow-repeats", *out)
    assert "2 samples were in the sums already and count twice now" in shown
    run("withdraw", tmp_path / "both.h5", data, "--dataset one --out", tmp_path / "back.h5")
    with h5py.File(tmp_path / "back.h5") as back, h5py.File("base.h5") as one:
        for name in ("activity", "second_moment", "cooccurrence", "context_scatter"):
            np.testing.assert_array_equal(back["statistics"][name], one["statistics"][name])
