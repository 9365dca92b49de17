"""Transforms of video: fitting, files, the commands, the same bits from any executor, and what real clips must show."""

import json
from dataclasses import replace

import numpy as np
import pytest
from calling import refused, run, told
from executors import engine
from functional_clips import SMALL, make_clips

from replication.functional.common import rows_of
from smtdist.data.video import open_clips
from smtdist.errors import DataError, ModelError
from smtdist.models import store
from smtdist.models.functional.settings import FunctionalSettings
from smtdist.models.functional.video import fit_video, sequences_of
from smtdist.models.functional.video_judge import judged, pca, principal, snr, straightness
from smtdist.models.merge import refit, update
from smtdist.report.facts import VIDEO
from smtdist.statistics.sites import NEW, Sequences


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return make_clips(tmp_path_factory.mktemp("video") / "clips.h5")


@pytest.fixture(scope="module")
def model(path):
    return fit_video(open_clips(path), SMALL, engine())[0]


def test_mini_batches_say_how_they_ended(path, model, tmp_path):
    local, _ = fit_video(open_clips(path), SMALL.replace(sgd_rounds=2), engine())
    assert not np.array_equal(local.components, model.components)
    assert local.summary()["mini_batches"]["n_iter"] == 2
    store.save(local, tmp_path / "local.h5")
    assert store.load(tmp_path / "local.h5").ending == local.ending
    told = dict(VIDEO.readable(VIDEO.described(tmp_path / "local.h5")))
    assert "in 2 rounds" in told["mini-batches 1"]
    assert "in 3 rounds" in told["dictionary 1"]


def test_what_is_learned_from_turned_windows_too_holds_for_motion_that_was_never_seen(tmp_path):
    across, down = (
        open_clips(make_clips(tmp_path / f"{angle}.h5", angle=angle)) for angle in (0.0, np.pi / 2)
    )
    found = {}
    for views in (1, 8):
        settings = SMALL.replace(views=views, n_components=4)
        fitted, _ = fit_video(across, settings, engine())
        source = fitted.sequences(down)
        assert source.shape[0] == len(source.windows) * SMALL.places  # what is judged is seen as it is
        found[views] = straightness(fitted.embed(rows_of(source)))
    assert found[8].second_difference < 0.2 * found[1].second_difference


def test_settings_that_were_written_before_windows_overlapped():
    old = {name: value for name, value in json.loads(SMALL.to_json()).items() if name != "overlap"}
    assert FunctionalSettings.from_json(json.dumps(old)) == SMALL.replace(overlap=False)


def test_embedding_recovery_and_regularised_inference_fit_together(model, path):
    source = model.sequences(open_clips(path))
    with source.opened() as reader:
        rows = reader.read(0, 20)
    codes = model.codes(rows)
    assert codes.shape == (20, 4, 40)
    np.testing.assert_allclose(model.embed(rows), codes @ model.components.T)
    flat = rows.reshape(-1, 36).astype(np.float64)
    mean = model.whitening.mean
    direct = model.decode(codes.reshape(-1, 40))
    assert snr(flat, direct, mean) > 5
    recovered = []
    for count in (8, 16, 32):  # of 40: the more components, the more of a patch comes back
        more = refit(model, n_components=count)
        recovered.append(snr(flat, more.recover(more.embed(rows).reshape(-1, count), 1e-3), mean))
    assert recovered == sorted(recovered)
    assert recovered[-1] > 0.9 * snr(flat, direct, mean)
    assert np.abs(model.regularised(rows, 0.0) - codes).max() < 0.3  # both within the gap
    found = judged(model, rows)
    assert found["regularised"][1]["embedding"]["bend"] < found["straightness"]["embedding"]["bend"]
    assert set(found["ratios"]) == {
        "pixels",
        "pixels without their mean",
        "whitened pixels",
        "principal components",
        "codes",
        "PCA pooling",
    }
    straight = found["regularised"][1]
    assert straight["ratios"]["codes"]["bend"] == pytest.approx(
        found["straightness"]["codes"]["bend"] / straight["embedding"]["bend"]
    )
    for one in found["reconstruction"].values():  # a coefficient more, and the error of the mean is gone
        assert one["snr_with_mean"] >= one["snr"] - 1e-9
    whitened = found["reconstruction"]["PCA of whitened patches"]["snr"]
    assert found["reconstruction"]["PCA"]["snr"] >= whitened - 1e-9  # no projection is better
    assert found["reconstruction"]["PCA"]["snr"] > found["reconstruction"]["embedding, λ = 0.001"]["snr"]


