"""Laws of sentences: the library names no option of the command line, and each face says what is marked in its own words."""

import ast
import inspect
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import smtdist
from smtdist.cli import commands
from smtdist.cli.app import app
from smtdist.cli.errors import WrongUsage, in_shell, usage
from smtdist.engine.cluster_choice import ClusterChoice
from smtdist.engine.events import EventStream
from smtdist.errors import (
    ConfigurationError,
    DataError,
    command,
    equals,
    option,
    rendered,
    set_to,
    visible,
)
from smtdist.evaluate import judging
from smtdist.models.importing import ImportSettings

LIBRARY = Path(smtdist.__file__).parent
TREES = {
    path.relative_to(LIBRARY): ast.parse(path.read_text())
    for path in sorted(LIBRARY.rglob("*.py"))
    if path.relative_to(LIBRARY).parts[0] != "cli"
}


def own_options():
    """Return the options that the command line has."""
    every = [commands.load(name) for name in commands.COMMANDS]
    every += [inner for one in every for inner in getattr(one, "commands", {}).values()]
    named = {text for one in every for given in one.params for text in (*given.opts, *given.secondary_opts)}
    return {text for text in named if text.startswith("--")}


def parameters():
    """Return the names of all parameters of what is public."""
    named = [getattr(smtdist, name) for name in smtdist.__all__]
    classes = [one for one in named if inspect.isclass(one)]
    classes += [judging.Asked, ClusterChoice, ImportSettings]
    named += [value for one in classes for _, value in inspect.getmembers(one, inspect.isfunction)]
    named = [
        one for one in named if inspect.isfunction(one) or hasattr(one, "__signature__") or one in classes
    ]
    made = (one for one in named if not (inspect.isclass(one) and issubclass(one, Exception)))
    return {name for one in made for name in inspect.signature(one).parameters}


def marked(function):
    """Yield the first argument, where it is a text, of each call of a function of this name in the library."""
    for tree in TREES.values():
        for node in ast.walk(tree):
            called = isinstance(node, ast.Call) and getattr(node.func, "id", "") == function
            if called and isinstance(node.args[0], ast.Constant):
                yield node.args[0].value


def test_help_names_values_as_the_command_line_reads_them():
    for name in commands.COMMANDS:
        told = [commands.load(name).help, *(one.help or "" for one in commands.load(name).params)]
        assert not re.findall(r"\b(None|True|False|null)\b", " ".join(told)), name
        shown = {text for one in commands.load(name).params for text in one.opts}
        assert not shown & {"--neighbours", "--neighbors", "--components", "--feature"}, name


def test_the_library_names_no_option_of_the_command_line():
    own, found = own_options(), {}
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named = own & set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", node.value))
                if str(path) != "errors.py":
                    named |= set(re.findall(r"(?<![\w-])--$", node.value))  # before a name
                if named:
                    found.setdefault(str(path), set()).update(named)
    assert found == {}


def test_what_is_marked_is_a_parameter_of_python_and_an_option_of_the_command_line():
    own, named = own_options(), parameters()
    named |= {"(path, dataset)", "a parameter", "the environment variable SMTDIST_FOLLOW"}
    names = set(marked("option"))
    assert len(names) > 40
    assert {name for name in names if in_shell("option", name, "") not in own} == set()
    assert names - named <= {"csv"}  # of predictions, which Python returns as arrays


def test_whole_commands_are_commands():
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "command":
                words, name = (getattr(one, "value", None) for one in node.args[:2])
                if isinstance(words, str) and isinstance(name, str):
                    known = {text for one in commands.load(words.split()[0]).params for text in one.opts}
                    assert f"--{name}" in known, f"{path}: {words} --{name}"


@pytest.mark.parametrize(
    ("sentence", "python", "shell"),
    [
        (option("solve_on"), "solve_on", "--solve-on"),
        (option("n_workers", 0), "n_workers=0", "--workers 0"),
        (option("n_workers", "N"), "n_workers=N", "--workers N"),
        (option("metric", "knn"), 'metric="knn"', "--metric knn"),
        (option("overwrite", True), "overwrite=True", "--overwrite"),
        (option("calibrate", False), "calibrate=False", "--no-calibrate"),
        (option("base"), "base", "--from-model"),
        (option("(path, dataset)"), "(path, dataset)", "--dataset"),
        (equals("context", "whole"), 'context="whole"', "context=whole"),
        (equals("to_grayscale", False), "to_grayscale=False", "to_grayscale=false"),
        (equals("features", None), "features=None", "features=none"),
        (option("split", "my group"), 'split="my group"', "--split 'my group'"),
        (set_to("resize", 32), "resize=32", "--set resize=32"),
        (command("fit", "set", "a b"), "smtdist fit --set 'a b'", "smtdist fit --set 'a b'"),
        (command("fit", "model", "l1"), "smtdist fit --model l1", "smtdist fit --model l1"),
    ],
)
def test_each_face_says_what_is_marked_in_its_own_words(sentence, python, shell):
    error = DataError(f"{{x}} --out={sentence}, or {sentence}.")
    again = pickle.loads(pickle.dumps(error))  # as from a worker
    assert str(again) == f"{{x}} --out={python}, or {python}."
    assert rendered(again.sentence, in_shell) == f"{{x}} --out={shell}, or {shell}."


def test_what_a_user_wrote_is_said_as_it_is():
    strange = (
        "x\ufdd0y",
        "\ufdd0" * 6,
        "a\ufdd0option\ufdd1b",
        "\ufdd2\ufdd1",
        "\ufdd0set\ufdd1a\ufdd1b\ufdd1c\ufdd2",
    )
    for text in ("{overwrite}", "--metric kernel", "a=true", "%s {0} \\1", *strange):
        sentence = DataError(f"{text} holds nothing").sentence
        for words in (in_shell, lambda kind, name, value: f"{name}={value}" if value else name):
            said = rendered(sentence, words)
            assert said == f"{text} holds nothing"
            assert not {*"\ufdd0\ufdd1\ufdd2"} & {*visible(said)}


def test_wrong_usage_and_events_speak_as_the_face_that_asked():
    sentence = f"leave {option('max_workers')} out"
    with pytest.raises(WrongUsage) as raised, usage():
        raise ConfigurationError(sentence)
    assert rendered(raised.value.sentence, in_shell) == "leave --max-workers out"
    told = []
    for stream in (EventStream(told.append), EventStream(told.append, words=in_shell)):
        stream.emit("note", text=sentence)
    assert [event["text"] for event in told] == ["leave max_workers out", "leave --max-workers out"]


def test_one_refusal_in_both_faces(tmp_path, monkeypatch):
    """The same check of the library, from a command and from Python."""
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.zeros((4, 8, 8), np.uint8))
    Path("b.h5").touch()
    done = CliRunner().invoke(app, ["import", "a.npy", "--out", "b.h5"])
    with pytest.raises(DataError) as raised:
        smtdist.import_images("a.npy", "b.h5")
    said = "b.h5 exists already; choose another name, or pass"
    assert str(raised.value).endswith(f"{said} overwrite=True or append=True.")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.endswith(f"{said} --overwrite or --append.\n")
