"""`update`, `withdraw` and `merge`: add and withdraw data, by reading what is new or by sums alone."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from smtdist.cli import options as opt
from smtdist.cli.errors import WrongUsage, usage
from smtdist.cli.runfile import write_command
from smtdist.cli.session import engine_for, say_model
from smtdist.data import locking
from smtdist.data.writing import check_target, require_apart
from smtdist.models import adding, jobs, loading, store
from smtdist.models.kinds import KINDS


def merge(
    models: list[Path],
    out: Path,
    subtract: list[Path] | None = None,
    changes: Mapping[str, Any] = opt.NOTHING,
    allow_repeats: bool = False,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Add the sums of models, subtract those of others, and solve again; no data are read.

    All models must have the same whitening, dictionary and codes: fit the first, and make the others with smtdist
    update --alone. The result is bit-identical to one fit of all samples. With one model and --set, the same sums
    are solved again with another setting.

    Data that are in the sums already are refused without --allow-repeats. A few repeated samples, up to 5 %, are
    added, and their number is printed.

    Example: smtdist merge a.h5 b.h5 --subtract c.h5 --out m.h5
    """
    started = time.perf_counter()
    check_target(out, overwrite, inputs=(*models, *(subtract or ())))
    with usage():
        result = adding.merge(models, subtract=subtract or [], allow_repeats=allow_repeats, **changes)
    written = store.save(result, out, overwrite=overwrite)
    say_model(result, out, {"bytes": written, "seconds": time.perf_counter() - started}, json)


def update(
    model: Path,
    change: jobs.Change,
    out: Path | None = None,
    how: opt.How = opt.AS_USUAL,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Add samples to a model, and solve again; only these samples are read.

    Samples are of the same kind as in the fit: images, rows of a table, clips, a text, or representations with
    labels for a head. What makes codes stays, so the result is bit-identical to one fit of all samples with it.
    MODEL.h5 is replaced when the new model is complete.

    Data that are in the model already are refused without --allow-repeats. A few repeated samples, up to 5 %, are
    added, and their number is printed. With --checkpoint a stopped update can be continued.

    Example: smtdist update model.h5 more.h5 --dataset train
    """
    if change.alone and (out is None or change.repeats):
        raise WrongUsage("--alone writes a separate model; give --out, and leave out --allow-repeats.")
    target = model if out is None else out
    if out is not None:
        require_apart(out, (model,), remedy="leave out --out to replace it, or write to another name")
        texts = kind.texts if (kind := KINDS.get(store.kind_at(model))) else False
        check_target(out, overwrite, data=list(change.data), texts=texts)
    with usage():
        store.require_first(model, change.data[0], "withdraw" if change.withdraw else "update")
    with locking.held(model) if out is None else nullcontext():
        present = loading.load_growing(model)
        with usage():
            job = jobs.update_job(present, change)
        with engine_for(how, job.source, job.facts) as engine:
            changed, records = job.fit(engine)
        size = store.save(changed, target, overwrite=out is None or overwrite)
        if out is None and how.checkpoint is not None:
            write_command(how.checkpoint, done=True)
    say_model(changed, target, {"bytes": size, "passes": records}, json, job)


def withdraw(
    model: Path,
    change: jobs.Change,
    out: Path | None = None,
    how: opt.How = opt.AS_USUAL,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Withdraw samples from a model, as if they had never been added, and solve again; only these samples are read.

    The result is bit-identical to one fit of what is left. Samples that are not in the model are refused, and samples
    that supplied an atom or a landmark. MODEL.h5 is replaced when the new model is complete.

    Example: smtdist withdraw model.h5 more.h5 --dataset train
    """
    update(model, change._replace(withdraw=True), out, how, overwrite, json)
