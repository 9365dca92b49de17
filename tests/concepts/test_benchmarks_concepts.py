"""Scores of concepts, and searches for them that were cut short."""

import numpy as np
import pytest

from replication.concepts import mnist, recovery, synthetic


def test_scores_of_a_perfect_and_of_an_empty_answer():
    S = synthetic.independent(np.random.default_rng(0), 32)
    X = S @ np.eye(S.shape[1])
    flipped = S[:, ::-1].copy()
    flipped[:, 0] ^= 1
    assert synthetic.scored(flipped, np.ones(S.shape[1]), S, X, X)["hamming"] == 0
    assert synthetic.scored(S[:, :1], np.ones(1), S, X, X)["hamming"] == pytest.approx(
        0.5 * (1 - 1 / S.shape[1])
    )


def test_a_formula_is_the_best_of_its_triple():
    rng = np.random.default_rng(1)
    S = (rng.random((300, 4)) < 0.5).astype(np.uint8)
    labels = (S[:, 0] & (1 - S[:, 2]) | S[:, 3]).astype(np.int64)
    rows = mnist.formulas(S, labels, S, labels)
    assert [row["test_f1"] for row in rows] == [1, 1]


SMALL_RECOVERY = ["--points", "32", "--seeds", "1", "--snr", "20", "--kinds", "independent"]


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
