"""Every benchmark is imported and knows its arguments; that each runs, tiny, is tested by `pytest -m benchmark`."""

import importlib
import pkgutil
import sys

import pytest

import benchmarks
import replication

PEERS = {"torch", "cupy", "faiss", "dask_ml"}
"""What benchmarks compare with, which nobody needs to have."""
MODULES = sorted(
    found.name
    for package in (benchmarks, replication)
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
)
NO_ARGUMENTS = {"benchmarks.contest", "benchmarks.peers.reimplementation_driver"}
"""They are started by another benchmark, which talks to them."""


@pytest.mark.parametrize("name", MODULES)
def test_is_imported_and_parses_its_arguments(name, monkeypatch, capsys):
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name not in PEERS:
            raise
        pytest.skip(f"needs {missing.name}")
    main = getattr(module, "main", None)
    if main is None or name in NO_ARGUMENTS:
        return
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert "usage:" in capsys.readouterr().out.lower()
