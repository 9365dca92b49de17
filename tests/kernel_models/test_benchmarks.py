"""How figures of kernel models are compared with those that are published, kept, and judged on splits of their own."""

import json

import numpy as np

from replication.kernel_models import (
    figure_1,
    published,
)
from replication.kernel_models.parts import kept


# steps are few on purpose
def test_what_is_published_is_compared_cell_by_cell(tmp_path):
    def cell(mean):
        return {"mean": mean, "deviation": 0.01}

    kernels = ("gaussian", "linear")
    table = {"raw": {"raw": cell(0.8)}, "kernel_pca": {kernel: cell(0.7) for kernel in kernels}}
    for method, mean in (("contrastive", 0.7), ("spectral", 0.85), ("autoencoder", 0.6)):
        table[method] = {kernel: cell(mean) for kernel in kernels}
    record = tmp_path / "record.json"
    record.write_text(json.dumps({"result": {"table": {"some": table}, "splits": 5}}))
    (tmp_path / "out").mkdir()
    found = published.main([str(record), "--json", str(tmp_path / "out")])
    assert found["cells"] == {"above": 2, "par": 2, "below": 2}
    some = found["sets"]["some"]
    assert some["best"].startswith("spectral")
    assert some["some_embedding_above_raw"]
    assert some["order_of_methods"] == ["spectral", "contrastive", "autoencoder"]


def test_finished_parts_are_kept(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return 0.5

    for told in ({"n": 1}, {"n": 1}, {"n": 2}):
        assert kept(str(tmp_path), "one", told, compute) == 0.5
    assert len(calls) == 2
    assert kept(None, "one", {}, compute) == 0.5


def test_the_split_is_that_of_the_paper():
    labels = np.arange(200) % 2
    unlabelled, labelled, test = figure_1.split(labels, 0)
    assert (len(unlabelled), len(labelled), len(test)) == (100, 10, 90)
    assert len(np.unique(np.concatenate([unlabelled, labelled, test]))) == 200
    assert set(labels[labelled]) == {0, 1}
