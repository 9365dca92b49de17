"""A preview does not wait for a task to end: a task under way is asked between two batches."""

import threading
from dataclasses import replace

import numpy as np
import pytest
from arrays_in_files import write_arrays
from executors import ThreadsExecutor, dask_client

import smtdist
from smtdist.data.array import ArraySource, as_source
from smtdist.engine import executor as window
from smtdist.engine import passes
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.engine.reduction import Reduction, _Sum
from smtdist.models.fit import fit
from smtdist.monitor.preview import Chosen, Previewer, preview

IMAGES = np.random.default_rng(2).integers(0, 256, (600, 9, 9), dtype=np.uint8)
SETTINGS = smtdist.Configuration(patch=3, dictionary=24, n_components=8, threshold=0.2)


@pytest.fixture
def small_batches(monkeypatch):
    """Passes of batches of 50 images, although more would fit."""
    planned = passes.plan_pass
    monkeypatch.setattr(
        passes, "plan_pass", lambda *arguments, **options: replace(planned(*arguments, **options), batch=50)
    )


class Onlooker:
    """Looks at the running pass from a thread of its own at each report of a task, and lets the task go on meanwhile."""

    def __init__(self, engine):
        self.engine, self.seen, self.threads = engine, [], []
        self.chosen = {}

    def __call__(self, event):
        if event["kind"] == "progress" and self.engine.current is not None:
            thread = threading.Thread(target=self.look, args=(self.engine.current,))
            thread.start()
            self.threads.append(thread)
            # the question is there before the task goes on to where it answers
            while thread.is_alive() and not any(one.asked for one in list(window._open.values())):
                thread.join(0.001)

    def look(self, reduction):
        chosen = self.chosen.setdefault(reduction.job.name, Chosen())
        self.seen.append((reduction.job.name, preview(reduction.job.statistic, reduction.peek, chosen)))


def looked_into(source, engine):
    """Return a model, and what was seen of its sums while they grew, by pass."""
    onlooker = Onlooker(engine)
    engine.events.subscribe(onlooker)
    model, _ = fit(source, SETTINGS, engine)
    for thread in onlooker.threads:
        thread.join(60)
    seen = {name: [] for name, _ in onlooker.seen}
    for name, value in onlooker.seen:
        seen[name] += [value] if value is not None else []
    return model, seen


def as_one_leaf(images, folder):
    """Return the images as a source whose chunk, and so its one leaf, is all of them."""
    write_arrays(folder / "d.h5", {"x": images}, chunks=images.shape)
    return (str(folder / "d.h5"), "x")


@pytest.mark.parametrize("checkpointed", [False, True])
def test_the_only_task_of_a_pass_is_looked_into(tmp_path, small_batches, checkpointed):
    source = as_source(as_one_leaf(IMAGES, tmp_path), SETTINGS)
    assert len(source.leaf_bounds()) == 2
    engine = Engine(SerialExecutor(1), checkpoint=tmp_path / "c" if checkpointed else None, key="key")
    model, seen = looked_into(source, engine)
    for name in ("whitening", "dictionary", "statistics"):
        found = seen[name]
        assert len(found) > (1 if name == "dictionary" else 3), (
            name
        )  # few samples hold a patch that is drawn
        first = min(found, key=lambda value: value["n_samples"])
        assert first["n_samples"] < len(IMAGES)
        assert first["leaves"] == 0
    last = max(found, key=lambda value: value["n_samples"])
    assert (last["n_samples"], last["leaves"]) == (len(IMAGES), 1)
    np.testing.assert_allclose(last["spectrum"][:8], model.embedding.eigenvalues, rtol=1e-9)
    plain, _ = fit(source, SETTINGS, Engine(SerialExecutor(1)))
    assert np.array_equal(plain.statistics.cooccurrence, model.statistics.cooccurrence)
    assert not window._open


def test_a_look_in_mid_task_is_the_statistic_of_the_samples_so_far(tmp_path, small_batches):
    """Also where the task continues an earlier sum: nothing is counted twice, nothing is left out."""
    images = np.concatenate([IMAGES, 255 - IMAGES])
    model, seen = looked_into(ArraySource(images), Engine(SerialExecutor(1)))
    found = seen["statistics"]
    assert max(value["n_samples"] for value in found) == len(images)
    inside = next(value for value in found if value["leaves"] > 0 and value["n_samples"] % 256)
    so_far = fit(
        ArraySource(images[: inside["n_samples"]]), SETTINGS, Engine(SerialExecutor(1)), base=model
    )[0]
    assert inside["n_positions"] == so_far.statistics.n_positions
    assert inside["atoms_in_use"] == np.count_nonzero(so_far.statistics.activity)
    np.testing.assert_allclose(inside["spectrum"][:8], so_far.embedding.eigenvalues, rtol=1e-9)


