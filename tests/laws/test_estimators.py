"""Every estimator: its parameters are declared settings, and behave as scikit-learn expects them to."""

import difflib
import inspect
import pickle

import numpy as np
import pandas as pd
import pytest
from every_kind import ESTIMATORS
from sklearn.base import clone

import smtdist
from smtdist.errors import ConfigurationError, DataError
from smtdist.models.estimating import Estimator

EACH = pytest.mark.parametrize("kind", ESTIMATORS.values())


@EACH
def test_parameters_are_settings_with_their_defaults(kind):
    assert issubclass(kind, Estimator)
    made, settings = kind(), kind.SETTINGS
    assert made.get_params() == kind.DEFAULTS
    assert list(inspect.signature(kind).parameters) == list(kind.PARAMETERS)
    assert not vars(made).keys() ^ kind.PARAMETERS.keys()
    usual = settings.defaults()
    own = {name: value for name, value in made.given().items() if value != usual[name]}
    assert made.configuration == settings(
        **own | ({"model": made._model} if hasattr(made, "_model") else {})
    )
    assert "workers" not in made.configuration.to_json()
    for name, field in kind.PARAMETERS.items():
        assert f"\n{name} : {field.metadata['setting'].meaning}" in kind.__doc__, name


@EACH
def test_parameters_are_kept_as_they_are_given(kind):
    for name, value in kind.DEFAULTS.items():
        given = np.float64(value) if type(value) in (int, float) else [value]
        made = kind(**{name: given})
        assert getattr(made, name) is given
        assert clone(made).get_params() == made.get_params() == kind.DEFAULTS | {name: given}
        assert clone(kind()).set_params(**{name: given}).get_params() == made.get_params()
        assert pickle.loads(pickle.dumps(made)).get_params() == made.get_params()
        assert name in repr(made)
    assert len(pickle.dumps(kind())) < 2500


@EACH
def test_another_name_is_the_same_parameter(kind):
    for name, field in kind.PARAMETERS.items():
        for alias in set(field.metadata["setting"].aliases) - kind.PARAMETERS.keys():
            assert kind(**{alias: 3}).get_params() == kind().set_params(**{alias: 3}).get_params()
            assert getattr(kind(**{alias: 3}), name) == 3
            with pytest.raises(ConfigurationError, match=f"{name} is given twice"):
                kind(**{alias: 3, name: 3})


@EACH
def test_an_unknown_name_is_one_sentence(kind):
    name = list(kind.PARAMETERS)[3]
    near = difflib.get_close_matches(f"{name}x", kind.PARAMETERS, n=1)[0]
    for ask in (lambda **given: kind(**given), kind().set_params):
        with pytest.raises(
            ValueError, match=rf"^There is no setting '{name}x' of {kind.__name__}; did you mean {near}"
        ):
            ask(**{f"{name}x": 1})
    with pytest.raises(TypeError, match=f"^{kind.__name__} takes"):
        kind(1, 2)


@EACH
def test_a_wrong_value_is_named_in_a_fit(kind):
    rows = np.random.default_rng(0).integers(0, 256, (24, 8, 8), dtype=np.uint8)
    if kind.__name__ not in ("SMT", "SparseCoding", "SpikeSlabCoder", "VideoSMT"):
        rows = rows.reshape(24, -1)
    wrong = [None, np.random.RandomState(0), -1, True, 0.5] if "random_state" in kind.PARAMETERS else []
    for value in wrong:
        with pytest.raises(ConfigurationError, match=r"^random_state is .*be a whole number from 0 on"):
            kind(random_state=value).fit(rows, np.arange(24) % 3)
    if kind not in (smtdist.WordSMT, smtdist.VideoSMT):  # files and frames are no samples
        with pytest.raises((ConfigurationError, DataError), match=r"24 (samples|rows),? and .*23 labels"):
            kind().fit(rows, np.arange(23) % 3)
    first = next(iter(kind.SETTINGS.declared().keys() & kind.PARAMETERS.keys() - {"kernel"}))
    with pytest.raises(ConfigurationError, match=f"^{first} is .*; it must be "):
        _ = kind(**{first: object()}).configuration


@EACH
def test_a_column_of_text_is_named(kind):
    table = pd.DataFrame({"length": np.arange(40.0), "kind": ["oak", "elm"] * 20})
    with pytest.raises(
        DataError, match=r"column 'kind' of the table holds str, not numbers|no file|does not exist"
    ):
        kind().fit(table, np.arange(40) % 2)
