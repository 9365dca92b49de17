"""The pictures of README: `python docs/pictures.py [FOLDER]` takes what its Python snippet draws, JupyterLab and the dashboard.

The last two need `pip install '.[jupyter]' selenium`, Chromium and its driver (Debian: chromium and chromium-driver).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "deploy" / "jupyter"
SETTINGS = {
    "notebook-extension/tracker": '{"windowingMode": "none"}',  # cells out of sight stay in the page
    "apputils-extension/notification": '{"fetchNews": "false", "checkForUpdates": false}',
}
WIDTH, HEIGHT = 1180, 1500
PATIENCE = 120.0


def missing() -> str:
    """Return what browser checks lack on this machine, or nothing."""
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    for module in ("selenium", "jupyterlab", "anywidget"):
        with contextlib.suppress(ImportError):
            __import__(module)
            continue
        return f"{module} is not installed"
    return ""


@contextlib.contextmanager
def chromium(width: int = WIDTH, height: int = HEIGHT) -> Iterator[Any]:
    """Yield a headless Chromium that remembers what its console says."""
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = str(shutil.which("chromium"))
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        f"--window-size={width},{height}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))
    driver.set_script_timeout(PATIENCE)
    try:
        yield driver
    finally:
        driver.quit()


@contextlib.contextmanager
def jupyter_lab(folder: Path) -> Iterator[str]:
    """Yield the address of a JupyterLab of its own, with a token, on loopback."""
    port, token = free_port(), secrets.token_hex(16)
    environment = {
        **os.environ,
        "JUPYTER_CONFIG_DIR": str(folder / ".config"),
        "JUPYTER_DATA_DIR": str(folder / ".data"),
        "JUPYTER_RUNTIME_DIR": str(folder / ".runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(folder / ".settings"),
        "IPYTHONDIR": str(folder / ".ipython"),
    }
    for name, text in SETTINGS.items():
        settings = folder / ".settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(text)
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--ip=127.0.0.1",
        "--ServerApp.allow_root=True",
    ]
    command += [f"--port={port}", f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}"]
    command += [
        "--LabApp.expose_app_in_browser=True",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]
    with (folder / "lab.log").open("w") as log:
        process = subprocess.Popen(
            command, env=environment, stdout=log, stderr=subprocess.STDOUT, cwd=folder
        )
        try:
            until(lambda: answers(f"http://127.0.0.1:{port}/api?token={token}"), "JupyterLab to start")
            yield f"http://127.0.0.1:{port}/lab/tree/{{}}?token={token}&reset"
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def answers(address: str) -> bool:
    """Tell whether a web server is there."""
    try:
        with urllib.request.urlopen(address, timeout=5):
            return True
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """Wait until something is true and return it; TimeoutError says what never came."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise TimeoutError(f"waited {seconds:.0f} seconds for {what}")


class Notebook:
    """A notebook in a browser: run its cells, read its widgets."""

    def __init__(self, driver: Any, address: str) -> None:
        self.driver = driver
        driver.get(address)
        self.until_open()

    def until_open(self) -> None:
        """Wait until the notebook is there and its kernel idle; asked in one go, as JupyterLab draws cells anew."""
        shown = (
            "return [...document.querySelectorAll(arguments[0])].some((one) => one.offsetParent !== null)"
        )
        until(lambda: self.js(shown, ".jp-Notebook .jp-CodeCell .cm-content"), "the notebook to open")
        self.until_idle()

    def js(self, code: str, *arguments: Any) -> Any:
        """Run JavaScript in the page and return its value."""
        return self.driver.execute_script(code, *arguments)

    def all(self, selector: str) -> list[Any]:
        """Return the elements that a CSS selector finds."""
        return list(self.driver.find_elements("css selector", selector))

    def until_idle(self) -> None:
        """Wait until the kernel has nothing to do."""
        until(
            lambda: "| Idle" in self.text(".jp-StatusBar-TextItem, #jp-main-statusbar"),
            "the kernel to be idle",
        )

    def text(self, selector: str) -> str:
        """Return the text of what a selector finds, joined; read in one go, as widgets redraw."""
        found = self.js(
            "return [...document.querySelectorAll(arguments[0])].map((one) => one.innerText).join('\\n')",
            selector,
        )
        return str(found)

    def picture(self, selector: str) -> bytes:
        """Return a screenshot of what a selector finds; nothing where it was drawn anew meanwhile."""
        from selenium.common.exceptions import WebDriverException

        with contextlib.suppress(WebDriverException, IndexError):
            return bytes(self.all(selector)[0].screenshot_as_png)
        return b""

    def key(self, *keys: str) -> None:
        """Press keys together."""
        from selenium.webdriver.common.action_chains import ActionChains

        chain = ActionChains(self.driver)
        for one in keys[:-1]:
            chain.key_down(one)
        chain.send_keys(keys[-1])
        for one in keys[:-1]:
            chain.key_up(one)
        chain.perform()

    def select(self, number: int) -> None:
        """Select the code cell of this number, of those that the notebook has."""
        from selenium.common.exceptions import StaleElementReferenceException

        def clicked() -> bool:
            with contextlib.suppress(StaleElementReferenceException, IndexError):
                cell = self.all(".jp-Notebook .jp-CodeCell")[number]
                self.js("arguments[0].scrollIntoView({block: 'center'})", cell)
                cell.find_element("css selector", ".cm-content").click()
                return True
            return False  # drawn anew meanwhile

        until(clicked, f"cell {number}")

    def run(self, number: int) -> None:
        """Run one code cell and do not wait for it."""
        from selenium.webdriver.common.keys import Keys

        self.select(number)
        self.key(Keys.CONTROL, Keys.ENTER)

    def type_into(self, number: int, code: str) -> None:
        """Replace the code of a cell."""
        from selenium.webdriver.common.keys import Keys

        cell = self.all(".jp-Notebook .jp-CodeCell")[number]
        cell.find_element("css selector", ".cm-content").click()
        self.key(Keys.CONTROL, "a")
        self.key(code)

    def save(self) -> None:
        """Save the notebook, so that a page that is loaded again asks nothing."""
        saved = """
        const done = arguments[arguments.length - 1];
        window.jupyterapp.shell.currentWidget.context.save().then(() => done(true), (error) => done(String(error)));
        """
        assert self.driver.execute_async_script(saved) is True

    def command(self, name: str) -> None:
        """Run a command of JupyterLab's palette by its label."""
        from selenium.webdriver.common.keys import Keys

        self.key(Keys.CONTROL, Keys.SHIFT, "c")
        entry = until(lambda: self.all(".lm-CommandPalette-input"), "the palette")[0]
        entry.send_keys(name)
        until(lambda: self.text(".lm-CommandPalette-item.lm-mod-active"), "the command")
        entry.send_keys(Keys.ENTER)

    def complaints(self) -> list[str]:
        """Return the errors that the console has shown since the last time."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]


WIDGET = ".smtdist-run"


def smaller(png: bytes, path: Path) -> None:
    """Write a picture with a palette, which is a third of the size."""
    from PIL import Image

    image = Image.open(io.BytesIO(png)).convert("RGB")
    image.quantize(96, dither=Image.Dither.NONE).save(path, optimize=True)


def of_readme(out: Path) -> None:
    """Draw the picture of README's Python snippet, by running it."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    with tempfile.TemporaryDirectory() as name:
        environment = {**os.environ, "MPLBACKEND": "agg"}
        subprocess.run([sys.executable, "-c", code], cwd=name, env=environment, check=True)
        smaller((Path(name) / "digits.png").read_bytes(), out / "digits.png")


