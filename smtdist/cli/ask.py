"""What is asked of a fitted model alone: words near others, points by their concepts, and pictures of atoms."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smtdist.cli import options as opt
from smtdist.cli.errors import WrongUsage, usage
from smtdist.cli.session import print_json, result_console, say
from smtdist.data import hdf5
from smtdist.data.writing import check_target
from smtdist.errors import DataError
from smtdist.models import store

if TYPE_CHECKING:
    from smtdist.concepts.model import ConceptModel

Concepts = Annotated[
    Path, typer.Argument(metavar="CONCEPTS.h5", help="Concepts, written by smtdist fit --model concepts.")
]


def near(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL.h5", help="Model of words, written by smtdist fit --model words."),
    ],
    words: Annotated[list[str], typer.Argument(metavar="WORD...", help="Words to look up.")],
    count: Annotated[int, typer.Option(min=1, help="Number of words to show.")] = 10,
    json: opt.Json = False,
) -> None:
    """Show the words nearest to others in a model of words, and the words that co-occur with them most."""
    from smtdist.models.words.model import WordModel

    fitted = store.load(model, kind=WordModel)
    result = {
        word: {
            "nearest": [neighbour._asdict() for neighbour in fitted.nearest(word, count)],
            "beside": [neighbour._asdict() for neighbour in fitted.most_cooccurring(word, count)],
        }
        for word in words
    }
    if json:
        print_json({"near": result})
        return
    for word, lists in result.items():
        for title, key in (("nearest", "nearest"), ("most often beside it", "beside")):
            shown = ", ".join(
                f"{one['word']} ({one['cosine']:.2f}; {one['times']:,})" for one in lists[key]
            )
            say(f"{word}, {title}: {shown}")


def search(
    model: Concepts,
    formula: Annotated[
        str, typer.Argument(metavar="FORMULA", help='Concepts by their numbers, such as "17 and not 4".')
    ],
    json: opt.Json = False,
) -> None:
    """List the points whose concepts fulfil a formula."""
    from smtdist.concepts import reading

    with usage():
        points = reading.search(_concepts(model).concepts, formula)
    if json:
        print_json({"query": formula, "n_points": len(points), "points": points.tolist()})
    else:
        result_console().print(" ".join(map(str, points)), highlight=False, soft_wrap=True)


def draw(
    model: Concepts,
    points: Annotated[list[str], typer.Argument(metavar="POINT...", help="Points, by name or number.")],
    names: Annotated[
        str | None,
        typer.Option(metavar="FILE.h5:DATASET", help="Dataset with the names of the points."),
    ] = None,
    figure: Annotated[
        Path,
        typer.Option(
            metavar="PREFIX",
            help="Name of the pictures: PREFIX-analogram.png, PREFIX-projection.png.",
        ),
    ] = Path("points"),
    overwrite: opt.Overwrite = False,
    json: opt.Json = False,
) -> None:
    """Draw which concepts separate some points, and where all others lie."""
    from smtdist.concepts import drawing

    fitted = _concepts(model)
    label = None if names is None else _names(names, fitted.points)
    numbers = [_point(word, label, fitted.points) for word in points]
    with usage():
        kinds, paths = drawing.draw_points(fitted, numbers, figure, names=label, overwrite=overwrite)
    if json:
        found = [{"pattern": kind.pattern, "concepts": kind.concepts} for kind in kinds]
        print_json({"points": numbers, "kinds": found, "files": paths})
        return
    for line in paths:
        say(line)
    for kind in kinds:
        inside = ", ".join(word for word, held in zip(points, kind.pattern, strict=True) if held)
        say(f"  {len(kind.concepts):>4} concepts separate {inside} from the others")


def _concepts(path: Path) -> ConceptModel:
    from smtdist.concepts.model import ConceptModel

    return store.load(path, kind=ConceptModel)


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
    model: Annotated[Path, typer.Argument(metavar="MODEL.h5", help="Model written by smtdist fit.")],
    out: Annotated[Path, typer.Option(metavar="FILE.png", help="Picture to write.")],
    most: Annotated[int, typer.Option(min=1, help="Draw at most this many atoms.")] = 1024,
    whitened: Annotated[
        bool,
        typer.Option(
            "--whitened",
            help="Draw the atoms of a learned code in whitened space, not converted back to pixels.",
        ),
    ] = False,
    overwrite: opt.Overwrite = False,
    json: opt.Json = False,
) -> None:
    """Draw the atoms of a model as patches."""
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
    if json:
        print_json(result)
    else:
        result_console().print(
            f"{result['out']}: {result['filters']} filters", highlight=False, soft_wrap=True
        )
