"""JupyterLab in one command: its side bar starts clusters, which have the page. `pytest -m slow tests/monitor/test_lab.py`

With SMTDIST_LAB=FOLDER the script makes its own environment there, as for a newcomer; without, it is given this one.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from docs.pictures import answers, free_port, until

SCRIPT = Path(__file__).parents[2] / "deploy" / "jupyter" / "lab.sh"
TOKEN = "a-token-of-this-test"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """The address of the JupyterLab that the script starts."""
    named = os.environ.get("SMTDIST_LAB")
    folder = Path(named) if named else tmp_path / "env"
    if not named:
        pytest.importorskip("dask_labextension", reason="dask-labextension is not installed")
        (folder / "bin").mkdir(parents=True)
        for program in ("jupyter", "jupyter-lab"):
            found = shutil.which(program, path=str(Path(sys.executable).parent))
            if found is None:
                pytest.skip(f"{program} is not installed")
            (folder / "bin" / program).symlink_to(found)
        monkeypatch.setenv("PYTHONPATH", str(SCRIPT.parents[2]), prepend=os.pathsep)
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    port = free_port()
    options = ["--no-browser", "--ip=127.0.0.1", f"--port={port}", "--ServerApp.allow_root=True"]
    log = tmp_path / "lab.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            ["sh", str(SCRIPT), str(folder), *options, f"--IdentityProvider.token={TOKEN}"],
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            until(
                lambda: answers(f"http://127.0.0.1:{port}/api?token={TOKEN}") or process.poll() is not None,
                "JupyterLab",
                500,
            )
            assert process.poll() is None, log.read_text()
            yield f"http://127.0.0.1:{port}"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def asked(address, method="GET"):
    request = urllib.request.Request(address, method=method, headers={"Authorization": f"token {TOKEN}"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.loads(answer.read() or b"null")


def test_the_side_bar_starts_a_cluster_that_has_the_page(lab):
    notebooks = {entry["name"] for entry in asked(f"{lab}/api/contents")["content"]}
    assert {path.name for path in SCRIPT.parent.glob("*.ipynb")} <= notebooks
    cluster = asked(f"{lab}/dask/clusters", "PUT")
    try:
        assert cluster["scheduler_address"].startswith("tcp://127.0.0.1:")
        assert cluster["dashboard_link"].startswith("http://127.0.0.1:")
        plots = asked(f"{lab}/dask/dashboard/{cluster['id']}/individual-plots.json")
        assert "/individual-smtdist" in plots.values()
        page = urllib.request.Request(
            f"{lab}/dask/dashboard/{cluster['id']}/individual-smtdist",
            headers={"Authorization": f"token {TOKEN}"},
        )
        with urllib.request.urlopen(page, timeout=60) as answer:
            assert b"smtdist" in answer.read()
        metrics = cluster["dashboard_link"].rsplit("/", 1)[0] + "/metrics"
        with urllib.request.urlopen(metrics, timeout=60) as answer:
            assert b"smtdist_lost_workers_total" in answer.read()
    finally:
        asked(f"{lab}/dask/clusters/{cluster['id']}", "DELETE")
