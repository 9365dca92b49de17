"""Whole fits where a card seems to be: what runs there and what is carried to and fro, with the integers of the CPU."""

import json
from dataclasses import replace

import numpy as np
import pytest
from device_calls import counted
from drawing import small_images
from kernel_codes import device_settings
from typer.testing import CliRunner

from benchmarks import on_a_card
from benchmarks.record import machine
from replication.quality.placed import placed_rows, placed_type
from smtdist.cli import app
from smtdist.configuration import preset
from smtdist.data.array import as_source
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.errors import MemoryBudgetError
from smtdist.kernels import device
from smtdist.kernels.cpu.table import table_of
from smtdist.kernels.device import place
from smtdist.kernels.pixels import pixel_scale
from smtdist.kernels.types import Encoder, Geometry
from smtdist.kernels.whitening import atoms_to_grid, integer_whitening, threshold_cut
from smtdist.models.fit import fit
from smtdist.models.model import unwhitened
from smtdist.models.transform import transform
from smtdist.models.tuning.members import Member, represent_slices, slices_of
from smtdist.statistics.cooccurrence import CodeSums

SETTINGS = device_settings(70, 16, 4)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_fit_on_a_device_has_the_integers_of_the_cpu(fake_cupy, monkeypatch, name):
    source = as_source(small_images(3, 24, 10, 11, 3))
    on_device, _ = fit(source, SETTINGS[name], Engine(SerialExecutor()))
    values = dict(transform(on_device, source, Engine(SerialExecutor())))
    assert "copy" in [what for _, what in fake_cupy.log], "batches are copied ahead"
    monkeypatch.setattr(device, "gpu_available", lambda: False)
    here, _ = fit(source, SETTINGS[name], Engine(SerialExecutor()))
    np.testing.assert_array_equal(on_device.dictionary.grid, here.dictionary.grid)
    for sums in ("activity", "second_moment", "context_scatter", "cooccurrence"):
        np.testing.assert_array_equal(
            getattr(on_device.statistics, sums), getattr(here.statistics, sums), err_msg=sums
        )
    for first, rows in transform(on_device, source, Engine(SerialExecutor())):
        np.testing.assert_array_equal(values[first], rows)


def test_settings_that_share_codes_are_represented_on_a_device(fake_cupy, monkeypatch):
    """Their representations come to the host, or stay on the device for a probe, in float16 where there is less room."""
    source, engine = as_source(small_images(3, 12, 10, 11, 3)), Engine(SerialExecutor())
    model, _ = fit(source, SETTINGS["gq"], engine)
    table = table_of(model.embedding.components.T)
    member = Member(model.encoder, table, ((0, 2), (1, 4)), 4, 2, "float32")
    (brought,) = represent_slices(slices_of((member,), engine), source, 0, 12)
    kinds = [placed_type(12, features) for features in (10**8, 2 * 10**9, 10**10)]
    assert kinds == ["float32", "float16", None]
    last = replace(member, slices=member.slices[1:])
    stay = {kind: placed_rows(replace(last, dtype=kind), source, engine) for kind in kinds[:2]}
    assert all(isinstance(rows, fake_cupy.ndarray) and rows.dtype == kind for kind, rows in stay.items())
    monkeypatch.setattr(device, "gpu_available", lambda: False)
    monkeypatch.setattr("smtdist.models.tuning.members.gpu_available", lambda: False)
    (here,) = represent_slices(slices_of((member,), engine), source, 0, 12)
    np.testing.assert_allclose(brought, here, atol=1e-6)
    for kind, tolerance in (("float32", 1e-6), ("float16", 1e-3)):
        rows = fake_cupy.asnumpy(stay[kind])
        np.testing.assert_allclose(rows, member.views(here, 12)[1], atol=tolerance)


