"""Hidden entries tell how many concepts there are."""

import numpy as np
import pytest
from data_sets import embedded, independent

from examples.concept_imputation import Imputed, cross_validate, impute, parsimonious
from smtdist.concepts.settings import ConceptSettings
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError

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


def test_seen_entries_stay(table):
    hidden = np.zeros(table.shape, bool)
    hidden[3, 5] = True
    filled = impute(table, SETTINGS.replace(n_concepts=4), Engine(SerialExecutor()), hidden, rounds=1)
    np.testing.assert_array_equal(filled[~hidden], table[~hidden])
    assert abs(filled[3, 5] - table[3, 5]) < abs(table[:, 5].mean() - table[3, 5]) + 0.2


def test_the_parsimonious_choice_is_within_one_standard_error():
    results = [
        Imputed(8, 0.0, (0.1, 0.2)),
        Imputed(4, 0.1, (0.19, 0.19)),
        Imputed(4, 0.3, (0.18, 0.2)),
        Imputed(2, 0, (1, 1)),
    ]
    assert parsimonious(results) == results[2]
    with pytest.raises(ConfigurationError, match="share 2"):
        cross_validate(
            np.eye(3), SETTINGS, Engine(SerialExecutor()), n_concepts=[1], penalties=[0.0], share=2
        )
