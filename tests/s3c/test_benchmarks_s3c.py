"""The benchmarks of patch coders run, on small data; what they print is not judged here."""

import json

import h5py
import numpy as np
import pytest
from sklearn.datasets import load_digits

from benchmarks.s3c import bound, dampings, inference, labels, learned, speed, table_1, timing
from smtdist.evaluate.few_labels import standardised
from smtdist.kernels.spike_slab import SpikeSlab

FAST = ["--set", "rounds=2", "--set", "patch=3", "--set", "images=100"]


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    path = tmp_path_factory.mktemp("images") / "digits.h5"
    bunch = load_digits()
    images, wanted = (bunch.images * 15).astype(np.uint8), bunch.target
    with h5py.File(path, "w") as file:
        for name, part in (("train", slice(0, 200)), ("test", slice(200, 260))):
            file[f"{name}/images"], file[f"{name}/labels"] = images[part], wanted[part]
    return str(path)


def only_record(folder):
    (record,) = folder.glob("*.json")
    return json.loads(record.read_text())["result"]


def test_bound(digits, tmp_path):
    sizes = ["--images", "100", "--units", "12", "--rows", "20", "--sweeps", "30", "--repeats", "1"]
    found = bound.main(["--data", digits, *sizes, *FAST, "--json", str(tmp_path)])
    assert only_record(tmp_path) == found
    default, stepped = (found[name] for name in ("rising, the default", "stepped, the earlier default"))
    assert default["energy"] == pytest.approx(found["sequential"]["energy"] - default["below_the_optimum"])
    assert default["products"] == stepped["products"] == 76


def test_inference(digits, tmp_path):
    found = inference.main(
        [
            "--data",
            digits,
            "--units",
            "20",
            "--patches",
            "30",
            *FAST,
            "--json",
            str(tmp_path),
            "--plot",
            str(tmp_path / "pictures"),
        ]
    )
    assert found["sequential"]["share_of_falls"] == 0
    assert 0 <= found["share_below_0.01"] <= 1
    assert only_record(tmp_path) == found
    assert {one.name for one in tmp_path.glob("pictures/*.png")} == {"s3c-inference.png", "s3c-filters.png"}


@pytest.mark.benchmark
def test_timing(digits, tmp_path):
    asked = [
        "--data", digits, "--units", "20", "--patch", "3", "--examples", "10", "--tries", "4", "--turns", "2",
        "--groups", "2", "--sets", "2", "--iterations", "12", "--set", "rounds=2", "--work", str(tmp_path / "w"),
    ]  # fmt: skip
    with pytest.raises(SystemExit) as stopped:
        timing.main([*asked, "--minutes", "0"])
    assert stopped.value.code == 3
    timing.main([*asked, "--only-search"])
    found = timing.main([*asked, "--json", str(tmp_path)])
    one = found["3x3, N = 20"]
    assert set(one["best_energy"]) == {"blocks", "fixed", "conjugate", "preconditioned"}
    fixed, blocks = one["to_0.9"]["fixed"], one["to_0.9"]["blocks"]
    assert fixed["over_fixed"] == blocks["over_blocks"] == 1
    assert fixed["products"] == [4 * count - 1 for count in fixed["iterations"]]
    assert blocks["products"] == [2 * count for count in blocks["iterations"]]
    assert len(blocks["damping"]) == 25
    assert only_record(tmp_path) == found


def test_a_search_of_dampings_finds_what_costs_less():
    assert dampings.until([0.0, 5.0, 4.0, 6.0], 4.5) == 4
    assert dampings.until([5.0, 4.0], 4.5) is None
    assert dampings.crossing([0.0, 4.0, 8.0], 5.0) == 2.25
    assert dampings.crossing([0.0, 4.0], 5.0) > dampings.NEVER - 1
    assert dampings.until([np.nan, 5.0], 4.5) == dampings.crossing([np.nan, 5.0], 4.5) == 2
    assert dampings.until([5.0, np.nan], 4.5) is None
    values, least = dampings.searched(
        lambda values, least: float(((values - 0.5) ** 2).sum()), [np.full(6, 1.0), np.full(6, 0.9)], 400
    )
    assert least < 0.05
    assert least == ((values - 0.5) ** 2).sum()


