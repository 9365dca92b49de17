"""The benchmarks of concepts run, on small data, so that they cannot rot."""

import json

import h5py
import numpy as np
import pytest
from sklearn.datasets import load_digits

from benchmarks.concepts import analograms, mnist, optimum, recovery, scale, synthetic, words


@pytest.mark.benchmark
def test_recovery(tmp_path):
    rows = recovery.main(
        [
            *["--points", "32", "--seeds", "2", "--snr", "20", "--methods", "rejection", "hybrid-present"],
            "--json",
            str(tmp_path),
        ]
    )
    assert {(row["kind"], row["method"]) for row in rows} == {
        (kind, method) for kind in synthetic.KINDS for method in ("rejection", "hybrid-present")
    }
    assert all(row["cka"] > 0.7 for row in rows)
    (record,) = tmp_path.glob("*.json")
    assert len(json.loads(record.read_text())["result"]["rows"]) == len(rows)


@pytest.mark.benchmark
def test_optimum(tmp_path):
    result = optimum.main(["--parts", "rejection", "--seeds", "1", "--json", str(tmp_path)])
    assert all(row["least"] >= 5 for row in result["defaults"]["rejection"])
    assert len(list(tmp_path.glob("*-concepts-optimum.json"))) == 1


def test_scores_of_a_perfect_and_of_an_empty_answer():
    S = synthetic.independent(np.random.default_rng(0), 32)
    X = S @ np.eye(S.shape[1])
    flipped = S[:, ::-1].copy()
    flipped[:, 0] ^= 1
    assert synthetic.scored(flipped, np.ones(S.shape[1]), S, X, X)["hamming"] == 0
    assert synthetic.scored(S[:, :1], np.ones(1), S, X, X)["hamming"] == pytest.approx(
        0.5 * (1 - 1 / S.shape[1])
    )


def test_analograms():
    result = analograms.main(["--trees", "5", "--largest", "30", "--cubes", "5", "--small"])
    assert result["trees_recovered"] == 5
    assert result["partial_cubes"][0]["exact"] == 5


@pytest.mark.benchmark
def test_words(tmp_path):
    rng = np.random.default_rng(0)
    names = ["king", "queen", "man", "woman", *(f"w{i}" for i in range(196))]
    with h5py.File(tmp_path / "words.h5", "w") as file:
        file["words"], file["vectors"] = names, rng.normal(size=(200, 12)).astype(np.float32)
        file["is_person"], file["wordnet_count"] = np.ones(200, bool), np.arange(200, 0, -1)
    small = ["--concepts", "6", "12", "--rank", "8", "--sweeps", "10"]
    result = words.main(["--data", str(tmp_path / "words.h5"), *small, "--figures", str(tmp_path)])
    assert [row["asked"] for row in result["curve"]] == [6, 12]
    assert result["curve"][0]["cka"] < result["curve"][1]["cka"]
    assert result["four"]["exact"]


@pytest.mark.benchmark
def test_mnist(tmp_path):
    digits = load_digits()
    with h5py.File(tmp_path / "digits.h5", "w") as file:
        for group, rows in (("train", slice(0, 800)), ("test", slice(800, 1200))):
            file[f"{group}/images"] = (digits.images[rows] * 15).astype(np.uint8)
            file[f"{group}/labels"] = digits.target[rows]
    small = [
        "--train",
        "800",
        "--test",
        "400",
        "--concepts",
        "12",
        "--rank",
        "20",
        "--raw",
        "--sweeps",
        "20",
    ]
    result = mnist.main(["--data", str(tmp_path / "digits.h5"), *small])
    assert result["mean_test_f1"] > 0.4
    assert all(len(row["concepts"]) == 3 for row in result["formulas"])


def test_a_formula_is_the_best_of_its_triple():
    rng = np.random.default_rng(1)
    S = (rng.random((300, 4)) < 0.5).astype(np.uint8)
    labels = (S[:, 0] & (1 - S[:, 2]) | S[:, 3]).astype(np.int64)
    rows = mnist.formulas(S, labels, S, labels)
    assert [row["test_f1"] for row in rows] == [1, 1]


@pytest.mark.benchmark
def test_scale(tmp_path):
    for what, more in (
        ("iteration", ["--points", "6000", "--block", "32", "--workers", "0"]),
        ("sweep", ["--points", "3000", "--concepts", "8", "--sweeps", "2", "--workers", "0"]),
        ("equal", ["--points", "1500", "--workers", "1", "--kill-after", "0.5"]),
    ):
        result = scale.main([what, *more, "--rank", "6", "--scratch", str(tmp_path)])
        if what == "iteration":
            assert result["ratio"] > 0
        if what == "equal":
            assert result["1"] == result["killed"] == [True, True]


SMALL_RECOVERY = ["--points", "32", "--seeds", "1", "--snr", "20", "--kinds", "independent"]


@pytest.mark.benchmark
def test_a_recovery_that_was_cut_short_goes_on(tmp_path):
    keep = tmp_path / "kept.jsonl"
    few = [*SMALL_RECOVERY, "--keep", str(keep), "--methods", "rejection"]
    assert recovery.main([*few, "--seconds", "-1"]) == []
    first = recovery.main(few)
    assert recovery.main(few) == first
    assert len(keep.read_text().splitlines()) == 1
    assert len(recovery.main([*few, "hybrid"])) == 2


@pytest.mark.benchmark
def test_seeds_that_were_held_out_and_methods_that_refine():
    methods = ["--methods", "aligned", "even"]
    first = recovery.main([*SMALL_RECOVERY[:-1], "mixed", *methods])
    other = recovery.main([*SMALL_RECOVERY[:-1], "mixed", *methods, "--first-seed", "12"])
    assert [row["seeds"] for row in other] == [1, 1]
    assert first[0]["cka"] != other[0]["cka"]
    assert first[1]["cka_true"] > first[0]["cka_true"]


def test_peers():
    pytest.importorskip("torch")
    rows = recovery.main([*SMALL_RECOVERY, "--epochs", "20", "--methods", "tanh", "vae"])
    assert {row["method"] for row in rows} == {"tanh", "vae"}
    assert all(0 <= row["hamming"] <= 0.5 for row in rows)


def test_the_authors_code_is_called_as_it_is_written(tmp_path):
    source = tmp_path / "src"
    source.mkdir()
    (source / "bae_models.py").write_text(
        "import numpy as np\nimport torchvision, cvxpy\n"
        "class KernelBMF:\n"
        "    def __init__(self, b, tree_reg): self.b = b\n"
        "    def fit(self, X, initial_temp, decay_rate, period, verbose):\n"
        "        self.S = 1.0 * (X[:, : self.b] > 0)\n"
    )
    rows = recovery.main([*SMALL_RECOVERY, "--methods", "repler-kernel", "--repler", str(tmp_path)])
    assert rows[0]["method"] == "repler-kernel"
    assert 0 < rows[0]["hamming"] < 0.5
