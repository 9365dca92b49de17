"""A typed script over all public names: it runs, and a user's mypy --strict takes it where the wheel is installed."""

import ast
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import smtdist

SCRIPT = Path(__file__).with_name("typed_script.py")
ROOT = SCRIPT.parents[1]


def run(*words, **options):
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_typed_script_runs():
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert "choose another name or pass overwrite=True" in run(sys.executable, SCRIPT, env=environment)


def test_the_typed_script_uses_every_public_name():
    used = {
        node.attr
        for node in ast.walk(ast.parse(SCRIPT.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "smtdist"
    }
    # the one attaches to a cluster, the other takes video files
    assert set(dir(smtdist)) - used == {"watch", "import_videos"}


@pytest.mark.slow
def test_the_typed_script_passes_mypy_where_the_wheel_is_installed(tmp_path):
    run(sys.executable, "-m", "venv", tmp_path / "fresh")
    python = tmp_path / "fresh" / "bin" / "python"
    run(python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, ROOT)
    (wheel,) = tmp_path.glob("smtdist-*.whl")
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel)
    # what smtdist needs is that of this environment; smtdist itself is not there under this name
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    Path(site, "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    script = tmp_path / "typed_script.py"
    script.write_text(SCRIPT.read_text())
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    home = run(python, "-c", "import smtdist; print(smtdist.__file__)", cwd=tmp_path, env=outside)
    assert home.startswith(site)
    mypy = (sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull, "--cache-dir", tmp_path)
    run(*mypy, "--python-executable", python, script, cwd=tmp_path, env=outside)
    assert "SMT (60, 64)" in run(python, script, cwd=tmp_path, env=outside)
