"""What commands do, Python does too: functions and methods beside the estimators, short to look at, with errors in its words."""

import re

import numpy as np
import pytest

import smtdist
from smtdist.errors import in_python

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


def test_a_plan_says_what_a_fit_costs_and_fits_nothing():
    asked = smtdist.SMT(**SMALL)
    plan = asked.plan(X, calibrate=False)
    assert [cost.name for cost in plan.costs] == ["whitening", "dictionary", "statistics", "solve"]
    assert (plan.seconds, hasattr(asked, "model_")) == (None, False)
    assert one_line(plan).startswith("<FitPlan: 3 passes, ")
    assert plan._repr_html_().count("<tr>") == 1 + len(plan.costs)
    with pytest.raises(smtdist.SmtdistError, match="what would do"):
        asked.plan(X, memory="100MiB", calibrate=False)


def test_an_evaluation_is_that_of_the_command(smt, tmp_path):
    import json

    import h5py
    from typer.testing import CliRunner

    from smtdist.cli.app import app

    with h5py.File(tmp_path / "d.h5", "w") as file:
        for name, part in (("train", slice(0, 40)), ("test", slice(40, None))):
            file[f"{name}/images"], file[f"{name}/labels"] = X[part], Y[part]
    smt.save(tmp_path / "m.h5")
    arguments = ["evaluate", "m.h5", "d.h5", "--train", "train", "--test", "test", "--neighbours", "5"]
    arguments = [str(tmp_path / one) if one.endswith(".h5") else one for one in arguments]
    printed = CliRunner().invoke(app, [*arguments, "--json", "--quiet"])
    found = smt.evaluate(X[:40], Y[:40], X[40:], Y[40:], neighbours=5)
    assert found.to_dict().items() <= json.loads(printed.stdout).items()
    assert one_line(found).startswith(f"<Evaluation: top-1 {100 * found.top1:.1f} %")
    from_file = smt.evaluate((tmp_path / "d.h5", "train"), None, (tmp_path / "d.h5", "test"), neighbours=5)
    assert from_file.to_dict() == found.to_dict()


def test_all_classifiers_judge_all_estimators(smt):
    rows = X.reshape(60, -1) / 255
    kernel = smtdist.ContrastiveKernel(n_components=3, noise=0.5).fit(rows)
    both = smt.evaluate(X, Y, X, Y, metric="linear", others=[smt], n_components=2)
    assert both.metric == "linear"
    assert both.top1 > 0.5
    assert kernel.evaluate(rows, Y, rows, Y, metric="kernel").n_train == 60
    few = smt.evaluate(X, Y, X, Y, metric="svm", labels=[6, 12], draws=2)
    assert [(one["labels"], len(one["draws"])) for one in few] == [(6, 2), (12, 2)]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"metric": "linear", "neighbours": 5}, "neighbours is for metric"),
        ({"labels": [6]}, 'labels goes with metric="svm"'),
        ({"metric": "near"}, "choose knn, linear, svm, kernel"),
        ({"folds": 1, "metric": "svm"}, "at least 2"),
        ({"neighbors": 5}, "neighbors"),
    ],
)
def test_evaluations_without_a_meaning_are_refused(smt, asked, message):
    with pytest.raises(smtdist.SmtdistError, match=message):
        smt.evaluate(X, Y, X, Y, **asked)


