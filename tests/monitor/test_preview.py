"""A preview of sums so far is the statistic of the samples so far, and making one changes nothing."""

import base64
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from smtdist.configuration import Configuration
from smtdist.data.array import ArraySource
from smtdist.engine.events import EventStream
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.models.fit import fit
from smtdist.monitor.preview import MOST_ATOMS, Chosen, Previewer, part, preview

IMAGES = np.random.default_rng(1).integers(0, 256, (1280, 9, 9), dtype=np.uint8)
SETTINGS = Configuration(patch=3, dictionary=24, n_components=8, threshold=0.2)


def looked_at(settings, images=IMAGES, checkpoint=None):
    """Fit, making a preview at each change of the sums; return the events, the model, and the statistic of each pass."""
    found, chosen = [], {}
    stream = EventStream()
    engine = Engine(SerialExecutor(1), stream, checkpoint, "key")

    def look(event):
        if event["kind"] == "sums" and event["covers"]:
            reduction = engine.current
            own = chosen.setdefault(event["pass"], Chosen())
            value = preview(reduction.job.statistic, reduction.peek, own)
            found.append((event["pass"], value, event["covers"]))

    stream.subscribe(look)
    model, _ = fit(ArraySource(images), settings, engine)
    return found, model


@pytest.mark.parametrize("checkpointed", [False, True])
def test_the_last_preview_is_the_finished_statistic(tmp_path, checkpointed):
    found, model = looked_at(SETTINGS, checkpoint=tmp_path / "c" if checkpointed else None)
    last = {name: value for name, value, _ in found}
    whitening, statistics = last["whitening"], last["statistics"]
    expected = np.sort(np.linalg.eigvalsh(model.whitening.covariance))[::-1]
    np.testing.assert_allclose(whitening["spectrum"], expected, rtol=1e-9)
    np.testing.assert_allclose(statistics["spectrum"][:8], model.embedding.eigenvalues, rtol=1e-9)
    assert statistics["n_positions"] == model.statistics.n_positions
    assert statistics["n_samples"] == len(IMAGES)
    assert statistics["atoms_in_use"] == np.count_nonzero(model.statistics.activity)
    assert (statistics["atoms"], statistics["of_atoms"]) == (24, 24)
    atoms = np.array(statistics["neighbours"]["atoms"])
    points = model.embedding.components.T
    assert len(atoms) == 6
    assert points.shape[0] == 24


def test_previews_grow_with_the_sums():
    found, _ = looked_at(SETTINGS)
    leaves = [value["leaves"] for name, value, _ in found if name == "statistics"]
    assert leaves == sorted(leaves)
    assert len(leaves) > 2
    for _, value, covers in found:
        assert value["leaves"] == sum(stop - start for cover in covers for start, stop in cover)


def test_neighbours_are_those_of_the_embedding():
    found, _ = looked_at(SETTINGS)
    neighbours = [value for name, value, _ in found if name == "statistics"][-1]["neighbours"]
    for row in neighbours["atoms"]:
        assert len(set(row)) == len(row)
    assert neighbours["shape"] == [6 * 7, 3, 3, 1]
    pixels = np.frombuffer(base64.b64decode(neighbours["pixels"]), np.uint8)
    pictures = pixels.reshape(neighbours["shape"])
    assert pictures.shape == (42, 3, 3, 1)
    assert pictures.min() == 0
    assert pictures.max() == 255


def test_a_large_dictionary_is_looked_at_by_its_most_active_atoms():
    settings = SETTINGS.replace(dictionary=MOST_ATOMS + 40)
    found, model = looked_at(settings)
    last = [value for name, value, _ in found if name == "statistics"][-1]
    assert (last["atoms"], last["of_atoms"]) == (MOST_ATOMS + 40, MOST_ATOMS)
    assert last["atoms_in_use"] == np.count_nonzero(model.statistics.activity)


