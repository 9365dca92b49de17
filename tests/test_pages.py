"""What README, docs and help print works as it is printed, on small files that `smtdist import` made.

The blocks of a page run in order, in one folder and one namespace. A block that cannot run here is marked by
`<!-- not run: why -->` on the line before it. Its commands of smtdist, and the examples of help, are parsed: options
and groups of data must exist. Commands of `python -m benchmarks` need data sets and hours: modules and options must exist.
"""

import gzip
import importlib
import re
import shlex
import shutil
import sys
import tomllib
from itertools import pairwise, takewhile
from pathlib import Path
from typing import NamedTuple

import h5py
import matplotlib
import numpy as np
import pytest
from arrays_in_files import write_arrays
from brought import install_all
from drawing import small_images
from functional_clips import make_clips
from PIL import Image
from threadpoolctl import threadpool_limits
from typer.testing import CliRunner

from smtdist.cli import app
from smtdist.cli.commands import COMMANDS, load

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
DEPLOYED = sorted((ROOT / "deploy").glob("*/README.md"))
MOST_NOT_RUN = {"README and docs": (PAGES, 7), "deploy": (DEPLOYED, 14)}
GUIDES = [ROOT / "CONTRIBUTING.md", ROOT / "smtdist" / "DESIGN.md"]
"""What those who change smtdist read; its commands are not run."""
MEASURING = [ROOT / "benchmarks", ROOT / "replication"]
BENCHMARKS = {path: path.read_text() for folder in MEASURING for path in folder.rglob("*.py")}
SMALL_NUMBERS = {
    "--workers": "0",  # processes take seconds to start; tests/chaos has them
    "--labels": "12",
    "--leading": "6",
    "--neighbours": "5",
}
"""What stands for a number that suits real data."""
SMALL_SETTINGS = {
    "fit .*--model s3c": "n_atoms=12 max_iter=1 images=20",
    "fit .*--model l1": "n_atoms=12 max_iter=1",
    "fit .*--from-model": "n_components=4",
    "fit .*code=s3c": "n_atoms=12 max_iter=1 images=20 n_components=4",
    "fit .*code=rectified": "n_atoms=12 n_components=4",
    "fit .*code=omp": "n_atoms=12 max_iter=1 n_components=4",
    "(fit|plan) .*--model (kernel|points|pca)": "n_components=4",
    "(fit|plan) .*--model words": "n_components=4",
    "(fit|plan) .*--model concepts": "n_concepts=20",
    "(fit|plan) .*--model head": "landmarks=16",
    "(fit|plan) .*--model nearest-mean": "bits=12",
    "(fit|plan) .*--model video": "patch_size=6 length=4 places=4 n_atoms=24 max_iter=2 batch=60 n_components=4",
    "(fit|plan) ": "n_atoms=32 n_components=4 drop_components=0",
    "tune ": "n_atoms=32",
    r"examples\.unit_disc ": "--landmarks 60 --sequences 400 --functions 2",
    r"examples\.spirals ": "--points 400 --landmarks 60",
}
"""Settings and options added to a command that begins so, the first that fits: a few dozen images have few patches."""


class Block(NamedTuple):
    kind: str
    text: str
    why_not: str


def blocks(page):
    """Yield the blocks of code of a page: fenced ones, and indented ones that begin with a command."""
    lines = iter([*page.read_text().splitlines(), ""])
    before = ""
    for line in lines:
        why_not = (re.fullmatch(r"<!-- not run: (.*) -->", before) or ["", ""])[1]
        if fence := re.fullmatch(r"```(\w*)", line):
            inside = takewhile(lambda one: one != "```", lines)
            yield Block(fence[1] or "shell", "\n".join(inside), why_not)
        elif re.match(r" {4}(smtdist|python|pip|sh|S=)", line) and not before:
            yield Block("shell", "\n".join([line, *takewhile(bool, lines)]), why_not)
        before = line


def commands(block):
    """Yield the commands of a block of shell, as words."""
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            yield words


def smaller(words):
    """Return a command of smtdist with numbers for a few dozen images."""
    words = [
        SMALL_NUMBERS.get(before, word) if word.isdigit() else word
        for before, word in zip(["", *words], words, strict=False)
    ]
    words = [
        "n_components=2,4" if word.startswith("n_components=") and "," in word else word for word in words
    ]
    line = " ".join(words)
    added = next((more for part, more in SMALL_SETTINGS.items() if re.match(part, line)), "").split()
    return [*words, *(part for word in added for part in (("--set", word) if "=" in word else (word,)))]


