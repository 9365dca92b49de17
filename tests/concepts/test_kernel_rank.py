"""A search for the kernel of the leading components alone."""

import numpy as np
import pytest
import reference_concepts as oracle
from data_sets import embedded, independent
from executors import LossyExecutor, ThreadsExecutor

from smtdist.concepts.fit import fit_concepts
from smtdist.concepts.scores import leading, prepare
from smtdist.concepts.settings import ConceptSettings
from smtdist.data.table import read_rows
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError


def noisy(seed, p=48, b=7, snr=0):
    rng = np.random.default_rng(seed)
    S = independent(rng, p, b)
    return S, embedded(rng, S, p, snr)


def settings_for(b, **changes):
    shared = ConceptSettings(method="hopfield", n_concepts=b, penalty=0.0, temperature=0.05, sweeps=60)
    return shared.replace(**changes)


def test_leading_scores_are_those_of_the_nearest_kernel_of_their_rank(engine, tmp_path, monkeypatch):
    _, X = noisy(0)
    scores = prepare(X, engine)
    few = leading(scores, 5, engine)
    assert (few.rank, few.points) == (5, 48)
    centred = X - X.mean(0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    rows = read_rows(few.source) / few.grid
    np.testing.assert_allclose(rows @ rows.T, (u[:, :5] * s[:5] ** 2) @ u[:, :5].T, atol=1e-5)
    np.testing.assert_array_equal(read_rows(few.source), read_rows(scores.source)[:, :5])
    monkeypatch.setattr("smtdist.concepts.scores.IN_MEMORY", 0)
    written = leading(scores, 5, engine, folder=tmp_path)
    np.testing.assert_array_equal(read_rows(written.source), read_rows(few.source))
    assert (tmp_path / "leading.npy").exists()
    for rank in (None, scores.rank, scores.rank + 1):
        assert leading(scores, rank, engine) is scores
    with pytest.raises(ConfigurationError, match="name a folder"):
        leading(scores, 5, engine)


@pytest.mark.parametrize("method", ["hopfield", "hybrid"])
def test_the_search_sees_the_leading_components_and_the_model_all_of_them(engine, method):
    S, X = noisy(1)
    b = S.shape[1]
    centred = X - X.mean(0)
    u, s, vt = np.linalg.svd(centred, full_matrices=False)
    cut = (u[:, :b] * s[:b]) @ vt[:b]
    settings = settings_for(b, method=method)
    found = fit_concepts(X, settings.replace(kernel_rank=b), engine)
    np.testing.assert_array_equal(found.concepts, fit_concepts(cut, settings, engine).concepts)
    assert (found.concepts != fit_concepts(X, settings, engine).concepts).any()
    assert found.cka == pytest.approx(oracle.cka(found.concepts.astype(float), X, found.weights), abs=1e-6)


def test_concepts_in_much_noise_are_nearer_to_the_truth(engine):
    distances = {None: [], 7: []}
    for seed in range(12):
        S, X = noisy(seed, snr=2)
        for rank, found in distances.items():
            settings = settings_for(
                7, kernel_rank=rank, seed=seed, **ConceptSettings.EARLIER, weights="scale"
            )
            T = fit_concepts(X, settings, engine).concepts
            found.append(oracle.hamming_after_matching(S, T))
    assert np.mean(distances[7]) < 0.95 * np.mean(distances[None])


def test_it_is_the_same_on_any_workers(engine):
    S, X = noisy(3, p=600)
    settings = settings_for(S.shape[1], kernel_rank=5, blocks=4, exchanges=2)
    want = fit_concepts(X, settings, engine).concepts
    for executor in (ThreadsExecutor(2), LossyExecutor(3)):
        np.testing.assert_array_equal(fit_concepts(X, settings, Engine(executor)).concepts, want)


def test_a_rank_of_nothing_is_refused():
    with pytest.raises(ConfigurationError, match="kernel_rank is 0"):
        ConceptSettings(kernel_rank=0)