@pytest.mark.parametrize(
    "changes",
    [
        {"feature": "vq"},
        {"order": 2, "context": 2},
        {"dictionary_method": "kmeans", "dictionary_rounds": 2, "feature": "vq"},
        {"context": 2, "moment": "centred"},
    ],
    ids=str,
)
def test_every_kind_of_sum_has_a_preview(changes):
    found, _ = looked_at(SETTINGS.replace(**changes))
    seen = {name for name, value, _ in found if value is not None}
    assert {"whitening", "dictionary", "statistics"} <= seen
    if "dictionary_method" in changes:
        assert "dictionary-1" in seen
    for _, value, _ in found:
        assert np.isfinite(value.get("spectrum", [0.0])).all()


def test_a_part_is_a_copy_of_the_rows_and_columns_asked_for():
    state = {"m": np.arange(9).reshape(3, 3), "v": np.arange(3), "n": np.array(5)}
    found = part(state, None, np.array([0, 2]))
    assert found["m"].tolist() == [[0, 2], [6, 8]]
    assert found["v"].tolist() == [0, 2]
    assert found["n"] == 5
    for value in found.values():
        value += 1
    assert state["m"].sum() == 36
    assert state["n"] == 5


def test_a_watched_fit_has_the_bits_of_one_that_is_not():
    plain, _ = fit(ArraySource(IMAGES), SETTINGS, Engine(SerialExecutor(1)))
    _, watched = looked_at(SETTINGS)
    assert np.array_equal(plain.embedding.components, watched.embedding.components)
    assert np.array_equal(plain.statistics.cooccurrence, watched.statistics.cooccurrence)


def test_nothing_that_goes_wrong_in_a_preview_reaches_the_run(monkeypatch):
    monkeypatch.setattr("smtdist.monitor.preview.preview", lambda *ignored: 1 / 0)
    engine = Engine(SerialExecutor(1))
    previewer = Previewer(engine, share=1.0)
    engine.events.subscribe(previewer)
    model, _ = fit(ArraySource(IMAGES), SETTINGS, engine)
    assert model.embedding is not None


def test_previews_keep_to_their_share_of_the_time():
    previewer = Previewer(Engine(SerialExecutor(1)), share=0.01)
    previewer._last = previewer._spent = 1.0
    assert 90 < previewer._pause() < 200  # one second in a hundred, and this one was not saved up yet


class Passing:
    """An engine in the middle of its statistics pass, with a sum to look at."""

    def __init__(self):
        self.events = EventStream()
        self.current = SimpleNamespace(
            job=SimpleNamespace(name="statistics", statistic=None),
            peek=None,
            spent=0.0,
            n_leaves=2,
            plan=SimpleNamespace(n_samples=2),
        )
        self.previewer = Previewer(self, share=1.0)
        self.events.subscribe(self.previewer)
        self.events.emit("pass_started", **{"pass": "statistics"})

    def grow(self):
        self.events.emit("sums", **{"pass": "statistics"}, covers=((0, 1),))

    def finish(self):
        self.events.emit("pass_finished", **{"pass": "statistics"})


def blas_threads():
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def test_a_pass_ends_when_the_preview_under_way_has_given_blas_its_threads_back(monkeypatch):
    """The solve came out with other last bits where it began on the one thread that a preview had left to BLAS."""
    calculating, go_on = threading.Event(), threading.Event()

    def slow(statistic, look, chosen, calm):
        with calm():
            calculating.set()
            assert go_on.wait(60)
        return {}

    monkeypatch.setattr("smtdist.monitor.preview.preview", slow)
    with threadpool_limits(2, user_api="blas"):
        passing = Passing()
        passing.grow()
        assert calculating.wait(60)
        assert blas_threads() == {1}
        ended = threading.Thread(target=passing.finish)
        ended.start()
        assert passing.previewer._over.wait(60)
        assert ended.is_alive()
        go_on.set()
        ended.join(60)
        assert not ended.is_alive()
        assert blas_threads() == {2}


def test_a_preview_that_has_looked_too_late_calculates_nothing(monkeypatch):
    looking, ended, done, calculated = (threading.Event() for _ in range(4))

    def late(statistic, look, chosen, calm):
        looking.set()
        assert ended.wait(60)
        try:
            with calm():
                calculated.set()
        finally:
            done.set()

    monkeypatch.setattr("smtdist.monitor.preview.preview", late)
    passing = Passing()
    passing.grow()
    assert looking.wait(60)
    passing.finish()
    ended.set()
    assert done.wait(60)
    assert not calculated.is_set()
