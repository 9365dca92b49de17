"""`smtdist --help` starts fast because of what it does not import; this lists what it may."""

import json
import subprocess
import sys

import pytest

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