def check_benchmark(words):
    """A command of the benchmarks names a module and options that exist."""
    module = words[words.index("-m") + 1]
    path = ROOT.joinpath(*module.split("."))
    file = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__main__.py"
    assert file.exists(), f"there is no {module}"
    known = "".join(text for one, text in BENCHMARKS.items() if one.is_relative_to(file.parent))
    for word in words:
        if word.startswith("--"):
            assert f'"{word}"' in known, f"{module} has no {word}"


def check_parsed(words, folder):
    """A command that is not run has the arguments and options that it names, and data with such a group."""
    name, *rest = words
    command = load(name)
    if inner := getattr(command, "commands", {}).get(rest[0]):
        command, rest = inner, rest[1:]
    command.make_context(name, [*rest])  # it takes words out of its list
    for option, group in pairwise(rest):
        if option in ("--dataset", "--train", "--test"):
            files = [folder / word for word in words if (folder / word).is_file()]
            assert any(has(file, group) for file in files), f"{words}: none of {files} has {group}"


def has(path, group):
    """Tell whether an HDF5 file has a group or dataset."""
    if not h5py.is_hdf5(path):
        return False
    with h5py.File(path) as file:
        return group in file


def run(words):
    """Run a command of smtdist in this process; it must end well."""
    done = CliRunner().invoke(app, smaller(words))
    assert done.exit_code == 0, (words, done.output, done.exception)


