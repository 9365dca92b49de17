"""`smtdist --help` starts fast because of what it does not import; this lists what it may."""

import ast
import importlib
import json
import pkgutil
import sys
from pathlib import Path

import pytest
from calling import program
from numba.core.dispatcher import Dispatcher

import smtdist.concepts
import smtdist.kernels
from smtdist.kernels import cpu
from smtdist.kernels.cpu import jit

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
    f"smtdist{name}"
    for name in ("", ".cli", ".engine", ".errors", ".settings", ".configuration", ".engine.cluster_choice")
} | {f"smtdist.cli.{name}" for name in ("app", "commands", "errors", "options")}
OTHERS = {"annotated_doc", "attr", "click", "colorama", "markdown_it", "mdurl", "pygments", "rich"}
OTHERS |= {"lazy_loader", "shellingham", "typer", "typing_extensions"}
"""What typer brings with it, and what reads the list of public names; nothing of what computes."""


def imported(*arguments):
    done = program(PROGRAM, *arguments)
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
    text = f"import sys; from smtdist.cli.commands import load; load({command!r}); print(*sys.modules)"
    modules = program(text).stdout.split()
    assert "sklearn" not in {name.split(".")[0] for name in modules}
    assert command == "plan" or "scipy.spatial" not in modules  # the curve of a plan is fitted


