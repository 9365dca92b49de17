"""The reference is built from the code, and the pages name what there is."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from docs import build
from smtdist import plot
from smtdist.cli import commands
from smtdist.cli.commands import load
from smtdist.configuration import FIELDS, described

ROOT = Path(__file__).parents[1]
PAGES = "\n".join(path.read_text() for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")))
COMMANDS = {name: load(name) for name in commands.COMMANDS}


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference")
    pytest.importorskip("pdoc", reason="needs the extra docs")
    subprocess.run([sys.executable, "docs/build.py", folder], cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.mark.docs
def test_the_reference_has_every_command_and_setting(reference):
    assert (reference / "commands.md").read_text() == build.commands()
    assert (reference / "settings.md").read_text() == build.settings()


def test_every_command_and_option_is_in_the_reference():
    text = build.commands()
    for name, command in COMMANDS.items():
        section = text.split(f"## smtdist {name}\n")[1].split("\n## ")[0]
        assert "smtdist " + name in section, "an example"
        for parameter in command.params:
            assert getattr(parameter, "help", None), f"{name}: {parameter.name} has no help"
            assert parameter.opts[-1].strip("-") in section or parameter.metavar in section


def test_the_table_of_models_and_verbs_is_that_of_the_code():
    assert (ROOT / "docs/models.md").read_text() == build.models(), "run python docs/build.py"


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
    text = build.settings()
    assert set(FIELDS) == set(described())
    for name, about in described().items():
        assert f"| `{name}` |" in text
        assert about["meaning"].endswith("."), name
    assert (ROOT / "docs" / "settings.md").read_text() == text, "run python docs/build.py"


@pytest.mark.docs
def test_pages_are_in_the_reference_with_links_that_lead_somewhere(reference):
    for page in ("README.md", *(path.name for path in (ROOT / "docs").glob("*.md"))):
        text = (reference / page.replace("README", "index")).read_text()
        for target in re.findall(r"\]\(([^)\s#]+)", text):
            assert "://" in target or (reference / target).exists(), f"{page}: {target}"


@pytest.mark.docs
def test_the_public_names_are_in_the_api_reference(reference):
    page = (reference / "api" / "smtdist.html").read_text()
    for name in ("SMT", "Configuration", "Model", "load"):
        assert name in page


@pytest.mark.docs
def test_the_gallery_shows_every_picture_and_every_notebook(reference):
    page = (reference / "gallery.md").read_text()
    drawing = [name for name in plot.__all__ if name not in ("sheet", "atoms_as_patches")]
    for name in drawing:
        assert f"(gallery/{name}.png)" in page
        with Image.open(reference / "gallery" / f"{name}.png") as picture:
            pixels = np.asarray(picture.convert("L"))
        assert min(pixels.shape) > 150
        assert pixels.std() > 5, f"{name} is blank"
    for notebook in (ROOT / "deploy" / "jupyter").glob("*.ipynb"):
        assert f"(`{notebook.name}`): " in page


def test_everything_the_gallery_draws_can_be_drawn():
    gallery = importlib.import_module("docs.gallery")
    prepared = gallery.names()
    for name, call in gallery.PICTURES.items():
        assert name in call
        axes = eval(call, prepared)
        assert np.asarray(axes).flat[0].figure.axes
    assert gallery.PICTURES.keys() == {*plot.__all__} - {"sheet", "atoms_as_patches"}


def test_pages_name_every_command():
    missing = [name for name in COMMANDS if not re.search(rf"`?smtdist {name}\b|`{name}`", PAGES)]
    assert not missing


def test_summaries_are_those_of_the_commands():
    for name, command in COMMANDS.items():
        assert " ".join(command.help.split()).startswith(commands.about(name)), name
