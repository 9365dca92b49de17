"""The site is built from pages and code, whole and for itself, and the pages name what there is."""

import importlib
import io
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from PIL import Image

import smtdist
from docs import build, pictures, tables
from smtdist import plot
from smtdist.cli import commands
from smtdist.cli.commands import load
from smtdist.configuration import FIELDS, described

ROOT = Path(__file__).parents[1]
PAGE_FILES = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
NOTEBOOKS = sorted((ROOT / "deploy" / "jupyter").glob("*.ipynb"))
PAGES = "\n".join(path.read_text() for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")))
COMMANDS = {name: load(name) for name in commands.COMMANDS}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    pytest.importorskip("myst_nb", reason="needs the extra docs")
    subprocess.run([sys.executable, "docs/build.py", folder], cwd=ROOT, check=True)
    return folder


LOADS = {"script": "src", "img": "src", "iframe": "src", "link": "href"}
"""What a browser loads by itself, and by which attribute."""


class Tags(HTMLParser):
    """What a page of the site links, loads and names."""

    def __init__(self, path):
        super().__init__()
        self.links, self.loaded, self.anchors, self.pictures = [], [], set(), 0
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        self.links += [values[name] for name in ("href", "src") if values.get(name)]
        loads = values.get(LOADS.get(tag, ""))
        self.loaded += [loads] if loads else []
        self.pictures += tag == "img"


def words_of_the_index(site):
    """Return the terms and the objects that the search of the site knows."""
    index = json.loads((site / "searchindex.js").read_text().partition("(")[2].rpartition(")")[0])
    objects = {f"{module}.{one[-1]}" for module, found in index["objects"].items() for one in found}
    return {*index["terms"], *index["titleterms"]}, objects


@pytest.mark.docs
@pytest.mark.timeout(1800)
def test_the_site_is_whole_and_loads_nothing_from_elsewhere(site):
    found = {path.resolve(): Tags(path) for path in site.rglob("*.html")}
    broken, elsewhere = [], []
    for path, page in found.items():
        for target in page.links:
            there, _, anchor = target.partition("#")
            if re.match(r"\w+:|//", there):
                continue
            file = (path.parent / unquote(there.partition("?")[0])).resolve() if there else path
            if not file.exists() or (
                anchor and file in found and unquote(anchor) not in found[file].anchors
            ):
                broken.append(f"{path.relative_to(site)}: {target}")
        elsewhere += [f"{path.name}: {one}" for one in page.loaded if re.match(r"https?:|//", one)]
    assert broken == []
    assert elsewhere == []
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) < 20e6
    notebooks = [site / path.relative_to(ROOT).with_suffix(".html") for path in NOTEBOOKS]
    assert [path.name for path in notebooks if not found[path].pictures] == []
    terms, objects = words_of_the_index(site)
    assert "plan" in terms
    assert {f"smtdist.{name}" for name in smtdist.__all__ if name not in ("datasets", "plot")} <= objects


@pytest.mark.docs
def test_no_page_scrolls_sideways_on_a_telephone_and_the_search_answers(site):
    pytest.importorskip("selenium", reason="needs the extra test-watching")
    if shutil.which("chromedriver") is None:
        pytest.skip("chromedriver is not installed")
    with pictures.chromium() as driver:
        telephone = {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": True}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", telephone)
        wide = []
        for path in site.rglob("*.html"):
            driver.get(path.as_uri())
            if (
                driver.execute_script("return Math.max(document.documentElement.scrollWidth, innerWidth)")
                > 400
            ):
                wide.append(str(path.relative_to(site)))
        assert wide == []
        for word in ("withdraw", "BinaryConcepts"):
            driver.get(f"{(site / 'search.html').as_uri()}?q={word}")
            pictures.until(
                lambda: driver.find_elements("css selector", "ul.search li a"), f"{word} to be found"
            )


def test_every_page_is_in_a_section_and_every_section_has_what_it_names():
    names = [str(path.relative_to(ROOT).with_suffix("")) for path in (*PAGE_FILES, *NOTEBOOKS)]
    sections = build.sorted_pages(names)
    assert sorted(names) == sorted(name for inside in sections.values() for name in inside)
    written = {name for patterns in build.SECTIONS.values() for name in patterns if "*" not in name}
    assert [name for name in written if name.startswith("docs/") and name not in names] == []
    assert names == [name for name in names if name in "".join(build.contents(names))]


def test_every_command_and_option_is_in_the_reference():
    text = tables.commands()
    for name, command in COMMANDS.items():
        section = text.split(f"## smtdist {name}\n")[1].split("\n## ")[0]
        assert "smtdist " + name in section, "an example"
        for parameter in command.params:
            assert getattr(parameter, "help", None), f"{name}: {parameter.name} has no help"
            assert parameter.opts[-1].strip("-") in section or parameter.metavar in section


def test_the_table_of_models_and_verbs_is_that_of_the_code():
    assert (ROOT / "docs/models.md").read_text() == tables.models(), "run python docs/build.py"


def test_commands_that_start_workers_and_keep_sums_take_memory():
    every = {
        f"{name} {inner}".strip(): one
        for name, command in COMMANDS.items()
        for inner, one in {"": command, **getattr(command, "commands", {})}.items()
    }
    options = {
        name: {text for one in command.params for text in one.opts} for name, command in every.items()
    }
    keeping = {name for name, found in options.items() if {"--workers", "--checkpoint"} <= found}
    assert keeping == {"fit", "plan", "update", "withdraw"}
    assert [name for name in sorted(keeping) if "--memory" not in options[name]] == []


def test_every_setting_is_on_its_page():
    text = tables.settings()
    assert set(FIELDS) == set(described())
    for name, about in described().items():
        assert f"| `{name}` |" in text
        assert about["meaning"].endswith("."), name
    assert (ROOT / "docs" / "settings.md").read_text() == text, "run python docs/build.py"


def test_everything_the_gallery_draws_can_be_drawn():
    gallery = importlib.import_module("docs.gallery")
    prepared = gallery.names()
    for name, call in gallery.PICTURES.items():
        assert name in call
        axes = eval(call, prepared)
        assert np.asarray(axes).flat[0].figure.axes
        picture = axes.figure._repr_png_()  # which notebooks show
        pixels = np.asarray(Image.open(io.BytesIO(picture)).convert("L"))
        assert min(pixels.shape) > 150
        assert pixels.std() > 5, f"{name} is blank"
    assert gallery.PICTURES.keys() == {*plot.__all__} - {"sheet", "atoms_as_patches"}


def test_pages_name_every_command():
    missing = [name for name in COMMANDS if not re.search(rf"`?smtdist {name}\b|`{name}`", PAGES)]
    assert not missing


def test_summaries_are_those_of_the_commands():
    for name, command in COMMANDS.items():
        assert " ".join(command.help.split()).startswith(commands.about(name)), name
