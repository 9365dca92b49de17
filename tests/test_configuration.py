"""Settings: each is checked, in a sentence, before anything is read."""

import pytest

from smtdist.configuration import (
    FIELDS,
    PRESET_NOTES,
    PRESETS,
    Configuration,
    parse_settings,
    preset,
    preset_lines,
)
from smtdist.errors import ConfigurationError
from smtdist.models.image_jobs import learned_code

BAD = {
    "patch_size": [0, 2.0, "6", True], "code": ["xx", 1], "threshold": [0, 1.5, "x"], "context_size": [0, "half", 1.5, True],
    "difference_order": [3, "1", True], "subtract_mean": ["median"], "mean_context": [0, "half"],
    "whitening_reg": [0, -1, "x", float("inf"), float("nan")], "min_contrast": [-1, "x"], "whitening_covariance": ["all", 1],
    "constant_patch": ["drop"], "zero_code": [None], "n_atoms": [0, 65537], "dictionary_method": ["best"],
    "dictionary_cosine": [-1, 2], "dictionary_rounds": [0], "dictionary_n_init": [0],
    "dictionary_samples": [-1], "augment_flip": ["yes", 1], "to_grayscale": [None], "resize": [0, "x"],
    "center_crop": [0], "channels": [2, True], "patch_stride": [0], "positions": [-1, 1.5],
    "second_moment": ["third"], "n_components": [0], "drop_components": [-1], "pool_size": [0],
    "pool_stride": [0], "dtype": ["float64"], "pixel_range": [(1, 0), (0, 1, 2), "x"],
    "null_tolerance": [0, 1, "x"], "keep_statistics": ["no"], "dictionary_mirrored": [1],
    "n_neighbors": [0, 1.5], "temperature": [0, "x", float("inf")], "vote": ["soft"], "mirrored_votes": [1],
    "random_state": [-1, 2**63, 1.5],
}  # fmt: skip


def test_every_setting_has_a_rule_and_a_bad_value():
    assert set(FIELDS) == set(BAD)


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in BAD.items() for value in values]
)
def test_bad_values_are_named(name, value):
    with pytest.raises(ConfigurationError, match=f"^{name} is .*; it must be "):
        Configuration(**{name: value})


@pytest.mark.parametrize("name", PRESETS)
def test_presets_survive_json(name):
    settings = preset(name)
    assert Configuration.from_json(settings.to_json()) == settings
    assert Configuration.from_json(settings.to_json()).digest() == settings.digest()
    assert settings.replace(seed=1).digest() != settings.digest()


def test_every_preset_says_what_it_changes():
    assert PRESET_NOTES.keys() == preset_lines().keys()
    for name, note in PRESET_NOTES.items():
        assert note.startswith("As SMT 2023 prints it") == name.startswith("paper-")


def test_values_have_other_words():
    given = Configuration(code="nearest", second_moment="raw", positions=0)
    assert given == Configuration(code="vq")
    assert given.digest() == Configuration(code="vq").digest()
    assert Configuration(code="threshold") == Configuration()
    assert learned_code({"code": "nearest"}) == ""


def test_json_lists_become_ranges():
    settings = Configuration(pixel_range=(-1.0, 1.0))
    assert Configuration.from_json(settings.to_json()).pixel_range == (-1.0, 1.0)


def parse_setting(text):
    """The setting's own name, with its value."""
    ((name, value),) = Configuration.named(parse_settings([text])).items()
    return name, value


@pytest.mark.parametrize(("name", "default"), Configuration.defaults().items())
def test_a_default_can_be_given_as_the_pages_print_it(name, default):
    assert parse_setting(f"{name}={default}") == (name, default)


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(
        ConfigurationError,
        match=r"no setting 'contxt' of a transform of images; did you mean context\?$",
    ):
        parse_setting("contxt=3")
    with pytest.raises(
        ConfigurationError,
        match=r"no setting .zzz. of a transform of images; there are .* and others",
    ):
        parse_setting("zzz=3")
    with pytest.raises(ConfigurationError, match="takes key=value"):
        parse_setting("context")
    with pytest.raises(ConfigurationError, match="no preset 'mnist'"):
        preset("mnist")


def test_numbers_are_read_as_people_write_them():
    assert parse_setting("threshold=.25") == ("threshold", 0.25)
    assert parse_setting("ridge=1e-3") == ("whitening_reg", 0.001)
    assert parse_setting("ridge=1.") == ("whitening_reg", 1.0)
    for text in ("0,4095", "0, 4095", "(0,4095)", "[0, 4095]"):
        assert Configuration(**dict([parse_setting(f"pixel_range={text}")])).pixel_range == (0, 4095)
    assert parse_setting("pixel_range=-.5,1.") == ("pixel_range", [-0.5, 1.0])
    for text in ("0:4095", "4095", "4095,0", "0,x", "0,1,2"):
        with pytest.raises(ConfigurationError, match="two numbers, black before white, as in 0,4095"):
            Configuration(**dict([parse_setting(f"pixel_range={text}")]))
    assert parse_setting("context=whole") == ("context_size", "whole")
    assert parse_setting("context=inf") == ("context_size", "inf")
