"""A package that brings something to smtdist, as an installed one would be found, and commands in this process."""

import h5py
import numpy as np
from typer.testing import CliRunner

from smtdist.cli import app
from smtdist.engine.passes import WATCHERS


def install(monkeypatch, folder, group, name, value):
    """Put a package without code on the path that names `value` as an entry point."""
    install_all(monkeypatch, folder, {group: {name: value}})


def install_all(monkeypatch, folder, groups):
    """Put a package on the path with all entry points that `groups` has, by group and name."""
    about = folder / "brought-1.0.dist-info"
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: brought\nVersion: 1.0\n")
    lines = [
        line
        for group, names in groups.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in names.items()))
    ]
    (about / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(folder))


def run(words):
    """Return what a command prints; it must end well."""
    done = CliRunner().invoke(app, [*words.split(), *(["-q"] if _quiet(words) else [])])
    assert done.exit_code == 0, (words, done.output, done.exception)
    return done.stdout


def _quiet(words):
    return words.split()[0] in ("fit", "plan", "update", "evaluate", "transform", "report")


def run_stopped(words):
    """Return what a command that is stopped after its first pass ends with."""

    def stopping(engine):
        def stop(event):
            if event["kind"] == "pass_finished":
                engine.stop.set(130)

        engine.events.subscribe(stop)

    before = WATCHERS.get()
    WATCHERS.set((*before, stopping))
    try:
        return CliRunner().invoke(app, [*words.split(), "-q"])
    finally:
        WATCHERS.set(before)


def arrays(path):
    """Return what a file holds, less what was added and withdrawn, and attributes."""
    found = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda name, item: found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None
        )
    return {name: one for name, one in found.items() if not name.startswith("audit/")}


def same(one, other):
    """Two files hold the same arrays."""
    one, other = arrays(one), arrays(other)
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
