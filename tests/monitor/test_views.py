"""What a person sees of a run, in a terminal and in a log."""

import doctest
import io

import pytest
from rich.console import Console

from smtdist.engine.events import EventStream
from smtdist.monitor import progress, tables
from smtdist.monitor.progress import ProgressView

MIB = 2**20


def counts(samples):
    """Return what a pass has counted after so many samples."""
    return {"n_samples": samples, "n_positions": 36 * samples, "read_bytes": 64 * samples}


def play(console, *, resumed=0):
    """Play the events of a short run into a view."""
    with ProgressView(console) as view:
        stream = EventStream(view)
        stream.emit("run_started", passes=["whitening", "solve"])
        stream.emit("note", text="Dashboard: http://127.0.0.1:8787/status")
        for name, samples, seconds, peak, projected in (
            ("whitening", 1200, 0.5, 350, 400),
            ("solve", 0, 70.0, 299, 300),
        ):
            own, most = {"pass": name}, {"projected_bytes": projected * MIB}
            leaves = {"n_leaves": 4 if samples else 0, "resumed_leaves": resumed if samples else 0}
            stream.emit("pass_started", **own, n_samples=samples, **leaves, workers=2, **most)
            for done in (300, 600, 1200) if samples else ():
                stream.emit("progress", **own, **counts(done))
            stream.emit(
                "pass_finished", **own, **counts(samples), seconds=seconds, peak_bytes=peak * MIB, **most
            )
        stream.started("sweeps", 20, counts="sweep")
        stream.emit("pass_finished", **{"pass": "sweeps"}, n_samples=20, seconds=1.0)
        stream.emit("run_finished", seconds=71.0)


def test_a_log_has_one_line_a_pass_and_says_what_is_done():
    out, resumed = io.StringIO(), io.StringIO()
    play(Console(file=out, width=80))
    play(Console(file=resumed, width=80), resumed=3)
    assert "whitening: 3 of 4 leaves are in the checkpoint already" in resumed.getvalue()
    assert out.getvalue().splitlines() == [
        "Dashboard: http://127.0.0.1:8787/status",
        "whitening: 1,200 samples, 0.5 s, 86.4 k patches/s, peak 350.0 MiB of 400.0 MiB projected",
        "solve: 70.0 s, peak 299.0 MiB of 300.0 MiB projected",
        "sweeps: 20 sweeps, 1.0 s",
    ]


def test_a_terminal_has_a_bar_a_pass():
    out = io.StringIO()
    play(Console(file=out, width=118, force_terminal=True, color_system=None))
    last = [line.rstrip() for line in out.getvalue().replace("\r", "\n").splitlines()][-4:]
    text = "\n".join(last)
    assert "1,200/1,200" in text
    assert "patches/s" in text
    assert "peak 350.0 MiB of 400.0 MiB" in text
    assert "peak 299.0 MiB of 300.0 MiB" in text


def test_unknown_events_and_passes_are_ignored():
    out = io.StringIO()
    with ProgressView(Console(file=out, force_terminal=True)) as view:
        view({"kind": "something_new", "value": 3})
        view({"kind": "progress", "pass": "unknown", "n_samples": 1, "n_positions": 1, "read_bytes": 1})
        view({"kind": "pass_finished", "pass": "unknown", "n_samples": 1})


def test_tables_fit_a_hundred_columns():
    record = {
        "name": "dictionary",
        "seconds": 1234.5,
        "n_samples": 1_281_167,
        "n_positions": 62_000_000_000,
        "rounds": 11,
        "read_bytes": 2**41,
        "peak_bytes": 3 * 2**30,
        "projected_bytes": 4 * 2**30,
    }
    console = Console(file=io.StringIO(), width=120)
    console.print(tables.passes_table([record]))
    text = console.file.getvalue()
    assert "50.2 M" in text
    assert "dictionary (in 11 passes)" in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 110


@pytest.mark.parametrize("module", [progress, tables], ids=lambda module: module.__name__)
def test_examples(module):
    assert doctest.testmod(module).failed == 0


def test_a_resumed_pass_claims_no_rate():
    """Its time is that of this run, its patches are of all runs."""
    fresh, resumed = io.StringIO(), io.StringIO()
    play(Console(file=fresh, width=120))
    play(Console(file=resumed, width=120), resumed=3)
    assert "86.4 k patches/s" in fresh.getvalue()
    assert "patches/s" not in resumed.getvalue()
