"""The documentation: `python docs/build.py` renews the tables of `docs/settings.md` and `docs/models.md`, in seconds.

`python docs/build.py FOLDER` (needs `pip install '.[docs]'`) also builds the site in FOLDER, in minutes, as notebooks run:
Sphinx reads the README, the pages of `docs/` by the sections below, the notebooks, and what `docs/tables.py` makes from code.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from docs import gallery, tables

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
COPIED = ("docs", "deploy", "benchmarks", "replication", "results", "examples")
"""Folders with pages, and with what pages show or link."""
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Start": ("docs/install", "docs/when_to_use"),
    "Tutorials": ("deploy/jupyter/0*", "reference/gallery", "examples/README"),
    "How-to": (
        *(
            f"docs/{name}"
            for name in ("images", "classifiers", "words", "video", "concepts", "kernel_models")
        ),
        *(f"docs/{name}" for name in ("files", "adding_and_withdrawing", "memory_and_time", "watching")),
        *("docs/gpu", "docs/clusters", "deploy/*/README", "docs/extending"),
    ),
    "Reference": ("reference/commands", "docs/models", "docs/settings", "reference/*", "docs/reference/*"),
    "Explanation": ("docs/life_of_a_fit", "docs/guarantees", "smtdist/DESIGN"),
    "Results": (
        *(
            "docs/replication",
            "replication/quality/TABLES",
            "docs/figures",
            "docs/few_labels",
            "docs/eurosat",
        ),
        *("docs/benchmarks", "benchmarks/README", "replication/README", "results/*"),
    ),
    "Project": ("*", "docs/*"),
}
"""Patterns of the pages of each section; a page is in the first that names it."""


def pages(folder: Path) -> list[str]:
    """Return every page below a folder, without its ending."""
    found = [path for path in folder.rglob("*") if path.suffix in (".md", ".ipynb")]
    return sorted(str(path.relative_to(folder).with_suffix("")) for path in found)


def sorted_pages(names: list[str]) -> dict[str, list[str]]:
    """Return which of the pages each section has, in its order."""
    left, found = dict.fromkeys(names), {}
    for section, patterns in SECTIONS.items():
        # `*` does not cross a folder
        known = [name for one in patterns for name in left if re.fullmatch(one.replace("*", "[^/]*"), name)]
        found[section] = [*dict.fromkeys(known)]
        left = {name: None for name in left if name not in found[section]}
    return found


def contents(names: list[str]) -> Iterator[str]:
    """Yield the tables of contents of the site."""
    for section, inside in sorted_pages([name for name in names if name != "index"]).items():
        yield "\n".join(["", "```{toctree}", ":hidden:", f":caption: {section}", "", *inside, "```", ""])


def gather(folder: Path) -> None:
    """Copy every page to FOLDER, and make those that follow from the code."""
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    for path in (*ROOT.glob("*.md"), ROOT / "smtdist" / "DESIGN.md", ROOT / "LICENSE"):
        to = folder / path.relative_to(ROOT)
        to.parent.mkdir(exist_ok=True)
        shutil.copy(path, to)
    (folder / "README.md").rename(folder / "index.md")
    made = folder / "reference"
    (made / "names").mkdir(parents=True)
    for function in (tables.commands, tables.model_settings, tables.file_format):
        (made / f"{function.__name__}.md").write_text(function())
    names = tables.public_names()
    for name, text in names.items():
        (made / "names" / f"{name}.md").write_text(text)
    listed = ["# Public names", "", "```{toctree}", *(f"names/{name}" for name in names), "```", ""]
    (made / "names.md").write_text("\n".join(listed))
    (made / "events.md").write_text(
        "# Events\n\n```{eval-rst}\n.. automodule:: smtdist.engine.events\n```\n"
    )
    gallery.write(made)
    for path in folder.rglob("*.md"):
        path.write_text(linked(path, folder))
    with (folder / "index.md").open("a") as front:
        front.writelines(contents([name for name in pages(folder) if "/names/" not in name]))


def linked(page: Path, folder: Path) -> str:
    """Return a page whose links lead to what the site has; others become their text."""

    def link(found: re.Match[str]) -> str:
        there = (page.parent / found[2].partition("#")[0]).resolve()
        if there == folder / "README.md":
            return found[0].replace("README.md", "index.md")
        return found[0] if found[2][0] == "#" or "://" in found[2] or there.is_file() else found[1]

    return re.sub(r"(?<!!)\[([^\]\n]*)\]\(([^)\s]+)\)", link, page.read_text())


def build(folder: Path) -> None:
    """Write the site to FOLDER."""
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary).resolve() / "source"
        source.mkdir()
        gather(source)
        options = ["-W", "--keep-going", "-q", "-c", HERE, "-d", source.parent / "doctrees"]
        site = source.parent / "site"  # not FOLDER, beside which executed notebooks would lie
        subprocess.run([sys.executable, "-m", "sphinx", *options, source, site], check=True)
        shutil.copytree(site, folder, dirs_exist_ok=True)
    print(folder / "index.html")


def main() -> None:
    """Renew the tables, and build the site where a folder is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    folder = parser.parse_args().folder
    (HERE / "settings.md").write_text(tables.settings())
    (HERE / "models.md").write_text(tables.models())
    if folder is not None:
        build(folder.resolve())


if __name__ == "__main__":
    main()
