"""`filters`: the atoms of a model as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from smtdist.cli import options as opt
from smtdist.cli.errors import WrongUsage
from smtdist.cli.session import print_json, result_console
from smtdist.codes.coder import Coder
from smtdist.data.writing import check_target
from smtdist.models import loading
from smtdist.models.coders.manifold import Manifold


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
    from smtdist.plot.sheets import save_filters

    check_target(out, overwrite, inputs=(model,))
    found: Any = loading.load_images(model, statistics=False)
    loading.require_one(found, model)
    coder = found.coder if isinstance(found, Manifold) else found
    if isinstance(coder, Coder):
        drawn = coder.whitened_filters() if whitened else coder.filters()
    elif whitened:
        raise WrongUsage("--whitened is for learned codes; leave it out for atoms that are patches.")
    else:
        drawn = coder.pictures()
    save_filters(drawn, out, most)
    result = {"out": str(out.absolute()), "filters": min(most, len(drawn))}
    if json:
        print_json(result)
    else:
        result_console().print(
            f"{result['out']}: {result['filters']} filters", highlight=False, soft_wrap=True
        )
