"""Hidden entries tell how many concepts there are."""

import numpy as np
import pytest
from data_sets import embedded, independent

from examples.concept_imputation import cross_validate, parsimonious
from smtdist.concepts.settings import ConceptSettings
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine

SETTINGS = ConceptSettings(candidates=64, rounds=1, sweeps=20, penalty=0.0, weights="concept")


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    return embedded(rng, independent(rng, 120, 4), 12, 15)


def test_too_few_concepts_predict_hidden_entries_worse(table):
    engine = Engine(SerialExecutor())
    results = cross_validate(table, SETTINGS, engine, n_concepts=[1, 4], penalties=[0.0], folds=2)
    assert [one.n_concepts for one in results] == [4, 1]
    assert results[0].mean < 0.3 < results[1].mean < 1
    assert parsimonious(results).n_concepts == 4
    again = cross_validate(table, SETTINGS, engine, n_concepts=[1, 4], penalties=[0.0], folds=2)
    assert again == results
