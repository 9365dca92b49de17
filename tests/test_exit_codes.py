"""The same mistake in a setting has the same exit code in every command that takes settings: 2, and nothing is written."""

import io
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numba
import pytest
import typer
from calling import ended, refused, run
from PIL import Image

from benchmarks.same_bits.data import make_data
from smtdist.cli import app, commands, options
from smtdist.cli.app import Output
from smtdist.cli.commands import GIVEN, Given
from smtdist.errors import ConfigurationError, SmtdistError
from smtdist.kernels.cpu import jit

MODELS = Path(__file__).parent / "fixtures" / "models"
IMAGES = "data/images.h5 --dataset 0/images"
GROUPS = "data/images.h5 --train train --test test"
TABLE = "data/tables.h5 --dataset"
FOREIGN = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
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
    "plan, kernel": "plan data/tables.h5 --dataset x --model kernel-contrastive",
    "tune": "tune data/images.h5 --train train --validation test --grid ridge=0.1,0.2",
    "tune, learned": "tune data/images.h5 --train train --validation test --set feature=l1 --grid ridge=0.1,0.2",
    "merge": "merge smt-gq.h5 --out OUT",
    "merge, learned": "merge coded-l1.h5 --out OUT",
    "merge, words": "merge words.h5 --out OUT",
    "transform": "transform sparse.h5 data/images.h5 --dataset 0/images --out OUT",
    "evaluate": f"evaluate sparse.h5 {GROUPS}",
    "evaluate, of a transform": f"evaluate smt-gq.h5 {GROUPS}",
    "video": "fit data/clips.h5 --model video --out OUT",
    "words": "fit a.txt --model words --out OUT",
    "concepts": "fit data/tables.h5 --dataset z --model concepts --out OUT",
    "points": "fit data/tables.h5 --dataset x --model points --out OUT",
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
    for name in ("smt-gq", "sparse", "coded-l1", "words", "points", "video", "head-landmarks"):
        shutil.copy(MODELS / f"{name}.h5", at)
    return at


@pytest.fixture(autouse=True)
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)


def words(line, setting):
    """Return a command with an output, and a setting."""
    return [line.replace("OUT", "out.h5"), f"--set {setting}"]


def process(*words, **environment):
    """Return what a process of Python did."""
    return subprocess.run(
        [sys.executable, *words], env=os.environ | environment, capture_output=True, timeout=100
    )


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_setting_is_wrong_usage(command, mistake, folder):
    refused(words(COMMANDS[command], MISTAKES[mistake]), folder, ":", 2)


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
def test_settings_that_do_not_go_together_are_wrong_usage(command, folder):
    refused(words(COMMANDS[command], "drop=9999"), folder, "drop_components is", 2)


@pytest.mark.parametrize("command", ["fit", "fit, learned", "fit, a code alone", "plan", "plan, learned"])
def test_what_only_the_data_show_is_a_failure(command, folder):
    refused(words(COMMANDS[command], "patch=99"), folder, "images of 10 x 10")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (f"fit {TABLE} x --model points --set size=8 --set n_components=99", "there are 8 features"),
        (f"fit {TABLE} x --model kernel-spectral --set kernel=nosuch", "There is no kernel 'nosuch'"),
        (f"plan {TABLE} x --model kernel-spectral --set kernel=nosuch", "There is no kernel 'nosuch'"),
        *(
            (
                f"fit data/clips.h5 --model video --below video.h5 --set {name}=7",
                f"so other settings ({now}) cannot be set",
            )
            for name, now in (("seed", "random_state"), ("views", "views"), ("ridge", "whitening_reg"))
        ),
        ("withdraw words.h5 a.txt --lines 9-3", "the smaller number first"),
        ("withdraw words.h5 a.txt --lines 0", "count from 1"),
        (
            f"fit {TABLE} z --model concepts --set n_concepts=many",
            "n_concepts is 'many'; it must be a whole",
        ),
        ("video fit data/clips.h5 --set atoms=many", "atoms is 'many'; it must be a whole number"),
        ("merge points.h5 --set n_components=many", "n_components is 'many'; it must be a whole number"),
    ],
)
def test_words_that_are_wrong_without_the_data_are_wrong_usage(line, sentence, folder):
    refused(line if line.startswith("plan") else f"{line} --out out.h5", folder, sentence, 2)


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_a_command_line_that_cannot_be_read_is_one_sentence(name, folder):
    given = commands.load(name).params
    own = {text.partition(": ")[2] for text in options.OPTIONS.values() if text.startswith("N: ")}
    for option in [one.opts[0] for one in given if getattr(one, "help", "") in own]:
        for value in ("abc", "-1", "1.5"):
            sentence = f"{option} is '{value}'; it must be a whole number of at least "
            refused(f"{name} {option} {value}", folder, sentence, 2)
        refused(f"{name} {option}", folder, f"Option {option} requires an argument; smtdist ", 2)
    refused(f"{name} --jsom", folder, "There is no option --jsom; did you mean --json?", 2)
    refused(f"{name} --zzz", folder, f"There is no option --zzz; smtdist {name} --help lists", 2)
    refused(f"{name} --json=3", folder, "Option --json does not take a value", 2)
    missing = [one for one in given if one.required]
    if missing:
        refused(name, folder, f"smtdist: Missing {missing[0].param_type_name} ", 2)


