"""A package that brings something to smtdist, as an installed one would be found, and the life of a model of it by commands."""

from pathlib import Path

import calling

import smtdist


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
    return calling.run(words, "-q" if words.split()[0] in QUIET else "")


QUIET = ("fit", "plan", "update", "evaluate", "transform", "report")


def lived(asked, first="a", more="b"):
    """Fit the samples a of d.h5 to a.h5, add b and take it out again: every verb of a transform by its command.

    Returns what the fit says of its passes.
    """
    fit, more = f"d.h5 --dataset {first} {asked}", f"d.h5 --dataset {more}"
    planned = [one["name"] for one in calling.told(f"plan {fit}")["passes"]]
    assert planned[-2:] == ["statistics", "solve"]
    passes = calling.told(f"fit {fit} --checkpoint c --out a.h5 -q")["passes"]
    for line in (
        "resume c --overwrite",
        f"update a.h5 {more} --out ab.h5",
    ):
        run(line)
    for line in (f"update a.h5 {more} --alone --out b.h5", "merge a.h5 b.h5 --out sum.h5"):
        run(line)
    for line in (f"withdraw ab.h5 {more} --out back.h5", "report ab.h5 --out r.html", "check ab.h5 c"):
        run(line)
    run(f"transform ab.h5 {more} --out z.h5")
    calling.same_sums("back.h5", "a.h5")
    calling.same_sums("sum.h5", "ab.h5")
    return passes


def stop(engine, event):
    """Stop a command after its first pass."""
    if event["kind"] == "pass_finished":
        engine.stop.set(130)


def require_resumable(fit):
    """A fit that is stopped leaves no model; resumed it is the one of a fit undisturbed, and other settings are refused."""
    run(f"{fit} --checkpoint whole --out one.h5")
    assert calling.watched(f"{fit} -q --checkpoint c --out again.h5", told=stop).exit_code == 130
    assert not Path("again.h5").exists()
    with smtdist.watch("c") as view:
        assert view.status == "stopped"
    run("resume c")
    calling.same_sums("one.h5", "again.h5")
    done = calling.call(f"{fit} --set bits=9 --checkpoint c --out other.h5")
    assert done.exit_code == 1
    assert "bits is 9, was 16" in " ".join(done.stderr.split())
