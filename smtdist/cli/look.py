"""Verbs that tell and draw what files hold, and `settings`, what a fit can be asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from rich.text import Text

from smtdist import configuration
from smtdist.cli import options as opt
from smtdist.cli.errors import WrongUsage, as_typed, in_shell, usage
from smtdist.cli.session import engine_for, say_result
from smtdist.data.writing import check_target, require_picture
from smtdist.errors import counted, rendered, visible
from smtdist.models import kinds, store
from smtdist.monitor import tables
from smtdist.monitor.tables import VisibleConsole
from smtdist.settings import described


def info(model: Path | None = None, json: bool = False) -> None:
    """Show what a file holds: a model, concepts, representations, a head or images.

    Without a file, show versions, cores, and how this processor multiplies patches with atoms.

    Example: smtdist info model.h5 --json
    """
    from smtdist.report.facts import facts_of, installation, kind_of, looks_of

    if model is None:
        facts, rows = installation()
        say_result(facts, json, tables.facts_table("smtdist", rows))
        return
    facts, readable = facts_of(model), looks_of(kind_of(model)).readable
    size = ("file", tables.size(facts["bytes"]))
    shown: list[Any] = [tables.facts_table(visible(str(model)), [size, *readable(facts)])]
    if facts["audit"]:
        shown.append(tables.audit_table(facts["audit"]))
    if settings := sorted((name, as_typed(value)) for name, value in facts["configuration"].items()):
        shown.append(tables.facts_table("\nSettings", settings))
    say_result(facts, json, *shown)


def check(paths: list[Path], json: bool = False) -> None:
    """Read files that smtdist has written, checkpoint folders too, and compare them with their checksums.

    Exits with 1 where anything is wrong. Files of earlier versions have no checksums, which is said.

    Example: smtdist check model.h5 z.h5 checkpoint/
    """
    from smtdist.report import checking

    found = [
        one._replace(text=rendered(one.text, in_shell)) for path in paths for one in checking.checked(path)
    ]
    lines = [f"{verdict.file}: {verdict.text}" for verdict in found]
    say_result({"files": [verdict._asdict() for verdict in found]}, json, *lines)
    if any(verdict.state == checking.WRONG for verdict in found):
        raise typer.Exit(1)


def settings(model: str = "smt", code: str | None = None, all_: bool = False, json: bool = False) -> None:
    """List the settings of a model that --set takes, with defaults, and the presets with what they change.

    Example: smtdist settings words
    """
    from smtdist.models import coded, jobs

    if code is not None and model != jobs.SMT:
        raise WrongUsage(f"--code is of the transform of images; leave out {model} or --code.")
    with usage():
        learned = code is not None and code not in configuration.BINARY
        declared = dict(coded.declared(code) if code and learned else jobs.declared(model))
    if code is not None:  # which is said already
        declared.pop("code", None)
    shown = {
        name: field
        for name, field in declared.items()
        if all_ or json or not field.metadata["setting"].advanced
    }
    about: dict[str, Any] = {"settings": described(shown)}
    said = {
        name: {part: as_typed(text) for part, text in one.items()}
        for name, one in about["settings"].items()
    }
    lines: list[Any] = [tables.settings_table(said, VisibleConsole().width)]
    if left := len(declared) - len(shown):
        lines.append(
            f"{counted(left, 'advanced setting')} more: smtdist settings {f'--code {code}' if code else model} --all"
        )
    if code is not None:
        about["code"] = code
    elif model == jobs.SMT:
        about |= configuration.preset_facts()
        for name, line in configuration.preset_lines().items():
            note = Text(as_typed(f"  {configuration.PRESET_NOTES[name]}"), style="dim")
            lines += [Text(as_typed(f"--preset {name}: {line}")), note]
        lines.append(
            "smtdist settings --code l1 (or s3c, omp, sc) lists those of a fit with --set code=l1."
        )
    say_result(about, json, *lines)


def near(model: Path, words: list[str], count: int = 10, json: bool = False) -> None:
    """Show the words nearest to others, and those most often near them: (cosine of the embeddings; times near each other).

    Example: smtdist near words.h5 february raccoon
    """
    from smtdist.models.words.model import WordModel

    fitted = store.load(model, kind=WordModel)
    result = {
        word: {
            "nearest": [neighbour._asdict() for neighbour in fitted.nearest(word, count)],
            "beside": [neighbour._asdict() for neighbour in fitted.most_cooccurring(word, count)],
        }
        for word in words
    }
    lines = [
        f"{word}, {title}: "
        + ", ".join(f"{one['word']} ({one['cosine']:.2f}; {one['times']:,})" for one in lists[key])
        for word, lists in result.items()
        for title, key in (("nearest", "nearest"), ("most often beside it", "beside"))
    ]
    say_result({"near": result}, json, *lines)


def search(model: Path, formula: str, json: bool = False) -> None:
    """List the points whose concepts fulfil a formula.

    Example: smtdist search concepts.h5 "17 and not 4"
    """
    from smtdist.concepts import reading
    from smtdist.concepts.model import ConceptModel

    with usage():
        points = reading.search(store.load(model, kind=ConceptModel).concepts, formula)
    result = {"query": formula, "n_points": len(points), "points": points.tolist()}
    say_result(result, json, " ".join(map(str, points)))


def report(
    model: Path,
    out: Path,
    data: Path | None = None,
    train: str | None = None,
    test: str | None = None,
    limit: int = 2000,
    run: Path | None = None,
    and_: list[Path] | None = None,
    where: opt.Where = opt.HERE,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Write an HTML page that shows what a file holds: settings, spectrum, dictionary, neighbours, mistakes, words, concepts.

    Example: smtdist report model.h5 --data data.h5 --train train --test test --out report.html
    """
    from smtdist.evaluate.run import Labelled
    from smtdist.models import loading
    from smtdist.report.build import records_of, write_report
    from smtdist.report.facts import kind_of
    from smtdist.report.looks import look_at_some

    if out.suffix.lower() not in (".html", ".htm"):
        raise WrongUsage(f"{out} is not a name of a page; let it end in .html.")
    if (data is None) != (train is None) or (data is None) != (test is None):
        raise WrongUsage("Labelled images need all three of --data, --train and --test.")
    kind = kind_of(model)
    if data is not None and kind not in kinds.OF_IMAGES:
        raise WrongUsage(f"--data is for models of images, but {model} holds {kind}; leave it out.")
    check_target(out, overwrite, inputs=(model, data, run, *(and_ or ())))
    looked = None
    if data is not None and train is not None and test is not None:
        fitted: Any = loading.load_transform(model, statistics=False)
        known, asked = (Labelled.open([str(data)], group, fitted.scaling) for group in (train, test))
        with engine_for(where, known.source) as engine:
            looked = look_at_some(fitted, known, asked, limit, engine)
    records = None if run is None else records_of(run)
    size = write_report(model, out, overwrite=overwrite, looked=looked, records=records, others=and_ or ())
    result = {"report": str(out.absolute()), "file": str(model.absolute()), "kind": kind, "bytes": size}
    say_result(result, json, f"{out}: {tables.size(size)}")