def test_a_pass_is_planned_for_the_memory_of_the_device(fake_cupy, monkeypatch):
    source = as_source(small_images(3, 24, 10, 11, 3))
    fit(source, SETTINGS["gq"], Engine(SerialExecutor()))
    monkeypatch.setattr(fake_cupy.cuda.runtime, "memGetInfo", lambda: (2**14, 2**15))
    with pytest.raises(MemoryBudgetError, match=r"on the GPU .* of the 16.0 KiB that are free"):
        fit(source, SETTINGS["gq"], Engine(SerialExecutor()))
    monkeypatch.setattr(device, "gpu_available", lambda: False)  # in workers, too, it is asked anew
    monkeypatch.setattr("smtdist.engine.worker.gpu_available", lambda: False)
    fit(source, SETTINGS["gq"], Engine(SerialExecutor()))


def test_the_card_is_named(fake_cupy):
    assert device.device_name() == "A card of straw"
    assert json.loads(CliRunner().invoke(app, ["info", "--json"]).stdout)["gpu"] == "A card of straw"
    assert machine()["device"] == "A card of straw"


@pytest.mark.parametrize(
    ("mean", "whitened_by"), [("level", "data"), ("context", "data"), ("level", "image")]
)
def test_a_batch_asks_little_of_a_device(fake_cupy, mean, whitened_by):
    """Two views of a batch: few operations are started, and the host waits for how many patches are kept."""
    settings = preset("cifar10-gq").replace(whitening_covariance=whitened_by)
    geometry = Geometry(18, 18, 3, 6)
    whitener = replace(
        unwhitened(settings, geometry, pixel_scale(np.uint8, None)),
        whiten=integer_whitening(np.eye(108)),
        mean=mean,
    )
    atoms = atoms_to_grid(np.random.default_rng(0).normal(size=(64, 108)))
    policies = settings.constant_patch, settings.zero_code
    encoder = Encoder(whitener, atoms, "gq", threshold_cut(settings.threshold, 108), False, *policies)
    sums = CodeSums(encoder, "whole", 1, True, 50_000)
    images = np.random.default_rng(1).integers(0, 256, (4, 18, 18, 3), dtype=np.uint8)
    state = {name: place(value) for name, value in sums.zero().items()}
    sums.update(state, images, 0)
    with counted() as (started, waited):
        sums.update(state, images, 4)
    assert started["add_bytes_64"] == 4, "counts of 169 patches have two digits"
    assert started.total() <= (30 if whitened_by == "image" else 40), started
    assert waited.total() == (1 if whitened_by == "image" else 2), "once for each view, or for both"


def test_the_script_for_a_card_runs_its_steps(fake_cupy, monkeypatch, tmp_path, capsys):
    """Kernels and rates run, steps without data or time are left out with the reason, and a failure ends no other step."""
    monkeypatch.setattr(fake_cupy.cuda, "get_elapsed_time", lambda *_: 1.0, raising=False)
    monkeypatch.setattr(on_a_card, "STEPS", {**on_a_card.STEPS, "tests": (lambda _: 1 / 0, 0, False)})
    given = [
        "--images",
        "2",
        "--atoms",
        "64",
        "--patches",
        "40",
        "--seconds",
        "600",
        "--json",
        str(tmp_path),
    ]
    found = on_a_card.main(given)
    assert list(found) == list(on_a_card.STEPS)
    assert found["kernels"]["patches"] == 80
    assert found["kernels"]["binary operations a second"] > 0
    assert found["rates"]["from the card"] > 0
    assert "ZeroDivisionError" in found["tests"]["failed"]
    assert found["fits"] == {"left out": "no data were given"}
    (record,) = tmp_path.glob("*-on-a-card.json")
    assert json.loads(record.read_text())["result"]["steps"].keys() == found.keys()
    assert '"kernels"' in capsys.readouterr().out
    late = on_a_card.main([*given, "--seconds", "1", "--steps", "kernels"])
    assert "were left of the 30" in late["kernels"]["left out"]
