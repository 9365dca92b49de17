"""Where a solve holds its matrices changes its memory, not its result."""

from dataclasses import replace

import numpy as np
import pytest
from fake_cupy import install

from smtdist.configuration import Configuration
from smtdist.data.array import as_source
from smtdist.data.spilled import Spill
from smtdist.engine.events import EventStream
from smtdist.engine.executor import SerialExecutor, StopRequest
from smtdist.engine.memory import resident_bytes
from smtdist.engine.passes import Engine
from smtdist.engine.plan import ALLOWANCE, WorkerLimits
from smtdist.errors import CheckpointError, ConfigurationError, InterruptedRun, MemoryBudgetError
from smtdist.kernels.triangle import UpperTiles
from smtdist.models import solving, summing
from smtdist.models.fit import fit
from smtdist.models.plan import Machines, fit_steps, plan_steps
from smtdist.models.solving import solve_way, timed_solve
from smtdist.models.store import load, save
from smtdist.solve import lanczos, tiled
from tests.executors import ThreadsExecutor

rng = np.random.default_rng(5)
# smooth images: neighbours are alike, and V of their codes is of full rank
IMAGES = np.kron(rng.integers(0, 256, (1200, 5, 5, 1)), np.ones((1, 2, 2, 1)))
IMAGES = np.clip(IMAGES + rng.integers(-40, 40, IMAGES.shape), 0, 255).astype(np.uint8)
GQ = Configuration(
    patch=3, dictionary=220, n_components=3, threshold=0.45, mean="patch", dictionary_cosine=0.8
)
SETTINGS = {"gq": GQ, "vq": GQ.replace(feature="vq")}
SUMS = {}


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    """Let iterations, and a device, take problems that fit a test."""
    monkeypatch.setattr(lanczos, "SMALL_ROWS", 20)
    monkeypatch.setattr(tiled, "HOST", tiled.HOST._replace(crossover=100))
    monkeypatch.setattr(tiled, "DEVICE", {0: tiled.HOST})


def sums_of(name):
    if name not in SUMS:
        SUMS[name] = fit(as_source(IMAGES), SETTINGS[name], Engine(SerialExecutor(1)))[0].statistics
    return SUMS[name]


def in_tiles(sums):
    return replace(sums, matrices={name: UpperTiles.of(one, 60) for name, one in sums.matrices.items()})


