"""`smtdist --help` starts fast because of what it does not import; this lists what it may."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from smtdist.kernels import cpu

PROGRAM = """
import json, sys
before = set(sys.modules)
from smtdist.cli import main
try:
    main()
except SystemExit as ended:
    assert not ended.code
print(json.dumps(sorted(set(sys.modules) - before)), file=sys.stderr)
"""
OURS = {
    "smtdist",
    "smtdist.cli",
    "smtdist.cli.app",
    "smtdist.cli.commands",
    "smtdist.cli.errors",
    "smtdist.cli.options",
    "smtdist.configuration",
    "smtdist.engine",
    "smtdist.engine.cluster_choice",
    "smtdist.errors",
}
OTHERS = {
    *(
        "annotated_doc",
        "attr",
        "click",
        "colorama",
        "markdown_it",
        "mdurl",
        "pygments",
        "rich",
        "shellingham",
    ),
    *("typer", "typing_extensions"),
}
"""What typer brings with it; nothing of what computes."""


def imported(*arguments):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout, set(json.loads(done.stderr.splitlines()[-1]))


def test_help_imports_no_more_than_it_shows():
    said, modules = imported("--help")
    assert "Learn representations" in said
    assert {name for name in modules if name.split(".")[0] == "smtdist"} <= OURS
    others = {name.split(".")[0] for name in modules} - sys.stdlib_module_names - {"smtdist"}
    assert {name for name in others if not name.startswith("_")} <= OTHERS


def test_version_imports_nothing_that_computes():
    _, modules = imported("--version")
    assert not {"numpy", "dask", "distributed", "h5py", "numba", "scipy", "sklearn"} & modules


@pytest.mark.parametrize("command", ["transform", "evaluate", "update", "tune", "plan", "info", "filters"])
def test_commands_on_models_import_neither_scikit_learn_nor_scipy_for_nothing(command):
    """They are half a second and 100 MB, which only estimators and solves need."""
    program = f"import sys, smtdist.cli.{'merge' if command == 'update' else command}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    modules = {name.split(".")[0] for name in done.stdout.split()}
    assert "sklearn" not in modules
    assert command == "plan" or "scipy.spatial" not in done.stdout.split()  # the curve of a plan is fitted


def compiled_functions():
    """Yield the name, file and syntax tree of every function that Numba compiles."""
    for path in sorted(Path(cpu.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and "compiled" in map(ast.unparse, node.decorator_list):
                yield node.name, path.name, node


def test_nothing_is_compiled_more_than_once_for_a_literal():
    """Numba compiles a function once more for every literal that another passes, and messages for slices that are assigned.

    Of 11 seconds of compiling before a first fit 6 were such.
    """
    every = list(compiled_functions())
    names = {name for name, _, _ in every}
    assert len(names) > 50
    for name, file, tree in every:
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            if ast.unparse(call.func) in names:
                literals = [ast.unparse(one) for one in call.args if isinstance(one, ast.Constant)]
                assert not literals, f"{file}: {name} calls {ast.unparse(call)}"


def test_a_fit_compiles_nothing_that_it_never_calls():
    program = """
import gc
import numpy as np
from numba.core.dispatcher import Dispatcher
from smtdist.configuration import preset
from smtdist.data.array import as_source
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.models.fit import fit

images = np.random.default_rng(0).integers(0, 256, (40, 14, 14, 3), dtype=np.uint8)
fit(as_source(images), preset("cifar10-gq").replace(dictionary=64).with_atoms(64), Engine(SerialExecutor(1)))
ours = [one for one in gc.get_objects() if isinstance(one, Dispatcher) and "smtdist" in one.py_func.__module__]
print(*(one.py_func.__name__ for one in ours for _ in one.signatures))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    called = done.stdout.split()
    assert {"mark_tiles", "mark_panels", "scan_tile"} & set(called)
    assert "best_in_panels" not in called  # the nearest atom, which only some policies ask for
    assert len(called) == len(set(called))  # each for one kind of array
