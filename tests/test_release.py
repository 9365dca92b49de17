"""What a release says of itself: metadata with and without an address, versions, citation, changelog, checks."""

import re
import subprocess
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
import yaml
from calling import program
from markdown_it import MarkdownIt

import smtdist
from smtdist.models.kinds import KINDS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
PAGE = "https://host.example/owner/smtdist"
BUILD = "import sys; from hatchling import build; build.build_{}(sys.argv[1])"
NEEDED = (
    "pyproject.toml",
    "hatch_build.py",
    "README.md",
    "LICENSE",
    "smtdist/__init__.py",
    "smtdist/py.typed",
)


def built(folder, address):
    """Return the metadata and the description of a wheel that is built from the source archive."""
    for name in NEEDED:
        (folder / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "tree" / name).write_bytes((ROOT / name).read_bytes())
    project = folder / "tree" / "pyproject.toml"
    text, lines = re.subn(r"(?m)^address = .*$", f"address = {address}", project.read_text())
    assert lines == 1
    project.write_text(text)
    program(BUILD.format("sdist"), folder, cwd=folder / "tree")
    (source,) = folder.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    program(BUILD.format("wheel"), folder, cwd=folder / source.name.removesuffix(".tar.gz"))
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        (name,) = (one for one in packed.namelist() if one.endswith("/METADATA"))
        found = message_from_bytes(packed.read(name))
    return found, found.get_payload(decode=True).decode()


@pytest.mark.parametrize("page", [PAGE, ""])
def test_metadata_follow_from_the_address(page, tmp_path):
    """Without one nothing is invented, and the description has no link that leads nowhere."""
    mail = "maintainers@host.example" if page else ""
    found, description = built(tmp_path, f'{{ page = "{page}", mail = "{mail}" }}')
    addresses = dict(one.split(", ") for one in found.get_all("Project-URL", []))
    wanted = {"Homepage", "Documentation", "Repository", "Changelog", "Issues", "Security"}
    assert set(addresses) == (wanted if page else set())
    assert all(one.startswith(page) for one in addresses.values())
    assert found["Author-email" if page else "Author"].startswith("smtdist maintainers")
    assert (found["Author-email"] is None) != bool(page)
    targets = re.findall(r'(?:href|src)="([^"]*)"', MarkdownIt().enable("table").render(description))
    assert bool(targets) == bool(page)
    files = [one for one in targets if one.startswith(f"{PAGE}/")]
    assert [one for one in targets if "://" not in one] == []
    for target in files:
        kind, tag, name = target.removeprefix(f"{PAGE}/").partition("#")[0].split("/", 2)
        assert (kind in ("blob", "raw"), tag) == (True, f"v{PROJECT['version']}")
        assert (ROOT / name).exists(), name
    assert ("![" in description) == bool(page)
    assert "smt = SMT(patch_size=3" in description


def test_every_file_has_the_same_version():
    versions = re.findall(r"(?m)^## \[(\d[\w.]*)\]", (ROOT / "CHANGELOG.md").read_text())
    assert versions[0] == PROJECT["version"] == CITATION["version"] == smtdist.__version__


def test_the_changelog_has_the_form_that_it_names():
    text = (ROOT / "CHANGELOG.md").read_text()
    assert re.findall(r"(?m)^## (.*)$", text)[0] == "[Unreleased]"
    known = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Known limits"}
    assert set(re.findall(r"(?m)^### (.*)$", text)) <= known


def test_the_citation_has_the_papers_of_the_readme():
    listed = re.findall(r"(?m)^\d\. .*?\*(.*)\.\* ?(.*)$", (ROOT / "README.md").read_text())
    assert [title for title, _ in listed] == [one["title"] for one in CITATION["references"]]
    for (_, rest), one in zip(listed, CITATION["references"], strict=True):
        assert str(one.get("year", "under review")) in rest
        identifiers = [each["value"] for each in one.get("identifiers", [])]
        assert identifiers or one["type"] == "unpublished"
        assert all(each in rest for each in identifiers)


def test_layouts_of_files_are_on_their_page():
    rows = re.findall(r"(?m)^\| (\d) \| (.*) \|$", (ROOT / "docs/releases.md").read_text())
    stated = {name: int(number) for number, names in rows for name in re.findall(r"`(\w+)`", names)}
    # classes of tests and pages have rows, too
    ours = {name: kind for name, kind in KINDS.items() if not kind.home or kind.home.startswith("smtdist.")}
    assert stated == {name: kind.newest for name, kind in ours.items() if kind.schema.endswith("schema")}


def test_every_python_that_is_supported_runs_the_checks():
    jobs = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())["jobs"]
    stated = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert jobs["tests"]["strategy"]["matrix"]["python"] == stated
    assert PROJECT["requires-python"] == f">={stated[0]}"
    called = {name: job["steps"][-1]["run"] for name, job in jobs.items()}
    assert called == {"tests": ".ci/run tests", "checks": ".ci/run checks"}
    refused = subprocess.run([ROOT / ".ci/run", "other"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "checks|tests" in refused.stderr


def test_hooks_are_local_and_are_those_of_the_checks():
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    (line,) = re.findall(r'for command in "(.*)" "(.*)" (\w+);', (ROOT / ".ci/run").read_text())
    assert [hook["entry"] for hook in repository["hooks"]] == list(line)
    assert {hook["language"] for hook in repository["hooks"]} == {"system"}
