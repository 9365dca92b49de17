"""The notebooks of deploy/jupyter run from top to bottom. `pytest -m slow tests/monitor/test_notebooks.py`"""

import os
import shutil
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "deploy" / "jupyter"
ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a notebook in a folder of its own and return what its cells printed."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    for name in ("IPYTHONDIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))

    def ran(name):
        shutil.copy(NOTEBOOKS / name, tmp_path)
        notebook = nbformat.read(tmp_path / name, 4)
        client = nbclient.NotebookClient(
            notebook, timeout=900, resources={"metadata": {"path": str(tmp_path)}}
        )
        client.execute()
        outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
        text = "".join(output.get("text", "") for output in outputs)
        return text, [output.get("data", {}) for output in outputs]

    return ran


def test_first_steps(run):
    text, shown = run("01-first-steps.ipynb")
    assert "digits right" in text
    assert "Stopped as asked" in text
    assert any("smtdist run" in data.get("text/plain", "") for data in shown)


def test_adding_and_withdrawing(run):
    text, _ = run("03-adding-and-withdrawing.ipynb")
    assert "1200 samples, and the same bits as before" in text
    assert "added 1200\nadded 597\nwithdrawn 597" in text


@pytest.mark.parametrize("data", ["made", "real"])
def test_on_a_cluster(run, data, request, monkeypatch):
    monkeypatch.delenv("SMTDIST_DATA", raising=False)
    if data == "real":
        real_data = request.getfixturevalue("real_data")
        monkeypatch.setenv("SMTDIST_DATA", str(real_data("cifar10_jpeg.h5").resolve().parent))
        monkeypatch.setenv("SMTDIST_NOTEBOOK_ATOMS", "256")
        monkeypatch.setenv("SMTDIST_NOTEBOOK_POSITIONS", "8")
    text, _ = run("02-on-a-cluster.ipynb")
    assert "/smtdist" in text
    assert "% right" in text


def test_notebooks_are_kept_without_outputs():
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    for path in NOTEBOOKS.glob("*.ipynb"):
        notebook = nbformat.read(path, 4)
        nbformat.validate(notebook)
        cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert not [cell for cell in cells if cell.outputs or cell.execution_count], path.name
