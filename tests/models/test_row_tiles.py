"""The tiles of rows that are chosen fit, in every pass and when they are finished, and take least time."""

import gc
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from smtdist.configuration import preset
from smtdist.data.array import as_source
from smtdist.data.spilled import Spill
from smtdist.engine.memory import resident_bytes
from smtdist.engine.plan import ALLOWANCE, DEVICE_SHARE, WorkerLimits, plan_pass
from smtdist.errors import MemoryBudgetError
from smtdist.models import summing
from smtdist.models.model import code_sums
from smtdist.models.plan import Machines, fit_steps, plan_steps
from smtdist.models.solving import spills
from smtdist.models.summing import beside, gathering_bytes, held_beside, most_demanding, row_tiles
from smtdist.statistics.cooccurrence import CodeSums
from smtdist.statistics.sums import finish, finish_tiles
from tests.kinds_of_sums import BASE, IMAGES, SETTINGS, model_of


def wide_sums(name):
    """Sums over codes of 16,384 atoms."""
    model = model_of(name)
    wide = replace(model, dictionary=replace(model.dictionary, grid=np.zeros((16384, 4), np.float32)))
    return code_sums(wide, 80)


@pytest.mark.parametrize("name", SETTINGS)
def test_tiles_that_a_worker_can_hold_are_chosen_and_planned(name):
    sums, source = wide_sums(name), as_source(IMAGES)
    limits = WorkerLimits(2**40, 0, 1, 1)
    needed = plan_pass("statistics", sums.tiled(8)[0], source, limits).projected_bytes
    limits = replace(limits, limit_bytes=int(needed / 0.55) + 1)
    tiles = row_tiles(sums, source, limits, checkpointed=False, fingerprint=False)
    assert [tile.rows[0] for tile in tiles[1:]] == [tile.rows[1] for tile in tiles[:-1]]
    assert tiles[0].rows[0] == 0
    assert tiles[-1].rows[1] == 16384
    sizes = [tile.state_bytes() for tile in tiles]
    assert max(sizes) < 0.5 * sums.state_bytes()
    assert sum(sizes) < 0.75 * sums.state_bytes()
    for one in tiles:
        plan_pass("statistics", one, source, limits)
    with pytest.raises(MemoryBudgetError, match=r"\(.* for each of its sums"):
        row_tiles(
            sums,
            source,
            replace(limits, limit_bytes=2**24),
            checkpointed=False,
            fingerprint=False,
        )


def test_the_plan_says_how_often_the_data_are_read():
    configuration = BASE.replace(dictionary=16384, feature="vq")
    source = as_source(IMAGES)
    steps = fit_steps(source, configuration)
    roomy = plan_steps(
        steps, configuration, Machines(WorkerLimits(2**34, 0, 1, 2), 2**34), checkpointed=False
    )
    tight = plan_steps(
        steps, configuration, Machines(WorkerLimits(2**30, 0, 1, 2), 2**34), checkpointed=False
    )
    assert roomy[-2].rounds == 1
    assert tight[-2].rounds > 1
    assert tight[-2].to_dict()["read_bytes"] == tight[-2].rounds * IMAGES.nbytes
    assert tight[-2].plan.projected_bytes < 0.55 * 2**30 < roomy[-2].plan.projected_bytes
    assert tight[-1].plan.projected_bytes < roomy[-1].plan.projected_bytes


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("shape", [(50_000, 32, 32, 3), (50_000, 96, 96, 3)])
def test_every_tile_fits_where_a_number_of_them_is_taken(shape, alone):
    source = as_source(np.broadcast_to(np.uint8(0), shape))
    step = fit_steps(source, preset("cifar10-gq").replace(dictionary=16384), reused=True)[-1]
    taken = 0
    for mebibytes in np.geomspace(3000, 40_000, 24).astype(int):
        limits = WorkerLimits(int(mebibytes) * 2**20, 2**28, 2, 1 if alone else 4, alone=alone)
        known = {"work_per_sample": step.work_per_sample, "checkpointed": False}
        try:
            tiles = row_tiles(
                step.statistic,
                source,
                limits,
                checkpointed=False,
                fingerprint=False,
            )
        except MemoryBudgetError:
            continue
        taken += 1
        for tile in tiles:
            room = beside(limits, held_beside(tile, tiles)) if alone else limits
            plan_pass("statistics", tile, source, room, **known)
    assert taken > 3


