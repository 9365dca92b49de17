"""What goes wrong on a GPU ends in a sentence, and where its memory is out smaller batches give the same integers."""

import numpy as np
import pytest
from drawing import small_images
from typer.testing import CliRunner

from smtdist.cli.app import app
from smtdist.configuration import Configuration
from smtdist.data.array import as_source
from smtdist.engine import preload, worker
from smtdist.engine.events import EventStream
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.errors import DeviceError, MemoryBudgetError
from smtdist.kernels import device
from smtdist.models.fit import fit
from smtdist.statistics.cooccurrence import CodeSums
from smtdist.statistics.covariance import PatchMoment

SETTINGS = Configuration(patch=3, dictionary=8, n_components=2)
SOURCE = as_source(small_images(3, 24, 8, 8))


def cupys(name, module, base=Exception):
    """An error of CuPy's of that name."""
    return type(name, (base,), {"__module__": module})


FULL = cupys("OutOfMemoryError", "cupy.cuda.memory", MemoryError)
RUNTIME = cupys("CUDARuntimeError", "cupy_backends.cuda.api.runtime", RuntimeError)
CUBLAS = cupys("CUBLASError", "cupy_backends.cuda.libs.cublas", RuntimeError)
SOLVER = cupys("CUSOLVERError", "cupy_backends.cuda.libs.cusolver", RuntimeError)
COMPILING = cupys("CompileException", "cupy.cuda.compiler")


def failing(error):
    """A function that raises it."""

    def fail(*_, **__):
        raise error

    return fail


MEMORY, LATER = (
    "no memory left.*end other programs",
    "perhaps in work that began before; set CUDA_LAUNCH_BLOCKING=1",
)
FAULTS = {
    "pool": (FULL("Out of memory allocating 8 bytes"), MemoryBudgetError, MEMORY),
    "driver": (RUNTIME("cudaErrorMemoryAllocation: out of memory"), MemoryBudgetError, MEMORY),
    "cuBLAS's own memory": (CUBLAS("CUBLAS_STATUS_ALLOC_FAILED"), MemoryBudgetError, MEMORY),
    "cuSOLVER's own memory": (SOLVER("CUSOLVER_STATUS_ALLOC_FAILED"), MemoryBudgetError, MEMORY),
    "kernel": (RUNTIME("cudaErrorIllegalAddress: an illegal address"), DeviceError, LATER),
    "cuBLAS": (CUBLAS("CUBLAS_STATUS_EXECUTION_FAILED"), DeviceError, LATER),
    "cuSOLVER": (SOLVER("CUSOLVER_STATUS_INTERNAL_ERROR"), DeviceError, LATER),
    "compiler": (
        COMPILING("a.cu(3): error: no\nmore"),
        DeviceError,
        r"cannot be compiled.*error: no\); install",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("where", [(worker, "_stream"), (Engine, "solve")], ids=["worker", "driver"])
def test_a_fault_of_a_gpu_is_a_sentence(fake_cupy, monkeypatch, where, name):
    error, kind, said = FAULTS[name]
    monkeypatch.setattr(*where, failing(error))
    with pytest.raises(kind, match=said) as raised:
        fit(SOURCE, SETTINGS, Engine(SerialExecutor()))
    assert "\n" not in str(raised.value)
    assert "GPU" in str(raised.value)


def test_other_errors_stay_as_they_are(fake_cupy, monkeypatch):
    monkeypatch.setattr(worker, "_stream", failing(RuntimeError("not of CuPy")))
    with pytest.raises(RuntimeError, match="not of CuPy"):
        fit(SOURCE, SETTINGS, Engine(SerialExecutor()))


def test_a_command_ends_in_the_sentence(monkeypatch):
    monkeypatch.setattr("smtdist.report.facts.installation", failing(FAULTS["kernel"][0]))
    done = CliRunner().invoke(app, ["info"])
    assert done.exit_code == 1
    assert done.stderr.startswith("smtdist: The GPU failed (CUDARuntimeError: cudaErrorIllegalAddress")


def fill(monkeypatch, kind, most):
    """Let the GPU be full in the middle of every batch of more than so many samples, after it was added to the sum."""
    batches, original = [], kind.update

    def update(self, state, images, first):
        positions = original(self, state, images, first)
        batches.append(len(images))
        if len(images) > most:
            raise FULL("Out of memory")
        return positions

    monkeypatch.setattr(kind, "update", update)
    return batches


@pytest.mark.parametrize("kind", [CodeSums, PatchMoment])
@pytest.mark.parametrize("most", [5, 1])
def test_a_full_gpu_takes_smaller_batches_and_gives_the_same_integers(fake_cupy, monkeypatch, kind, most):
    monkeypatch.setattr(worker, "_FITTING", {})
    told, batches = [], fill(monkeypatch, kind, most)
    found, _ = fit(SOURCE, SETTINGS, Engine(SerialExecutor(), EventStream(told.append)))
    assert max(batches) > most
    assert batches[-1] <= most
    notes = [
        one["text"] for one in told if one["kind"] == "note" and "no memory left for a batch" in one["text"]
    ]
    assert len(notes) == len(set(notes)) > 0
    before = len(batches)
    fit(SOURCE, SETTINGS, Engine(SerialExecutor()))
    assert max(batches[before + 1 :]) <= most, "what fits is known from then on"
    monkeypatch.undo()
    monkeypatch.setattr(device, "gpu_available", lambda: False)
    here, _ = fit(SOURCE, SETTINGS, Engine(SerialExecutor()))
    np.testing.assert_array_equal(found.whitening.whiten, here.whitening.whiten)
    for name in ("activity", "second_moment", "context_scatter"):
        np.testing.assert_array_equal(getattr(found.statistics, name), getattr(here.statistics, name))


def test_a_gpu_that_is_full_with_one_sample_ends_the_pass(fake_cupy, monkeypatch):
    monkeypatch.setattr(worker, "_FITTING", {})
    monkeypatch.setattr(worker, "probe", lambda *_, **__: (2**28, 2**30, 0.0, ()))
    batches = fill(monkeypatch, CodeSums, 0)
    with pytest.raises(
        MemoryBudgetError, match=r"The statistics pass has no memory left on the GPU for one sample"
    ):
        fit(SOURCE, SETTINGS, Engine(SerialExecutor()))
    assert batches[-1] == 1


@pytest.mark.parametrize("sharing", [1, 4])
@pytest.mark.parametrize(("free", "idle", "own"), [(2**34, 0, 0), (2**33, 2**33, 0), (2**34, 0, 2**32)])
def test_a_pass_plans_for_its_share_of_what_is_free_and_takes_no_more(
    fake_cupy, monkeypatch, sharing, free, idle, own
):
    monkeypatch.setattr(fake_cupy.cuda.runtime, "memGetInfo", lambda: (free, 2**40))
    monkeypatch.setattr(preload, "sharers", lambda: sharing)
    fake_cupy.pool.idle, fake_cupy.pool.used = idle, own
    fit(SOURCE, SETTINGS, Engine(SerialExecutor()))
    assert fake_cupy.pool.limits[:3] == [0, int(0.9 * (2**34 // sharing)) + own, 0]
