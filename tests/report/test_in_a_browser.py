"""Reports in a browser, opened from disk. `pytest -m slow tests/report/test_in_a_browser.py`

They ask nothing of anyone, the console is silent, axe-core finds no serious violation, and nothing is cut off on a telephone
or on a wide screen, in light and in dark.
"""

import contextlib
import shutil

import pytest
from report_pages import make_files, run

from docs.pictures import chromium

REPORTS = {
    "colour.h5": ["--data", "colour-data.h5", "--train", "train", "--test", "test"],
    "digits.h5": ["--data", "data.h5", "--train", "train", "--test", "test"],
    "words.h5": [],
    "concepts.h5": [],
    "kernel.h5": [],
    "video.h5": [],
}
AXE = """
const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ["violations"]}).then(found => done(found.violations), error => done(String(error)));
"""


def lacking():
    """What this machine has not got of a browser, its driver and axe-core."""
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    for module in ("selenium", "selenium_axe_python"):
        with contextlib.suppress(ImportError):
            __import__(module)
            continue
        return f"{module} is not installed (pip install 'smtdist[test-watching]')"
    return ""


pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(lacking()), reason=lacking() or "all is there"),
    # sockets that the browser's driver leaves to the collector
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    make_files(folder)
    for name, options in REPORTS.items():
        given = [folder / word if word.endswith(".h5") else word for word in options]
        run("report", folder / name, "--out", folder / f"{name}.html", *given)
    return {name: folder / f"{name}.html" for name in REPORTS}


@pytest.fixture(scope="module")
def browser():
    with chromium(1600, 1000) as driver:
        yield driver


@pytest.fixture(scope="module")
def axe():
    from pathlib import Path

    import selenium_axe_python

    (script,) = Path(selenium_axe_python.__file__).parent.rglob("axe.min.js")
    return script.read_text("utf-8")


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1600])
def test_a_page_opens_for_everyone(pages, browser, axe, name, theme, width):
    assert pages[name].stat().st_size < 15e6
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 800},
    )
    scheme = {"name": "prefers-color-scheme", "value": theme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    browser.get(pages[name].as_uri())
    asked = browser.execute_script("return performance.getEntriesByType('resource').map(one => one.name)")
    assert [one for one in asked if not one.startswith("data:")] == []
    assert [entry["message"] for entry in browser.get_log("browser")] == []
    broken = "return [...document.images].filter(one => !one.naturalWidth).length"
    assert browser.execute_script(broken) == 0
    ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(255, 255, 255)" if theme == "light" else "rgb(22, 24, 27)")
    # the page itself never scrolls sideways, only its tables do
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    # what tests inject is no part of the page, and its rule for scripts does not hold in the driver's world
    browser.execute_script(axe)
    found = browser.execute_async_script(AXE)
    assert isinstance(found, list), found
    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    assert [(one["id"], [node["target"] for node in one["nodes"]][:3]) for one in serious] == []


def test_sections_are_reached_by_keyboard(pages, browser):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    browser.get(pages["words.h5"].as_uri())
    reached = []
    for _ in range(4):
        ActionChains(browser).send_keys(Keys.TAB).perform()
        reached.append(browser.execute_script("return document.activeElement.getAttribute('href')"))
    assert reached[0] == "#content"
    assert all(one and one.startswith("#") for one in reached)
    ActionChains(browser).send_keys(Keys.ENTER).perform()
    assert browser.execute_script("return location.hash") == reached[-1]