def new_rows(clips, settings):
    """Return the rows that a fit sees, each once."""
    (group,) = Sequences(36, True).groups(rows_of(sequences_of(clips, settings)), 0)
    return group.rows[group.marks.ravel() == NEW]


def test_the_gain_is_that_of_least_squares(model, path):
    # worked out from the optimality of the codes alone: no row is looked at again
    rows = new_rows(open_clips(path), SMALL)
    fit, white = model.coder(rows) @ model.coder.dictionary.T, model.whitening(rows)
    assert model.gain == pytest.approx(np.vdot(fit, white) / np.vdot(fit, fit), rel=2e-3)
    assert model.gain > 1.02


def test_judged_beside_the_raw_frames(path):
    clips = open_clips(path)
    model, _ = fit_video(clips, SMALL.replace(whiten="fourier", rounds=1), engine())
    rows, raw = (rows_of(model.sequences(clips, raw=one))[:30] for one in (False, True))
    assert not np.array_equal(rows, raw)
    assert 0 <= raw.min() < raw.max() <= 1
    found = judged(model, rows, raw=raw)["straightness"]
    assert found["pixels"] == vars(straightness(raw))
    assert found["whitened pixels"] == judged(model, rows)["straightness"]["whitened pixels"]
    # as many components, each of variance 1 over the rows of the fit: all directions weigh the same
    every = new_rows(clips, model.settings)
    first = principal(model, model.whitening(every)).reshape(-1, 8)
    np.testing.assert_allclose(np.cov(first.T, bias=True), np.eye(8), atol=1e-6)
    with pytest.raises(DataError, match="have the shape"):
        judged(model, rows, raw=raw[:5])


def test_pca_is_the_best_of_its_rank():
    rows = np.random.default_rng(0).standard_normal((400, 6)) * [5, 4, 3, 0.1, 0.1, 0.1]
    mean, covariance = rows.mean(axis=0), np.cov(rows.T, bias=True)
    _, s, _ = np.linalg.svd(rows - mean, full_matrices=False)
    error = ((rows - pca(rows, mean, covariance, 2)) ** 2).sum()
    assert error == pytest.approx((s[2:] ** 2).sum())


def test_layers_are_stacked_by_commands(path, tmp_path):
    small, lower, upper = (tmp_path / f"{name}.h5" for name in ("small", "lower", "upper"))
    made = told("import", path, "--kind video --crop 20 --out", small)
    assert [one["frames"] for one in made["clips"]] == [[33, 20, 20]] * 3
    fit = [
        "fit",
        small,
        "--model video --clip one --clip two --quiet --set patch=6 --set length=4 --set places=4",
    ]
    run(*fit, "--set atoms=40 --set rounds=1 --set n_components=8 --out", lower)
    more = "--set atoms=20 --set n_components=5 --set rounds=1 --set penalty=0.2"
    said = run(
        "fit", small, "--model video --clip one --clip two --quiet", more, "--below", lower, "--out", upper
    )
    assert "One round does not show whether the objective has settled; raise max_iter." in said
    assert "embedding" in run("evaluate", lower, small, "--sequences 10")
    judged = told("evaluate", upper, small, "--clip three --sequences 12")
    assert judged["n_sequences"] == 12
    assert {"codes", "PCA"} <= set(judged["reconstruction"])
    refused(
        [*fit, "--set n_components=90 --set atoms=80 --out", tmp_path / "y.h5"],
        tmp_path,
        "at most n_atoms",
        2,
    )


def test_sources_of_both_whitenings(path):
    zca, fourier = (
        sequences_of(open_clips(path), SMALL.replace(whiten=kind)) for kind in ("zca", "fourier")
    )
    assert (zca.whiten, fourier.whiten) == ("none", "fourier")
    found, _ = fit_video(open_clips(path), SMALL.replace(whiten="fourier", rounds=1), engine())
    assert found.components.shape == (8, 40)


def test_a_clip_of_a_fit_can_be_withdrawn(path):
    # its places are drawn by its own name and frames, whichever clips stand beside it
    clips = open_clips(path)
    model, _ = fit_video(clips, SMALL, engine())
    less, _ = update(model, sequences_of(clips[1:2], SMALL), engine(), withdraw=True)
    rest, _ = model.summed(sequences_of((clips[0], clips[2]), SMALL), engine())
    np.testing.assert_array_equal(less.statistics.context_scatter, rest.context_scatter)
    np.testing.assert_array_equal(less.statistics.activity, rest.activity)
    local = replace(model, settings=SMALL.replace(sgd_rounds=1))
    with pytest.raises(ModelError, match="mini-batches"):
        update(local, sequences_of(clips[:1], SMALL), engine())
