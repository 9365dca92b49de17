"""The search ends no higher than it began, at the optimum of small problems, and says how it ended."""

import dataclasses
import re

import numpy as np
import pytest
import reference
from data_sets import independent
from reference_concepts import kernel_loss
from sklearn.exceptions import ConvergenceWarning

from replication.concepts import optimum
from smtdist.concepts.estimator import BinaryConcepts
from smtdist.concepts.scores import rank_above_noise
from smtdist.concepts.settings import ConceptSettings
from smtdist.models import store


def test_the_oracle_is_the_best_of_all_choices():
    X = np.random.default_rng(0).normal(size=(5, 3))
    sides = [np.array([i >> k & 1 for k in range(5)]) for i in range(1, 16)]
    pairs = [np.stack([a, b], 1) for a in sides for b in sides]
    assert reference.best_concepts(X, 2)[1] == pytest.approx(
        min(reference.concept_loss(S, X) for S in pairs), rel=1e-9
    )


@pytest.mark.parametrize("number", range(6))
def test_small_problems_end_at_the_optimum(number):
    rng = np.random.default_rng([3, number])
    X, b = rng.normal(size=(8 + number % 2, 4)), 2 + number % 2
    model, _ = optimum.fitted(X, b)
    assert reference.concept_loss(model.concepts, X) == pytest.approx(
        reference.best_concepts(X, b)[1], rel=1e-6
    )


@pytest.mark.parametrize("ratio", [10, 100])
def test_light_concepts_do_not_melt(ratio):
    true, X = optimum.planted(1, 0.5, ratio, noise=0.05)
    model, _ = optimum.fitted(X, 6, n_init=2, exchanges=8)
    assert optimum.recovered(true, model.concepts) == 6
    assert model.loss <= reference.concept_loss(true, X) + 1e-6


def test_a_search_that_ends_worse_goes_back_to_its_start():
    true, X = optimum.planted(2, 0.5, 30, noise=0.05)
    for penalty, recovered in ((0.0, True), (0.1, False)):
        # with one weight for all, light concepts melt
        model, _ = optimum.fitted(X, 6, weights="scale", penalty=penalty, n_init=1, exchanges=0)
        assert (optimum.recovered(true, model.concepts) == 6) == recovered


@pytest.mark.parametrize("share", [0.5, 0.125])
def test_rejection_takes_its_rank_from_the_spectrum_and_keeps_the_heaviest(share):
    true, X = optimum.planted(0, share, 1, snr=14)
    model, _ = optimum.fitted(X, 6, method="rejection")
    assert model.provenance["sampling"]["rank"] == 6
    assert optimum.recovered(true, model.concepts) == 6
    assert (np.diff(model.weights * model.members * (1 - model.members / 60)) <= 1e-9).all()


def test_the_rank_is_where_values_step_down_to_noise():
    rng = np.random.default_rng(4)
    S = independent(rng, 80, 5)
    clean = S @ rng.normal(size=(5, 24))
    noise = rng.normal(size=clean.shape)

    def rank(X):
        return rank_above_noise(np.linalg.svd(X - X.mean(0), compute_uv=False), *X.shape, 5)

    assert [rank(clean + level * noise) for level in (0.01, 0.1, 0.3)] == [5, 5, 5]
    assert rank(noise) == 24  # nothing but noise: no step
    values = np.linalg.svd(clean - clean.mean(0), compute_uv=False)[:5]
    assert rank_above_noise(values, 80, 24, 5) == 5  # no noise
    assert rank_above_noise(values, 80, 5, 5) == 5  # none that could be told
    assert rank_above_noise(1 / np.arange(1.0, 25), 80, 24, 5) > 20  # a spectrum without a step


def test_how_a_search_ended_is_said_and_kept(tmp_path, monkeypatch):
    X = np.random.default_rng(5).normal(size=(40, 6))
    found = BinaryConcepts(n_concepts=4, n_init=1, exchanges=0, sweeps=5).fit(X)
    assert found.converged_
    assert found.gap_ == 0
    assert found.n_iter_ >= 5
    found.save(tmp_path / "c.h5")
    again = BinaryConcepts.from_file(tmp_path / "c.h5")
    assert (again.n_iter_, again.converged_, again.gap_) == (found.n_iter_, True, 0)
    assert again.model_.summary()["converged"]
    monkeypatch.setattr("smtdist.concepts.settings.SETTLING", 1)
    with pytest.warns(ConvergenceWarning, match=r"had not converged after .* sweeps, .*; raise max_iter\."):
        short = BinaryConcepts(
            n_concepts=4, method="hopfield", n_init=1, exchanges=0, sweeps=1, temperature=0.0
        ).fit(X)
    assert not short.converged_
    assert short.gap_ > 0
    assert re.search(r"the last of which lowered the objective by \d[\d.e+]* %; raise", short.model_.advice)
    unseen = dataclasses.replace(short.model_, ending=dataclasses.replace(short.model_.ending, gap=0.0))
    assert "lowered the objective by too little to be seen; raise max_iter." in unseen.advice
    with pytest.warns(UserWarning, match="align with the data by 0"):
        BinaryConcepts(n_concepts=1, method="rejection").fit(X)


def test_files_of_earlier_versions_keep_their_settings(tmp_path):
    text = ConceptSettings(n_concepts=3).to_json()
    for name in ConceptSettings.EARLIER:
        text = text.replace(
            f', "{name}": {str(getattr(ConceptSettings(), name)).lower().replace("none", "null")}', ""
        )
    older = ConceptSettings.from_json(text)
    assert {name: getattr(older, name) for name in ConceptSettings.EARLIER} == ConceptSettings.EARLIER
    model, _ = optimum.fitted(np.eye(5), 2)
    store.save(dataclasses.replace(model, ending=None, settings=older), tmp_path / "c.h5")
    again = BinaryConcepts.from_file(tmp_path / "c.h5")
    assert not again.weighted_penalty
    assert not hasattr(again, "converged_")


def test_a_member_costs_what_its_concept_weighs():
    X = np.random.default_rng(6).normal(size=(30, 5))
    sizes = [
        optimum.fitted(X, 4, penalty=penalty, method="hopfield", n_init=1, exchanges=0)[0].members.sum()
        for penalty in (0.0, 0.05)
    ]
    assert sizes[1] < sizes[0]


@pytest.mark.parametrize("seed", range(3))
def test_no_flip_lowers_the_loss_where_a_search_has_ended(seed):
    """With the weights kept. Fitted again to each flip, they may gain a little, which the pages say."""
    X = optimum.planted(seed, 0.5, 10, noise=0.2)[1]
    model, _ = optimum.fitted(X, 6, penalty=0.0, n_init=1, exchanges=0)
    assert model.ending.converged
    least = kernel_loss(model.concepts, X, model.weights) * (1 - 1e-9)
    for place in np.ndindex(model.concepts.shape):
        flipped = model.concepts.copy()
        flipped[place] ^= 1
        assert kernel_loss(flipped, X, model.weights) >= least
    assert optimum.best_flip(model.concepts, X) < 1e-3
    model.concepts[0, 0] ^= 1
    assert optimum.best_flip(model.concepts, X) > 1e-3  # it finds the way back
