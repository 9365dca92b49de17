"""A package that brings something to smtdist, as an installed one would be found, and commands in this process."""

from typer.testing import CliRunner

from smtdist.cli import app


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
