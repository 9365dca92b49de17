"""What is imported is declared, a wheel is the same for every machine, and an installation leaves nothing behind."""

import ast
import os
import re
import shutil
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from calling import program
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import smtdist

ROOT = Path(__file__).parents[1]
PACKAGE = Path(smtdist.__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
OTHERWISE = {
    "PIL": "pillow",
    "markdown_it": "markdown-it-py",
    "cupyx": "cupy-cuda13x",
    "cupy": "cupy-cuda13x",
    "mlflow": "mlflow-skinny",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""Packages that are installed by another name than they are imported by."""
LEFT_OUT = ("benchmarks", "replication", "results", "deploy", "docs", "examples", "tests")
"""Folders of the checkout that are no part of the wheel."""
BY_NAME = {"import_module", "package"}
"""Functions that import what a string names."""


def names(requirements):
    return {canonicalize_name(Requirement(one).name) for one in requirements}


def every_extra():
    return names(one for extra in EXTRAS.values() for one in extra) - {"smtdist"}


def imports(path):
    """Yield (module, whether loading the file imports it) for the imports of a file, by statement or by a string."""

    def walk(node, loading):
        for child in ast.iter_child_nodes(node):
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.Import):
                yield from ((alias.name, loading) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                yield child.module, loading
                yield from ((f"{child.module}.{alias.name}", loading) for alias in child.names)
            elif isinstance(child, ast.Call) and child.args and isinstance(child.args[0], ast.Constant):
                function = ast.unparse(child.func).split(".")[-1]
                if function in BY_NAME and isinstance(child.args[0].value, str):
                    yield child.args[0].value, loading
            yield from walk(child, loading and not inside)

    return walk(ast.parse(path.read_text()), True)


def brought(module):
    """Return the distribution of a module, or None for Python's own and ours."""
    first = module.split(".")[0]
    own = first in sys.stdlib_module_names or first == "smtdist"
    return None if own else canonicalize_name(OTHERWISE.get(first, first))


def test_what_is_imported_is_what_is_declared():
    every = {path: list(imports(path)) for path in PACKAGE.rglob("*.py")}
    used = {brought(module) for found in every.values() for module, _ in found} - {None}
    assert len(used) > 35
    required = names(PROJECT["dependencies"])
    assert used - required <= every_extra(), "imported, but neither required nor in an extra"
    assert required <= used, "required, but never imported"


def test_what_only_an_extra_brings_is_imported_late():
    """A module that cannot be loaded without an extra is loaded by none that can."""
    required = names(PROJECT["dependencies"]) | {None}
    every = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): {
            module for module, loading in imports(path) if loading
        }
        for path in PACKAGE.rglob("*.py")
    }
    late = {name for name, found in every.items() if not {brought(module) for module in found} <= required}
    assert "smtdist.data.zarr_chunks" in late
    for name, found in every.items():
        assert not found & late, f"{name} imports {found & late} when it is loaded"


def test_what_tests_import_is_declared():
    declared = names(PROJECT["dependencies"]) | names(EXTRAS["test"])
    for extra in next(Requirement(one).extras for one in EXTRAS["test"] if Requirement(one).extras):
        declared |= names(EXTRAS[extra])
    files = list((ROOT / "tests").rglob("*.py"))
    ours = {path.stem for path in files} | {
        path.name for path in (ROOT / "tests").rglob("*") if path.is_dir()
    }
    used = {module.split(".")[0] for path in files for module, loading in imports(path) if loading}
    assert {brought(one) for one in used - ours - {"tests", "benchmarks", "replication", "docs"}} - {
        None
    } <= declared


def test_there_are_never_two_cupys():
    """Their wheels have files of the same names: one for each CUDA, and no extra that another one includes brings one."""
    brought = {
        extra: {name for name in names(one) if name.startswith("cupy")} for extra, one in EXTRAS.items()
    }
    assert {extra: found for extra, found in brought.items() if found} == {
        "cuda": {"cupy-cuda13x"},
        "cuda12": {"cupy-cuda12x"},
    }
    included = {extra for one in EXTRAS.values() for each in one for extra in Requirement(each).extras}
    assert not included & {"cuda", "cuda12"}


def sentences(path):
    """Yield every text of a module, docstrings too; what stands between the braces of an f-string is left out."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_no_sentence_names_a_file_that_the_wheel_lacks():
    """Whoever installed a wheel has the package alone: no docs/, deploy/ or benchmarks/, and no pages."""
    named = re.compile(rf"(?<![\w.])(?:{'|'.join(LEFT_OUT)})[/.][\w{{]|\b[A-Z_]+\.md\b|\bdocs/")
    found = [
        f"{path.name}: {text}"
        for path in PACKAGE.rglob("*.py")
        for text in sentences(path)
        if named.search(text)
    ]
    assert not found
    assert named.search("see `docs/gpu.md`")
    assert named.search("python -m replication.heads")


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """The package as a user has it: a folder of its own, with nothing compiled."""
    folder = tmp_path_factory.mktemp("copied")
    shutil.copytree(PACKAGE, folder / "smtdist", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


def test_a_wheel_is_for_every_machine(copied, tmp_path):
    """Whatever was compiled here, and with nothing set."""
    compiled = copied / "smtdist" / "kernels" / "cpu" / "__pycache__"
    compiled.mkdir(exist_ok=True)
    for name in ("moment.nbi", "moment.1.nbc", "moment.pyc"):
        (compiled / name).write_bytes(b"of this machine")
    program(
        "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])",
        tmp_path,
        cwd=copied,
    )
    shutil.rmtree(compiled)
    (wheel,) = tmp_path.iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("smtdist/")}
    there = {
        path.relative_to(copied).as_posix() for path in (copied / "smtdist").rglob("*") if path.is_file()
    }
    assert packed == there
    assert not [name for name in packed if name.endswith((".nbi", ".nbc", ".so", ".pyc"))]


PROGRAM = """
import numpy as np
from smtdist.kernels.cpu import jit
out = np.zeros(64, np.uint16)
jit.write_one_by_one(out, 0, np.uint64(5), 0, 1)
print(out[:2].tolist())
"""


@pytest.mark.parametrize("home", ["writable", "none", "not writable"])
def test_kernels_are_kept_for_the_user_not_in_the_package(copied, tmp_path, home):
    """Else they would stay after `pip uninstall`, and `import smtdist` would still find a folder of that name."""
    own = {"writable": str(tmp_path / "home"), "none": "", "not writable": "/dev/null/home"}[home]
    unset = ("NUMBA_CACHE_DIR", "NUMBA_CACHE_LOCATOR_CLASSES")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {"PYTHONPATH": str(copied), "HOME": own, "XDG_CACHE_HOME": own and own + "/cache"}
    done = program(PROGRAM, cwd=tmp_path, env=environment)
    assert done.stdout == "[0, 2]\n"
    assert not done.stderr
    left = sorted(copied.rglob("*.nb[ic]"))
    for path in left:
        path.unlink()
    kept = {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*.nb[ic]")}
    assert kept == ({"home"} if home == "writable" else set())
    assert bool(left) == (home != "writable")
    assert {path.name for path in tmp_path.iterdir()} == kept  # no folder named ~, none of a relative path