@pytest.mark.parametrize(
    ("line", "sentence", "code"),
    [
        (
            "fit data/a.txt --dataset x --out OUT",
            "which does not exist; a list has the name of a file in each line",
            1,
        ),
        ("fit a.txt --out OUT", "For text give --model words", 2),
        (
            "fit data/tables.h5 --model words --out OUT",
            "is an HDF5 file, and a model of words takes text",
            1,
        ),
        ("update words.h5 data/tables.h5", "is an HDF5 file, and a model of words takes text", 1),
        ("update words.h5 data/tables.h5 --dataset x", "a model of words takes text; give text", 1),
        ("update words.h5 data/a.txt --dataset x", "takes text, without datasets; leave out --dataset", 2),
        ("export words.h5 --format onnx --out OUT", "onnx takes models of images", 2),
        ("export smt-gq.h5 --format word2vec --out OUT", "give a model of smtdist fit --model words", 2),
        ("evaluate none.h5 data/images.h5", "There is no model file none.h5", 1),
        ("settings words --code l1", "leave out words or --code", 2),
        (
            f"fit {IMAGES} --set code=gg --out OUT",
            "it must be one of gq, vq, l1, s3c, omp, sc, or the name",
            2,
        ),
        (f"fit {IMAGES} --set code=l1 --set resize=4 --out OUT", " and others.", 2),
        (f"fit {IMAGES} --set resize=none --set n_atoms=true --out OUT", "n_atoms is true; it must be", 2),
        (f"fit {IMAGES} --set resize=0 --out OUT", "a whole number of at least 1, or none.", 2),
        (
            f"fit {IMAGES} --follow a,b --out OUT",
            "--follow takes a folder or an address without a comma",
            2,
        ),
        (
            "transform 'two words.h5' smt-gq.h5 --dataset x --out OUT",
            "name the model first: smtdist transform smt-gq.h5 'two words.h5'.",
            2,
        ),
        ("info data", "data is a folder; give one file", 1),
        (
            "filters smt-gq.h5 --out atoms.xyz",
            "atoms.xyz is not a picture name; let it end in .png, .jpg",
            2,
        ),
        ("resume nosuch", "nosuch is not a checkpoint of a command: there is no such folder; give", 1),
        (
            "update head-landmarks.h5 data/images.h5",
            "is not a file of representations; give one written",
            1,
        ),
        (
            "fit a.parquet --model points --out OUT",
            "pandas.read_parquet('a.parquet').select_dtypes('number'))",
            1,
        ),
        ("info 'two  words.h5'", "There is no file two  words.h5;", 1),
    ],
)
def test_a_sentence_says_what_was_given_and_what_to_do(line, sentence, code, folder):
    refused([line.replace("OUT", "out.h5")], folder, sentence, code)


def test_what_is_no_file_of_smtdist_is_said_to_be_none(folder):
    said = run("check data/a.txt", code=1) + ended("check data/a.txt", code=1).stdout
    assert "data/a.txt: it is not an HDF5 file" in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device here")
@pytest.mark.filterwarnings("default:Events cannot:smtdist.errors.DataWarning")
def test_a_run_says_once_that_its_events_are_lost(folder, tmp_path):
    small = "--set patch=3 --set dictionary=8 --set n_components=2 --quiet --no-first-look"
    done = ended(f"fit {IMAGES} {small} --events /dev/full --out", tmp_path / "m.h5")
    said = "Events cannot be written to /dev/full any more (No space left on device); the run goes on without them."
    assert done.stderr.splitlines() == [said]


