"""What a narrow terminal shows: no word and no figure is cut."""

import io
import re

import numpy as np
import pytest
from arrays_in_files import write_labelled
from drawing import small_images
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner

from smtdist.cli import app
from smtdist.cli.commands import COMMANDS as VERBS
from smtdist.engine.events import EventStream
from smtdist.monitor import tables
from smtdist.monitor.progress import ProgressView
from smtdist.monitor.state import RunState
from smtdist.monitor.tables import VisibleConsole
from smtdist.monitor.text import rendered

MIB, TIB = 2**20, 2**40
WIDTHS = (60, 80, 120)
RECORDS = [
    {
        "name": name,
        "seconds": 123456.7,
        "n_samples": 1_281_167,
        "n_positions": positions,
        "rounds": rounds,
        "read_bytes": 3 * TIB,
        "peak_bytes": 1021 * MIB,
        "projected_bytes": 1022 * MIB,
    }
    for name, positions, rounds in (("whitening", 4_232_000, 1), ("dictionary", 62_123_456_789, 11))
]
COST = {
    "name": "dictionary",
    "rounds": 10,
    "n_samples": 1_281_167,
    "n_leaves": 1024,
    "n_tasks": 1023,
    "n_merges": 1023,
    "depth": 13,
    "seconds": 123456.7,
    "batch": 8000,
    "read_bytes": 3 * TIB,
    "network_bytes": 1023 * MIB,
    "written_bytes": 1022 * MIB,
    "state_bytes": 1021 * MIB,
    "baseline_bytes": 1020 * MIB,
    "projected_bytes": 1019 * MIB,
    "driver_bytes": 1018 * MIB,
    "checkpoint_bytes": 1017 * MIB,
}
TOTAL = {
    **{"passes": 12, "leaves": 11264, "tasks": 1, "merges": 20461, "depth": 14, "seconds": 2e6},
    **{f"{name}_bytes": 1016 * MIB for name in ("read", "network", "written", "checkpoint")},
    **{f"{name}_bytes": 1015 * MIB for name in ("worker_peak", "driver_peak")},
}
AUDIT = {"source": "part-01.h5:train", "action": "withdrawn", "n_samples": 50_000, "fingerprint": "0f" * 16}
JUDGED = {"top1": 0.51, "interval": (0.42, 0.63), "top5": 0.94, "n_classes": 10}
SHOWN = {
    "passes": (lambda: tables.passes_table(RECORDS), {"read", "3.0", "TiB"}),
    "plan": (
        lambda: tables.plan_table([COST], True, TOTAL),
        {"depth", "leaves", "13", "14", "10,240", "11,264"},
    ),
    "audit": (lambda: tables.audit_table([AUDIT]), set()),
    "accuracy": (
        lambda: tables.accuracy_table("9,999 test images", [("k-NN (k = 30, T = 0.03)", JUDGED)]),
        set(),
    ),
    "watch": (
        lambda: rendered(running()),
        {"leaves", "patches/s", "5/10", "memory", "1.35", "M"},
    ),
}


def running():
    """A snapshot of a large run on workers with long names, one of which is silent."""
    state = RunState()
    counts = {"n_samples": 1_281_167, "n_leaves": 10, "resumed_leaves": 0, "projected_bytes": 1023 * MIB}
    done = {"n_samples": 1_111_111, "n_positions": 5_500_000_000, "read_bytes": 1, "leaves": 5}
    workers = {"tcp://10.0.12.101:41234": {**done, "memory_bytes": 1011 * MIB, "device_bytes": 1012 * MIB}}
    of = {"run": "a", "pass": "statistics"}
    state.take(
        [
            {"kind": "run_started", "time": 0.0, "run": "a", "passes": ["statistics", "solve"]},
            {"kind": "pass_started", "time": 0.0, **of, **counts},
            {"kind": "progress", "time": 4000.0, **of, **done, "by_worker": workers},
        ]
    )
    return state.snapshot(now=4075.0)


def lines(shown, width):
    console = VisibleConsole(file=io.StringIO(), width=width, color_system=None)
    console.print(shown)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_table_has_every_word_at_any_width_but_those_of_columns_that_are_left_out(name, width):
    make, spare = SHOWN[name]
    whole, narrow = lines(make(), 200), lines(make(), width)
    assert max(map(cell_len, narrow)) <= width
    missing = set(" ".join(whole).split()) - set(" ".join(narrow).split()) - {"─" * 200}
    missing = {word for word in missing if not word.startswith("──")}
    assert missing <= spare
    if width == 120:
        assert missing <= {"read", "3.0", "TiB"}