def draw(
    model: Path,
    points: list[str],
    names: str | None = None,
    figure: Path = Path("points"),
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Draw which concepts separate some points, and where all others lie.

    Example: smtdist draw concepts.h5 3 14 --figure points
    """
    from smtdist.concepts import drawing, reading
    from smtdist.concepts.model import ConceptModel

    fitted = store.load(model, kind=ConceptModel)
    with usage():
        label = None if names is None else reading.stored_names(names, fitted.points)
        numbers = [reading.numbered(word, label, fitted.points) for word in points]
        found, paths = drawing.draw_points(fitted, numbers, figure, names=label, overwrite=overwrite)
    plain = [{"pattern": one.pattern, "concepts": one.concepts} for one in found]
    lines = [
        f"  {counted(len(one.concepts), 'concept'):>13} separating "
        f"{', '.join(word for word, held in zip(points, one.pattern, strict=True) if held)} from the others"
        for one in found
    ]
    say_result({"points": numbers, "kinds": plain, "files": paths}, json, *paths, *lines)


def filters(
    model: Path,
    out: Path,
    most: int = 1024,
    whitened: bool = False,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Draw the atoms of a model as patches.

    Example: smtdist filters model.h5 --out atoms.png
    """
    from smtdist.models import loading
    from smtdist.plot.sheets import save_filters

    with usage():
        require_picture(out, ".png", ".jpg", ".jpeg", ".pdf")
    check_target(out, overwrite, inputs=(model,))
    found: Any = loading.load_images(model, statistics=False)
    loading.require_one(found, model)
    coder = getattr(found, "coder", found)  # what a transform of a learned code has beside its embedding
    if whitened and not hasattr(coder, "whitened_filters"):
        raise WrongUsage("--whitened is for learned codes; leave it out for atoms that are patches.")
    drawn = coder.whitened_filters() if whitened else coder.pictures()
    save_filters(drawn, out, most)
    result = {"out": str(out.absolute()), "filters": min(most, len(drawn))}
    say_result(result, json, f"{result['out']}: {result['filters']} filters")