@pytest.mark.parametrize("slots", [2, 3])
def test_no_sample_is_seen_twice_while_tasks_come_and_go(small_batches, slots):
    images = np.concatenate([IMAGES, 255 - IMAGES, IMAGES[::-1]])
    model, seen = looked_into(ArraySource(images), Engine(ThreadsExecutor(slots)))
    found = seen["statistics"]
    assert len(found) > 5
    assert all(value["n_samples"] <= len(images) for value in found)
    assert all(value["leaves"] * 256 <= value["n_samples"] + 255 for value in found)
    plain, _ = fit(ArraySource(images), SETTINGS, Engine(SerialExecutor(1)))
    assert np.array_equal(plain.statistics.cooccurrence, model.statistics.cooccurrence)


def test_sums_are_left_out_where_a_task_has_shown_them():
    """A task that continues a sum is seen with it, so the sum alone is not; a task that has ended is seen by its result."""

    reduction = Reduction.__new__(Reduction)
    reduction.n_leaves, reduction.spent = 10, 0.0
    reduction.growing = {"x/3": ((0, 4),), "x/4": ((4, 6),)}
    reduction.current = tuple(_Sum(cover, cover) for cover in (((0, 2),), ((4, 6),), ((8, 9),)))

    class Answers:
        def peek_inside(self, key, function):
            return window.Sight(((0, 3),), "inside", 0.0) if key == ("t", "x/3") else None

        def peek(self, handle, function, *arguments):
            return handle, 0.5

    class Job:
        token = "t"

    reduction.executor, reduction.job = Answers(), Job()
    assert reduction.peek(len) == [
        (((0, 3),), "inside"),
        (((4, 6),), ((4, 6),)),
        (((8, 9),), ((8, 9),)),
    ]
    assert reduction.spent == 1.0


def test_a_worker_of_a_cluster_is_looked_into(tmp_path, small_batches):
    seen = []
    with dask_client() as client:
        settings = {"patch": 3, "dictionary": 512, "n_components": 8, "pool_size": 2, "cluster": client}
        smt = smtdist.SMT(**settings, on_event=seen.append)
        many = np.repeat(IMAGES, 6, axis=0)
        smtdist.start(smt, as_one_leaf(many, tmp_path), previews=1.0).result(120)
    made = [event for event in seen if event["kind"] == "preview" and event["pass"] == "statistics"]
    assert made
    assert made[0]["leaves"] == 0
    assert 0 < made[0]["n_samples"] <= made[0]["of_samples"] == len(many)


def test_a_question_of_a_task_that_has_ended_or_fails_is_not_waited_for():
    assert window.ask(("token", "x/1"), len, ()) is None
    found, asked = [], threading.Event()

    def question():
        asked.set()
        found.append(window.ask(("token", "x/1"), len, ()))

    def task():
        with window.opened(("token", "x/1")) as own:
            thread.start()
            assert asked.wait(60)
            while not own.asked:
                thread.join(0.001)
            raise ZeroDivisionError

    thread = threading.Thread(target=question)
    with pytest.raises(ZeroDivisionError):
        task()
    thread.join(60)
    assert found == [None]


def test_a_sum_that_is_taken_apart_meanwhile_has_no_preview(small_batches):
    """What finishes a sum takes its arrays out one by one, to need less memory."""
    sums = {}
    engine = Engine(SerialExecutor(1))
    engine.events.subscribe(
        lambda event: (
            sums.update(at=engine.current) if event["kind"] == "sums" and event["covers"] else None
        )
    )
    fit(ArraySource(IMAGES), SETTINGS, engine)
    statistic = sums["at"].job.statistic
    state = statistic.zero()
    state["activity"] += 1
    del state["second_moment"]
    assert (
        preview(statistic, lambda function, *words: [(((0, 1),), function(state, *words))], Chosen())
        is None
    )


def test_a_mistake_of_who_looks_is_not_the_tasks():
    def look():
        found.append(window.ask(("token", "x/2"), lambda state: 1 / 0, ()))

    found = []
    with window.opened(("token", "x/2")) as own:
        thread = threading.Thread(target=look)
        thread.start()
        while not own.asked:
            thread.join(0.001)
        own.answer((), {})
        thread.join(60)
    assert found == [None]


def test_waiting_for_a_batch_to_end_is_no_cost_but_looking_is(monkeypatch):
    """Else a run of slow batches would have one preview and no more."""
    engine = Engine(SerialExecutor(1))
    previewer = Previewer(engine, share=0.01)

    class Slow:
        spent = 0.0
        n_leaves = 1
        peek = None

        class job:
            name = "statistics"
            statistic = None

        class plan:
            n_samples = 9

    def waits(statistic, look, chosen, calm):
        threading.Event().wait(0.2)
        Slow.spent += 3.0
        return {"leaves": 0}

    monkeypatch.setattr("smtdist.monitor.preview.preview", waits)
    engine.current = Slow
    seen = []
    engine.events.subscribe(seen.append)
    previewer._make("statistics", Chosen(), threading.Event())
    assert 3.0 <= previewer._spent < 3.1
    assert seen[0]["of_samples"] == 9
