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
    assert "\n" not in text and len(text) < 120
    return text


def test_a_plan_says_what_a_fit_costs_and_fits_nothing():
    asked = smtdist.SMT(**SMALL)
    plan = asked.plan(X, calibrate=False)
    assert [cost.name for cost in plan.costs] == ["whitening", "dictionary", "statistics", "solve"]
    assert plan.seconds is None and not hasattr(asked, "model_")
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
    assert both.metric == "linear" and both.top1 > 0.5
    assert kernel.evaluate(rows, Y, rows, Y, metric="kernel").n_train == 60
    few = smt.evaluate(X, Y, X, Y, metric="svm", labels=[6, 12], draws=2)
    assert [one["labels"] for one in few] == [6, 12] and len(few[0]["draws"]) == 2


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
    assert "--overwrite" in told.output and "overwrite=True" not in told.output
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
