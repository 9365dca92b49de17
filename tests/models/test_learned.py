"""`SMT` with a learned code: what `fit --set feature=l1` does, the constructor does too."""

import inspect

import numpy as np
import pytest
from sklearn.base import clone

import smtdist
from smtdist import configuration

RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, (60, 8, 8), dtype=np.uint8)
Y = np.arange(60) % 3
SMALL = {"patch": 3, "dictionary": 12, "n_components": 4}


def learned(feature="l1", **changes):
    return smtdist.SMT(**{**SMALL, "settings": {"rounds": 2}, **changes}, feature=feature)


@pytest.fixture(scope="module")
def fitted():
    return learned().fit(X)


def test_every_setting_that_is_documented_is_a_parameter():
    parameters = set(inspect.signature(smtdist.SMT).parameters)
    assert set(configuration.FIELDS) <= parameters
    assert set(smtdist.SMT().get_params()) == parameters


def test_it_is_kept_and_read_again(fitted, tmp_path):
    fitted.save(tmp_path / "l1.h5")
    again = smtdist.SMT.from_file(tmp_path / "l1.h5")
    assert (again.code, again.n_atoms, again.settings["max_iter"]) == ("l1", 12, 2)
    np.testing.assert_array_equal(again.transform(X), fitted.transform(X))
    np.testing.assert_array_equal(clone(again).fit(X).components_, fitted.components_)


def test_a_run_that_was_stopped_goes_on(fitted, tmp_path):
    run = smtdist.start(learned(checkpoint=tmp_path / "c"), X)
    np.testing.assert_array_equal(run.result(60).components_, fitted.components_)
    again = []
    learned(checkpoint=tmp_path / "c", on_event=again.append).fit(X)
    passes = [one for one in again if one["kind"] == "pass_started" and one["n_leaves"]]
    assert all(one["resumed_leaves"] == one["n_leaves"] for one in passes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"threshold": 0.4}, "threshold is no setting of SMT with code"),
        ({"mean": "patch", "neighbours": 5}, "subtract_mean, n_neighbors is no setting"),
        ({"settings": {"nonsense": 1}}, "There is no setting 'nonsense'"),
        ({"atoms": np.zeros((12, 9))}, "atoms are learned"),
        ({"feature": "gq"}, "leave `settings` out"),
        ({"feature": "nonsense", "settings": None}, "code is 'nonsense'"),
    ],
)
def test_what_has_no_meaning_is_refused(changes, said):
    with pytest.raises(smtdist.SmtdistError, match=said):
        learned(**changes).fit(X)
