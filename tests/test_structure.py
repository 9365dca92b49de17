"""Imports point one way, only engine and monitor know Dask, and the public names are what they are."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from every_kind import ESTIMATORS

import smtdist

ROOT = Path(smtdist.__file__).parent
BELOW = {
    "errors": set(),
    "settings": {"errors"},
    "configuration": {"errors", "settings"},
    "kernels": {"errors"},
    "data": {"errors", "kernels"},
    "statistics": {"errors", "kernels", "data"},
    "solve": {"errors", "kernels"},
    "codes": {"errors", "settings", "kernels", "data", "statistics"},
    "engine": {"errors", "kernels", "data", "statistics", "solve"},
    "models": {
        "errors",
        "settings",
        "configuration",
        "kernels",
        "data",
        "statistics",
        "codes",
        "solve",
        "engine",
    },
}
BELOW["evaluate"] = BELOW["models"] | {"models"}
BELOW["monitor"] = BELOW["models"] | {"models"}
BELOW["concepts"] = BELOW["models"] | {"models"}
BELOW["plot"] = BELOW["models"] | {"models"}
BELOW["report"] = BELOW["models"] | {"models", "concepts", "evaluate", "monitor", "plot"}
BELOW["datasets"] = {"errors", "kernels", "data"}
BELOW["compile"] = BELOW["models"] | {"models", "evaluate"}
BELOW["cli"] = BELOW["report"] | {"report", "datasets"}
# images are decoded on the threads of the kernels
DATA_MAY_USE = {"types", "hashing", "lzf", "pixels", "threads"}
KNOW_DASK = {"engine", "monitor"}


def modules():
    return [path for path in sorted(ROOT.rglob("*.py")) if path.parent != ROOT or path.stem in BELOW]


def imported(path):
    """Yield (module, line) for every import of a file, wherever in the file it is."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


@pytest.fixture(scope="module")
def imports():
    """Return (layer, module, where) of every import of every module, split at the module's dots."""
    return [
        (layer(path), name.split("."), f"{path}:{line}: {layer(path)} may not import {name}")
        for path in modules()
        for name, line in imported(path)
    ]


def layer(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def test_imports_point_one_way(imports):
    own = [(here, parts, wrong) for here, parts, wrong in imports if parts[0] == "smtdist"]
    assert len(own) > 1000
    assert [wrong for here, parts, wrong in own if parts[1] not in BELOW[here] | {here}] == []
    kernels = [(parts, wrong) for here, parts, wrong in own if (here, parts[1]) == ("data", "kernels")]
    assert [wrong for parts, wrong in kernels if parts[2] not in DATA_MAY_USE] == []


def test_only_engine_and_monitor_know_dask(imports):
    of_dask = [(here, wrong) for here, parts, wrong in imports if parts[0] in ("dask", "distributed")]
    assert len(of_dask) > 20
    assert [wrong for here, wrong in of_dask if here not in KNOW_DASK] == []


def test_every_layer_is_known():
    assert {layer(path) for path in modules()} == set(BELOW)
    assert {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()} <= set(BELOW)


def test_public_names():
    expected = {"PRESETS", "Configuration", "Model", "SmtdistError"}
    expected |= {"load", "open_datatree", "preset", "refit", "save", "start", "watch"}
    expected |= {"export", "import_images", "import_videos", "merge", "tune", "update", "write_report"}
    expected |= ESTIMATORS.keys()  # each has a life in tests/laws/test_verbs.py
    assert set(smtdist.__all__) == set(dir(smtdist)) == expected | {"datasets", "plot"}
    assert all(hasattr(smtdist, name) for name in [*dir(smtdist), "__version__"])
    assert (ROOT / "py.typed").exists()


def test_plot_is_there_without_an_import_of_its_own():
    program = "import smtdist, sys; assert 'matplotlib' not in sys.modules; smtdist.plot.spectrum; assert 'plot' in dir(smtdist)"
    subprocess.run([sys.executable, "-c", program], check=True)


PLACES = {
    r"f_gq|f_vq|vector quantisation|greyscale": {"section 3"},
    r"whiten|mean-removed|minus their mean": {"appendix C"},
    r"embedding of a sparse code|pooled|pooling": {"section 2"},
    r"1-sparse dictionary": {"appendix D"},
    r"nearest training|neighbours of a class": {"appendix J"},
    r"P V Pᵀ = I|P C Pᵀ|PAD|eigenvalues": {"eq. 3", "section 2"},
    r"[Ww]ords that|of words|each word|one-hot codes of words": {"appendix B", "figure 5"},
}
"""Where the paper of 2023 has what a sentence that cites it speaks of."""


def test_citations_name_the_place():
    """Equations 1 and 2 of SMT 2023 are the two objectives, 3 is their common form; codes have no number."""
    checked = 0
    for path in ROOT.rglob("*.py"):
        for sentence in path.read_text().splitlines():
            cited = re.search(r"SMT 2023,? (eq\. \d|\w+ [\dA-Z])", sentence)
            if cited is None:
                continue
            for what, places in PLACES.items():
                if re.search(what, sentence):
                    checked += 1
                    found = cited[1].lower() if cited[1][0] == "F" else cited[1]
                    assert found in places, f"{path}: {sentence.strip()}"
                    break
    assert checked > 20