@pytest.mark.parametrize("count", [2, 3, 4])
def test_more_tiles_are_taken_where_they_make_room_for_larger_batches(count):
    configuration = preset("cifar10-gq").replace(dictionary=65536)
    source = as_source(np.broadcast_to(np.uint8(0), (50_000, 32, 32, 3)))
    step = fit_steps(source, configuration, reused=True)[-1]
    roomy = WorkerLimits(2**40, 2**28, 2, 1, alone=True)

    def chosen(limits, begun=()):
        # tiles that are done go to files: they take nothing of the memory of a pass
        known = {"checkpointed": False, "fingerprint": False, "driver_room": 2**50}
        return len(row_tiles(step.statistic, source, limits, **known, begun=begun))

    def planned(count, limits):
        tile = most_demanding(step.statistic.tiled(count))
        return tile, plan_pass("statistics", tile, source, limits, work_per_sample=step.work_per_sample)

    # what holds these tiles and batches of two images, and no more
    tile, plan = planned(count, roomy)
    saved = tile.batch_bytes(plan.batch) - tile.batch_bytes(2)
    needed = plan.projected_bytes - plan.baseline_bytes - saved
    narrow = replace(roomy, limit_bytes=int(needed / 0.55) + 2)
    assert planned(count, narrow)[1].batch <= 2
    assert chosen(narrow, [count]) == count  # those of an earlier run are kept
    found = chosen(narrow)
    assert found > count
    assert planned(found, narrow)[1].batch >= 16
    assert chosen(narrow, [1]) == found  # but for those that do not fit
    assert chosen(replace(narrow, limit_bytes=narrow.limit_bytes + 2**33)) == count


@pytest.mark.parametrize("name", SETTINGS)
def test_a_process_alone_has_room_to_finish_all_its_tiles(name):
    sums, source = wide_sums(name), as_source(IMAGES)
    counts = set()
    for share in np.linspace(0.7, 2.2, 16):
        limits = WorkerLimits(int(share * sums.state_bytes()), 2**20, 1, 1, alone=True)
        try:
            tiles = row_tiles(sums, source, limits, checkpointed=False, fingerprint=False)
        except MemoryBudgetError:
            continue
        counts.add(len(tiles))
        if len(tiles) > 1:
            states = [tile.state_bytes() for tile in tiles]
            finished = [tile.finished_bytes() for tile in tiles]
            for at in range(len(tiles)):
                # those before it are finished, those after it are not, and it is both
                assert 2**20 + sum(finished[: at + 1]) + sum(states[at:]) <= limits.limit_bytes
    assert min(counts) == 1
    assert max(counts) > 1


