"""Fits of every kind on Dask with a worker that is killed: the same bits.

Minutes on a busy machine: `pytest -m slow tests/chaos/test_coders.py`.
"""

from functools import cache

import numpy as np
import pytest
from calling import arrays, same
from coding import plain, stored_images, with_a_killed_worker, write_table, write_text
from functional_clips import SMALL, make_clips

from smtdist.codes.l1 import SparseCoder, SparseSettings
from smtdist.codes.s3c import PatchCoder, S3CSettings
from smtdist.data.text import TextSource
from smtdist.data.video import open_clips
from smtdist.models import store
from smtdist.models.coded import coded_settings, fit_coded
from smtdist.models.coders.fit import fit_coder
from smtdist.models.functional.video import fit_video
from smtdist.models.points.fit import PointModel
from smtdist.models.points.table import PointSettings
from smtdist.models.words.fit import fit_words
from smtdist.models.words.model import WordSettings

CODER = {"units": 24, "patch": 4, "images": 0, "patches": 3, "rounds": 3, "pooling": (1, 2)}
CODED = {"patch": 4, "dictionary": 20, "rounds": 2, "n_components": 5, "positions": 12, "stride": 2}
LOWER = SMALL.replace(places=120, batch=1500, sgd_rounds=2, sparsity=0.005)
UPPER = LOWER.replace(atoms=20, n_components=5, rounds=2, sgd_rounds=0)
WORDS = WordSettings(vocabulary=300, window=4, n_components=4, max_words=4096)
POINTS = PointSettings(features="rbf", size=40, width=0.3, neighbours=5, n_components=4)
KILLED = {
    "s3c": "round-2",
    "sparse": "round-2",
    "smt, s3c": "statistics",
    "video": "dictionary-2",
    "layers": "dictionary-2",
    "words": "vocabulary",
    "points": "statistics",
}
"""Fits, and the pass in which a worker of each dies."""


@pytest.fixture(scope="module", params=KILLED)
def case(request, tmp_path_factory):
    """A fit as a function of an engine, what it gives in this process, and where a worker dies."""
    folder = tmp_path_factory.mktemp("coders")
    stored, clips = stored_images(folder), open_clips(make_clips(folder / "clips.h5"))
    text, table = TextSource.open(write_text(folder)), np.load(write_table(folder))
    lower = cache(lambda: plain(fits["video"]))
    fits = {
        "s3c": lambda engine: fit_coder(PatchCoder, stored, S3CSettings(**CODER), engine)[0],
        "sparse": lambda engine: fit_coder(
            SparseCoder, stored, SparseSettings(**CODER, penalty=0.5), engine
        )[0],
        "smt, s3c": lambda engine: fit_coded(stored, coded_settings("s3c", **CODED), engine)[0],
        "video": lambda engine: fit_video(clips, LOWER, engine)[0],
        "layers": lambda engine: fit_video(clips, UPPER, engine, lower())[0],
        "words": lambda engine: fit_words(text, WORDS, engine)[0],
        "points": lambda engine: PointModel.fit(table, POINTS, engine)[0],
    }
    fit = fits[request.param]
    return fit, bits(plain(fit), folder), KILLED[request.param]


def bits(model, folder):
    store.save(model, folder / "m.h5", overwrite=True)
    return arrays(folder / "m.h5")


@pytest.mark.slow
@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_killed_worker_changes_nothing(checkpointed, case, tmp_path):
    fit, want, during = case
    found = with_a_killed_worker(fit, during, tmp_path / "c" if checkpointed else None)
    same(bits(found, tmp_path), want)
