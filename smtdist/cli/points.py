"""`points fit` and `points transform`: tables of points embedded by who is near whom."""

from __future__ import annotations

import enum
import time
from pathlib import Path
from typing import Annotated

import typer

from smtdist import configuration
from smtdist.cli import options as opt
from smtdist.cli.coders import say_fitted, write_features
from smtdist.cli.errors import usage
from smtdist.cli.plan import say_fit
from smtdist.cli.session import Where, engine_for
from smtdist.data.source import Source
from smtdist.data.writing import check_target
from smtdist.engine.manifest import Facts
from smtdist.errors import ConfigurationError, counted
from smtdist.models import store
from smtdist.models.points import sites as point_sites
from smtdist.models.points import table as tables_of_points
from smtdist.models.points.fit import PointModel
from smtdist.models.points.sites import SiteKind

_DEFAULT = tables_of_points.PointSettings()

points = typer.Typer(
    help="Embed the rows of a table by their neighbours: nearest rows, noisy copies, local weights, or rows before and after.",
    no_args_is_help=True,
    add_completion=False,
)


Features = enum.StrEnum("Features", "landmarks threshold l1 omp interpolation rbf fourier quadratic")
Context = enum.StrEnum("Context", "noise knn mean lle time")
Moment = enum.StrEnum("Moment", "second centred")
Method = enum.StrEnum("Method", "auto exact faiss")

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
    out: Annotated[Path, typer.Option(metavar="MODEL.h5", help="Model file to write.")],
    dataset: Dataset = None,
    features: Annotated[
        Features,
        typer.Option(
            help="Code of a point: the nearest landmark (landmarks), all within an angle (threshold), an L1 code over landmarks "
            "(l1), matching pursuit (omp), interpolation between them, Gaussians around them (rbf), random Fourier features "
            "(fourier), or products of two numbers (quadratic)."
        ),
    ] = Features.landmarks,
    size: Annotated[
        int, typer.Option(min=1, help="Number of landmarks or random features.")
    ] = _DEFAULT.n_atoms,
    width: Annotated[float, typer.Option(help="Width of the Gaussian (rbf, fourier).")] = _DEFAULT.width,
    threshold: Annotated[
        float, typer.Option(min=-1, max=1, help="Cosine from which a landmark is active (threshold).")
    ] = _DEFAULT.threshold,
    penalty: Annotated[float, typer.Option(help="Penalty of the L1 code (l1).")] = _DEFAULT.penalty,
    active: Annotated[int, typer.Option(min=1, help="Number of active landmarks (omp).")] = _DEFAULT.active,
    context: Annotated[
        Context,
        typer.Option(
            help="Neighbours of a point: its k nearest points (knn), their mean (mean), the weights that rebuild it from them "
            "(lle), a noisy copy of it (noise), or the rows before and after it (time)."
        ),
    ] = Context.knn,
    neighbours: Annotated[
        int, typer.Option(min=1, help="Number k of nearest points.")
    ] = _DEFAULT.n_neighbors,
    noise: Annotated[
        float, typer.Option(min=0.0, help="Standard deviation of the noise of copies (noise).")
    ] = _DEFAULT.noise,
    order: Annotated[
        int, typer.Option(min=1, max=2, help="Order of the differences (time).")
    ] = _DEFAULT.difference_order,
    lengths: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,...", help="Number of rows of each sequence (time). Default: one sequence."
        ),
    ] = None,
    moment: Annotated[
        Moment,
        typer.Option(
            help="Moment of the codes that is normalised: second, or centred as in slow feature analysis."
        ),
    ] = Moment.second,
    components: Annotated[int, typer.Option(min=1, help="Number of components.")] = _DEFAULT.n_components,
    sites: Annotated[
        str,
        typer.Option(
            help="Kind of sample: rows, or a kind that an installed package brings and that defines its own neighbours."
        ),
    ] = point_sites.ROWS_OF_TABLES,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of --sites; may be repeated."),
    ] = None,
    method: Annotated[
        Method,
        typer.Option(help="How nearest points are found; auto is exact."),
    ] = Method.auto,
    seed: Annotated[int, typer.Option(min=0, help="Seed of noise and random features.")] = 0,
    plan: opt.PlanOnly = False,
    workers: opt.Workers = None,
    cluster: opt.Cluster = None,
    memory: opt.Memory = None,
    checkpoint: opt.Checkpoint = None,
    overwrite: opt.Overwrite = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Embed the rows of a table: one pass over points and their neighbours, then a solve."""
    check_target(out, overwrite, data=table)
    with usage():
        own = configuration.parse_settings(set_ or [])
        kind = point_sites.site_kind(sites, own)
        if kind is not None and (context.value != _DEFAULT.context or lengths):
            raise ConfigurationError(
                f"Samples of the kind {sites} define their own neighbours; leave out --context and --lengths."
            )
        settings = tables_of_points.PointSettings(
            feature_map=features.value, n_atoms=size, width=width, threshold=threshold, penalty=penalty, active=active,
            context=context.value, n_neighbors=neighbours, noise=noise,
            difference_order=order, lengths=opt.sequence_lengths(lengths), second_moment=moment.value,
            n_components=components, method=method.value, sites=sites, of_sites=own, random_state=seed,
        )  # fmt: skip
    source = _opened(kind, table, dataset)
    where = Where(workers, cluster, quiet, memory=memory)
    if plan:
        say_fit(
            lambda engine: tables_of_points.fit_table(source, settings, engine),
            source,
            components,
            where,
            checkpoint,
            json,
        )
        return
    with engine_for(where, source, checkpoint, lambda: Facts.of(source, settings.to_dict())) as engine:
        model, records = tables_of_points.fit_table(source, settings, engine)
    size_bytes = store.save(model, out, overwrite=overwrite)
    result = {"out": str(out.absolute()), "bytes": size_bytes, **model.summary(), "passes": records}
    values = ", ".join(f"{value:.3g}" for value in result["eigenvalues"])
    figures = f"{counted(source.n_samples, 'point')}, {counted(result['n_features'], 'feature')}, eigenvalues {values}"
    say_fitted(result, records, figures, json)


@points.command(
    "transform", epilog="Example: smtdist points transform p.h5 table.h5 --dataset more --out z.h5"
)
def transform(
    model: opt.ModelFile,
    table: Table,
    out: Annotated[
        Path, typer.Option(metavar="Z.h5", help="File to write, with the dataset z (sample, feature).")
    ],
    dataset: Dataset = None,
    workers: opt.Workers = None,
    cluster: opt.Cluster = None,
    overwrite: opt.Overwrite = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Write P f(x) of every row of a table, new points too, to an HDF5 file, piece by piece."""
    started = time.perf_counter()
    check_target(out, overwrite, inputs=(model,), data=table)
    fitted = store.load(model, kind=PointModel)
    source = _opened(fitted.kind, table, dataset)
    attributes = {
        "configuration": "{}" if fitted.settings is None else fitted.settings.to_json(),
        "model": str(model.absolute()),
        "model_fingerprint": fitted.provenance.get("fingerprint", ""),
        "source": source.name,
    }
    write_features(
        out,
        source,
        lambda engine: tables_of_points.embedded(fitted, source, engine),
        fitted.feature_shape,
        attributes,
        Where(workers, cluster, quiet),
        started=started,
        overwrite=overwrite,
        json=json,
        dtype="float64",
        units=("points", "components"),
    )


def _opened(kind: SiteKind | None, path: str, dataset: str | None) -> Source:
    """Return the samples that options name."""
    with usage():
        return point_sites.table_of([path], dataset) if kind is None else kind.opened([path], dataset)