def test_a_table_with_no_room_for_its_columns_is_several():
    found = lines(tables.passes_table(RECORDS), 60)
    heads = [line.split() for line in found if line.split()[:1] == ["pass"]]
    assert [name for head in heads for name in head[1:]] == [
        *("samples", "patches", "seconds"),
        *("patches/s", "read", "peak", "projected"),
    ]
    assert sum("1022.0 MiB" in line for line in found) == 2


def test_a_path_is_broken_only_where_no_line_holds_it():
    path = "/a" * 20
    text = "\n".join(lines(tables.audit_table([{**AUDIT, "source": path}]), 80))
    assert path in text
    broken = lines(tables.audit_table([{**AUDIT, "source": 3 * path}]), 60)
    assert max(map(cell_len, broken)) <= 60
    assert AUDIT["fingerprint"] in "\n".join(broken)


def play(width):
    """Play a large pass into a terminal; return what it shows while the pass goes on, and at its end."""
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system="truecolor")
    with ProgressView(console) as view:
        stream = EventStream(view)
        stream.started("statistics", 1_281_167, projected_bytes=1023 * MIB)
        stream.progress("statistics", 1_111_111, 5_500_000_000)
        view._bars.refresh()
        middle = console.file.getvalue()
        stream.emit(
            "pass_finished",
            **{"pass": "statistics"},
            seconds=4000.0,
            n_samples=1_281_167,
            peak_bytes=1011 * MIB,
            projected_bytes=1023 * MIB,
        )
    return middle, console.file.getvalue()


@pytest.mark.parametrize("width", WIDTHS)
def test_progress_is_whole_and_a_healthy_bar_is_not_red(width):
    middle, end = play(width)
    for shown in (middle, end):
        assert "…" not in shown
        assert "249;38;114" not in shown  # the red of rich's bars that go on
    assert "1,111,111/1,281,167" in middle
    assert "1,281,167/1,281,167" in end
    assert ("1011.0 MiB of 1023.0 MiB" in end) == (width > 80)


def test_a_terminal_wraps_lines_between_words_and_a_file_has_them_whole():
    line = "one two three four five /a/path/that/is/longer/than/the/terminal six"
    for terminal in (True, False):
        console = VisibleConsole(file=io.StringIO(), width=20, force_terminal=terminal, color_system=None)
        console.print(line, highlight=False, soft_wrap=True)
        found = console.file.getvalue().splitlines()
        words = ["one two three four", "five", "/a/path/that/is/longer/than/the/terminal", "six"]
        assert [one.strip() for one in found] == (words if terminal else [line])


@pytest.fixture(scope="module")
def at(tmp_path_factory):
    folder = tmp_path_factory.mktemp("narrow")
    images = small_images(60, 80, 8, 8)[..., 0]
    write_labelled(folder / "data.h5", images, np.arange(80) % 3, {"train": 60, "test": 20})
    (folder / "text.txt").write_text("the cat sat on the mat .\n" * 30 + "a dog ran on a rug .\n" * 30)
    return folder


FIT = "--set patch=3 --set feature=vq --set context=2 --set dictionary=12 --set n_components=4"
COMMANDS = (
    f"plan data.h5 --dataset train --no-calibrate --checkpoint other {FIT}",
    f"fit data.h5 --dataset train --out model.h5 --overwrite {FIT} --checkpoint c{{}}",
    "watch c{} --once",
    "info model.h5",
    "evaluate model.h5 data.h5 --train train --test test --neighbours 3",
    f"tune data.h5 --train train --validation test --neighbours 3 {FIT} --grid ridge=0.01,0.1 --grid drop=0,1",
    "fit text.txt --model words --set window=2 --set n_components=2 --out words.h5 --overwrite",
    "near words.h5 cat",
    "settings",
)


@pytest.mark.parametrize("width", ["60", "80"])
def test_commands_are_whole_in_a_narrow_terminal(at, monkeypatch, width):
    monkeypatch.chdir(at)
    for command in COMMANDS:
        words = command.format(width).split()
        result = CliRunner().invoke(app, words, env={"COLUMNS": width})
        assert result.exit_code == 0, (command, result.output)
        assert "…" not in result.stdout, command
        tables_there = [line for line in result.stdout.splitlines() if line.startswith(" ")]
        assert max(map(cell_len, tables_there), default=0) <= int(width), command


def test_help_is_whole_at_80_columns_and_has_an_example():
    for command in VERBS:
        result = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"})
        assert result.exit_code == 0
        assert "…" not in result.stdout, command
        column = min(line.find("Show this") for line in result.stdout.splitlines() if "--help" in line)
        assert 0 < column < 55, command
        assert f"Example: smtdist {command}" in result.stdout
        assert "--json" in result.stdout
        assert not re.search("<|[a-z]+ range|list\\[", result.stdout)  # types of Python
