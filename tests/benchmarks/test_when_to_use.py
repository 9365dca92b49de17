"""smtdist beside what one would take instead: features, judges, the record, and the page's tables."""

import json
from pathlib import Path

import numpy as np
import pytest

from replication.when_to_use import table
from replication.when_to_use.__main__ import main
from replication.when_to_use.features import KMeansFeatures
from replication.when_to_use.judges import Judge
from replication.when_to_use.ours import Ours
from replication.when_to_use.sets import SETS, labelled
from smtdist.evaluate.metrics import wilson

ROOT = Path(__file__).resolve().parents[2]


def test_k_means_features_are_sums_of_triangle_activations():
    images = np.random.default_rng(0).random((3, 9, 10, 3), np.float32)
    encode = KMeansFeatures(images, 5, 0)
    patches = [
        [images[0, row : row + 6, column : column + 6].reshape(-1) for column in range(5)]
        for row in range(4)
    ]
    rows = encode.whitened(encode.normalised(np.array(patches).reshape(20, -1)))
    far = np.linalg.norm(rows[:, None] - encode.atoms, axis=2)
    active = np.maximum(far.mean(axis=1, keepdims=True) - far, 0).reshape(4, 5, 5)
    found = encode(images)
    assert found.shape == (3, 20)
    np.testing.assert_allclose(found[0, :5], active[:2, :2].sum(axis=(0, 1)), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(found[0, 15:], active[2:, 2:].sum(axis=(0, 1)), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("judge", ["knn", "ridge", "logistic", "svm", "kernel"])
def test_judges_see_labels_of_the_draw_alone(judge):
    rng = np.random.default_rng(1)
    y = np.arange(90) % 3
    z = (np.eye(3)[y] + 0.1 * rng.standard_normal((90, 3))).astype(np.float32)
    far = (np.eye(3) + 0.01).astype(np.float32)
    (rows,) = labelled(y, 30, 1, 0)
    hidden = np.where(np.isin(np.arange(90), rows), y, 0)
    for labels in (y, hidden):
        predicted, chosen = getattr(Judge([(z, far)], labels, 0), judge)(rows)
        assert predicted.tolist() == [0, 1, 2]
        assert chosen


def test_neighbours_are_chosen_with_each_image_left_out():
    """Labels are noise: one neighbour would be right every time if an image could vote for itself."""
    rng = np.random.default_rng(2)
    z = rng.standard_normal((60, 20)).astype(np.float32)
    noise = Judge([(z, z[:5])], np.arange(60) % 2, 0)
    _, chosen = noise.knn(np.arange(60))
    assert chosen["neighbours"] > 1, "an image that votes for itself would make one neighbour the best"


def test_our_rows_are_those_of_the_record_of_heads(tmp_path):
    def took(**said):
        return {"cpu_seconds": 2.0, "peak_bytes": 7, "said": said}

    commands = {
        "fit colour": took(),
        "transform test": took(n_features=10, n_samples=50),
        "kernel": took(top1=0.5, penalty=0.1),
        "20 labels": took(sweep=[{"draws": [0.2, 0.4], "penalty": [1, 2]}]),
    }
    rows = [{"images": images, "dictionary": 8, "took": commands} for images in (1, 2000)]
    (tmp_path / "r.json").write_text(json.dumps({"result": {"rows": rows}}))
    asked = type("Asked", (), {"draws": 2, "heads": tmp_path / "r.json", "dictionary": 8, "set": []})
    one = SETS["cifar10-2000"]
    found = Ours(one, tmp_path / "d.h5", tmp_path / "w", 2000, (20,), asked)
    assert found.is_done()
    kernel = found.kernel()
    assert kernel[0] == {
        **{"cpu_seconds": 6.0, "peak_bytes": 7, "row_bytes": 40, "chosen": [0.1]},
        **{"n_test": 50, "shares": [0.5]},
    }
    assert kernel[20]["shares"] == [0.2, 0.4]
    assert not Ours(one, tmp_path / "d.h5", tmp_path / "w", 3000, (), asked).is_done()


def test_a_network_with_all_labels_stands_with_the_spread_of_its_seeds(tmp_path):
    """Steps are done already, so that nothing is trained: two of five seeds, and few labels with three draws."""
    folder = tmp_path / "cifar10-2000"
    folder.mkdir()
    for name, right in [("all-0", [50]), ("all-3", [70]), ("100", [10, 20, 30])]:
        said = {"right": right, "chosen": [name] * len(right), "n_test": 100, "row_bytes": 512}
        took = {"said": said, "cpu_seconds": right[0], "peak_bytes": 10 + right[0], "seconds": 1.0}
        (folder / f"cnn-{name}.json").write_text(json.dumps(took))
    words = ["--sets", "cifar10-2000", "--only", "cnn", "--done"]
    main([*words, "--work", str(tmp_path), "--json", str(tmp_path)])
    record = json.loads(table.newest(tmp_path).read_text())
    whole, few = record["result"]["rows"]
    assert (whole["right"], whole["chosen"], whole["top1"]) == ([50, 70], ["all-0", "all-3"], 0.6)
    assert whole["cpu_seconds"] == 60, "of one seed"
    assert whole["peak_bytes"] == 80, "of the largest"
    assert whole["between"] == list(wilson(60, 100))
    assert few["between"] == [0.1, 0.3]
    line = next(line for line in table.rendered(record).splitlines() if "CNN" in line)
    assert "| 60.0 ± 14.1 (50.2 to 69.1) | 20.0 (10.0 to 30.0) |" in line


def test_the_page_has_the_tables_of_the_newest_record(tmp_path):
    page, results = ROOT / "docs" / "when_to_use.md", ROOT / "results"
    copy = tmp_path / "page.md"
    copy.write_text(page.read_text())
    table.write(table.newest(results), copy)
    assert copy.read_text() == page.read_text()
    assert "smtdist" in page.read_text().split(table.BEGIN)[1].split(table.END)[0]
    copy.write_text("no marks")
    with pytest.raises(SystemExit, match="no lines"):
        table.write(table.newest(results), copy)
