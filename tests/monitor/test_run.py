"""A run in the background: its result, its progress, its end."""

import threading

import numpy as np
import pytest
from sklearn.base import clone

import smtdist
from smtdist.errors import ConfigurationError, InterruptedRun

IMAGES = np.random.default_rng(0).integers(0, 256, (1024, 8, 8), dtype=np.uint8)


def estimator(**options):
    return smtdist.SMT(patch=3, feature="vq", dictionary=16, n_components=4, pool_size=2, **options)


class Gate:
    """Holds a run at its first event of a kind until it is opened."""

    def __init__(self, kind="progress"):
        self.kind, self.reached, self.opened = kind, threading.Event(), threading.Event()

    def __call__(self, event):
        if event["kind"] == self.kind:
            self.reached.set()
            assert self.opened.wait(60)


def test_the_result_is_that_of_fit_bit_for_bit():
    run = smtdist.start(estimator(), IMAGES, previews=1.0)
    found = run.result(120)
    assert np.array_equal(found.components_, estimator().fit(IMAGES).components_)
    assert run.done()
    progress = run.progress()
    assert progress["status"] == "finished"
    assert [one["status"] for one in progress["passes"]] == ["finished"] * 4
    assert "run finished" in repr(run)


def test_fit_that_does_not_block_returns_a_handle():
    smt = estimator()
    run = smt.fit(IMAGES, block=False)
    assert run.result(120) is smt
    assert np.array_equal(smt.components_, estimator().fit(IMAGES).components_)
    other = estimator().fit(IMAGES, base=smt.model_, block=False).result(120)
    assert np.array_equal(other.model_.dictionary.grid, smt.model_.dictionary.grid)
    with pytest.raises(ValueError, match="lower patch"):
        estimator().fit(np.zeros((3, 2, 2), np.uint8), block=False).result(60)


def test_progress_while_it_runs_and_a_result_in_time_or_not():
    gate = Gate("sums")
    smt = estimator(on_event=gate)
    run = smtdist.start(smt, IMAGES)
    assert gate.reached.wait(60)
    assert run.progress()["status"] == "running"
    assert run.status == "running"
    assert not run.done()
    assert not hasattr(smt, "components_")
    with pytest.raises(TimeoutError, match="continues"):
        run.result(0.01)
    gate.opened.set()
    assert run.result(120) is smt


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_run_can_be_cancelled_and_goes_on_from_its_checkpoint(tmp_path, checkpointed):
    gate = Gate()
    options = {"checkpoint": tmp_path / "c"} if checkpointed else {}
    run = smtdist.start(estimator(on_event=gate, **options), IMAGES)
    assert gate.reached.wait(60)
    run.cancel()
    gate.opened.set()
    with pytest.raises(InterruptedRun, match="Stopped as asked"):
        run.result(60)
    assert run.status == "stopped"
    again = smtdist.start(estimator(**options), IMAGES)
    assert np.array_equal(again.result(120).components_, estimator().fit(IMAGES).components_)


def test_what_goes_wrong_is_raised_by_result_and_shown():
    run = smtdist.start(estimator(), np.zeros((300, 8, 8), np.uint8))
    with pytest.raises(smtdist.SmtdistError, match="constant"):
        run.result(60)
    assert run.status == "failed"
    assert "constant" in repr(run)
    unusable = smtdist.start(estimator(), np.zeros((3, 2, 2), np.uint8))  # fails before there is an engine
    with pytest.raises(ValueError, match="lower patch"):
        unusable.result(60)
    assert unusable.status == "failed"


def test_other_methods_run_too_and_unknown_ones_are_refused():
    smt = estimator().fit(IMAGES[:512])
    before = smt.components_.copy()
    assert smtdist.start(smt, IMAGES[512:], method="partial_fit").result(60) is smt
    smtdist.start(smt, IMAGES[512:], method="withdraw").result(60)
    assert np.array_equal(smt.components_, before)
    assert smtdist.start(smt, IMAGES[:10], method="transform").result(60).shape[0] == 10
    with pytest.raises(ConfigurationError, match="choose one of fit, partial_fit"):
        smtdist.start(smt, IMAGES, method="fitt")


def test_estimators_stay_what_scikit_learn_takes_them_for():
    """`start` is beside them: `fit` returns the estimator, and `clone` finds no new parameter."""
    smt = estimator()
    smtdist.start(smt, IMAGES).result(120)
    assert clone(smt).get_params() == smt.get_params()


def test_two_runs_do_not_hear_of_each_other():
    gate = Gate()
    held = smtdist.start(estimator(on_event=gate), IMAGES)
    assert gate.reached.wait(60)
    other = smtdist.start(estimator(), IMAGES)
    other.result(120)
    held.cancel()
    assert other.status == "finished"
    gate.opened.set()
    with pytest.raises(InterruptedRun):
        held.result(60)
    assert held.progress()["run"] != other.progress()["run"]


def test_outside_a_notebook_a_run_shows_as_text():
    run = smtdist.start(estimator(), IMAGES)
    run.result(120)
    assert set(run._repr_mimebundle_()) == {"text/plain"}
