"""Sums made in tiles of rows are the sums made whole, bit for bit, however they are made, merged and taken up again."""

from dataclasses import replace

import h5py
import numpy as np
import pytest
from calling import run
from coded import full, same_statistics
from hypothesis import given, settings
from hypothesis import strategies as st

from smtdist.data.array import as_source
from smtdist.engine import passes, worker
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.memory import resident_bytes
from smtdist.engine.passes import Engine
from smtdist.engine.plan import WorkerLimits, plan_pass
from smtdist.errors import DataError, InterruptedRun, MemoryBudgetError
from smtdist.kernels.triangle import UpperTiles
from smtdist.models import summing
from smtdist.models.fit import fit
from smtdist.models.merge import merged, update
from smtdist.models.model import code_sums
from smtdist.models.store import load, save
from smtdist.models.summing import held_beside
from smtdist.statistics.cooccurrence import tile_cuts
from smtdist.statistics.sums import as_tiles, finish_tiles
from tests.executors import LossyExecutor, ThreadsExecutor, stopping
from tests.kinds_of_sums import BASE, IMAGES, SETTINGS, model_of


@pytest.fixture
def tiles_of(monkeypatch):
    """Let the worker hold so many tiles of the sums only."""

    def cut(count):
        monkeypatch.setattr(summing, "SMALL_SHARE", 0)
        monkeypatch.setattr(summing, "row_tiles", lambda sums, *_, **__: sums.tiled(count))

    return cut


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_tiles_chunks_and_workers_give_the_same_bits(data):
    name = data.draw(st.sampled_from(sorted(SETTINGS)))
    model, count = model_of(name), data.draw(st.integers(1, 8))
    chunk, workers = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 3))
    images = as_source(IMAGES)
    object.__setattr__(images, "chunk_samples", chunk)  # which decides the leaves
    expected, _ = model.summed(images, Engine(SerialExecutor(1)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("smtdist.kernels.triangle.TILE_BYTES", data.draw(st.sampled_from([1, 10**6])))
        patch.setattr(summing, "SMALL_SHARE", 0)
        patch.setattr(summing, "row_tiles", lambda sums, *_, **__: sums.tiled(count))
        found, record = model.summed(images, Engine(ThreadsExecutor(workers)))
    same_statistics(found, expected)
    n_tiles = len(tile_cuts(24, count)) - 1
    assert record["n_samples"] == 80 * n_tiles
    assert found.tiled == (n_tiles > 1)


@pytest.mark.parametrize("name", SETTINGS)
def test_lost_tasks_change_nothing(name, tiles_of):
    model = model_of(name)
    expected, _ = model.summed(as_source(IMAGES), Engine(SerialExecutor(1)))
    tiles_of(3)
    found, _ = model.summed(as_source(IMAGES), Engine(LossyExecutor(3)))
    same_statistics(found, expected)


@pytest.mark.parametrize("name", ["gq", "gq-second", "vq-whole"])
def test_a_stopped_run_goes_on_where_it_was(name, tiles_of, tmp_path):
    model = model_of(name)
    expected, _ = model.summed(as_source(IMAGES), Engine(SerialExecutor(1)))
    tiles_of(3)
    with pytest.raises(InterruptedRun):
        model.summed(as_source(IMAGES), stopping("statistics-2-of-3", checkpoint=tmp_path, key="k"))
    found, record = model.summed(as_source(IMAGES), Engine(SerialExecutor(1), checkpoint=tmp_path, key="k"))
    same_statistics(found, expected)
    assert record["read_bytes"] <= IMAGES.nbytes  # of three tiles, at most one was left
    assert record["resumed_leaves"] > 0


@pytest.mark.parametrize("name", SETTINGS)
def test_tiles_merge_are_withdrawn_and_travel_as_files(name, tiles_of, tmp_path):
    base = model_of(name)
    whole, _ = update(base, as_source(IMAGES[20:]), Engine(SerialExecutor(1)))
    tiles_of(2)
    found, _ = update(base, as_source(IMAGES[20:]), Engine(SerialExecutor(1)))
    same_statistics(found.statistics, whole.statistics)
    np.testing.assert_array_equal(found.embedding.components, whole.embedding.components)
    save(found, tmp_path / "tiled.h5")
    save(whole, tmp_path / "whole.h5")
    same_statistics(load(tmp_path / "tiled.h5").statistics, load(tmp_path / "whole.h5").statistics)
    part = replace(base, statistics=base.summed(as_source(IMAGES[20:50]), Engine(SerialExecutor(1)))[0])
    tiles_of(4)
    other = replace(base, statistics=base.summed(as_source(IMAGES[50:]), Engine(SerialExecutor(1)))[0])
    _, total = merged(
        ("a", part), [("b", base), ("c", other)], [("c", other), ("b", base), ("a", part)][:1]
    )
    back, _ = update(found, as_source(IMAGES[20:]), Engine(SerialExecutor(1)), withdraw=True)
    same_statistics(back.statistics, base.statistics)
    _, expected = merged(("a", part), [("b", base)])
    same_statistics(total, expected)


@pytest.mark.parametrize("name", sorted(SETTINGS))
@pytest.mark.parametrize("height", [1, 7, 24])
def test_a_model_of_tiles_is_written_strip_by_strip_as_the_whole_one_is(
    name, height, tmp_path, monkeypatch
):
    """Whole, the sums of 65,536 atoms would take 51 GB: after 80 minutes the process was killed while it saved the model."""
    monkeypatch.setattr("smtdist.data.netcdf.CHUNK_BYTES", 400)  # two rows of 24 numbers
    monkeypatch.setattr("smtdist.models.files.STRIP_BYTES", 1)
    monkeypatch.setattr("smtdist.models.files.FULL_UP_TO", 0)
    images = as_source(IMAGES)
    model, _ = fit(images, SETTINGS[name], Engine(SerialExecutor(1)))
    tiles = {key: UpperTiles.of(full(one), height) for key, one in model.statistics.matrices.items()}
    tiled = replace(model, statistics=replace(model.statistics, matrices=tiles))
    save(model, tmp_path / "whole.h5")
    monkeypatch.setattr(UpperTiles, "full", None)
    save(tiled, tmp_path / "tiles.h5")
    with h5py.File(tmp_path / "whole.h5") as whole, h5py.File(tmp_path / "tiles.h5") as other:
        assert whole["statistics"].keys() == other["statistics"].keys()
        for key, values in whole["statistics"].items():
            found = other["statistics"][key]
            assert (found.dtype, found.chunks, found.compression) == (
                values.dtype,
                values.chunks,
                values.compression,
            )
            np.testing.assert_array_equal(found[()], values[()], err_msg=key)
    same_statistics(load(tmp_path / "tiles.h5").statistics, model.statistics)


def test_sums_that_do_not_fit_into_the_memory_are_not_loaded(tmp_path, monkeypatch):
    save(model_of("gq"), tmp_path / "m.h5")
    monkeypatch.setattr("smtdist.models.files.memory_limit", resident_bytes)
    with pytest.raises(MemoryBudgetError, match=r"The sums in .*m\.h5 take .* \(statistics=False\)"):
        load(tmp_path / "m.h5")
    assert load(tmp_path / "m.h5", statistics=False).statistics is None
    said = run("merge", *[tmp_path / "m.h5"] * 2, "--out", tmp_path / "o.h5", code=1)
    assert "use a machine with more memory" in said


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


@pytest.fixture
def empty(monkeypatch):
    """Let a worker have nothing in memory before a pass."""
    monkeypatch.setattr(worker, "probe", lambda *_, **__: (0, None, 0.0, ()))


@pytest.mark.usefixtures("empty")
def test_a_worker_of_little_memory_gets_tiles_and_the_user_is_told():
    model = fit(as_source(IMAGES), BASE.replace(dictionary=900, threshold=0.6), Engine(SerialExecutor(1)))[
        0
    ]
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
    found, record = model.summed(source, engine)
    assert found.tiled
    assert record["rounds"] in (2, 3)
    assert any("tiles of rows, and the data are read as often" in text for text in told)
    same_statistics(found, model.summed(source, Engine(SerialExecutor(1)))[0])


@pytest.mark.usefixtures("empty")
def test_a_run_goes_on_in_the_tiles_it_was_cut_off_in_whatever_the_memory(tmp_path):
    model = fit(as_source(IMAGES), BASE.replace(dictionary=900, threshold=0.6), Engine(SerialExecutor(1)))[
        0
    ]
    source, sums = as_source(IMAGES), code_sums(model, 80)
    plans = [
        plan_pass(
            "statistics", sums.tiled(count)[0], source, WorkerLimits(2**40, 0, 1, 1), checkpointed=True
        )
        for count in (1, 3)
    ]
    least = sum(plan.projected_bytes for plan in plans) / 2 - sums.batch_bytes(80) + sums.batch_bytes(1)
    narrow = Narrow(int(least / 0.55))
    with pytest.raises(InterruptedRun):  # when the first tile is done
        model.summed(source, stopping(executor=narrow, checkpoint=tmp_path, key="k"))
    begun = next(tmp_path.glob("statistics-1-of-*")).name
    found, record = model.summed(source, Engine(Narrow(2**40), checkpoint=tmp_path, key="k"))
    assert begun == f"statistics-1-of-{record['rounds']}"
    assert record["resumed_leaves"] > 0
    same_statistics(found, model.summed(source, Engine(SerialExecutor(1)))[0])


def test_of_two_numbers_of_tiles_the_one_that_got_further_goes_on(tiles_of, tmp_path, monkeypatch):
    model, source = model_of("gq"), as_source(IMAGES)
    real = summing.row_tiles
    tiles_of(2)
    with pytest.raises(InterruptedRun):
        model.summed(source, stopping(checkpoint=tmp_path, key="k"))
    (tmp_path / "statistics").mkdir()  # of a run that was killed in its first task
    (tmp_path / "statistics-1-of-3").mkdir()
    (tmp_path / "statistics-1-of-3" / "partial.h5").write_bytes(b"of a run that got less far")
    assert summing._begun(Engine(SerialExecutor(1), checkpoint=tmp_path)) == [2, 3]
    monkeypatch.setattr(summing, "row_tiles", real)
    found, record = model.summed(source, Engine(SerialExecutor(1), checkpoint=tmp_path, key="k"))
    assert record["rounds"] == 2
    assert record["resumed_leaves"] > 0
    same_statistics(found, model.summed(source, Engine(SerialExecutor(1)))[0])


@pytest.mark.parametrize("alone", [False, True])
def test_tiles_that_a_process_keeps_count_in_its_passes(alone, monkeypatch):
    model, seen = model_of("gq"), []
    monkeypatch.setattr(summing, "SMALL_SHARE", 0)
    monkeypatch.setattr(summing, "row_tiles", lambda sums, *_, **__: sums.tiled(3))

    def noted(name, statistic, source, limits, **known):
        seen.append(limits.limit_bytes)
        return plan_pass(name, statistic, source, limits, **known)

    monkeypatch.setattr(passes, "plan_pass", noted)
    executor = Narrow(2**34)
    monkeypatch.setattr(executor, "alone", alone, raising=False)
    model.summed(as_source(IMAGES), Engine(executor))
    tiles = code_sums(model, 80).tiled(3)
    assert seen == [2**34 - (held_beside(tile, tiles) if alone else 0) for tile in tiles]