@pytest.mark.parametrize(("columns", "width"), [("", 80), ("120", 120)])
def test_tables_are_as_wide_as_a_page(columns, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    assert max(map(len, run("settings words --all").splitlines())) == width


PLAIN_ENVIRONMENTS = {
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "ASCII": {"PYTHONIOENCODING": "ascii"},
    "the locale C": FOREIGN,
    "a code page": {"PYTHONIOENCODING": "cp437"},
}


@pytest.mark.parametrize("name", PLAIN_ENVIRONMENTS)
def test_tables_are_printed_whatever_the_terminal_can_encode(name):
    done = process("-m", "smtdist", "settings", "--all", **PLAIN_ENVIRONMENTS[name])
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"of the whitening (" in done.stdout
    assert b"lambda of" in done.stdout or "λ of".encode("cp437", "ignore") in done.stdout


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("settings | true", 1),
        ("settings >&-", 0),
        ("settings 2>&-", 0),
        ("settings > /dev/full", 1),
        ("nosuch 2> /dev/full", 2),
    ],
)
def test_a_stream_that_takes_nothing_ends_a_command_without_a_traceback(line, code):
    if "/dev/full" in line and not Path("/dev/full").exists():
        pytest.skip("no full device here")
    script = f"set -o pipefail; {sys.executable} -m smtdist {line}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=100)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


class Full(io.RawIOBase):
    """A file on a full disk."""

    def __init__(self, error):
        self.error, self.asked = error, 0

    def writable(self):
        return True

    def write(self, data):
        self.asked += 1
        raise self.error


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left"), BrokenPipeError(32, "Broken pipe"), OSError(5, "I/O error")]
)
@pytest.mark.parametrize(
    ("stream", "words"),
    [
        ("stdout", ("fit", {"out": "m.h5"})),
        ("stderr", ("info", {})),
        ("stdout", ("info", {})),
    ],
)
def test_a_run_that_leaves_a_file_outlives_its_streams(error, stream, words, monkeypatch, capsys):
    full = Full(error)
    monkeypatch.setattr(sys, stream, io.TextIOWrapper(io.BufferedWriter(full), "utf-8"))
    token = GIVEN.set(Given(*words))
    try:
        Output.replace(stream)
        now = getattr(sys, stream)
        now.write("x")
        if stream == "stdout" and words[0] == "info":
            with pytest.raises(BrokenPipeError if error.errno == 32 else SmtdistError):
                now.flush()
        else:
            now.flush()
        now.write("more")
        now.flush()
        assert full.asked == 1
    finally:
        GIVEN.reset(token)
        monkeypatch.undo()
    said = capsys.readouterr().err
    assert ("cannot be written" in said) == (stream == "stdout" and words[0] == "fit" and error.errno != 32)


PRINTING = (
    *("--help", "--version", "settings --json", "info", "info --json", "info smt-gq.h5", "check smt-gq.h5"),
    *(f"plan {IMAGES} --no-calibrate", f"evaluate smt-gq.h5 {GROUPS}"),
    "plan data/tables.h5 --dataset x --model kernel-contrastive",
    *(f"{name} --help" for name in commands.COMMANDS),
)


def printed_by(line, stdout, monkeypatch):
    """Return the exit code of a command that prints to a file."""
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(stdout), "utf-8"))
    Output.replace("stdout")
    with pytest.raises(SystemExit) as ended:
        app(line.split(), prog_name="smtdist")
    return ended.value.code


@pytest.mark.parametrize("line", PRINTING)
def test_every_command_says_that_its_result_cannot_be_written(line, monkeypatch, capsys):
    monkeypatch.setenv("NO_COLOR", "1")
    code = printed_by(line, Full(OSError(28, "No space left")), monkeypatch)
    monkeypatch.undo()
    said = capsys.readouterr().err.splitlines()
    assert (code, said[-1]) == (
        1,
        "smtdist: Standard output cannot be written (No space left); send it elsewhere.",
    )
    assert sum("smtdist:" in one for one in said) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names of files are in UTF-8 always")
