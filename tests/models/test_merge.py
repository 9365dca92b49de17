"""Sums add and subtract, bit for bit, and say no where that would have no meaning."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from coded import same_statistics
from executors import engine
from hypothesis import given
from hypothesis import strategies as st

from smtdist.data.array import as_source
from smtdist.errors import ConfigurationError, DataError, ModelError
from smtdist.models.fit import fit
from smtdist.models.merge import merged, refit, update
from smtdist.models.store import load
from smtdist.statistics.origin import _without
from tests import kinds_of_sums
from tests.kinds_of_sums import IMAGES

BASE = kinds_of_sums.BASE.replace(dictionary=12)
SETTINGS = {
    name: kinds_of_sums.SETTINGS[name].replace(dictionary=12)
    for name in ("gq", "gq-complete", "gq-window", "gq-second", "gq-drawn", "vq")
}
SETTINGS["vq-kmeans"] = BASE.replace(
    feature="vq", mean="patch", dictionary_method="kmeans", dictionary_rounds=2, drop=1
)
FIXTURES = Path(__file__).parents[1] / "fixtures"


def fitted(images, configuration, base=None):
    return fit(as_source(images), configuration, engine(), base=base)[0]


@pytest.fixture(scope="module", params=SETTINGS)
def base(request):
    """A model of the first 20 images, which supply all atoms."""
    return fitted(IMAGES[:20], SETTINGS[request.param])


def sums_of(images, base):
    return base.summed(as_source(images), engine())[0]


def part_of(images, base):
    """A model of other images with the whitening and dictionary of `base`; it need not be solved to be merged."""
    return base.finished(sums_of(images, base), None)


_models = {}


def model_of(name):
    if name not in _models:
        _models[name] = fitted(IMAGES[:20], SETTINGS[name])
    return _models[name]


def test_samples_that_supplied_atoms_cannot_be_withdrawn(base):
    whole = part_of(IMAGES, base)
    if base.settings.dictionary_method == "kmeans":
        assert len(base.dictionary.samples) == 0  # centroids are sums over many samples
        same_statistics(whole.statistics - sums_of(IMAGES[:20], base), sums_of(IMAGES[20:], base))
        return
    supplier = int(base.dictionary.source_sample[4])
    one = IMAGES[supplier : supplier + 1]
    with pytest.raises(ModelError, match=r"1 of the samples to withdraw supplied atoms.*fit again without"):
        whole.statistics - sums_of(one, base)
    # a sample that is in twice leaves one behind, which still supplies the atom
    twice, _ = update(whole, as_source(one), engine(), repeats=True)
    assert (twice.statistics - sums_of(one, base)).n_samples == 80


def test_sums_say_no():
    base, other = model_of("gq"), model_of("gq-window")
    part = sums_of(IMAGES[30:40], base)
    with pytest.raises(ModelError, match="10 of the 10 samples to withdraw are not in the sums"):
        base.statistics - part
    with pytest.raises(
        ModelError, match="10 of 10 samples are in the sums already, so they would count twice"
    ):
        base.statistics + sums_of(IMAGES[5:15], base)
    with pytest.raises(ModelError, match="another whitening, dictionary, patch or code"):
        base.statistics + other.statistics
    with pytest.raises(ModelError, match=r"another\.h5: The sums were made with another whitening"):
        merged(("base.h5", base), [("another.h5", other)])
    with pytest.raises(ModelError, match=r"another\.h5 keeps no statistics"):
        merged(("base.h5", base), [("another.h5", replace(base, statistics=None))])
    with pytest.raises(ModelError, match="images and patches of"):
        merged(("base.h5", base), [("o", fitted(IMAGES[:, :6], SETTINGS["gq"]))])
    kmeans = model_of("vq-kmeans")
    with pytest.raises(ModelError, match="Nothing is left"):
        update(kmeans, as_source(IMAGES[:20]), engine(), withdraw=True)
    with pytest.raises(DataError, match="give images like those"):
        update(base, as_source(IMAGES[:, :6]), engine())


def test_a_few_samples_may_be_in_twice():
    base = model_of("gq")
    data = np.concatenate([IMAGES[19:20], IMAGES[20:59]])
    total = base.statistics + sums_of(data, base)
    assert total.n_samples == 60
    same_statistics(total - sums_of(data, base), base.statistics)


@given(st.lists(st.integers(1, 6), max_size=30), st.lists(st.integers(1, 8), max_size=12))
def test_removing_hashes_keeps_order_and_takes_those_that_lie_together_or_last(samples, removed):
    runs = [at for at in range(len(samples)) if samples[at : at + len(removed)] == removed != []]
    left, budget = [], Counter(removed)
    for sample in samples[::-1]:
        if budget[sample]:
            budget[sample] -= 1
        else:
            left.insert(0, sample)
    if runs:
        left = samples[: runs[-1]] + samples[runs[-1] + len(removed) :]
    got = _without(np.array(samples, np.uint64), np.array(removed, np.uint64))
    assert got.tolist() == left


def test_withdrawing_a_sample_that_is_in_twice_leaves_the_file_of_the_rest():
    """Whichever part goes, hashes stand as in a fit of what is left."""
    base = model_of("gq")
    parts = [IMAGES[20:40], np.concatenate([IMAGES[40:50], IMAGES[25:26]]), IMAGES[50:60]]
    every = sums_of(np.concatenate([IMAGES[:20], *parts]), base)
    for number, part in enumerate(parts):
        rest = sums_of(np.concatenate([IMAGES[:20], *parts[:number], *parts[number + 1 :]]), base)
        same_statistics(every - sums_of(part, base), rest)
        assert (every - sums_of(part, base)).origin.fingerprint == rest.origin.fingerprint


def test_a_refit_is_the_fit_with_those_settings(base, tmp_path):
    changes = {"n_components": 4, "drop": 2, "pool_size": 3}
    again = refit(base, **changes)
    want = fitted(IMAGES[:20], base.settings.replace(**changes), base)
    np.testing.assert_array_equal(again.embedding.components, want.embedding.components)
    assert again.settings == want.settings
    assert again.provenance == want.provenance
    with pytest.raises(ConfigurationError, match="The setting threshold is fixed once samples are summed"):
        refit(base, threshold=0.5)


@pytest.mark.parametrize("name", ["vq", "gq", "second"])
def test_models_of_the_first_schema_stay_readable(name):
    from smtdist.models.transform import transform

    model = load(FIXTURES / f"model-schema-1-{name}.h5")
    images = np.random.default_rng(3).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    want = np.load(FIXTURES / f"model-schema-1-{name}.npy")
    ((_, z),) = transform(model, as_source(images[:4]), engine())
    np.testing.assert_allclose(z.reshape(want.shape), want, atol=1e-6)
    # its settings and sums are those of a fit today
    today = fitted(images, model.settings)
    for part in ("second_moment", "context_scatter", "cooccurrence"):
        np.testing.assert_array_equal(getattr(model.statistics, part), getattr(today.statistics, part))
    assert refit(model, n_components=3).embedding.rank == model.embedding.rank
    with pytest.raises(ModelError, match="do not name their samples"):
        model.statistics + today.statistics
