"""The widget in a real JupyterLab and the page in a real dashboard. `pytest -m slow tests/monitor/test_browser.py`"""

import json
import os
import re
import shutil
import signal
import urllib.request

import pytest

from docs import pictures
from docs.pictures import WIDGET, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(bool(pictures.missing()), reason=pictures.missing() or "all is there"),
    # sockets that the browser's driver leaves to the collector
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NAME = "01-first-steps.ipynb"


@pytest.fixture
def shots(tmp_path):
    """Where screenshots go: $SMTDIST_SCREENSHOTS, to look at them, or nowhere in particular."""
    folder = os.environ.get("SMTDIST_SCREENSHOTS")
    return tmp_path if folder is None else pictures.Path(folder)


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(pictures.NOTEBOOKS.parents[1]))
    folder = tmp_path / "notebooks"
    folder.mkdir()
    shutil.copy(pictures.NOTEBOOKS / NAME, folder)
    with pictures.chromium() as driver, pictures.jupyter_lab(folder) as address:
        found = pictures.Notebook(driver, address.format(NAME))
        found.folder = folder
        yield found


def logged(folder, kind):
    lines = (folder / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["kind"] == kind]


def shown(notebook):
    """Return what the widget says of the preview: samples, leaves, patches, atoms in use, in one reading."""
    text = notebook.text(f"{WIDGET} h4, {WIDGET} .facts").replace(",", "")
    if not text.startswith("Preview of statistics"):
        return None
    return tuple(int(number) for number in re.findall(r"\d+", text))


def test_the_first_notebook_live(notebook, shots):
    """The widget moves, its preview appears before the pass ends, and its numbers are those of the events' log."""
    notebook.run(0)
    notebook.run(1)
    until(lambda: notebook.text(f"{WIDGET} .pill"), "the widget")
    notebook.driver.save_screenshot(str(shots / "start.png"))
    widths = set()

    def moving():
        widths.add(notebook.js(f"return document.querySelector('{WIDGET} .fill').style.width"))
        return shown(notebook)

    until(moving, "a preview")
    notebook.driver.save_screenshot(str(shots / "middle.png"))
    until(lambda: notebook.text(f"{WIDGET} .pill") == "finished", "the end")
    notebook.driver.save_screenshot(str(shots / "end.png"))
    assert len(widths) > 1, "the bars did not move"
    made = [
        one
        for one in logged(notebook.folder / "first-steps.checkpoint", "preview")
        if one["pass"] == "statistics"
    ]
    keys = ("n_samples", "of_samples", "leaves", "n_leaves", "n_positions", "atoms_in_use", "atoms")
    assert shown(notebook) == tuple(made[-1][key] for key in keys)
    (ended,) = [
        one
        for one in logged(notebook.folder / "first-steps.checkpoint", "pass_finished")
        if one["pass"] == "statistics"
    ]
    assert made[-1]["time"] < ended["time"]
    assert f"{ended['n_samples']:,} / {ended['n_samples']:,}" in notebook.text(WIDGET)
    assert notebook.js(f"return document.querySelectorAll('{WIDGET} canvas').length") == 42
    assert notebook.complaints() == []


def test_a_page_that_is_loaded_again_shows_the_run_again(notebook, shots):
    """The kernel goes on while nobody looks; what was there is there again, and goes on moving."""
    notebook.run(0)
    notebook.run(1)
    until(lambda: shown(notebook), "a preview")
    before = notebook.text(f"{WIDGET} .passes")
    notebook.save()
    notebook.driver.refresh()
    notebook.until_open()
    until(lambda: notebook.text(f"{WIDGET} .pill"), "the widget to be back")
    notebook.driver.save_screenshot(str(shots / "reloaded.png"))
    assert notebook.text(f"{WIDGET} .passes").split()[0] == before.split()[0]
    until(lambda: notebook.text(f"{WIDGET} .pill") == "finished", "the end")
    made = logged(notebook.folder / "first-steps.checkpoint", "preview")
    assert shown(notebook)[0] == made[-1]["n_samples"]
    assert len(logged(notebook.folder / "first-steps.checkpoint", "run_started")) == 1


def test_cancel_restart_and_attach_again(notebook, shots):
    """The button stops the run; after a restart of the kernel the run is shown again, and goes on from its checkpoint."""
    notebook.run(0)
    notebook.run(1)
    button = until(lambda: notebook.all(f"{WIDGET} button"), "the button")
    until(lambda: "dictionary" in notebook.text(WIDGET), "the first pass")
    notebook.js("arguments[0].click()", button[0])
    until(lambda: notebook.text(f"{WIDGET} .pill") == "stopped", "the run to stop")
    notebook.driver.save_screenshot(str(shots / "cancelled.png"))
    assert "Stopped as asked" in notebook.text(WIDGET)

    restarted = """
    const done = arguments[arguments.length - 1];
    const session = window.jupyterapp.shell.currentWidget.sessionContext;
    session.restartKernel().then(() => done(true), (error) => done(String(error)));
    """
    assert notebook.driver.execute_async_script(restarted) is True
    notebook.until_idle()
    notebook.type_into(2, "import smtdist; view = smtdist.watch('first-steps.checkpoint'); view")
    notebook.run(2)
    until(lambda: "stopped" in notebook.text(f"{WIDGET} .pill").splitlines()[-1], "the view")
    notebook.run(0)
    notebook.run(1)
    until(
        lambda: notebook.text(f"{WIDGET} .pill").splitlines().count("finished") >= 2,
        "both views of the new run",
    )
    notebook.driver.save_screenshot(str(shots / "attached.png"))
    assert len(logged(notebook.folder / "first-steps.checkpoint", "run_started")) == 2


def test_the_page_of_a_run_that_loses_a_worker(shots, tmp_path):
    """It shows the loss, the run recovers, the browser complains of nothing, and Dask lists the page."""
    from smtdist.monitor.dashboard import page_address

    with pictures.cluster() as client, pictures.chromium(1180, 900) as driver:
        address = page_address(client)
        with urllib.request.urlopen(address.rsplit("/", 1)[0] + "/individual-plots.json") as answer:
            assert "/individual-smtdist" in json.load(answer).values()
        run = pictures.started(client, tmp_path)
        driver.get(address)

        def head():
            # Bokeh keeps its text in shadow roots
            return driver.execute_script("return Bokeh.documents[0].roots()[0].children[0].text", "")

        def done():
            return {one["name"]: one["samples"] for one in run.progress()["passes"] if "samples" in one}

        until(lambda: done().get("statistics", 0) > 1000, "the statistics pass", 300)
        driver.save_screenshot(str(shots / "page.png"))
        address, number = next(iter(client.run(os.getpid).items()))
        os.kill(number, signal.SIGKILL)
        until(lambda: "1 worker lost" in head(), "the loss to be shown")
        driver.save_screenshot(str(shots / "page-lost.png"))
        found = run.result(600)
        until(lambda: "finished" in head(), "the end to be shown")
        driver.save_screenshot(str(shots / "page-end.png"))
        assert found.passes_[2]["n_samples"] == len(pictures.images())
        complaints = [
            entry for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")
        ]
        assert complaints == []