@pytest.mark.parametrize("spilled", [False, True])
@pytest.mark.parametrize("name", ["gq", "gq-complete", "gq-second", "vq", "vq-whole"])
def test_tiles_are_finished_in_the_memory_that_is_planned(name, spilled, monkeypatch, tmp_path):
    model = model_of(name)
    wide = replace(model, dictionary=replace(model.dictionary, grid=np.zeros((2048, 4), np.float32)))
    tiles = code_sums(wide, 80).tiled(3)
    monkeypatch.setattr("smtdist.kernels.triangle.TILE_BYTES", 2**20)  # strips of 64 rows
    tracemalloc.start()
    sums = [(tile, tile.zero()) for tile in tiles]
    for _, state in sums:
        for array in state.values():
            array[...] = 2  # so that some degrees are smaller than others
    del state, array
    planned = gathering_bytes(tiles, spilled)
    if spilled:
        spill = Spill(tmp_path)
        sums = [(tile, summing._spilled(state, spill)) for tile, state in sums]
        planned -= max(map(CodeSums.state_bytes, tiles))  # which is in memory before it goes to its file
    tracemalloc.reset_peak()
    found = finish_tiles(sums, spill if spilled else None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.2 * planned < peak < planned + 2**19
    assert found.n_samples == 2


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", SETTINGS)
def test_whole_sums_are_finished_in_the_memory_that_is_planned(name, full, monkeypatch):
    """As full matrices and in tiles, by what the plan says the driver needs for the one or the other."""
    monkeypatch.setattr("smtdist.models.plan.finishes_whole", lambda *_: full)
    monkeypatch.setattr("smtdist.kernels.triangle.TILE_BYTES", 2**20)
    monkeypatch.setattr("smtdist.kernels.scatter.MIRRORED_ROWS", 64)
    settings = SETTINGS[name].replace(dictionary=2048)
    steps = fit_steps(as_source(IMAGES), settings)
    sums = steps[-1].statistic
    machines = Machines(WorkerLimits(2**40, 0, 1, 1), 2**40)
    (cost,) = [
        one for one in plan_steps(steps, settings, machines, checkpointed=False) if one.name == "statistics"
    ]
    planned = cost.driver_bytes - sums.state_bytes() - ALLOWANCE - 8 * len(IMAGES)
    tracemalloc.start()
    state = sums.zero()
    for array in state.values():
        array[...] = 2
    del array
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    finish(sums, state) if full else finish_tiles([(sums, state)])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak - before < planned + 2**19
    if planned > 2**23:
        assert peak - before > 0.3 * planned


def test_sums_that_lie_in_files_do_not_stay_in_memory(tmp_path):
    model, spill = model_of("gq"), Spill(tmp_path)
    wide = replace(model, dictionary=replace(model.dictionary, grid=np.zeros((6144, 4), np.float32)))
    sums = [(tile, summing._spilled(tile.zero(), spill)) for tile in code_sums(wide, 80).tiled(4)]
    gc.collect()
    before = resident_bytes()
    found = finish_tiles(sums, spill)
    gc.collect()
    every = sum(matrix.nbytes for matrix in found.matrices.values())
    assert every > 100 * 2**20
    assert resident_bytes() - before < 0.35 * every


def test_a_driver_that_keeps_sums_in_files_needs_no_room_to_finish_them_whole():
    settings = BASE.replace(dictionary=5120, n_components=64, threshold=0.4)
    steps = fit_steps(as_source(IMAGES), settings)
    sums, accepted = steps[-1].statistic, 0
    for mebibytes in range(300, 2000, 20):
        driver = mebibytes * 2**20
        machines = Machines(WorkerLimits(2**36, 0, 1, 2), driver)
        if spills(sums.n_atoms, settings, sums.finished_bytes(), 0, driver):
            # the solve alone decides
            assert plan_steps(steps, settings, machines, checkpointed=False)[-2].driver_bytes <= driver
            accepted += 1
    assert accepted


@pytest.mark.parametrize("n_atoms", [8192, 65536])
def test_a_fit_of_cifar_10_fits_the_free_memory_of_cards_of_any_size(n_atoms):
    """Of 24, 48, 80 and 141 GB, and of such as a desktop session holds half of: more memory never means more passes."""
    source = as_source(np.zeros((50_000, 32, 32, 3), np.uint8))
    settings, found = preset("cifar10-gq").replace(n_atoms=n_atoms), []
    steps = fit_steps(source, settings)
    for free in sorted(int(share * size * 10**9) for size in (24, 48, 80, 141) for share in (0.5, 1)):
        machines = Machines(WorkerLimits(2**40, 2**28, 16, 1, True, free), 2**40)
        costs = plan_steps(steps, settings, machines, checkpointed=False)
        planned = max(cost.plan.device_bytes for cost in costs)
        assert 2**32 < planned <= DEVICE_SHARE * free
        found.append((-costs[-2].rounds, costs[-2].plan.batch if costs[-2].rounds == 1 else 0))
    assert found == sorted(found)
    assert found[-1] == (-1, 256)
