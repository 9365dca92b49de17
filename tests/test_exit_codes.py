"""The same mistake in a setting has the same exit code in every command that takes settings: 2, and nothing is written."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.same_bits.data import make_data
from smtdist.cli import app

MODELS = Path(__file__).parent / "fixtures" / "models"
IMAGES = "data/images.h5 --dataset 0/images"
GROUPS = "data/images.h5 --train train --test test"
COMMANDS = {
    "fit": f"fit {IMAGES} --out OUT",
    "fit, learned": f"fit {IMAGES} --out OUT --set feature=l1",
    "fit, a code alone": f"fit {IMAGES} --out OUT --model s3c",
    "fit, of a model": f"fit {IMAGES} --out OUT --from-model smt-gq.h5",
    "fit, of a code": f"fit {IMAGES} --out OUT --from-model sparse.h5",
    "fit, kernel": "fit data/tables.h5 --dataset x --model kernel-spectral --out OUT",
    "plan": f"plan {IMAGES}",
    "plan, learned": f"plan {IMAGES} --set feature=omp",
    "plan, of a code": f"plan {IMAGES} --from-model sparse.h5",
    "plan, kernel": "kernel plan data/tables.h5 --dataset x",
    "tune": "tune data/images.h5 --train train --validation test --grid ridge=0.1,0.2",
    "tune, learned": "tune data/images.h5 --train train --validation test --set feature=l1 --grid ridge=0.1,0.2",
    "merge": "merge smt-gq.h5 --out OUT",
    "merge, learned": "merge coded-l1.h5 --out OUT",
    "merge, words": "merge words.h5 --out OUT",
    "transform": "transform sparse.h5 data/images.h5 --dataset 0/images --out OUT",
    "evaluate": f"evaluate sparse.h5 {GROUPS}",
    "evaluate, of a transform": f"evaluate smt-gq.h5 {GROUPS}",
    "video fit": "video fit data/clips.h5 --out OUT",
    "kernel fit": "kernel fit data/tables.h5 --dataset x --out OUT",
    "concepts": "concepts data/tables.h5 --dataset z --n-concepts 4 --out OUT",
    "points": "points fit data/tables.h5 --dataset x --out OUT",
}
MISTAKES = {
    "there is no such setting": "nonsense=3",
    "it is no setting": "nonsense",
    "another type": "n_components=many",
    "out of range": "n_components=-3",
    "a seed out of range": "seed=-1",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    at = tmp_path_factory.mktemp("codes")
    make_data(at / "data")
    for name in ("smt-gq", "sparse", "coded-l1", "words", "points"):
        shutil.copy(MODELS / f"{name}.h5", at)
    return at


def refused(folder, monkeypatch, line, setting):
    monkeypatch.chdir(folder)
    result = CliRunner().invoke(app, [*line.replace("OUT", "out.h5").split(), "--set", setting])
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    assert not Path("out.h5").exists()
    return result


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_setting_is_wrong_usage(command, mistake, folder, monkeypatch):
    result = refused(folder, monkeypatch, COMMANDS[command], MISTAKES[mistake])
    assert result.exit_code == 2, result.stderr
    assert result.stdout == ""


TOGETHER = (
    "fit",
    "fit, of a model",
    "fit, learned",
    "fit, of a code",
    "plan",
    "plan, learned",
    "plan, of a code",
    "tune, learned",
)


@pytest.mark.parametrize("command", TOGETHER)
def test_settings_that_do_not_go_together_are_wrong_usage(command, folder, monkeypatch):
    result = refused(folder, monkeypatch, COMMANDS[command], "drop=9999")
    assert result.exit_code == 2, result.stderr
    assert "drop is" in " ".join(result.stderr.split())


@pytest.mark.parametrize("command", ["fit", "fit, learned", "fit, a code alone", "plan", "plan, learned"])
def test_what_only_the_data_show_is_a_failure(command, folder, monkeypatch):
    result = refused(folder, monkeypatch, COMMANDS[command], "patch=99")
    assert result.exit_code == 1, result.stderr
    assert "images of 10 x 10" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "points fit data/tables.h5 --dataset x --size 8 --components 99 --out OUT",
            "there are 8 features",
        ),
        (
            "kernel fit data/tables.h5 --dataset x --set kernel=nosuch --out OUT",
            "There is no kernel 'nosuch'",
        ),
        ("kernel plan data/tables.h5 --dataset x --set kernel=nosuch", "There is no kernel 'nosuch'"),
        ("words a.txt --model words.h5 --withdraw --lines 9-3 --out OUT", "the smaller number first"),
        ("words a.txt --model words.h5 --withdraw --lines 0 --out OUT", "count from 1"),
        (
            "concepts data/tables.h5 --dataset z --set n_concepts=many --out OUT",
            "n_concepts is 'many'; it must be a whole",
        ),
        (
            "video fit data/clips.h5 --set atoms=many --out OUT",
            "atoms is 'many'; it must be a whole number",
        ),
        (
            "merge points.h5 --set n_components=many --out OUT",
            "n_components is 'many'; it must be a whole number",
        ),
    ],
)
def test_words_that_are_wrong_without_the_data_are_wrong_usage(line, sentence, folder, monkeypatch):
    monkeypatch.chdir(folder)
    result = CliRunner().invoke(app, line.replace("OUT", "out.h5").split())
    assert result.exit_code == 2, (result.stderr, result.exception)
    assert sentence in result.stderr
    assert not Path("out.h5").exists()