def run_shell(block):
    """Run the commands of a block, one after the other."""
    for words in commands(block):
        if words[:2] == ["python", "-m"] and words[2].startswith("examples."):
            importlib.import_module(words[2]).main(smaller(words[2:])[1:])
        elif words[:2] == ["python", "-m"]:
            check_benchmark(words)
        elif words[:2] != ["pip", "install"] and not re.match(r"\w+=", words[0]):
            assert words[0] == "smtdist", f"{words} is no command of smtdist: mark it as not run"
            if words[1] == "resume":  # as if the run had been killed before it wrote the model
                Path("model.h5").unlink()
            run(words[1:])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with all that pages begin with: images, what `import` makes of them, a table, text and clips."""
    folder = tmp_path_factory.mktemp("made")
    draw = np.random.default_rng(0)
    for seed, (part, each) in enumerate({"train": 16, "test": 8, "more": 4}.items()):
        for label, name in enumerate(("bird", "cat", "dog")):
            place = folder / ("more" if part == "more" else f"images/{part}") / name
            place.mkdir(parents=True)
            pixels = small_images(10 * seed + label, each, 16, 16, 3)
            pixels[:, 4 * label : 4 * label + 4] //= 2
            for number, image in enumerate(pixels):
                Image.fromarray(image).save(place / f"{number}.png")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        run(["import", "images", "--out", "data.h5"])
        run(["import", "more", "--out", "more.h5"])
        run(["fit", "data.h5", "--dataset", "train", "--out", "model.h5"])
    write_arrays(folder / "z.h5", {"z": draw.normal(size=(40, 6))})
    with h5py.File(folder / "table.h5", "w") as file:
        file["x"], file["more"] = draw.normal(size=(2, 400, 3))
    write_arrays(folder / "signals.h5", {"train": draw.normal(size=(50, 40))})
    words = ["february", "raccoon", *(f"word{number}" for number in range(28))]
    text = "\n".join(" ".join(draw.choice(words, 8)) for _ in range(500))
    (folder / "corpus.txt.gz").write_bytes(gzip.compress(text.encode()))
    (folder / "more.txt").write_text(text[:2000])
    make_clips(folder / "clips.h5")
    matplotlib.use("agg")
    return folder


def brought(page, monkeypatch, folder):
    """Install what a page on packages says, its code as a module and its entry points, and import it."""
    found = list(blocks(page))
    code = "\n\n".join(block.text for block in found if block.kind == "python")
    (folder / "my_package.py").write_text(code)
    points = [
        tomllib.loads(block.text)["project"]["entry-points"] for block in found if block.kind == "toml"
    ]
    install_all(monkeypatch, folder, {group: names for one in points for group, names in one.items()})
    monkeypatch.delitem(sys.modules, "my_package", raising=False)
    importlib.import_module("my_package")


@pytest.mark.parametrize("page", [*PAGES, *DEPLOYED], ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_a_page_runs(page, made, tmp_path, monkeypatch, capsys):
    found = [block for block in blocks(page) if not block.why_not]
    shell = [words for block in found if block.kind == "shell" for words in commands(block)]
    written = {words[words.index("--out") + 1] for words in shell if "--out" in words}
    for one in made.iterdir():
        if one.name not in written:  # a page begins with what it does not make itself
            (shutil.copytree if one.is_dir() else shutil.copy)(one, tmp_path / one.name)
    monkeypatch.chdir(tmp_path)
    names = {"__name__": page.stem}
    if any(block.kind == "toml" for block in found):
        brought(page, monkeypatch, tmp_path)
        found = [block for block in found if block.kind == "shell"]
    importlib.import_module("sklearn.manifold")  # threads of what is loaded later would not be limited
    with threadpool_limits(1):
        for block in found:
            if block.kind == "python":
                exec(compile(block.text, str(page), "exec"), names)
            elif block.kind == "shell":
                run_shell(block)
    if page == PAGES[0]:
        printed = [float(word) for word in re.findall(r"^0\.\d+$", capsys.readouterr().out, re.MULTILINE)]
        said = [float(word) for word in re.findall(r", `(0\.\d+)`", page.read_text())]
        assert printed == pytest.approx(said, abs=0.01)
        assert len(said) == 2


@pytest.mark.parametrize("where", MOST_NOT_RUN)
def test_few_blocks_are_not_run_and_each_says_why(where, made, monkeypatch):
    pages, most = MOST_NOT_RUN[where]
    found = [block for page in pages for block in blocks(page)]
    assert {block.kind for block in found} <= {"python", "shell", "toml"}, "others would not be run"
    marked = [block for block in found if block.why_not]
    assert sum(page.read_text().count("<!-- not run") for page in pages) == len(marked) <= most
    assert all(len(block.why_not.split()) > 1 for block in marked)
    monkeypatch.chdir(made)
    for block in marked:
        for words in commands(block):
            if words[0] == "smtdist" and "..." not in words:
                check_parsed(words[1:], made)


def examples_of_help():
    """Yield the examples at the end of every help."""
    for name in COMMANDS:
        command = load(name)
        for one in (command, *getattr(command, "commands", {}).values()):
            if one.epilog:
                yield one.epilog.removeprefix("Example: smtdist ")


def test_examples_of_help_are_right(made, monkeypatch):
    monkeypatch.chdir(made)
    for example in examples_of_help():
        check_parsed(shlex.split(example), made)


def test_links_lead_somewhere():
    guides = [*PAGES, *DEPLOYED, *GUIDES, *ROOT.glob("*.md")]
    for page in {*guides, *(folder / "README.md" for folder in MEASURING)}:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            if not target.startswith("http"):
                path, _, anchor = target.partition("#")
                there = page if not path else page.parent / path
                assert there.exists(), f"{page.name}: {target}"
                if anchor:
                    titles = re.findall(r"^#+ (.*)$", there.read_text(), re.MULTILINE)
                    slugs = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
                    assert anchor in slugs, f"{page.name}: {target}"


def test_readme_is_one_page():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    assert len(text.split()) <= 1200


def test_readme_leads_to_every_page():
    text = (ROOT / "README.md").read_text()
    assert not [page.name for page in PAGES[1:] if f"(docs/{page.name}" not in text]


def test_what_pages_and_notebooks_import_is_there():
    notebooks = (ROOT / "deploy").rglob("*.ipynb")
    for page in [*PAGES, *DEPLOYED, *notebooks]:
        for module, names in re.findall(r"from (smtdist[\w.]*) import ([\w, ]+)", page.read_text()):
            for name in filter(None, (name.split(" as ")[0].strip() for name in names.split(","))):
                if not hasattr(importlib.import_module(module), name):
                    importlib.import_module(f"{module}.{name}")


def test_files_that_pages_name_are_there():
    named = r"`[^`\n]*?((?:tests|results|smtdist|docs)/[\w./*-]*\w)"
    for page in [*PAGES, *DEPLOYED]:
        for path in re.findall(named, page.read_text()):
            assert list(ROOT.glob(path)), f"{page.name}: {path}"


def test_files_that_guides_name_are_there():
    for page in GUIDES:
        for path in re.findall(r"[\w.]+(?:/[\w.]+)*\.py\b|tests(?:/\w+)+", page.read_text()):
            places = (ROOT / path, ROOT / "smtdist" / path, ROOT / "smtdist" / "cli" / path)
            assert "NAME" in path or any(place.exists() for place in places), f"{page.name}: {path}"


def test_the_design_is_short():
    assert len((ROOT / "smtdist" / "DESIGN.md").read_text().split()) <= 2500
