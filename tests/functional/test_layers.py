"""Layers on layers: what goes up comes down, streamed; the same bits; reconstruction per layer beside PCA."""

import numpy as np
import pytest
from executors import engine
from functional_clips import SMALL, make_clips

from examples.video_dictionary import atom_lengths, fit_layers, interpolated, judged_layers
from smtdist.data.video import open_clips
from smtdist.models import store
from smtdist.models.functional.inference import recover_codes
from smtdist.models.functional.video import fit_video
from smtdist.report.facts import facts_of, looks_of

UPPER = SMALL.replace(atoms=24, n_components=6, penalty=0.15)
TOP = SMALL.replace(atoms=16, n_components=5, penalty=0.1)


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    return open_clips(make_clips(tmp_path_factory.mktemp("layers") / "clips.h5"))


@pytest.fixture(scope="module")
def stack(clips):
    return fit_layers(clips, [SMALL, UPPER, TOP], engine())[0]


@pytest.fixture(scope="module")
def rows(stack, clips):
    source = stack.sequences(clips)
    with source.opened() as reader:
        return reader.read(0, 30)[:, 1].astype(np.float64)


def test_a_layer_codes_what_the_one_below_embeds(stack, rows):
    first, second, third = stack.layers
    assert third is stack
    assert [layer.components.shape for layer in stack.layers] == [(8, 40), (6, 24), (5, 16)]
    beta = first.codes(rows) @ first.components.T
    centred = (beta - second.whitening.mean) @ second.whitening.whiten
    upper = second.codes(rows)
    slope = (centred - upper @ second.coder.dictionary.T) @ second.coder.dictionary
    assert slope.max() < 0.15 + 0.05  # optimal: no atom pulls by more than the penalty
    np.testing.assert_allclose(stack.embed(rows), third.codes(rows) @ third.components.T)


def test_the_way_back_is_the_printed_chain(stack, rows):
    first, second, _ = stack.layers
    codes = second.codes(rows[:5])
    beta = second.whitening.back(second.gain * codes @ second.coder.dictionary.T)
    lower = recover_codes(first.components, beta)
    by_hand = (
        first.gain * (lower @ first.coder.dictionary.T) @ first.whitening.unwhiten + first.whitening.mean
    )
    np.testing.assert_allclose(second.decode(codes), by_hand, atol=1e-6)
    found = judged_layers(stack, rows)
    snrs = [one["codes"] for one in found["reconstruction"]]
    assert len(snrs) == 3
    assert snrs[0] > max(snrs[1:])
    assert all(
        one["PCA"] <= one["PCA of the components"] + 1e-9 or one["active"] > 5
        for one in found["reconstruction"]
    )
    assert len(atom_lengths(stack)) == 3


def test_interpolation_between_atoms_starts_and_ends_at_them(stack):
    found = interpolated(stack, 0, 3)
    np.testing.assert_allclose(found["mean"], (found["first"] + found["second"]) / 2)
    same = interpolated(stack, 2, 2)
    assert found["between"].shape == (6, 6)
    np.testing.assert_allclose(same["first"], same["second"])


def test_a_file_holds_every_layer(stack, tmp_path):
    store.save(stack, tmp_path / "stack.h5")
    read = store.load(tmp_path / "stack.h5")
    assert [layer.settings for layer in read.layers] == [layer.settings for layer in stack.layers]
    codes = np.eye(16)[:4]
    np.testing.assert_array_equal(read.decode(codes), stack.decode(codes))
    facts = facts_of(tmp_path / "stack.h5")
    assert facts["kind"] == "video"
    assert [layer["n_atoms"] for layer in facts["layers"]] == [
        one.components.shape[1] for one in stack.layers
    ]
    told = [name for name, _ in looks_of("video").readable(facts)]
    assert told == [f"{what} {number}" for number in (1, 2, 3) for what in ("layer", "dictionary")]


def test_a_layer_takes_over_how_patches_are_cut(clips, stack):
    lower = stack.layers[0]
    upper, _ = fit_video(clips, UPPER.replace(patch=9, length=6, rounds=1), engine(), lower)
    assert (upper.settings.patch_size, upper.settings.length) == (6, 4)
