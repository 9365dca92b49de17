"""MLflow and TensorBoard get the figures of the events."""

import sys

import numpy as np
import pytest

import smtdist
from smtdist.errors import ConfigurationError
from smtdist.monitor.loggers import Figures, MLflow, TensorBoard

IMAGES = np.random.default_rng(0).integers(0, 256, (512, 8, 8), dtype=np.uint8)
SMALL = {"patch": 3, "feature": "vq", "dictionary": 16, "n_components": 4}


def test_figures_are_those_of_the_passes():
    written = {}
    smt = smtdist.SMT(
        **SMALL, on_event=Figures(lambda name, value, step: written.update({name: (value, step)}))
    )
    smt.fit(IMAGES)
    for record in smt.passes_:
        if record["name"] not in (
            "dictionary",
            "solve",
        ):  # of the samples it draws from, a dictionary reads few
            assert written[f"{record['name']}/n_positions"] == (record["n_positions"], len(IMAGES))
    assert written["statistics/memory_bytes/driver"][0] > 2**20


def test_tensorboard_gets_a_file(tmp_path):
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    smtdist.SMT(**SMALL, on_event=TensorBoard(str(tmp_path))).fit(IMAGES)
    (path,) = tmp_path.glob("events.out.tfevents.*")
    assert b"statistics/n_positions" in path.read_bytes()


@pytest.mark.filterwarnings("ignore")  # those of TensorBoard's own imports
def test_tensorboard_itself_reads_the_file(tmp_path):
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    reading = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed"
    )
    smt = smtdist.SMT(**SMALL, on_event=TensorBoard(str(tmp_path)))
    smtdist.start(smt, IMAGES, previews=1.0).result(60)
    found = reading.EventAccumulator(str(tmp_path))
    found.Reload()
    (last,) = found.Scalars("statistics/n_positions")
    assert (last.value, last.step) == (smt.passes_[2]["n_positions"], len(IMAGES))


@pytest.mark.filterwarnings("ignore")  # those of MLflow's own imports
def test_mlflow_gets_metrics(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri(tmp_path.as_uri())
    mlflow.set_experiment("digits")
    with mlflow.start_run() as run:
        smt = smtdist.SMT(**SMALL, on_event=MLflow())
        smt.fit(IMAGES)
    metrics = mlflow.get_run(run.info.run_id).data.metrics
    assert metrics["statistics/n_positions"] == smt.passes_[2]["n_positions"]


MISSING = [(TensorBoard, "tensorboardX", "tensorboard"), (MLflow, "mlflow", "mlflow")]


@pytest.mark.parametrize(("logger", "module", "extra"), MISSING)
def test_what_is_missing_is_named(monkeypatch, logger, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigurationError, match=rf"smtdist\[{extra}\]"):
        logger("logs")
