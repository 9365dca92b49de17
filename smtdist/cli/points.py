"""`points fit`: tables of points embedded by who is near whom."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from smtdist import configuration
from smtdist.cli import options as opt
from smtdist.cli.coders import say_fitted
from smtdist.cli.errors import usage
from smtdist.cli.plan import say_fit
from smtdist.cli.session import engine_for
from smtdist.data.source import Source
from smtdist.engine.manifest import Facts
from smtdist.errors import ConfigurationError, counted
from smtdist.models import store
from smtdist.models.points import sites as point_sites
from smtdist.models.points.fit import fit_table
from smtdist.models.points.sites import SiteKind
from smtdist.models.points.table import PointSettings

points = typer.Typer(
    help="Embed the rows of a table by their neighbours: nearest rows, noisy copies, local weights, or rows before and after.",
    no_args_is_help=True,
    add_completion=False,
)

SETTINGS = opt.SettingOptions(
    PointSettings, tuple(name for name in PointSettings.declared() if name != "of_sites")
)
Table = Annotated[str, typer.Argument(metavar="TABLE", help="HDF5 file (with --dataset) or .npy file.")]
Dataset = Annotated[
    str | None, typer.Option(help="Dataset of the HDF5 file with rows of numbers (points, numbers).")
]


@points.command(
    "fit",
    epilog="Example: smtdist points fit table.h5 --dataset x --context lle --size 200 --out p.h5",
)
def fit(
    table: Table,
    out: opt.ModelOut = None,
    dataset: Dataset = None,
    changes: Annotated[dict[str, Any], SETTINGS] = opt.NOTHING,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of --sites; may be repeated."),
    ] = None,
    plan: opt.PlanOnly = False,
    where: opt.Where = opt.HERE,
    checkpoint: opt.Checkpoint = None,
    overwrite: opt.Overwrite = False,
    json: opt.Json = False,
) -> None:
    """Embed the rows of a table: one pass over points and their neighbours, then a solve."""
    out = opt.target(out, plan, overwrite, data=table)
    with usage():
        own = configuration.parse_settings(set_ or [])
        settings = PointSettings(**changes, of_sites=own)
        kind = point_sites.site_kind(settings.sites, own)
        if kind is not None and (settings.context != PointSettings().context or settings.lengths):
            raise ConfigurationError(
                f"Samples of the kind {settings.sites} define their own neighbours; leave out --context and --lengths."
            )
    source = opened(kind, table, dataset)
    if plan:
        say_fit(
            lambda engine: fit_table(source, settings, engine),
            source,
            settings.n_components,
            where,
            checkpoint,
            json,
        )
        return
    with engine_for(where, source, checkpoint, lambda: Facts.of(source, settings.to_dict())) as engine:
        model, records = fit_table(source, settings, engine)
    size_bytes = store.save(model, out, overwrite=overwrite)
    result = {"out": str(out.absolute()), "bytes": size_bytes, **model.summary(), "passes": records}
    values = ", ".join(f"{value:.3g}" for value in result["eigenvalues"])
    figures = f"{counted(source.n_samples, 'point')}, {counted(result['n_features'], 'feature')}, eigenvalues {values}"
    say_fitted(result, records, figures, json)


def opened(kind: SiteKind | None, path: str, dataset: str | None) -> Source:
    """Return the samples that options name."""
    with usage():
        return point_sites.table_of([path], dataset) if kind is None else kind.opened([path], dataset)
