"""Verbs that draw what a file holds: `report`, `filters` and `draw`."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import Any

from smtdist.cli import options as opt
from smtdist.cli.errors import WrongUsage, usage
from smtdist.cli.session import engine_for, say_result
from smtdist.data import hdf5
from smtdist.data.writing import check_target
from smtdist.errors import DataError, ModelError
from smtdist.models import kinds, store
from smtdist.monitor import tables


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
    from smtdist.report.build import write_report
    from smtdist.report.facts import kind_of

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
        looked = _looked(model, data, (train, test), limit, where)
    records = None if run is None else _records(run)
    size = write_report(model, out, overwrite=overwrite, looked=looked, records=records, others=and_ or ())
    result = {"report": str(out.absolute()), "file": str(model.absolute()), "kind": kind, "bytes": size}
    say_result(result, json, f"{out}: {tables.size(size)}")


def _looked(model: Path, data: Path, groups: tuple[str, str], limit: int, where: opt.Where) -> Any:
    from smtdist.evaluate.run import Labelled
    from smtdist.models import loading
    from smtdist.report.looks import look_at_some

    fitted = loading.load_transform(model, statistics=False)
    known, asked = (Labelled.open([str(data)], group, fitted.scaling) for group in groups)
    with engine_for(where, known.source) as engine:
        return look_at_some(fitted, known, asked, limit, engine)


def _records(run: Path) -> list[dict[str, Any]]:
    """Return the records of the passes from what a fit printed, the last object of which has them."""
    try:
        text = run.read_text("utf-8").strip()
        found = json_text.loads(text if text.startswith("{\n") else text.splitlines()[-1])
        return list(found["passes"])
    except (OSError, UnicodeDecodeError, ValueError, LookupError, TypeError) as error:
        raise ModelError(
            f"{run} is not what smtdist fit --json prints; give that, or leave --run out."
        ) from error


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
    from smtdist.concepts import drawing
    from smtdist.concepts.model import ConceptModel

    fitted = store.load(model, kind=ConceptModel)
    label = None if names is None else _names(names, fitted.points)
    numbers = [_point(word, label, fitted.points) for word in points]
    with usage():
        found, paths = drawing.draw_points(fitted, numbers, figure, names=label, overwrite=overwrite)
    plain = [{"pattern": one.pattern, "concepts": one.concepts} for one in found]
    lines = [
        f"  {len(one.concepts):>4} concepts separate "
        f"{', '.join(word for word, held in zip(points, one.pattern, strict=True) if held)} from the others"
        for one in found
    ]
    say_result({"points": numbers, "kinds": plain, "files": paths}, json, *paths, *lines)


def _names(text: str, points: int) -> list[str]:
    path, colon, dataset = text.rpartition(":")
    if not colon:
        raise WrongUsage(f"{text!r} names no dataset; write FILE.h5:DATASET.")
    with hdf5.open_dataset(path, dataset) as stored:
        if stored.shape != (points,) or stored.dtype.kind not in "OS":
            raise DataError(f"{text} does not hold {points:,} names; give one text for each point.")
        return [str(name) for name in stored.asstr()[()]]


def _point(word: str, names: list[str] | None, points: int) -> int:
    if names is not None and word in names:
        return names.index(word)
    if word.isdecimal() and int(word) < points:
        return int(word)
    raise WrongUsage(f"There is no point {word!r}; give a name, or a number from 0 to {points - 1}.")


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
