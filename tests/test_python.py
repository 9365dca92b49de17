"""What commands do, Python does too: functions and methods beside the estimators, short to look at, with errors in its words."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from arrays_in_files import write_arrays
from sklearn.base import clone

import smtdist
from smtdist import errors
from smtdist.evaluate import judging
from smtdist.evaluate import run as judge
from smtdist.evaluate.knn import SoftNeighbours

RNG = np.random.default_rng(0)
Y = np.arange(60) % 3
X = (RNG.integers(0, 128, (60, 8, 8)) + 60 * (np.arange(8) // 3 == Y[:, None])[:, None, :]).astype(np.uint8)
SMALL = {"patch": 3, "feature": "vq", "dictionary": 16, "n_components": 4, "pool_size": 2}


@pytest.fixture(scope="module")
def smt():
    return smtdist.SMT(**SMALL).fit(X)


def one_line(shown):
    text = repr(shown)
    assert "\n" not in text
    assert len(text) < 120
    return text


def test_raw_pixels_stand_beside_an_evaluation_and_win_openly(smt):
    found = smt.evaluate(X[:40], Y[:40], X[40:], Y[40:], neighbours=5)
    rows = X.reshape(60, -1).astype(np.float32)
    alone = SoftNeighbours(k=5)(rows[:40], Y[:40], rows[40:], Y[40:])
    assert found.raw_pixels.to_dict() == alone.to_dict()
    assert repr(found).endswith(f"; raw pixels {100 * alone.top1:.1f} %>")
    same = smt.evaluate(X, Y, X, Y, neighbours=1)  # each image is its own neighbour, however it is seen
    assert same.raw_pixels.top1 == same.top1 == 1
    assert "Raw pixels are no worse than the model" in same._repr_html_()
    assert "try the metric kernel, more images" in same.advice
    other = replace(same, raw_pixels=replace(same.raw_pixels, top1=0.9))
    assert other.advice == ""
    assert "note" not in other.shown()


def test_linear_and_kernel_classifiers_judge_raw_pixels_too(smt, monkeypatch):
    given = X[:40], Y[:40], X[40:], Y[40:]
    rows = X.reshape(60, -1).astype(np.float32)
    linear = smt.evaluate(*given, metric="linear")
    pixels = judge.Data(rows[:40], Y[:40], rows[40:], Y[40:])
    alone = judge.judged(pixels, judge.Linear())
    assert linear.to_dict()["raw_pixels"] == {"top1": alone.top1, "interval": list(alone.interval)}
    kernel = smt.evaluate(*given, metric="kernel", mirrored=False)
    alone = judge.judged(pixels, judge.Kernel())
    assert kernel.raw_pixels.top1 == alone.top1
    assert smt.evaluate(*given, metric="kernel").raw_pixels is not None
    assert smt.evaluate(*given, metric="svm").raw_pixels is None
    monkeypatch.setattr(judging, "RAW_KERNEL_SAMPLES", 39)
    assert smt.evaluate(*given, metric="kernel").raw_pixels is None


def test_all_classifiers_judge_all_estimators(smt):
    rows = X.reshape(60, -1) / 255
    kernel = smtdist.ContrastiveKernel(n_components=3, noise=0.5).fit(rows)
    both = smt.evaluate(X, Y, X, Y, metric="linear", others=[smt], n_components=2)
    assert (both.metric, both.top1 > 0.5) == ("linear", True)
    assert kernel.evaluate(rows, Y, rows, Y, metric="kernel").n_train == 60
    points = smtdist.PointSMT(features="fourier", size=20, context="noise").fit(rows)
    assert points.evaluate(rows, Y[:, None], rows, Y, neighbours=1).top1 == 1
    pair, named = (rows, Y), (("a.h5", "a"), ("b.h5", "b"))
    for given in [(pair, pair), (pair, None, pair), (rows, rows, Y, Y), named]:
        with pytest.raises(ValueError, match=r"write evaluate\(X, y, X_test, y_test\)"):
            points.evaluate(*given)
    few = smt.evaluate(X, Y, X, Y, metric="svm", labels=[6, 12], draws=2)
    assert [(one["labels"], len(one["draws"])) for one in few] == [(6, 2), (12, 2)]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"metric": "linear", "neighbours": 5}, "n_neighbors is for the metric knn"),
        ({"labels": [6]}, 'labels needs metric="svm"'),
        ({"metric": "near"}, "one of knn, linear, svm, kernel"),
        ({"folds": 1, "metric": "svm"}, "at least 2"),
        ({"neighbors": 5}, "neighbors"),
    ],
)
def test_evaluations_without_a_meaning_are_refused(smt, asked, message):
    with pytest.raises(smtdist.SmtdistError, match=message):
        smt.evaluate(X, Y, X, Y, **asked)


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
def test_settings_that_a_learned_code_has_not_are_refused(changes, said):
    asked = {"patch": 3, "dictionary": 12, "n_components": 4, "feature": "l1", "settings": {"rounds": 2}}
    with pytest.raises(smtdist.SmtdistError, match=said):
        smtdist.SMT(**asked | changes).fit(X)


def test_tuning_finds_the_best_and_says_it_in_a_line():
    asked = smtdist.SMT(**SMALL)
    found = smtdist.tune(asked, {"ridge": np.array([1e-3, 0.1]), "drop": [0, 1]}, X, Y, neighbours=5)
    assert len(found.trials) == 4
    assert found.best_score == max(trial.top1 for trial in found.trials)
    smtdist.SMT(**SMALL | found.best_params).fit(X)  # plain values that a fit takes
    assert one_line(found).startswith("<Tuned: best of 4: whitening_reg=")
    with pytest.raises(smtdist.SmtdistError, match=r"'rigde' of a transform .*; did you mean ridge\?"):
        smtdist.tune(asked, {"rigde": [1]}, X, Y)


def test_models_that_cannot_be_added_are_numbered(smt):
    first = smtdist.SMT(**SMALL).fit(X[:40])
    with pytest.raises(smtdist.SmtdistError, match="The second model"):
        smtdist.merge([first, smt])
    for words in ((first, first), ("m.h5",), (first,)):
        with pytest.raises(smtdist.SmtdistError, match=r"write merge\(\[a, b\]"):
            smtdist.merge(*words)
    with pytest.raises(smtdist.SmtdistError, match="one of gq, vq, l1, s3c, omp, sc, or the name"):
        smtdist.SMT(code="gg").fit(X)
    with pytest.raises(smtdist.SmtdistError, match="allow_repeats=True"):
        smtdist.update(first, X[:40])


def test_models_are_exported_and_reported(smt, tmp_path):
    size, shape = smtdist.export(smt, tmp_path / "m.onnx", n_components=3)
    assert (size, shape) == ((tmp_path / "m.onnx").stat().st_size, (3, 3, 3))
    with pytest.raises(smtdist.SmtdistError, match="choose onnx, word2vec"):
        smtdist.export(smt, tmp_path / "m.bin")
    page = tmp_path / "r.html"
    assert smtdist.write_report(smt, page, train=(X, Y), test=(X[:20], Y[:20])) == page.stat().st_size
    text = page.read_text()
    assert "Report: SMT" in text
    assert '"n_test": 20' in text
    assert str(tmp_path.parent) not in text
    with pytest.raises(smtdist.SmtdistError, match="overwrite=True"):
        smtdist.write_report(smt, page)


def test_images_and_clips_are_imported(tmp_path):
    np.savez(tmp_path / "d.npz", images=X, labels=Y)
    (found,) = smtdist.import_images(tmp_path / "d.npz", tmp_path / "d.h5", group="test").values()
    assert (found.samples, found.n_classes) == (60, 3)
    assert smtdist.SMT(**SMALL).fit((tmp_path / "d.h5", "test")).transform(X).shape == (60, 36)
    with pytest.raises(smtdist.SmtdistError, match="overwrite=True or append=True"):
        smtdist.import_images(tmp_path / "d.npz", tmp_path / "d.h5")
    with pytest.raises(smtdist.SmtdistError, match="image_column has no meaning"):
        smtdist.import_images(tmp_path / "d.npz", tmp_path / "e.h5", image_column="a")
    with pytest.raises(smtdist.SmtdistError, match="layout is 'other'"):
        smtdist.import_images(tmp_path / "d.npz", tmp_path / "e.h5", layout="other")


def test_pictures_take_estimators(smt):
    from matplotlib.colors import to_hex
    from matplotlib.offsetbox import AnnotationBbox

    assert len(smtdist.plot.spectrum(smt).lines[0].get_ydata()) == 4
    for function in (smtdist.plot.dictionary, smtdist.plot.atom_neighbours):
        np.testing.assert_array_equal(
            function(smt).images[0].get_array(), function(smt.model_).images[0].get_array()
        )
    coder = smtdist.SparseCoding(n_atoms=9, patch=3, rounds=2).fit(X)
    assert smtdist.plot.dictionary(coder).images[0].get_array().shape == (11, 11, 3)
    axes = smtdist.plot.image_map(smt, X[:9], Y[:9])
    boxes = [one for one in axes.artists if isinstance(one, AnnotationBbox)]
    frames = [to_hex(one.patch.get_edgecolor()) for one in boxes]
    assert len(set(frames)) == 3
    assert all((frames[i] == frames[j]) == (Y[i] == Y[j]) for i in range(9) for j in range(9))
    shown = boxes[0].offsetbox.get_children()[0].get_array()
    np.testing.assert_array_equal(shown, np.repeat(X[0][..., None], 3, axis=-1))  # rows are no channels
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["0", "1", "2"]
    named = smtdist.plot.image_map(smt.transform(X[:9]), X[:9, ..., None] / 255, Y[:9], names=list("abc"))
    assert [text.get_text() for text in named.get_legend().get_texts()] == ["a", "b", "c"]
    assert smtdist.plot.image_map(smt, X[:9]).get_legend() is None
    beside = smtdist.plot.neighbours(X[:2], X[None, 2:5].repeat(2, axis=0))
    assert beside.images[0].get_array().shape == (17, 35, 3)


LINES = [
    "a cat sat here",
    "a dog sat there",
    "a cat ran there",
    "a dog ran here",
    "birds fly over trees",
] * 20


def test_words_are_an_estimator(tmp_path):
    asked = smtdist.WordSMT(window=2, n_components=3, max_words=64, input="content")
    words = clone(asked).fit(LINES)
    assert words.transform(["cat", "dog"]).shape == (2, len(words.get_feature_names_out())) == (2, 3)
    assert words.nearest("cat", 3) == words.model_.nearest("cat", 3)
    assert words.most_cooccurring("cat", 1)[0].word == "a"
    pairs = [("cat", "dog"), ("cat", "here"), ("fly", "ran"), ("fly", "unknown")]
    directions = words.model_.directions
    numbers = [[words.words_.index(word) for word in pair] for pair in pairs[:3]]
    cosines = [float(directions[one] @ directions[other]) for one, other in numbers]
    assert words.score(pairs, [*cosines, 0]) == pytest.approx(1)
    assert words.score(pairs, [*(-value for value in cosines), 0]) == pytest.approx(-1)
    with pytest.raises(smtdist.SmtdistError, match="'horse' is not among"):
        words.transform(["horse"])
    (tmp_path / "a.txt").write_text("".join(f"{line}\n" for line in LINES))
    filed = smtdist.WordSMT(window=2, n_components=3, max_words=64).fit(tmp_path / "a.txt")
    np.testing.assert_array_equal(filed.vectors_, words.vectors_)
    filed.save(tmp_path / "w.h5")
    less = smtdist.WordSMT.from_file(tmp_path / "w.h5").withdraw(tmp_path / "a.txt", lines=[(1, 40)])
    assert less.model_.statistics.n_positions < words.model_.statistics.n_positions
    with pytest.raises(smtdist.SmtdistError, match="WordModel, which PointSMT does not read"):
        smtdist.PointSMT.from_file(tmp_path / "w.h5")


def test_video_is_an_estimator(tmp_path):
    frames = RNG.integers(0, 256, (24, 12, 12), dtype=np.uint8)
    small = {"patch": 4, "length": 4, "places": 16, "atoms": 40, "rounds": 2, "batch": 8, "n_components": 3}
    video = clone(smtdist.VideoSMT(**small, random_state=1)).fit(frames)
    write_arrays(tmp_path / "c.h5", {"clip0/frames": frames})
    filed = smtdist.VideoSMT(**small, random_state=1).fit(tmp_path / "c.h5")
    np.testing.assert_array_equal(filed.components_, video.components_)
    z = video.transform((tmp_path / "c.h5", "clip0"))
    assert z.shape == (96, 4, len(video.get_feature_names_out())) == (96, 4, 3)
    assert video.n_features_in_ == 16
    found = video.judge(frames)
    assert video.score(frames) == pytest.approx(-found["straightness"]["embedding"]["second_difference"])
    for name, value in {"length": 3, "whitening_reg": 0.4, "random_state": 7}.items():
        with pytest.raises(smtdist.SmtdistError, match=rf"^below keeps .* \({name}\) cannot be set"):
            smtdist.VideoSMT(**small | {name: value}).fit(frames, below=video)
    stacked = smtdist.VideoSMT(**small | {"atoms": 20}).fit(frames, below=video)
    assert {"codes", "PCA"} <= set(stacked.judge(frames)["reconstruction"])
    assert one_line(video.model_).startswith("<VideoModel: K = 40, 3 components, 176 samples>")


@pytest.mark.parametrize(
    "estimator",
    [
        smtdist.SMT(**SMALL, image_shape=(8, 8)),
        smtdist.PointSMT(n_components=2, size=20),
        smtdist.KernelHead(),
        smtdist.RidgeHead(),
        smtdist.BinaryConcepts(n_concepts=3),
        smtdist.KernelAutoencoder(n_components=2),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_columns_of_a_table_have_an_order_and_masks_are_not_dropped(estimator):
    rows = X.reshape(60, 64)
    table = pd.DataFrame(rows, columns=["data", *(f"p{number}" for number in range(1, 64))])
    fitted = clone(estimator).fit(table, Y)
    applied = fitted.predict if hasattr(fitted, "predict") else fitted.transform
    np.testing.assert_array_equal(applied(table), applied(rows))
    assert list(fitted.feature_names_in_) == list(table.columns)
    for other in (table[table.columns[::-1]], table.rename(columns={"p5": "q"})):
        with pytest.raises(ValueError, match="feature names should match"):
            applied(other)
    for masked in (fitted.fit, applied):
        with pytest.raises(errors.DataError, match="masked"):
            masked(np.ma.masked_equal(rows, rows[0, 0]), *([Y] if masked == fitted.fit else []))


def test_settings_may_be_numbers_of_numpy():
    """A grid of NumPy has them."""
    found = smtdist.SMT(patch=3, dictionary=np.int64(12), ridge=np.float32(0.5), flip=np.True_)
    settings = found.configuration
    assert (settings.n_atoms, settings.whitening_reg, settings.augment_flip) == (12, 0.5, True)
    assert type(settings.n_atoms) is int


def test_what_is_added_follows_the_settings_of_the_fit():
    images = np.random.default_rng(1).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    found = smtdist.SMT(patch=3, dictionary=16, n_components=4).fit(images[:20])
    with pytest.raises(errors.ConfigurationError, match="n_atoms is 12, and the model was fitted with 16"):
        found.set_params(dictionary=12).partial_fit(images[20:])
    found.set_params(dictionary=16, n_components=3, neighbours=7)
    with pytest.raises(errors.ConfigurationError, match=r"n_components is 3, and .* was fitted with 4"):
        found.partial_fit(images[20:])
    assert found.refit().partial_fit(images[20:]).components_.shape == (3, 16)


def test_an_evaluation_on_its_own_samples_says_so(smt):
    told = []
    smt.set_params(on_event=told.append)
    smt.evaluate(X, Y, X, Y)
    smt.evaluate(X, Y, X[:30], Y[:30])
    smt.set_params(on_event=None)
    notes = [one["text"] for one in told if one["kind"] == "note" and "its own samples" in one["text"]]
    assert len(notes) == 1