def test_tuning_finds_the_best_and_says_it_in_a_line():
    asked = smtdist.SMT(**SMALL)
    found = smtdist.tune(asked, {"ridge": np.array([1e-3, 0.1]), "drop": [0, 1]}, X, Y, neighbours=5)
    assert len(found.trials) == 4
    assert found.best_score == max(trial.top1 for trial in found.trials)
    smtdist.SMT(**SMALL | found.best_params).fit(X)  # plain values that a fit takes
    assert one_line(found).startswith("<Tuned: best of 4: ridge=")
    apart = smtdist.tune(asked, {"ridge": [0.1]}, X[:40], Y[:40], validation=(X[40:], Y[40:]), neighbours=5)
    fitted = smtdist.SMT(**SMALL, ridge=0.1).fit(X[:40])
    assert apart.best_score == fitted.evaluate(X[:40], Y[:40], X[40:], Y[40:], neighbours=5).top1
    coded = smtdist.CodedSMT(feature="sc", patch=3, dictionary=8, n_components=4, settings={"rounds": 2})
    assert len(smtdist.tune(coded, {"n_components": [2, 4]}, X, Y, neighbours=5).trials) == 2
    with pytest.raises(smtdist.SmtdistError, match=r"rigde; did you mean ridge\?"):
        smtdist.tune(asked, {"rigde": [1]}, X, Y)


def test_samples_come_and_go_as_with_commands(smt, tmp_path):
    first = smtdist.SMT(**SMALL).fit(X[:40])
    more = smtdist.update(first, X[40:])
    assert len(first.transform(X)) == 60  # the estimator stays as it was
    other = smtdist.update(first, X[40:], alone=True)
    smtdist.save(other, tmp_path / "other.h5")
    merged = smtdist.merge([first, tmp_path / "other.h5"])
    for name in ("activity", "cooccurrence"):
        np.testing.assert_array_equal(getattr(merged.statistics, name), getattr(more.statistics, name))
    less = smtdist.merge([merged], subtract=[other], n_components=2)
    assert less.components().shape == (16, 2)
    np.testing.assert_array_equal(less.statistics.activity, first.model_.statistics.activity)
    assert one_line(less) == "<Model: K = 16, 2 components, 40 samples>"
    with pytest.raises(smtdist.SmtdistError, match="The model number 2"):
        smtdist.merge([first, smt])
    with pytest.raises(smtdist.SmtdistError, match="allow_repeats=True"):
        smtdist.update(more, X[:40])
    with pytest.raises(smtdist.SmtdistError, match="KernelModel"):
        smtdist.update(smtdist.ContrastiveKernel(n_components=2).fit(X.reshape(60, -1) / 255), X)


def test_models_are_exported_and_reported(smt, tmp_path):
    size, shape = smtdist.export(smt, tmp_path / "m.npz", n_components=3)
    assert (size, shape) == ((tmp_path / "m.npz").stat().st_size, (3, 3, 3))
    with pytest.raises(smtdist.SmtdistError, match="choose onnx, torch, zarr, npz"):
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


def test_errors_of_python_speak_of_python_and_those_of_commands_of_options(smt, tmp_path):
    from typer.testing import CliRunner

    from smtdist.cli.app import app

    path = tmp_path / "m.h5"
    smt.save(path)
    with pytest.raises(smtdist.SmtdistError, match="overwrite=True") as raised:
        smt.save(path)
    assert "--" not in str(raised.value)
    (tmp_path / "other.h5").touch()
    told = CliRunner().invoke(app, ["merge", str(path), "--out", str(tmp_path / "other.h5")])
    assert "--overwrite" in told.output
    assert "overwrite=True" not in told.output
    with pytest.raises(
        smtdist.SmtdistError, match="overwrite=True"
    ):  # Python's words again after a command
        smt.save(path)


def test_messages_keep_whole_commands_and_values():
    assert in_python("resume with --on-bad-chunk skip, or --no-calibrate") == (
        'resume with on_bad_chunk="skip", or calibrate=False'
    )
    kept = "give --tls with a folder of `smtdist tls init --hosts a,b`; or smtdist fit --model l1 makes one"
    assert in_python(kept) == kept.replace("--tls", "tls")
    assert in_python("set keep_statistics=true (at https://a/b?c=d, n=3)") == (
        "set keep_statistics=True (at https://a/b?c=d, n=3)"
    )
    assert in_python(in_python("pass --set ridge=0.1 --workers 2")) == "pass ridge=0.1 workers=2"
    assert not re.search(r"--", in_python("give --data with --metric kernel or --features embedding"))
