"""Whether there is a device, asked thousands of times by a plan, and what is said where there is none."""

import importlib.util
import json
import re
import sys
import time
import types
import warnings

import pytest
from drawing import small_images
from fake_cupy import install
from typer.testing import CliRunner

from smtdist.cli.app import app
from smtdist.cli.errors import in_shell
from smtdist.configuration import Configuration
from smtdist.data.array import as_source
from smtdist.engine import events, passes
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DeviceWarning, in_python
from smtdist.kernels import device
from smtdist.kernels.gpu import card, source
from smtdist.models.fit import fit
from smtdist.models.transform import transform

SETTINGS = Configuration(patch=3, dictionary=8, n_components=2)


@pytest.fixture
def looked_for(monkeypatch):
    """The modules that Python looks for, none of which it finds."""
    names = []
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", names.append)
    monkeypatch.setattr(card, "_why", {})
    return names


def test_python_looks_for_cupy_once(looked_for):
    assert not device.gpu_available()
    assert not device.gpu_available()
    assert looked_for == ["cupy"]
    assert not card.remarks(), "who has no CuPy wants the CPU"
    assert "not installed; install" in card.missing()


class CUDARuntimeError(RuntimeError):
    """As CuPy's."""


def raising(name, said="as CUDA says it"):
    def function(*_):
        raise CUDARuntimeError(f"cudaError{name}: {said}")

    return function


def broken(patch, *functions):
    """A CuPy whose runtime has other functions."""
    cupy = install(patch)
    for name, function in functions:
        patch.setattr(cupy.cuda.runtime, name, function)


def old_driver(patch):
    broken(patch, ("getDeviceCount", raising("InsufficientDriver")))


def no_driver(patch):
    broken(patch, ("getDeviceCount", raising("InsufficientDriver")), ("driverGetVersion", lambda: 0))


def no_device(patch):
    install(patch, devices=0)


def hidden_device(patch):
    broken(patch, ("getDeviceCount", raising("NoDevice")))


def prohibited(patch):
    install(patch, attributes={card.COMPUTE_MODE: card.PROHIBITED})


def busy(patch):
    broken(patch, ("memGetInfo", raising("DevicesUnavailable")))


def full(patch):
    broken(patch, ("memGetInfo", raising("MemoryAllocation")))


def odd(patch):
    broken(patch, ("getDeviceCount", raising("Unknown")))


def broken_wheel(patch):
    install(patch)

    def load(name):
        raise ImportError("=====\nFailed to import CuPy.\n") from OSError("libcublas.so.13 is not there")

    patch.setattr(card.importlib, "import_module", load)


def two_wheels(patch):
    install(patch)
    patch.setattr(card, "_version", lambda name: "14.2" if name in ("cupy-cuda12x", "cupy-cuda13x") else "")


SAID = {
    old_driver: "of CUDA 12.4, too old for CuPy, which is for CUDA 13.0; update the driver.*cuda12",
    no_driver: "no NVIDIA driver; install",
    no_device: "finds no GPU; check",
    hidden_device: "finds no GPU; check",
    prohibited: "prohibits its use; have",
    busy: "busy.*another does; wait",
    full: "Other programs have all memory",
    odd: r"fails when it is asked .*\(cudaErrorUnknown: as CUDA says it\); check",
    broken_wheel: r"cannot be imported \(libcublas.so.13 is not there\); uninstall",
    two_wheels: "cupy-cuda12x and cupy-cuda13x are installed.*uninstall all",
}


