"""Sums made in tiles of rows are the sums made whole, bit for bit, however they are made, merged and taken up again."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smtdist.configuration import Configuration, preset
from smtdist.data.array import as_source
from smtdist.data.spilled import Spill
from smtdist.engine.executor import SerialExecutor, StopRequest
from smtdist.engine.passes import Engine
from smtdist.engine.plan import WorkerLimits, plan_pass
from smtdist.errors import DataError, InterruptedRun, MemoryBudgetError
from smtdist.kernels.triangle import UpperTiles
from smtdist.models import fit as fitting
from smtdist.models.files import load, save
from smtdist.models.fit import fit, summed
from smtdist.models.merge import merged, update
from smtdist.models.model import code_sums
from smtdist.models.plan import Machines, fit_steps, plan_steps
from smtdist.models.row_tiles import gathering_bytes, row_tiles
from smtdist.statistics.cooccurrence import CodeSums, tile_cuts
from smtdist.statistics.sums import as_tiles, finish_tiles
from tests.executors import LossyExecutor, ThreadsExecutor

IMAGES = np.random.default_rng(11).integers(0, 256, (80, 7, 6, 1), dtype=np.uint8)
IMAGES[::9, 2:5, 1:5] = 90  # some patches are constant, so that degrees differ from image to image
BASE = Configuration(patch=2, dictionary=24, n_components=3, seed=1)
SETTINGS = {
    "gq": BASE.replace(threshold=0.4, flip=True),
    "gq-complete": BASE.replace(
        threshold=0.4, mean="patch", constant_patch="activate_best", zero_code="activate_best"
    ),
    "gq-window": BASE.replace(threshold=0.5, context=1),
    "gq-long": BASE.replace(threshold=0.1, context=1),
    "gq-second": BASE.replace(threshold=0.5, context=2, order=2, mean="patch"),
    "gq-second-whole": BASE.replace(threshold=0.5, order=2, mean="patch"),
    "gq-drawn": BASE.replace(threshold=0.4, positions=9, flip=True),
    "vq": BASE.replace(feature="vq", context=1, mean="patch"),
    "vq-whole": BASE.replace(feature="vq"),
    "vq-second": BASE.replace(feature="vq", context=1, order=2, mean="patch"),
}
MODELS: dict = {}


def model_of(name):
    """A model of the first 20 images, which supply all atoms."""
    if name not in MODELS:
        MODELS[name], _ = fit(as_source(IMAGES[:20]), SETTINGS[name], Engine(SerialExecutor(1)))
    return MODELS[name]


@pytest.fixture
def tiles_of(monkeypatch):
    """Let the worker hold so many tiles of the sums only."""

    def cut(count):
        monkeypatch.setattr(fitting, "SMALL_SHARE", 0)
        monkeypatch.setattr(fitting, "row_tiles", lambda sums, *_, **__: sums.tiled(count))

    return cut


def full(matrix):
    return matrix.full() if isinstance(matrix, UpperTiles) else matrix


def assert_equal(left, right):
    """The same sums, of the same samples."""
    assert left.matrices.keys() == right.matrices.keys()
    for name in ("second_moment", "context_scatter", "cooccurrence", "activity"):
        np.testing.assert_array_equal(full(getattr(left, name)), full(getattr(right, name)), err_msg=name)
    for name in ("n_samples", "n_positions", "equal_degree", "scatter_scale", "one_hot"):
        assert getattr(left, name) == getattr(right, name), name
    if left.origin is not None and right.origin is not None:
        np.testing.assert_array_equal(left.origin.samples, right.origin.samples)
        assert left.origin.basis == right.origin.basis


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_tiles_chunks_and_workers_give_the_same_bits(data):
    name = data.draw(st.sampled_from(sorted(SETTINGS)))
    model, count = model_of(name), data.draw(st.integers(1, 8))
    chunk, workers = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 3))
    images = as_source(IMAGES)
    object.__setattr__(images, "chunk_samples", chunk)  # which decides the leaves
    expected, _ = summed(images, model, Engine(SerialExecutor(1)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("smtdist.kernels.triangle.TILE_BYTES", data.draw(st.sampled_from([1, 10**6])))
        patch.setattr(fitting, "SMALL_SHARE", 0)
        patch.setattr(fitting, "row_tiles", lambda sums, *_, **__: sums.tiled(count))
        found, record = summed(images, model, Engine(ThreadsExecutor(workers)))
    assert_equal(found, expected)
    n_tiles = len(tile_cuts(24, count)) - 1
    assert record["n_samples"] == 80 * n_tiles
    assert found.tiled == (n_tiles > 1)


@pytest.mark.parametrize("name", SETTINGS)
def test_lost_tasks_change_nothing(name, tiles_of):
    model = model_of(name)
    expected, _ = summed(as_source(IMAGES), model, Engine(SerialExecutor(1)))
    tiles_of(3)
    found, _ = summed(as_source(IMAGES), model, Engine(LossyExecutor(3)))
    assert_equal(found, expected)


@pytest.mark.parametrize("name", ["gq", "gq-second", "vq-whole"])
def test_a_stopped_run_goes_on_where_it_was(name, tiles_of, tmp_path):
    model = model_of(name)
    expected, _ = summed(as_source(IMAGES), model, Engine(SerialExecutor(1)))
    tiles_of(3)
    stop = StopRequest()
    first = Engine(SerialExecutor(1), checkpoint=tmp_path, key="k", stop=stop)

    def heed(event):
        if event.get("pass") == "statistics-2-of-3" and event["kind"] == "pass_finished":
            stop.set(130)

    first.events.subscribe(heed)
    with pytest.raises(InterruptedRun):
        summed(as_source(IMAGES), model, first)
    found, record = summed(as_source(IMAGES), model, Engine(SerialExecutor(1), checkpoint=tmp_path, key="k"))
    assert_equal(found, expected)
    assert record["read_bytes"] <= IMAGES.nbytes  # of three tiles, at most one was left
    assert record["resumed_leaves"] > 0


@pytest.mark.parametrize("name", SETTINGS)
def test_tiles_merge_are_withdrawn_and_travel_as_files(name, tiles_of, tmp_path):
    base = model_of(name)
    whole, _ = update(base, as_source(IMAGES[20:]), Engine(SerialExecutor(1)))
    tiles_of(2)
    found, _ = update(base, as_source(IMAGES[20:]), Engine(SerialExecutor(1)))
    assert_equal(found.statistics, whole.statistics)
    np.testing.assert_array_equal(found.embedding.components, whole.embedding.components)
    save(found, tmp_path / "tiled.h5")
    save(whole, tmp_path / "whole.h5")
    assert_equal(load(tmp_path / "tiled.h5").statistics, load(tmp_path / "whole.h5").statistics)
    part = replace(base, statistics=summed(as_source(IMAGES[20:50]), base, Engine(SerialExecutor(1)))[0])
    tiles_of(4)
    other = replace(base, statistics=summed(as_source(IMAGES[50:]), base, Engine(SerialExecutor(1)))[0])
    _, total = merged(("a", part), [("b", base), ("c", other)], [("c", other), ("b", base), ("a", part)][:1])
    back, _ = update(found, as_source(IMAGES[20:]), Engine(SerialExecutor(1)), withdraw=True)
    assert_equal(back.statistics, base.statistics)
    _, expected = merged(("a", part), [("b", base)])
    assert_equal(total, expected)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_fewest_tiles_that_fit_are_chosen_and_planned(name):
    model, source = model_of(name), as_source(IMAGES)
    wide = replace(model, dictionary=replace(model.dictionary, grid=np.zeros((16384, 4), np.float32)))
    sums = code_sums(wide, 80)
    limits = WorkerLimits(2**40, 0, 1, 1)
    needed = plan_pass("statistics", sums.tiled(8)[0], source, limits).projected_bytes
    limits = replace(limits, limit_bytes=int(needed / 0.55) + 1)
    tiles = row_tiles(sums, source, limits, checkpointed=False, work=0.0, fingerprint=False)
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
            sums, source, replace(limits, limit_bytes=2**24), checkpointed=False, work=0.0, fingerprint=False
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


def test_passes_that_read_different_data_are_refused():
    model = model_of("gq")
    tiles = [(tile, tile.zero()) for tile in code_sums(model, 80).tiled(2)]
    for number, (tile, state) in enumerate(tiles):
        tile.update(state, IMAGES[number : number + 20], 0)
    with pytest.raises(DataError, match="have not read the same data"):
        finish_tiles(tiles)


@settings(deadline=None)
@given(st.integers(1, 5000), st.integers(1, 40))
def test_cuts_cover_all_rows_evenly(n_atoms, count):
    cuts = tile_cuts(n_atoms, count)
    assert cuts[0] == 0
    assert cuts[-1] == n_atoms
    assert 1 <= len(cuts) - 1 <= count
    heights = np.diff(cuts)
    assert (heights > 0).all()
    assert (heights * (n_atoms - np.array(cuts[:-1]))).max() <= max(
        n_atoms, n_atoms**2 * (1 if count == 1 else 0.62)
    )


def test_whole_sums_can_be_taken_as_tiles():
    matrix = np.arange(9).reshape(3, 3)
    np.testing.assert_array_equal(as_tiles(matrix + matrix.T).full(), matrix + matrix.T)


class Narrow(SerialExecutor):
    """One worker of little memory, beside which others may join."""

    alone = False

    def __init__(self, limit):
        super().__init__(1)
        self._limit = limit

    def limit_bytes(self):
        """Return what the worker may use."""
        return self._limit


def test_a_worker_of_little_memory_gets_tiles_and_the_user_is_told():
    model = fit(as_source(IMAGES), BASE.replace(dictionary=900, threshold=0.6), Engine(SerialExecutor(1)))[0]
    source, sums = as_source(IMAGES), code_sums(model, 80)
    limits = WorkerLimits(2**40, 0, 1, 1)
    projected = [
        plan_pass("statistics", max(sums.tiled(count), key=type(sums).state_bytes), source, limits)
        for count in (1, 3)
    ]
    # batches of one image, so that the sums are what is left to cut
    slim = [plan.streaming_sums * plan.state_bytes + 2**24 + sums.batch_bytes(1) for plan in projected]
    engine, told = Engine(Narrow(int(sum(slim) / 2 / 0.55))), []
    engine.events.subscribe(
        lambda event: told.append(event.get("text", "")) if event["kind"] == "note" else None
    )
    found, record = summed(source, model, engine)
    assert found.tiled
    assert record["rounds"] in (2, 3)
    assert any("tiles of rows, and the data are read as often" in text for text in told)
    assert_equal(found, summed(source, model, Engine(SerialExecutor(1)))[0])


def test_a_run_goes_on_in_the_tiles_it_was_cut_off_in_whatever_the_memory(tmp_path):
    model = fit(as_source(IMAGES), BASE.replace(dictionary=900, threshold=0.6), Engine(SerialExecutor(1)))[0]
    source, sums = as_source(IMAGES), code_sums(model, 80)
    plans = [
        plan_pass("statistics", sums.tiled(count)[0], source, WorkerLimits(2**40, 0, 1, 1), checkpointed=True)
        for count in (1, 3)
    ]
    least = sum(plan.projected_bytes for plan in plans) / 2 - sums.batch_bytes(80) + sums.batch_bytes(1)
    stop = StopRequest()
    first = Engine(Narrow(int(least / 0.55)), checkpoint=tmp_path, key="k", stop=stop)
    first.events.subscribe(
        lambda event: stop.set(130) if event["kind"] == "pass_finished" else None  # the first tile is done
    )
    with pytest.raises(InterruptedRun):
        summed(source, model, first)
    begun = next(tmp_path.glob("statistics-1-of-*")).name
    found, record = summed(source, model, Engine(Narrow(2**40), checkpoint=tmp_path, key="k"))
    assert begun == f"statistics-1-of-{record['rounds']}"
    assert record["resumed_leaves"] > 0
    assert_equal(found, summed(source, model, Engine(SerialExecutor(1)))[0])


@pytest.mark.parametrize("count", [2, 3, 4])
def test_more_tiles_are_taken_where_they_make_room_for_larger_batches(count):
    configuration = preset("cifar10-gq").replace(dictionary=65536)
    source = as_source(np.broadcast_to(np.uint8(0), (50_000, 32, 32, 3)))
    step = fit_steps(source, configuration, reused=True)[-1]
    roomy = WorkerLimits(2**40, 2**28, 2, 1, alone=True)

    def chosen(limits, begun=()):
        known = {"checkpointed": False, "work": step.work_per_sample, "fingerprint": False}
        return len(row_tiles(step.statistic, source, limits, **known, begun=begun))

    def planned(count, limits):
        *others, largest = sorted(step.statistic.tiled(count), key=CodeSums.state_bytes)
        room = replace(limits, limit_bytes=limits.limit_bytes - sum(map(CodeSums.state_bytes, others)))
        return plan_pass("statistics", largest, source, room, work_per_sample=step.work_per_sample)

    # what holds these tiles and batches of two images, and no more
    *others, largest = sorted(step.statistic.tiled(count), key=CodeSums.state_bytes)
    plan = planned(count, roomy)
    needed = (
        plan.projected_bytes - plan.baseline_bytes - largest.batch_bytes(plan.batch) + largest.batch_bytes(2)
    )
    narrow = replace(roomy, limit_bytes=int(needed / 0.55) + sum(map(CodeSums.state_bytes, others)) + 2)
    assert planned(count, narrow).batch <= 2
    assert chosen(narrow, {count}) == count  # those of an earlier run are kept
    found = chosen(narrow)
    assert found > count
    assert planned(found, narrow).batch >= 16
    assert chosen(narrow, {1}) == found  # but for those that do not fit
    assert chosen(replace(narrow, limit_bytes=narrow.limit_bytes + 2**34)) == count


@pytest.mark.parametrize("name", SETTINGS)
def test_a_process_alone_has_room_to_finish_all_its_tiles(name):
    model, source = model_of(name), as_source(IMAGES)
    wide = replace(model, dictionary=replace(model.dictionary, grid=np.zeros((16384, 4), np.float32)))
    sums = code_sums(wide, 80)
    counts = set()
    for share in np.linspace(0.7, 2.2, 16):
        limits = WorkerLimits(int(share * sums.state_bytes()), 2**20, 1, 1, alone=True)
        try:
            tiles = row_tiles(sums, source, limits, checkpointed=False, work=0.0, fingerprint=False)
        except MemoryBudgetError:
            continue
        counts.add(len(tiles))
        if len(tiles) > 1:
            held = sum(max(tile.state_bytes(), tile.finished_bytes()) for tile in tiles)
            assert 2**20 + held + tiles[0].finished_bytes() <= limits.limit_bytes
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
        sums = [(tile, fitting._spilled(state, spill)) for tile, state in sums]
    else:
        planned += max(map(CodeSums.state_bytes, tiles))
    tracemalloc.reset_peak()
    found = finish_tiles(sums, spill if spilled else None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.15 * planned < peak < planned + 2**19
    assert found.n_samples == 2