def test_a_set_that_is_not_reached_takes_for_ever():
    ready = {way: {"iterations": [3, 4, None], "crossing": 3.5, "damping": []} for way in timing.WAYS[:3]}
    seconds = [[2.0, 4.0, np.inf], [1.0, 3.0, np.inf], [1.0, np.inf, np.inf]]
    found = timing._best(ready, dict(zip(ready, seconds, strict=True)))
    assert set(found) == {"blocks", "fixed"}
    assert (found["blocks"]["over_fixed"], found["fixed"]["over_blocks"]) == (4 / 3, 0.75)
    assert found["fixed"]["products"] == [11, 15, None]
    assert found["blocks"]["quartiles"] == [2.5, 3.5]


def test_dampings_of_a_way_are_a_ramp_and_go_on_as_they_end():
    numbers = (0.1, 0.5, 0.5, 0.9, 0.2, 0.6, 1.0, 0.4)
    ramp = dampings.Way("blocks").ramp(numbers, 5)
    np.testing.assert_allclose(ramp, [0.1, 0.3, 0.5, 0.5, 0.5, 0.9, 0.3, 0.4, 0.5, 0.6, 0.4])
    np.testing.assert_allclose(dampings.Way("conjugate", 1).ramp(numbers, 5), ramp[:5])
    rng = np.random.default_rng(0)
    atoms = rng.standard_normal((20, 6)).astype(np.float32)
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    ones = np.ones(20, np.float32)
    model = dampings.Padded(SpikeSlab(atoms, ones, ones, -ones, 3 * ones[:6]))
    rows = rng.standard_normal((2, 4, 6)).astype(np.float32)
    for way in timing.WAYS:
        few = way.ramp(numbers, 3)
        curves = way.curves(rows, model, few, 5)
        assert curves.shape == (2, 5)
        np.testing.assert_array_equal(curves[:, :3], way.curves(rows, model, few))
        assert (np.diff(curves) != 0).all()


@pytest.mark.benchmark
def test_labels_and_transfer(digits, tmp_path):
    found = labels.main(
        [
            "--data", digits, "--unlabelled", digits, "--units", "12", "--pooling", "2", "--labels", "10", "40",
            "--draws", "2", "--thresholds", "0.1", "0.5", *FAST, "--json", str(tmp_path),
        ]
    )  # fmt: skip
    assert set(found["sweeps"]) == {"s3c", "sc", "omp"}
    assert set(found["sweeps"]["omp"]["validated"]) == {"0.1", "0.5"}
    assert all(len(one["sweep"]) == 2 for one in found["sweeps"].values())
    assert [one["labels"] for one in found["beside_first"]["each"]["omp"]] == [10, 40]
    assert only_record(tmp_path) == found


def test_a_sweep_goes_on_where_it_stopped(digits, tmp_path):
    asked = [
        "--data", digits, "--units", "12", "--pooling", "2", "--labels", "10", "--draws", "2", "--models", "s3c",
        *FAST, "--work", str(tmp_path / "w"),
    ]  # fmt: skip
    with pytest.raises(SystemExit) as stopped:
        labels.main([*asked, "--minutes", "0"])
    assert stopped.value.code == 3
    found = labels.main(asked)
    assert labels.main([*asked, "--minutes", "0"]) == found
    with pytest.raises(SystemExit, match="holds steps of other options"):
        labels.main([*asked, "--units", "13"])


@pytest.mark.benchmark
def test_rivals_at_an_equal_number_of_features(digits, tmp_path):
    asked = [
        "--data", digits, "--units", "12", "--labels", "10", "30", "--draws", "2", "--pooling", "3", "--rival-pooling", "2",
        *FAST,
    ]  # fmt: skip
    whole = labels.main([*asked, "--models", "s3c", "omp"])
    assert {name: one["features"] for name, one in whole["sweeps"].items()} == {"s3c": 108, "omp": 96}
    drawn = labels.main([*asked, "--models", "omp", "--only-drawn"])
    assert whole["coded"] == 200
    held_out = labels.main([*asked, "--models", "omp", "--train", "150", "--held-out", "40"])
    assert (held_out["train"], held_out["test"], held_out["coded"]) == (150, 40, 150)
    assert drawn["coded"] < 61