@pytest.mark.parametrize("how", SAID)
def test_a_fit_says_once_why_no_gpu_is_used(monkeypatch, how):
    monkeypatch.setattr(events, "_TOLD", set())
    how(monkeypatch)
    images = as_source(small_images(3, 24, 8, 8))
    with pytest.warns(DeviceWarning, match=f"The CPU does all the work: .*{SAID[how]}") as warned:
        fit(images, SETTINGS, Engine(SerialExecutor()))
    assert len(warned) == 1, "for all passes together"
    with pytest.raises(ConfigurationError, match=f"there is none to use: .*{SAID[how]}"):
        device.to_device(images.array)
    facts = json.loads(CliRunner().invoke(app, ["info", "--json"]).stdout)
    assert facts["gpu"] is None
    assert facts["gpu_missing"] in str(warned[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(images, SETTINGS, Engine(SerialExecutor()))


def test_a_transform_says_it_too(monkeypatch):
    images, engine = as_source(small_images(3, 24, 8, 8)), Engine(SerialExecutor())
    model, _ = fit(images, SETTINGS, engine)
    monkeypatch.setattr(events, "_TOLD", set())
    no_driver(monkeypatch)
    with pytest.warns(DeviceWarning, match="no NVIDIA driver") as warned:
        list(transform(model, images, engine))
    assert len(warned) == 1


@pytest.mark.parametrize(("ratio", "said"), [(2, 0), (64, 1)])
def test_a_gpu_that_is_slow_in_float64_is_told_of_before_the_run(monkeypatch, emulated, ratio, said):
    monkeypatch.setattr(events, "_TOLD", set())
    install(monkeypatch, prompt=True, attributes={card.DOUBLE_RATIO: ratio})
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        fit(as_source(small_images(3, 24, 8, 8)), SETTINGS, Engine(SerialExecutor()))
    assert [f"{ratio} times slower" in str(one.message) for one in warned] == [True] * said


@pytest.mark.parametrize("words", [in_python, in_shell])
def test_one_process_on_a_machine_of_several_gpus_says_how_to_use_them_all(monkeypatch, emulated, words):
    monkeypatch.setattr(events, "_TOLD", set())
    install(monkeypatch, prompt=True, devices=8)
    engine = Engine(SerialExecutor(), events.EventStream(words=words))
    with pytest.warns(
        DeviceWarning, match="has 8 GPUs and one process uses one of them; all are used with"
    ) as warned:
        fit(as_source(small_images(3, 24, 8, 8)), SETTINGS, engine)
    assert str(warned.pop().message).endswith(
        {in_python: " n_workers=8.", in_shell: " --workers 8."}[words]
    )


def test_compiling_for_a_gpu_is_told_of(fake_cupy, monkeypatch):
    compiler = types.SimpleNamespace(compile_using_nvrtc=lambda *arguments: time.sleep(0.2))
    monkeypatch.setattr(fake_cupy.cuda, "compiler", compiler, raising=False)
    original, kernel = compiler.compile_using_nvrtc, source.kernel

    def compiled(name):
        if compiler.compile_using_nvrtc is not original:  # it is listened to
            compiler.compile_using_nvrtc("source", ())
        return kernel(name)

    monkeypatch.setattr(source, "kernel", compiled)
    monkeypatch.setattr(passes, "WORTH_TELLING", 0.2)
    told = []
    engine = Engine(SerialExecutor(), events.EventStream(told.append))
    fit(as_source(small_images(3, 24, 8, 8)), SETTINGS, engine)
    assert any(
        re.search("kernels were compiled for . s", one["text"]) for one in told if one["kind"] == "note"
    )
    assert compiler.compile_using_nvrtc is original


@pytest.mark.parametrize("name", device.ROUNDING)
def test_rounding_of_products_is_refused_before_any_is_made(fake_cupy, monkeypatch, name):
    images = as_source(small_images(3, 24, 8, 8))
    monkeypatch.setenv(name, "0")
    device.to_device(images.array)
    monkeypatch.setenv(name, "1")
    with pytest.raises(ConfigurationError, match=f"{name} is '1', .* round .*unset it"):
        fit(images, SETTINGS, Engine(SerialExecutor()))


def test_who_hides_the_gpus_is_not_told_that_there_is_none(monkeypatch):
    hidden_device(monkeypatch)
    monkeypatch.setenv(card.VISIBLE, "-1")
    assert not device.gpu_available()
    assert not card.remarks()
    assert card.missing()
