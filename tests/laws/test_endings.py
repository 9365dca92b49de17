"""Every public estimator whose fit iterates says how that ended, and warns in one sentence where it had not converged."""

import warnings

import numpy as np
import pytest
import scipy.sparse
from every_kind import ESTIMATORS
from sklearn.exceptions import ConvergenceWarning

import smtdist
from examples.word_rivals import GloveSettings, glove
from smtdist.evaluate import kernel_ridge
from smtdist.evaluate.sum_head import SumHead
from smtdist.models.row_estimator import SumEstimator
from smtdist.solve import conjugate

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (40, 8, 8), dtype=np.uint8)
ROWS = RNG.normal(size=(60, 4))
FRAMES = RNG.integers(0, 256, (24, 12, 12), dtype=np.uint8)
SMALL = {"patch": 3, "dictionary": 12, "n_components": 4}
VIDEO = {"patch": 4, "length": 4, "places": 4, "atoms": 12, "batch": 100, "n_components": 3}
KERNEL = {"n_components": 2, "noise": 0.5}


def in_rounds(cls, data=IMAGES, setting=None, enough=20, few=2, **asked):
    """Return a fit in few rounds, or in enough; `setting` is a parameter, else one of `settings`."""

    def fit(short):
        rounds = few if short else enough
        more = {setting: rounds} if setting else {"settings": {"rounds": rounds}}
        return cls(**asked, **more).fit(data)

    return fit


def of_concepts(short):
    asked = {"method": "hopfield", "sweeps": 1, "temperature": 0.0} if short else {}
    return smtdist.BinaryConcepts(n_concepts=4, n_init=1, exchanges=0, **asked).fit(ROWS)


ITERATED = {
    "SMT": in_rounds(
        smtdist.SMT, IMAGES[:6], "dictionary_rounds", 500, **SMALL, feature="vq", dictionary_method="kmeans"
    ),
    "SMT of a learned code": in_rounds(smtdist.SMT, **SMALL, feature="l1"),
    "SMT of spike-and-slab codes": in_rounds(smtdist.SMT, **SMALL, feature="s3c"),
    "SparseCoding": in_rounds(smtdist.SparseCoding, setting="rounds", n_atoms=16, patch=3, pooling=(2,)),
    "SpikeSlabCoder": in_rounds(
        smtdist.SpikeSlabCoder, setting="rounds", n_atoms=16, patch=3, pooling=(2,)
    ),
    "VideoSMT": in_rounds(smtdist.VideoSMT, FRAMES, "rounds", **VIDEO),
    "VideoSMT by mini-batches": in_rounds(smtdist.VideoSMT, FRAMES, "sgd_rounds", few=1, enough=3, **VIDEO),
    "SpectralContrastiveKernel": in_rounds(
        smtdist.SpectralContrastiveKernel, ROWS, "max_iterations", 1000, **KERNEL
    ),
    "KernelAutoencoder": in_rounds(
        smtdist.KernelAutoencoder, ROWS, "max_iterations", 1000, n_components=2, n_init=1
    ),
    "BinaryConcepts": of_concepts,
    "KernelHead": lambda short: smtdist.KernelHead().fit(ROWS, np.arange(60) % 3),
}
AT_ONCE = {"ContrastiveKernel", "PointSMT", "WordSMT"}
"""Solved by decompositions, which raise an error where they fail; so is what follows from sums alone."""


def test_every_public_estimator_is_here():
    found = {name for name, one in ESTIMATORS.items() if not issubclass(one, (SumEstimator, SumHead))}
    here = {name.split()[0] for name in ITERATED} | AT_ONCE
    assert here == found, "add a fit to ITERATED of tests/laws/test_endings.py, or the name to AT_ONCE"


@pytest.mark.parametrize("name", ITERATED)
def test_a_fit_says_how_its_iterations_ended(name, monkeypatch):
    if name == "KernelHead":  # as with more than 4,096 rows
        monkeypatch.setitem(kernel_ridge.fit_kernel_ridge.__kwdefaults__, "direct", 10)
    with monkeypatch.context() as short:
        short.setattr("smtdist.concepts.settings.SETTLING", 1)
        short.setitem(conjugate.solve.__kwdefaults__, "most", 1)
        with pytest.warns(ConvergenceWarning, match=r"^[^.;]*(\.\d[^.;]*)*; raise [^.;]*\.$") as told:
            fitted = ITERATED[name](True)
    assert len([one for one in told if issubclass(one.category, ConvergenceWarning)]) == 1
    assert told[0].filename == __file__  # the line that fits
    assert fitted.n_iter_ >= 1
    assert not fitted.converged_
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = ITERATED[name](False)
    assert fitted.n_iter_ >= 1
    assert fitted.converged_


def test_glove_says_how_its_sweeps_ended():
    counts = np.random.default_rng(0).integers(0, 50, (12, 12))
    near = scipy.sparse.csr_array(counts + counts.T)
    with pytest.warns(ConvergenceWarning, match=r"tenth of 2 rounds; raise sweeps\.$"):
        assert not glove(near, GloveSettings(n_components=2, sweeps=2)).ending.converged
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert glove(near, GloveSettings(n_components=2, sweeps=1000)).ending.converged