def compiled_functions():
    """Yield the name, file and syntax tree of every function that Numba compiles."""
    for path in sorted(Path(cpu.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and "compiled" in map(ast.unparse, node.decorator_list):
                yield node.name, path.name, node


def begun_with_literals(tree):
    """Return the names that a function assigns a whole number to, which Numba takes for a literal in its first guess."""
    pairs = []
    for node in ast.walk(tree):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            several = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
            pairs += zip(target.elts, node.value.elts, strict=True) if several else [(target, node.value)]
    values = [(to, value.operand if isinstance(value, ast.UnaryOp) else value) for to, value in pairs]
    return {
        to.id
        for to, value in values
        if isinstance(to, ast.Name) and type(getattr(value, "value", None)) is int
    }


def test_nothing_is_compiled_more_than_once_for_a_literal():
    """Numba compiles a function once more for every literal that another passes, and messages for slices that are assigned.

    Of 11 seconds of compiling before a first fit 6 were such.
    """
    every = list(compiled_functions())
    names = {name for name, _, _ in every}
    assert len(names) > 50
    for name, file, tree in every:
        begun = begun_with_literals(tree)
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            if ast.unparse(call.func) in names:
                literals = [ast.unparse(one) for one in call.args if isinstance(one, ast.Constant)]
                literals += [one for one in map(ast.unparse, call.args) if one in begun]
                assert not literals, f"{file}: {name} calls {ast.unparse(call)}"


KINDS = """
import gc
from numba.core.dispatcher import Dispatcher

def kinds():
    ours = (one for one in gc.get_objects() if isinstance(one, Dispatcher) and "smtdist" in one.py_func.__module__)
    return {(one.py_func.__name__, str(kind)) for one in ours for kind in one.signatures}
"""
"""Of a program: the functions that this process has compiled or loaded, each with the types of its arguments."""


def test_a_fit_compiles_nothing_that_it_never_calls():
    text = """
import numpy as np
from smtdist.configuration import preset
from smtdist.data.array import as_source
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.models.fit import fit

images = np.random.default_rng(0).integers(0, 256, (40, 14, 14, 3), dtype=np.uint8)
fit(as_source(images), preset("cifar10-gq").replace(dictionary=64).with_atoms(64), Engine(SerialExecutor(1)))
print(*(name for name, _ in kinds()))
"""
    called = program(KINDS + text).stdout.split()
    assert {"mark_tiles", "mark_panels", "scan_tile"} & set(called)
    assert "best_in_panels" not in called  # the nearest atom, which only some policies ask for
    assert len(called) == len(set(called))  # each for one kind of array


def test_a_first_fit_needs_nothing_that_compile_kernels_leaves_out():
    text = """
import numpy as np
from smtdist.cli.demo import SETTINGS
from smtdist.compile import compile_kernels
from smtdist.configuration import Configuration, defaults_for, preset
from smtdist.data.array import as_source
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.evaluate.knn import nearest
from smtdist.models.fit import fit
from smtdist.models.transform import represented

assert compile_kernels() >= 0
known, noise = kinds(), np.random.default_rng(1)
colour, grey, digits = (
    noise.integers(0, 256, (60, side, side, channels), dtype=np.uint8) for side, channels in ((32, 3), (28, 1), (8, 1))
)
for images, settings in (
    (colour, defaults_for(colour.shape)),
    (colour, preset("cifar10-gq")),
    (grey, defaults_for(grey.shape)),
    (grey, preset("mnist-vq")),
    (digits, Configuration(patch=3)),
    (digits, SETTINGS),
):
    source, engine = as_source(images), Engine(SerialExecutor(1))
    model, _ = fit(source, settings.replace(dictionary=300, n_components=8, drop=0), engine)
    z = represented(model, source, engine).reshape(60, -1)
    for known_rows in (z, np.repeat(z, 20, 0)):
        nearest(z, known_rows, 10)
print(*kinds() - known, sep="\\n")
"""
    assert not program(KINDS + text).stdout.strip()


def add(module, folder, text):
    (folder / f"{module}.py").write_text("from smtdist.kernels.cpu.jit import compiled\n" + text)


def test_code_that_was_compiled_from_other_sources_is_not_used(tmp_path, monkeypatch):
    """Numba alone looks at a function's own file, and would run what a function that it calls was before."""
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.syspath_prepend(tmp_path)
    add(
        "outer_kernel",
        tmp_path,
        "from inner_kernel import inner\n@compiled\ndef outer(a): return inner(a)\n",
    )
    for answer in (1, 2, 2):
        # of another length, or Python would run its own bytecode of a file written in the same second
        add("inner_kernel", tmp_path, f"@compiled\ndef inner(a): return a{' + 1' * answer}\n")
        for name in ("inner_kernel", "outer_kernel"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()
        jit._sources.cache_clear()
        outer = importlib.import_module("outer_kernel").outer
        assert outer(0) == answer
    assert outer.stats.cache_hits  # the third time, nothing had changed


def test_compiled_functions_call_none_from_folders_that_their_code_is_not_kept_for():
    everywhere = [smtdist.kernels, smtdist.concepts]
    modules = [
        importlib.import_module(one.name)
        for package in everywhere
        for one in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
        if ".gpu." not in one.name
    ]
    called = 0
    for module in modules:
        for function in (one for one in vars(module).values() if isinstance(one, Dispatcher)):
            body = function.py_func
            for name in body.__code__.co_names:
                other = getattr(body.__globals__.get(name), "py_func", None)
                if other is not None:
                    called += 1
                    folders = {Path(one.__code__.co_filename).parent for one in (body, other)}
                    assert folders <= {Path(body.__code__.co_filename).parent, Path(jit.__file__).parent}, (
                        f"{body.__module__}.{body.__name__} calls {other.__module__}.{name}"
                    )
    assert called > 50


def test_kernels_work_where_nothing_can_be_kept(monkeypatch):
    monkeypatch.setattr(jit._Kept, "_locator_classes", [])
    monkeypatch.setattr("numba.core.config.CACHE_LOCATOR_CLASSES", "", raising=False)  # Numba 0.61 has none
    jit._say_nothing_is_kept.cache_clear()
    with pytest.warns(UserWarning, match="set NUMBA_CACHE_DIR to one") as told:
        assert [jit.compiled(one)(1) for one in (lambda a: a + 1, lambda a: a + 2)] == [2, 3]
    assert len(told) == 1


def test_every_function_is_compiled_in_the_one_way():
    sources = {path: path.read_text() for path in Path(smtdist.__file__).parent.rglob("*.py")}
    assert [path.name for path, text in sources.items() if "njit(" in text] == ["jit.py"]
