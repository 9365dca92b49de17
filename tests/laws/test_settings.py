"""What holds for the settings of every kind of model, because it follows from how they are declared."""

import dataclasses
import importlib
import pickle
import pkgutil
import re

import numpy as np
import pytest

import smtdist
from smtdist.errors import ConfigurationError
from smtdist.settings import ANYTHING, Settings, described


def every_kind():
    """Return all classes of settings in the package."""
    for module in pkgutil.walk_packages(smtdist.__path__, "smtdist."):
        if not module.name.endswith(("__main__", "cli")):
            importlib.import_module(module.name)
    waiting, found = [Settings], []
    while waiting:
        for kind in waiting.pop().__subclasses__():
            waiting.append(kind)
            if kind.__module__.startswith("smtdist.") and kind.declared():
                found.append(kind)
    return sorted(found, key=lambda kind: kind.__qualname__)


KINDS = pytest.mark.parametrize("kind", every_kind(), ids=lambda kind: kind.__name__)
STRANGE = ("\0", object(), float("nan"), b"x", {1}, -(2**70), complex(1))
"""What no rule of a number, a word or a flag accepts; of a table or a name it does not matter."""


def test_there_are_all_kinds():
    assert len(every_kind()) >= 17


@KINDS
def test_settings_survive_json_pickle_and_replace(kind):
    settings = kind()
    assert kind.from_json(settings.to_json()) == settings
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert settings.replace() == settings
    assert dataclasses.replace(settings) == settings
    assert hash(settings.replace()) == hash(settings)
    assert repr(settings) == f"{kind.__name__}()"
    assert kind(**settings.to_dict()) == settings
    assert len(pickle.dumps(settings)) < 4096


@KINDS
def test_an_unknown_name_is_one_sentence_with_the_nearest(kind):
    name = next(iter(kind.declared()))
    with pytest.raises(
        ConfigurationError, match=rf"^There is no setting '{name}x' of {kind.OF}; did you mean"
    ):
        kind(**{f"{name}x": 1})
    with pytest.raises(ConfigurationError, match=rf"^There is no setting 'qqqq' of {kind.OF}; there are "):
        kind().replace(qqqq=1)
    with pytest.raises(
        ConfigurationError, match=rf"^There is no setting '{name}x'|^These are not settings"
    ):
        kind.from_json(f'{{"{name}x": 1}}')
    with pytest.raises(ConfigurationError, match=f"^These are not settings of {kind.OF} "):
        kind.from_json("nonsense")


@KINDS
def test_a_wrong_value_is_one_sentence_with_what_it_must_be(kind):
    for name, field in kind.declared().items():
        rule = field.metadata["setting"].rule
        refused = [value for value in STRANGE if not rule.accepts(rule.plain(value))]
        assert refused or rule is ANYTHING, f"{name} takes anything"
        for value in refused[:3]:
            sentence = f"^{name} is {re.escape(repr(value))}; it must be {re.escape(rule.expected)}.$"
            with pytest.raises(ConfigurationError, match=sentence):
                kind(**{name: value})


@KINDS
def test_numbers_of_numpy_and_lists_are_as_good_as_pythons(kind):
    for name, value in kind().to_dict().items():
        if isinstance(value, bool | int | float):
            assert kind(**{name: np.asarray(value)[()]}) == kind(**{name: value}) == kind()
        if isinstance(value, list):
            assert kind(**{name: value}) == kind(**{name: tuple(value)}) == kind()


@KINDS
def test_settings_do_not_change(kind):
    settings, name = kind(), next(iter(kind.declared()))
    with pytest.raises(dataclasses.FrozenInstanceError, match=f"{name} cannot be set.*replace"):
        setattr(settings, name, getattr(settings, name))


@KINDS
def test_every_setting_says_what_it_means(kind):
    for name, told in described(kind.declared()).items():
        assert len(told["meaning"].split()) > 1, name
        assert told["meaning"].endswith("."), name
        assert f"\n{name} : {told['meaning']}" in kind.__doc__
