"""`merge` and `update`: add and withdraw data, by their sums alone or by reading what is new."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from smtdist.cli import options as opt
from smtdist.cli.errors import WrongUsage
from smtdist.cli.fit import model_line, summary
from smtdist.cli.session import Where, engine_for, print_json, result_console
from smtdist.configuration import parse_setting
from smtdist.data.opening import open_source
from smtdist.data.writing import check_target
from smtdist.errors import ConfigurationError
from smtdist.models.loading import Transform, load_transform, save
from smtdist.models.merge import merged, require_memory, resolved, with_settings
from smtdist.models.merge import update as updated
from smtdist.monitor import tables


def merge(
    models: Annotated[
        list[Path], typer.Argument(metavar="A.h5 [B.h5 ...]", help="Models whose sums to add.")
    ],
    out: Annotated[Path, typer.Option(metavar="M.h5", help="Model file to write.")],
    subtract: Annotated[
        list[Path] | None,
        typer.Option(metavar="C.h5", help="Model whose samples to withdraw; may be repeated."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a setting of the solve or the pooling, such as n_components; may be repeated.",
        ),
    ] = None,
    allow_repeats: opt.Repeats = False,
    overwrite: opt.Overwrite = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Add the sums of models, withdraw those of others, and solve again; no data are read.

    All models must share whitening, dictionary and codes: fit the first, and the others with --from-model. The result
    has the bits of one fit of all samples. With one model and --set it is a new solve of the same sums.
    """
    started = time.perf_counter()
    check_target(out, overwrite, inputs=(*models, *(subtract or ())))
    first = load_transform(models[0])
    if first.statistics is not None:
        require_memory(first.statistics.held_bytes, len(first.statistics.activity))
    try:
        first = with_settings(first, dict(parse_setting(text) for text in set_ or []))
    except (ConfigurationError, TypeError) as error:
        raise WrongUsage(str(error)) from error
    model, total = merged(
        (str(models[0]), first), _loaded(models[1:]), _loaded(subtract or []), repeats=allow_repeats
    )
    result = resolved(model, total)
    written = save(result, out, overwrite=overwrite)
    _report(result, out, {"bytes": written, "seconds": time.perf_counter() - started}, json)


def update(
    model: opt.ModelFile,
    data: opt.Data,
    dataset: opt.Dataset,
    out: Annotated[
        Path | None, typer.Option(metavar="M.h5", help="Model file to write. Default: replace MODEL.h5.")
    ] = None,
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Take the samples out instead.")] = False,
    allow_repeats: opt.Repeats = False,
    workers: opt.Workers = None,
    cluster: opt.Cluster = None,
    checkpoint: opt.Checkpoint = None,
    on_bad_chunk: opt.OnBadChunk = None,
    overwrite: opt.Overwrite = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Add images to a model, or withdraw them: one pass over them alone, then a solve.

    Whitening and dictionary stay, so ten updates have the bits of one fit with them. MODEL.h5 is replaced once the new
    one is whole. A run that was stopped goes on when it is started again with the same --checkpoint.
    """
    target = model if out is None else out
    if out is not None:
        check_target(out, overwrite, inputs=(model,), data=data)
    present, bad = load_transform(model), opt.bad_chunk(on_bad_chunk) or "raise"
    source = open_source(data, dataset, present.scaling, fitted=True, skip_damaged=bad == "skip")
    where = Where(workers, cluster, quiet)
    with engine_for(where, source, checkpoint, lambda: present.facts(source)) as engine:
        engine.on_bad_chunk = bad
        result, records = updated(present, source, engine, withdraw=withdraw, repeats=allow_repeats)
    written = save(result, target, overwrite=out is None or overwrite)
    _report(result, target, {"bytes": written, "passes": records}, json)


def _loaded(paths: list[Path]) -> Iterator[tuple[str, Transform]]:
    for path in paths:
        yield str(path), load_transform(path)


def _report(model: Transform, path: Path, facts: dict[str, Any], as_json: bool) -> None:
    audit = model.provenance.get("audit", [])
    n_samples = sum(entry["n_samples"] * (1 if entry["action"] == "added" else -1) for entry in audit)
    result = {
        "model": str(path.absolute()),
        **facts,
        **summary(model),
        "n_samples": n_samples,
        "audit": audit,
    }
    if as_json:
        print_json(result)
        return
    console = result_console()
    console.print(tables.audit_table(audit))
    console.print(model_line(result), highlight=False, soft_wrap=True)