def test_names_are_the_same_in_any_locale(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("größe/Bär", "größe/Bür"):
        (tmp_path / name).mkdir(parents=True)
        for number in range(3):
            Image.new("L", (8, 8), number).save(tmp_path / name / f"ä{number}.png")
    line = "import größe --group übung --out"
    for out, environment in (("here.h5", {}), ("ö.h5", FOREIGN)):
        done = process("-m", "smtdist", *line.split(), out, **environment)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "here.h5").read_bytes() == (tmp_path / "ö.h5").read_bytes()
    in_python = "import sys, smtdist.data.guarded as guarded; print(len(guarded.unlocked(sys.argv[1])['\\xfcbung']))"
    done = process("-c", in_python, "ö.h5", **FOREIGN)
    assert (done.stdout.strip(), done.stderr) == (b"3", b"")
    done = process("-m", "smtdist", "info", "ö.h5", **FOREIGN)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode("ascii").splitlines()[-1].split()[:4] == [r"\xfcbung", "6", "x", "8"]


def test_one_of_a_thing_is_no_plural(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("t/a").mkdir(parents=True)
    Path("t/a/notes.csv").touch()
    Image.new("L", (8, 8)).save("t/a/0.png")
    small = "--set n_components=1 --set dictionary=8"
    for line in (
        "import t --out d.h5",
        "info d.h5",
        "manifest d.h5 --out d.json",
        f"plan {folder}/data/images.h5 --dataset 0/images --no-calibrate --workers 1 --threads 1 {small}",
        f"merge {folder}/smt-gq.h5 --out m.h5 --set n_components=1",
        f"transform m.h5 {folder}/data/images.h5 --dataset 0/images --limit 1 --out z.h5",
    ):
        output = ended(line).output
        assert not re.findall(r"(?<![\w.,:+-])1 [a-z]+(?<!s)s\b(?! [x-]|/)", output), output
    sources = Path(commands.__file__).parents[1].rglob("*.py")
    assert not [path for path in sources if re.search(r"[\"']e?s[\"'] \* \(", path.read_text("utf-8"))]


@pytest.mark.parametrize(
    ("error", "short"),
    [
        (ImportError("a.so: failed to map segment from shared object"), True),
        (OSError("Could not find/load shared object file"), True),
        (OSError(12, "Cannot allocate memory"), True),
        (MemoryError(), True),
        (RuntimeError("can't start new thread"), True),
        (RuntimeError("a mistake of ours"), False),
        (OSError(2, "No such file"), False),
    ],
)
def test_what_finds_no_room_names_the_limit(error, short, monkeypatch, capsys):
    module = sys.modules[Output.__module__]
    monkeypatch.setattr(module, "_address_space", lambda: "This process may map little.")
    with pytest.raises((typer.Exit, RuntimeError)) as ended, module.sentences():
        raise error
    assert (capsys.readouterr().err == "smtdist: This process may map little.\n") == short
    assert short or ended.value is error or isinstance(error, OSError)


SIGNALLED = """
import collections, itertools, os, signal, sys
from smtdist.cli import session
from smtdist.engine.executor import StopRequest

session.TELLING, kind = signal.SIGHUP, sys.argv[1]  # whose number is 1
stop = StopRequest()
with session.stopping_on_signals(stop):
    os.kill(os.getpid(), signal.SIGINT if kind == "ctrl-c" else signal.SIGTERM)
    if kind == "held":  # C code that never comes back, and holds the interpreter
        collections.deque(itertools.repeat(0), maxlen=0)
    assert stop.is_set()
    assert (signal.getitimer(signal.ITIMER_REAL)[0] > 0) == (kind == "heeded")
assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
sys.exit(stop.exit_code)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a pipe that tells of bytes by a signal")
@pytest.mark.parametrize(("kind", "code"), [("held", -signal.SIGALRM), ("heeded", 143), ("ctrl-c", 130)])
def test_sigterm_ends_what_holds_the_interpreter(kind, code):
    done = process("-c", SIGNALLED, kind)
    assert done.returncode == code, done.stderr


@pytest.mark.parametrize("content", ["distributed:\n  worker: [1, 2\n", "- a list\n", "{a: b: c}\n"])
def test_a_broken_configuration_of_dask_is_one_sentence(content, tmp_path):
    (tmp_path / "bad.yaml").write_text(content)
    program = "from smtdist.engine.session import load_client; load_client(scheduler=False)"
    done = process("-c", program, DASK_CONFIG=str(tmp_path))
    assert b"SmtdistError: Dask cannot be loaded (" in done.stderr.splitlines()[-1]


def test_numba_without_its_compiler_is_one_sentence(monkeypatch):
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    with pytest.raises(ConfigurationError, match="unset NUMBA_DISABLE_JIT"):
        jit.compiled(lambda x: x)