@pytest.mark.benchmark
def test_features_as_they_are_beside_features_by_their_deviations(digits, tmp_path):
    asked = [
        "--data", digits, "--units", "12", "--pooling", "2", "--labels", "30", "--draws", "2", "--models", "s3c", "omp",
        *FAST, "--work", str(tmp_path / "w"),
    ]  # fmt: skip
    first = labels.main(asked)
    both = labels.main([*asked, "--scalings", "each", "one"])
    s3c, omp = (both["sweeps"][name] for name in ("s3c", "omp"))
    assert s3c["sweep"] == first["sweeps"]["s3c"]["sweep"]
    assert s3c["sweep_one"] != s3c["sweep"]
    gap = np.mean(np.subtract(s3c["sweep_one"][0]["draws"], omp["sweep_one"][0]["draws"]))
    assert both["beside_first"]["one"]["omp"][0]["mean"] == pytest.approx(gap)


def test_one_scale_keeps_the_ratios_of_features():
    rows = np.random.default_rng(0).normal(size=(50, 4)) * [1, 2, 4, 8]
    (each,), (one,) = standardised(rows), standardised(rows, each=False)
    assert each.std(axis=0) * 2 == pytest.approx(np.ones(4), rel=0.1)
    assert one.std(axis=0) / rows.std(axis=0) == pytest.approx(
        np.full(4, one.std(axis=0)[0] / rows.std(axis=0)[0])
    )
    assert (one**2).sum() == pytest.approx(50, rel=0.05)


@pytest.mark.benchmark
def test_table_1(digits, tmp_path):
    found = table_1.main(
        [
            "--data", digits, "--units", "12", "--folds", "2", "--costs", "1", "--penalties", "1",
            "--thresholds", "0.25", *FAST, "--scalings", "each", "one", "--json", str(tmp_path),
        ]
    )  # fmt: skip
    assert len(found["table"]) == 12
    assert [one["scaling"] for one in found["table"]] == ["each", "one"] * 6
    assert {one["units"] for one in found["table"] if one["model"] == "omp"} == {12, 6}


def test_speed(tmp_path):
    found = speed.main(["--units", "64", "--inputs", "27", "--rows", "256", "--json", str(tmp_path)])
    assert found["ratio"] > 0
    assert (found["iterations"], found["block"]) == (12, 96)
    together = speed.main(["--units", "64", "--inputs", "27", "--rows", "64", "--together"])
    assert (together["iterations"], together["block"]) == (19, 0)
    assert only_record(tmp_path) == found
    whole = speed.main(["--units", "32", "--rows", "64", "--side", "6", "--round"])
    assert whole["peak_bytes"] > 0


@pytest.mark.benchmark
def test_what_was_learned_is_judged_by_settings(digits, tmp_path):
    quick = "rounds=2 patch=3 images=100"
    found = learned.main(
        [
            "--data", digits, "--units", "20", "--learn", "100", "--known", "60", "--asked", "40", "--labels", "20",
            "--draws", "2", "--settings", quick, f"{quick} mu=1 rate_mu=0", f"{quick} model=sc", "--json", str(tmp_path),
            "--scalings", "each", "one",
        ]
    )  # fmt: skip
    plain, signed, rival = found
    assert only_record(tmp_path)["table"] == found
    assert plain["features"] == 180
    assert rival["features"] == 360
    assert signed["mu"] > plain["mu"]
    assert signed["one_sign"] > plain["one_sign"]
    assert all(0 <= one["one_sign"] <= 1 for one in (plain, signed))
    assert "alpha" not in rival
    for row in found:
        assert len(row["labels"]["20"]["draws"]) == len(row["labels_one"]["20"]["draws"]) == 2
    assert "beside_first" in rival["labels_one"]["20"]
    gain = np.mean(np.subtract(rival["labels"]["20"]["draws"], plain["labels"]["20"]["draws"]))
    np.testing.assert_allclose(rival["labels"]["20"]["beside_first"]["mean"], gain)
