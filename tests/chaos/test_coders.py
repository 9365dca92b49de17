"""Fits that learn in rounds, on Dask: the same bits from 1, 2 and 4 workers, and with a worker that is killed.

Minutes on a busy machine: `pytest -m slow tests/chaos/test_coders.py`.
"""

import pytest
from calling import arrays, same
from coding import on_workers, plain, stored_images, with_a_killed_worker
from functional_clips import SMALL, make_clips

from smtdist.codes.l1 import SparseCoder, SparseSettings
from smtdist.codes.s3c import PatchCoder, S3CSettings
from smtdist.data.video import open_clips
from smtdist.models import store
from smtdist.models.coded import coded_settings, fit_coded
from smtdist.models.coders.fit import fit_coder
from smtdist.models.functional.video import fit_video

CODER = {"units": 24, "patch": 4, "images": 0, "patches": 3, "rounds": 3, "pooling": (1, 2)}
CODED = {"patch": 4, "dictionary": 20, "rounds": 2, "n_components": 5, "positions": 12, "stride": 2}
LOWER = SMALL.replace(places=120, batch=1500, sgd_rounds=2, sparsity=0.005)
UPPER = LOWER.replace(atoms=20, n_components=5, rounds=2, sgd_rounds=0)
KILLED = {
    "s3c": "round-2",
    "sparse": "round-2",
    "smt, s3c": "statistics",
    "video": "dictionary-2",
    "layers": "round-1",
}
"""Fits, and the pass in which a worker of each dies."""


@pytest.fixture(scope="module", params=KILLED)
def case(request, tmp_path_factory):
    """A fit as a function of an engine, what it gives in this process, and where a worker dies."""
    folder = tmp_path_factory.mktemp("coders")
    stored, clips = stored_images(folder), open_clips(make_clips(folder / "clips.h5"))
    fits = {
        "s3c": lambda engine: fit_coder(PatchCoder, stored, S3CSettings(**CODER), engine)[0],
        "sparse": lambda engine: fit_coder(
            SparseCoder, stored, SparseSettings(**CODER, penalty=0.5), engine
        )[0],
        "smt, s3c": lambda engine: fit_coded(stored, coded_settings("s3c", **CODED), engine)[0],
        "video": lambda engine: fit_video(clips, LOWER, engine)[0],
        "layers": lambda engine: fit_video(clips, UPPER, engine, fit_video(clips, LOWER, engine)[0])[0],
    }
    fit = fits[request.param]
    return fit, bits(plain(fit), folder), KILLED[request.param]


def bits(model, folder):
    store.save(model, folder / "m.h5", overwrite=True)
    return arrays(folder / "m.h5")


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_same_bits_on_dask_workers(workers, case, tmp_path):
    fit, want, _ = case
    same(bits(on_workers(fit, workers), tmp_path), want)


@pytest.mark.slow
@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_killed_worker_changes_nothing(checkpointed, case, tmp_path):
    fit, want, during = case
    found = with_a_killed_worker(fit, during, tmp_path / "c" if checkpointed else None)
    same(bits(found, tmp_path), want)