@pytest.mark.parametrize("name", SETTINGS)
def test_a_small_driver_solves_from_its_disk(name, tmp_path):
    sums = sums_of(name)
    expected, _ = timed_solve(sums, SETTINGS[name], Engine(SerialExecutor(1)))
    assert expected.residuals.max() < 1e-7
    way = replace(solve_way(220, SETTINGS[name], tiled=True), name="disk", height=64)
    events = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solving, "solve_way", lambda *_, **__: way)
        engine = Engine(SerialExecutor(1), EventStream(events.append), tmp_path, "k")
        found, _ = timed_solve(in_tiles(sums), SETTINGS[name], engine)
    np.testing.assert_allclose(found.eigenvalues, expected.eigenvalues, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(found.components, expected.components, atol=1e-5)
    np.testing.assert_array_equal(found.dead, expected.dead)
    notes = [event["text"] for event in events if event["kind"] == "note"]
    assert any("keeps a factor" in text for text in notes) == (name == "gq")
    assert not (tmp_path / "solve").exists()


@pytest.mark.parametrize("name", SETTINGS)
def test_workers_hold_the_matrices(name):
    sums = sums_of(name)
    expected, _ = timed_solve(sums, SETTINGS[name], Engine(SerialExecutor(1)))
    found = []
    for workers in (1, 3):
        engine = Engine(ThreadsExecutor(workers), solve_on="workers")
        engine.executor.alone = False
        found.append(timed_solve(sums, SETTINGS[name], engine)[0])
        np.testing.assert_allclose(found[-1].eigenvalues, expected.eigenvalues, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(found[-1].components, expected.components, atol=1e-5)
    np.testing.assert_array_equal(found[0].components, found[1].components)


def test_a_cluster_solves(cluster):
    sums = sums_of("gq")
    expected, _ = timed_solve(sums, GQ, Engine(SerialExecutor(1)))
    found, _ = timed_solve(sums, GQ, Engine(cluster, solve_on="workers"))
    assert cluster.running() == 0
    np.testing.assert_allclose(found.components, expected.components, atol=1e-5)


def test_the_way_goes_with_the_memory():
    settings = Configuration(dictionary=65536, n_components=384)
    found = {
        gib: solve_way(65536, settings, baseline=0, limit=gib * 2**30, tiled=True) for gib in (4, 16, 64)
    }
    assert [way.name for way in found.values()] == ["disk", "disk", "tiles"]
    assert found[4].height == 4096
    assert found[4].disk_bytes == 17 * 2**30
    assert solve_way(65536, settings, baseline=0, limit=2**40).name == "whole"
    with pytest.raises(MemoryBudgetError, match="65536 atoms"):
        solve_way(65536, settings, baseline=0, limit=2**30, tiled=True)
    on_workers = solve_way(65536, settings, baseline=0, limit=2**35, tiled=True, on_workers=True)
    assert on_workers.name == "workers"
    with pytest.raises(ConfigurationError, match="driver alone"):
        solve_way(65536, settings.replace(moment="centred"), baseline=0, limit=2**42, on_workers=True)


def test_a_disk_without_room_is_refused(monkeypatch):
    class Usage:
        free = 2**10

    monkeypatch.setattr(solving.shutil, "disk_usage", lambda folder: Usage)
    way = replace(solve_way(220, GQ, tiled=True), name="disk", height=64, disk_bytes=2**30)
    monkeypatch.setattr(solving, "solve_way", lambda *_, **__: way)
    with pytest.raises(CheckpointError, match=r"room for 1\.0 KiB"):
        timed_solve(in_tiles(sums_of("gq")), GQ, Engine(SerialExecutor(1)))


def test_a_stopped_solve_keeps_its_factor_for_the_same_sums(monkeypatch, tmp_path):
    sums = in_tiles(sums_of("gq"))
    way = replace(solve_way(220, GQ, tiled=True), name="disk", height=32)
    monkeypatch.setattr(solving, "solve_way", lambda *_, **__: way)
    stop = StopRequest()
    engine = Engine(SerialExecutor(1), checkpoint=tmp_path, key="k", stop=stop)
    engine.events.subscribe(lambda event: stop.set() if "factor" in event.get("text", "") else None)
    written = []
    plain = solving.BlockFiles.write
    monkeypatch.setattr(
        solving.BlockFiles,
        "write",
        lambda self, place, block: (written.append(place), plain(self, place, block)),
    )
    with pytest.raises(InterruptedRun, match="what is done is in"):
        timed_solve(sums, GQ, engine)
    first = len(written)
    assert first > 0
    assert (tmp_path / "solve" / "factor-0000-0000.npy").exists()
    timed_solve(sums, GQ, Engine(SerialExecutor(1), checkpoint=tmp_path, key="k"))
    assert len(written) == len(set(written)), "nothing was made twice"
    stop.set()
    with pytest.raises(InterruptedRun):
        timed_solve(sums, GQ, engine)
    again = len(written)
    other = replace(sums, activity=sums.activity + 1)
    timed_solve(other, GQ, Engine(SerialExecutor(1), checkpoint=tmp_path, key="k"))
    assert (0, 0) in written[again:], "other sums have another factor"


@pytest.fixture
def fake_cupy(monkeypatch):
    """A machine with a card, as far as the solve can tell; sums are made before, without it."""
    for name in SETTINGS:
        sums_of(name)
    return install(monkeypatch, prompt=True)


DEVICE_CASES = {
    "few": ({}, "device"),
    "many": ({"n_components": 150}, "device whole"),
    "all, centred": ({"n_components": 150, "moment": "centred"}, "device whole"),
    "a null space": ({}, "device"),
}


@pytest.mark.usefixtures("fake_cupy")
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("case", DEVICE_CASES)
def test_a_device_solves_in_its_memory(name, case, monkeypatch):
    changes, way = DEVICE_CASES[case]
    sums, settings = sums_of(name), SETTINGS[name].replace(**changes)
    if case == "a null space":
        monkeypatch.setattr(tiled, "SAFE", 1e15)  # so that V's eigenvalues are looked at
        sums = with_a_twin(sums)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solving, "gpu_available", lambda: False)
        expected, _ = timed_solve(sums, settings, Engine(SerialExecutor(1)))
    for one in (sums, in_tiles(sums)):
        with pytest.MonkeyPatch.context() as patch:
            # what LAPACK finds is made on the host
            patch.setattr(type(sums), "whole", lambda _: pytest.fail("the host solves"))
            found, record = timed_solve(one, settings, Engine(SerialExecutor(1)))
        assert record["way"] == way
        assert type(found.components) is type(found.residuals) is np.ndarray
        np.testing.assert_allclose(found.eigenvalues, expected.eigenvalues, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(found.components, expected.components, atol=1e-5)
        assert found.residuals.max() < 1e-8
        assert found.rank == expected.rank


def with_a_twin(sums):
    """Two atoms that always fire together."""
    twins = {name: np.array(matrix) for name, matrix in sums.matrices.items()}
    for matrix in twins.values():
        matrix[:, -1], matrix[-1], matrix[-1, -1] = matrix[:, 0], matrix[0], matrix[0, 0]
    return replace(sums, matrices=twins) if "second_moment" in twins else sums


def test_a_device_without_the_memory_that_was_planned_leaves_it_to_the_host(fake_cupy, monkeypatch):
    def full(_):
        raise MemoryError

    sums, settings = sums_of("gq"), GQ.replace(n_components=150)
    monkeypatch.setattr(fake_cupy.linalg, "eigh", full)
    found, record = timed_solve(in_tiles(sums), settings, Engine(SerialExecutor(1)))
    assert record["way"] == "device whole"
    monkeypatch.setattr(solving, "gpu_available", lambda: False)
    expected, _ = timed_solve(sums, settings, Engine(SerialExecutor(1)))
    np.testing.assert_array_equal(found.components, expected.components)


def test_a_card_that_is_too_small_is_left_alone(fake_cupy, monkeypatch):
    def way(atoms, components, **options):
        settings = Configuration(dictionary=atoms, n_components=components)
        return solve_way(atoms, settings, baseline=0, limit=2**35, **options).name

    assert way(65536, 384, tiled=True) == way(8192, 384) == "device"
    assert way(8192, 1664) == way(8192, 8000) == way(1024, 200) == "device whole"
    monkeypatch.setattr(fake_cupy.cuda.runtime, "memGetInfo", lambda: (2**33, 2**34))
    assert way(65536, 384, tiled=True) == "disk"
    assert (way(8192, 1664), way(20_000, 6000)) == ("device whole", "whole")


@pytest.mark.parametrize("size", [24, 48, 80, 141])
def test_what_cards_of_all_sizes_solve(fake_cupy, monkeypatch, size):
    """In GB; the matrices of 65,536 atoms, and all eigenvectors of 24,000, do not fit the smallest."""
    monkeypatch.setattr(fake_cupy.cuda.runtime, "memGetInfo", lambda: (size * 10**9,) * 2)
    for atoms, components, on_card, here in (
        (8192, 384, "device", ""),
        (8192, 1664, "device whole", ""),
        (24_000, 8000, "device whole", "whole"),
        (65_536, 384, "device", "disk"),
    ):
        settings = Configuration(dictionary=atoms, n_components=components)
        way = solve_way(atoms, settings, baseline=0, limit=2**35, tiled=atoms > 50_000 or None)
        assert way.name == ((size == 24 and here) or on_card)


def test_what_iterations_cannot_solve_needs_memory_for_all(monkeypatch):
    sums = sums_of("gq")
    with pytest.MonkeyPatch.context() as patch:
        # a card in which there is room for iterations alone changes nothing about that
        patch.setattr(install(patch, prompt=True).cuda.runtime, "memGetInfo", lambda: (2**21, 2**21))
        patch.setattr(tiled, "SAFE", 1e15)  # no V is far enough from a null space
        expected, _ = timed_solve(sums, GQ, Engine(SerialExecutor(1)))
        patch.setattr(solving, "memory_limit", lambda: solving.resident_bytes() + 2**19)
        patch.setattr(solving, "solve_way", lambda *_, **__: solving.Way("device", 0))
        with pytest.raises(MemoryBudgetError, match="220 atoms"):
            timed_solve(in_tiles(sums), GQ, Engine(SerialExecutor(1)))
    found, _ = timed_solve(sums, GQ, Engine(SerialExecutor(1)))
    np.testing.assert_allclose(found.components, expected.components, atol=1e-5)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_driver_that_cannot_hold_the_sums_keeps_them_in_files(name, workers, monkeypatch, tmp_path):
    settings, images = SETTINGS[name], as_source(IMAGES)
    expected, _ = fit(images, settings, Engine(SerialExecutor(1)))
    assert not expected.statistics.tiled
    executor = ThreadsExecutor(workers) if workers else SerialExecutor(1)
    events, spilled = [], []
    plain = Spill.__call__
    monkeypatch.setattr(
        Spill, "__call__", lambda self, array: spilled.append(array.nbytes) or plain(self, array)
    )
    monkeypatch.setattr(solving, "spills", lambda *_: True)
    engine = Engine(executor, EventStream(events.append), tmp_path, "k")
    room = ALLOWANCE + {"gq": 2**18, "vq": 2**17}[name]  # too little for the sums whole
    monkeypatch.setattr(summing, "memory_limit", lambda: resident_bytes() + room)
    monkeypatch.setattr("smtdist.kernels.triangle.TILE_BYTES", 8 * 220 * 64)
    model, records = fit(images, settings, engine)
    assert any("kept in files" in event.get("text", "") for event in events)
    assert records[2]["rounds"] > 1
    assert sum(spilled) > sum(matrix.nbytes for matrix in model.statistics.matrices.values())
    assert model.statistics.tiled
    assert isinstance(model.statistics.cooccurrence.tiles[0].base, np.memmap)
    for matrix in ("second_moment", "context_scatter", "cooccurrence"):
        one, other = (getattr(each.statistics, matrix) for each in (model, expected))
        np.testing.assert_array_equal(np.asarray(one), other)
    np.testing.assert_allclose(model.embedding.components, expected.embedding.components, atol=1e-5)
    save(model, tmp_path / "model.h5")
    again = load(tmp_path / "model.h5")
    np.testing.assert_array_equal(
        np.asarray(again.statistics.cooccurrence), expected.statistics.cooccurrence
    )


def test_sums_are_kept_in_files_where_that_helps():
    settings = Configuration(dictionary=65536, n_components=384)
    held = 80 * 2**30
    for gib, expected in ((2, False), (4, True), (24, True), (60, False)):
        assert solving.spills(65536, settings, held, 0, gib * 2**30) == expected
    assert not solving.spills(65536, settings.replace(moment="centred"), held, 0, 4 * 2**30)


def test_what_cannot_be_solved_is_refused_before_any_data_is_read(monkeypatch):
    settings, engine = Configuration(dictionary=65536, n_components=384), Engine(SerialExecutor(1))
    monkeypatch.setattr(solving, "resident_bytes", lambda: 0)
    for gib, tiles in ((2, False), (4, True), (60, True), (600, True)):
        monkeypatch.setattr(solving, "memory_limit", lambda: gib * 2**30)  # noqa: B023
        if tiles:
            solving.require_solvable(65536, settings, 80 * 2**30, engine)
        else:
            with pytest.raises(MemoryBudgetError):
                solving.require_solvable(65536, settings, 80 * 2**30, engine)
    events = []
    alone = Engine(SerialExecutor(1), EventStream(events.append), solve_on="workers")
    with pytest.raises(ConfigurationError, match="there are none"):
        fit(as_source(IMAGES), GQ, alone)
    assert not [event for event in events if event["kind"] == "pass_started"]


def test_a_plan_for_a_small_driver():
    source = as_source(np.zeros((50_000, 32, 32, 3), np.uint8))
    settings = Configuration(dictionary=65536, n_components=384)
    worker = WorkerLimits(512 * 2**30, 2**28, 4, 2, False)
    costs = {}
    for gib in (16, 512):
        machines = Machines(worker, gib * 2**30, 2**28)
        costs[gib] = plan_steps(fit_steps(source, settings), settings, machines, checkpointed=True)
        assert all(cost.driver_bytes + 2**28 <= gib * 2**30 for cost in costs[gib])
    small, large = (costs[gib][-1] for gib in (16, 512))
    assert small.traffic.written > 60 * 2**30
    assert large.traffic.written == 0
    assert costs[16][-2].tiles > costs[512][-2].tiles
    with pytest.raises(MemoryBudgetError, match="driver"):
        plan_steps(fit_steps(source, settings), settings, Machines(worker, 2**31, 2**28), checkpointed=True)
