"""Whether there is a device, asked thousands of times by a plan."""

import importlib.util
import sys

import pytest

from smtdist.kernels import device


@pytest.fixture
def looked_for(monkeypatch):
    """The modules that Python looks for, none of which it finds."""
    names = []
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", names.append)
    device._cupy_installed.cache_clear()
    yield names
    device._cupy_installed.cache_clear()


def test_python_looks_for_cupy_once(looked_for):
    assert not device.gpu_available()
    assert not device.gpu_available()
    assert looked_for == ["cupy"]
