"""Transforms of video on Dask: the same bits from 1, 2 and 4 workers, with a worker killed, and stopped in mid-training.

Minutes on a busy machine: `pytest -m slow tests/functional/test_video_dask.py`.
"""

import numpy as np
import pytest
from coding import on_workers, plain, stopped_and_resumed, with_a_killed_worker
from functional_clips import SMALL, make_clips

from smtdist.data.video import open_clips
from smtdist.models.functional.video import fit_video

LOWER = SMALL.replace(places=120, batch=1500, sgd_rounds=2, sparsity=0.005)
UPPER = LOWER.replace(atoms=20, n_components=5, rounds=2, sgd_rounds=0)


@pytest.fixture(scope="module")
def fit(tmp_path_factory):
    """Fit of one layer, as a function of an engine."""
    clips = open_clips(make_clips(tmp_path_factory.mktemp("video") / "clips.h5"))
    return lambda engine, settings=LOWER, below=None: fit_video(clips, settings, engine, below)[0]


@pytest.fixture(scope="module")
def want(fit):
    return plain(fit)


def bits(model):
    arrays = (
        model.whitening.whiten, model.covariance, model.coder.dictionary, np.array(model.trace), model.means.moment,
        model.means.scatter, model.components,
    )  # fmt: skip
    return b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_same_bits_on_dask_workers_of_a_layer_and_one_on_it(workers, fit, want):
    def both(engine):
        lower = fit(engine)
        return lower, fit(engine, UPPER, lower)

    lower, upper = on_workers(both, workers)
    assert bits(lower) == bits(want)
    assert bits(upper) == bits(plain(lambda engine: fit(engine, UPPER, want)))


@pytest.mark.slow
@pytest.mark.parametrize(("during", "checkpointed"), [("dictionary-2", False), ("statistics", True)])
def test_a_killed_worker_changes_nothing(during, checkpointed, fit, want, tmp_path):
    found = with_a_killed_worker(fit, during, tmp_path if checkpointed else None)
    assert bits(found) == bits(want)


@pytest.mark.slow
@pytest.mark.parametrize("after", ["dictionary-2", "round-1"])
def test_stopped_in_mid_training_and_resumed(after, fit, want, tmp_path):
    assert bits(stopped_and_resumed(fit, tmp_path, after)) == bits(want)


def test_other_draws_have_other_bits(fit):
    # or the comparisons above would hold for anything
    small = SMALL.replace(rounds=1)
    assert bits(plain(lambda engine: fit(engine, small))) != bits(
        plain(lambda engine: fit(engine, small.replace(seed=1)))
    )
