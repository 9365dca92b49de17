"""`merge` and `update`: add and withdraw data, by their sums alone or by reading what is new."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from smtdist import configuration
from smtdist.cli import options as opt
from smtdist.cli.errors import WrongUsage, usage
from smtdist.cli.fit import model_lines
from smtdist.cli.session import engine_for, print_json, result_console, say_repeated
from smtdist.data import locking
from smtdist.data.same_file import require_apart
from smtdist.data.showing import n_samples
from smtdist.data.writing import check_target
from smtdist.models import adding, loading, store
from smtdist.models import merge as merging
from smtdist.monitor import tables


def merge(
    models: Annotated[
        list[Path], typer.Argument(metavar="A.h5 [B.h5 ...]", help="Models whose sums to add.")
    ],
    out: Annotated[Path, typer.Option(metavar="M.h5", help="Model file to write.")],
    subtract: Annotated[
        list[Path] | None,
        typer.Option(metavar="C.h5", help="Model whose samples are withdrawn; may be repeated."),
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
) -> None:
    """Add the sums of models, subtract those of others, and solve again; no data are read.

    All models must have the same whitening, dictionary and codes: fit the first, and make the others with smtdist
    update --alone. The result is bit-identical to one fit of all samples. With one model and --set, the same sums
    are solved again with another setting.

    Data that are in the sums already are refused without --allow-repeats. A few repeated samples, up to 5 %, are
    added, and their number is printed.
    """
    started = time.perf_counter()
    check_target(out, overwrite, inputs=(*models, *(subtract or ())))
    with usage():
        changes = configuration.parse_settings(set_ or [])
        result = adding.merge(models, subtract=subtract or [], allow_repeats=allow_repeats, **changes)
    written = store.save(result, out, overwrite=overwrite)
    _report(result, out, {"bytes": written, "seconds": time.perf_counter() - started}, json)


def update(
    model: opt.ModelFile,
    data: opt.Data,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="Images in the file (a dataset or a group), rows of a table, or a clip. Default for video: all clips."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="M.h5", help="Model file to write. Default: replace MODEL.h5.")
    ] = None,
    lengths: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,...",
            help="Number of rows of each sequence, for a table in time. Default: one sequence.",
        ),
    ] = None,
    withdraw: Annotated[
        bool, typer.Option("--withdraw", help="Withdraw the samples instead of adding them.")
    ] = False,
    alone: Annotated[
        bool,
        typer.Option(
            "--alone",
            help="Write a model of these samples only, with the codes of MODEL.h5, for a later merge.",
        ),
    ] = False,
    allow_repeats: opt.Repeats = False,
    where: opt.Where = opt.HERE,
    checkpoint: opt.Checkpoint = None,
    on_bad_chunk: opt.OnBadChunk = None,
    overwrite: opt.Overwrite = False,
    json: opt.Json = False,
) -> None:
    """Add samples to a model, or withdraw them, and solve again; only these samples are read.

    Samples are of the same kind as in the fit: images, rows of a table, clips or a text. Whitening and dictionary
    stay, so the result is bit-identical to one fit of all samples with them. MODEL.h5 is replaced when the new
    model is complete.

    Data that are in the model already are refused without --allow-repeats. A few repeated samples, up to 5 %, are
    added, and their number is printed. With --checkpoint a stopped update can be continued.
    """
    if alone and (out is None or withdraw or allow_repeats):
        raise WrongUsage(
            "--alone writes a separate model; give --out, and leave out --withdraw and --allow-repeats."
        )
    target = model if out is None else out
    if out is not None:
        require_apart(out, (model,), remedy="leave out --out to replace it, or write to another name")
        check_target(out, overwrite, data=data)
    with locking.held(model) if out is None else nullcontext():
        bad = opt.bad_chunk(on_bad_chunk) or "raise"
        present = loading.load_growing(model)
        with usage():
            source = present.opened(data, dataset, bad == "skip")
            if lengths is not None:
                source = adding.in_sequences(present, source, opt.sequence_lengths(lengths))
        with engine_for(where, source, checkpoint, lambda: present.facts(source)) as engine:
            engine.on_bad_chunk = bad
            if alone:
                result, records = merging.fit_alone(present, source, engine)
            else:
                result, records = merging.update(
                    present, source, engine, withdraw=withdraw, repeats=allow_repeats
                )
        written = store.save(result, target, overwrite=out is None or overwrite)
    _report(result, target, {"bytes": written, "passes": records}, json)


def _report(model: Any, path: Path, facts: dict[str, Any], as_json: bool) -> None:
    audit = model.provenance.get("audit", [])
    result = {
        "model": str(path.absolute()),
        **facts,
        **model.summary(),
        "n_samples": n_samples(model.provenance),
        "n_repeated": merging.repeated(model),
        "audit": audit,
    }
    if as_json:
        print_json(result)
        return
    console = result_console()
    console.print(tables.audit_table(audit))
    say_repeated(result["n_repeated"])
    of_atoms = "n_dead" in result or "models" in result
    for line in model_lines(result) if of_atoms else [other_line(result)]:
        console.print(line, highlight=False, soft_wrap=True)


def other_line(result: dict[str, Any]) -> str:
    """Return one line about a model that is not of atoms of images."""
    left_out = {
        *("model", "bytes", "seconds", "passes"),
        *("audit", "fingerprint", "eigenvalues", "n_repeated"),
    }
    told = (f"{name.removeprefix('n_')} {value}" for name, value in result.items() if name not in left_out)
    return f"{result['model']}: {tables.size(result['bytes'])}, {', '.join(told)}"