def half_done(text: str) -> bool:
    """Tell whether a widget's text shows a preview of half of the statistics pass."""
    found = re.search(r"Preview of statistics after ([\d,]+) of ([\d,]+)", text)
    done, total = (int(number.replace(",", "")) for number in found.groups()) if found else (0, 1)
    return 2 * done > total


def of_notebook(out: Path) -> None:
    """Take the picture of the first notebook in the middle of its run."""
    with tempfile.TemporaryDirectory() as name, chromium() as driver:
        folder = Path(name)
        shutil.copy(NOTEBOOKS / "01-first-steps.ipynb", folder)
        with jupyter_lab(folder) as address:
            notebook = Notebook(driver, address.format("01-first-steps.ipynb"))
            notebook.run(0)
            notebook.run(1)
            until(lambda: half_done(notebook.text(WIDGET)), "a preview in mid-pass")
            smaller(until(lambda: notebook.picture(WIDGET), "the picture"), out / "notebook.png")


@contextlib.contextmanager
def cluster(workers: int = 2) -> Iterator[Any]:
    """Yield the client of a cluster on this machine, with its dashboard and the page of ours."""
    from distributed import Client, LocalCluster

    from smtdist.monitor.dashboard import install

    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address="127.0.0.1:0") as own,
        Client(own, set_as_default=False) as client,
    ):
        install(client)
        yield client


def images(count: int = 16000) -> Any:
    """Return random grey images of squares: enough work to watch."""
    import numpy as np

    draw = np.random.default_rng(0)
    coarse = draw.integers(0, 256, (count, 5, 5)).repeat(3, axis=1).repeat(3, axis=2)
    return np.clip(coarse + draw.integers(-20, 20, coarse.shape), 0, 255).astype(np.uint8)


def started(client: Any, folder: Path, atoms: int = 768) -> Any:
    """Start a fit that takes a while on a cluster."""
    import h5py

    import smtdist

    data = images()
    with h5py.File(folder / "images.h5", "w") as file:
        file.create_dataset("train", data=data, chunks=(256, *data.shape[1:]))

    smt = smtdist.SMT(patch=5, dictionary=atoms, n_components=32, cluster=client)
    return smtdist.start(smt, (str(folder / "images.h5"), "train"), previews=0.1)


def of_dashboard(out: Path) -> None:
    """Take the picture of the dashboard's page in the middle of a run."""
    from smtdist.monitor.dashboard import page_address

    with tempfile.TemporaryDirectory() as name, cluster() as client, chromium(WIDTH, 1010) as driver:
        run = started(client, Path(name))
        driver.get(page_address(client))

        def half() -> bool:
            found = run.progress()["preview"] or {}
            return found.get("pass") == "statistics" and 2 * found["n_samples"] > found["of_samples"]

        until(lambda: half() or run.done(), "a preview in mid-pass", 200)
        time.sleep(2)  # the page draws once a second
        smaller(driver.get_screenshot_as_png(), out / "dashboard.png")
        run.cancel()
        with contextlib.suppress(Exception):
            run.result(PATIENCE)


def main() -> None:
    """Draw and take all pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default="docs/pictures", help="where to write them")
    out = Path(parser.parse_args().folder)
    out.mkdir(parents=True, exist_ok=True)
    of_readme(out)
    lacking = missing()
    if lacking:
        raise SystemExit(f"No pictures of a browser: {lacking}.")
    of_notebook(out)
    of_dashboard(out)


if __name__ == "__main__":
    main()
