"""`head`: classifiers of representations that are kept: fit, predict, update."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import numpy as np
import typer
from numpy.typing import NDArray

from smtdist.cli import options as opt
from smtdist.cli.errors import WrongUsage, usage
from smtdist.cli.session import engine_for, print_json, result_console, say
from smtdist.data import locking
from smtdist.data.table import as_table
from smtdist.data.writing import check_target
from smtdist.errors import DataError, counted
from smtdist.models import readout, store
from smtdist.monitor import tables
from smtdist.report import head_facts
from smtdist.report.facts import facts_of

if TYPE_CHECKING:
    from smtdist.engine.passes import Engine

EXACT: Final = 100_000
"""Rows up to which the kernel of all pairs is made, in 2 n² bytes: 20 GB of files."""

head = typer.Typer(
    help="Fit a classifier of representations, keep it in a file, apply it, and add or withdraw rows.",
    no_args_is_help=True,
    add_completion=False,
)

Representations = Annotated[
    Path, typer.Argument(metavar="Z.h5", help="Representations written by smtdist transform.")
]
HeadFile = Annotated[Path, typer.Argument(metavar="HEAD.h5", help="Head written by smtdist head fit.")]


@head.command("fit", epilog="Example: smtdist head fit ztrain.h5 --landmarks 8192 --out head.h5")
def fit(
    train: Annotated[
        Path,
        typer.Argument(
            metavar="ZTRAIN.h5", help="Representations with labels, written by smtdist transform."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="HEAD.h5", help="File to write.")],
    landmarks: Annotated[
        int | None,
        typer.Option(
            min=2,
            metavar="M",
            help=f"Approximate the kernel by M training rows. This works for any number of rows, on any cluster, and with "
            f"smtdist head update. Default: the exact kernel of all rows, at most {EXACT:,}.",
        ),
    ] = None,
    penalties: Annotated[
        str | None,
        typer.Option(
            metavar="P,P,...",
            help="Penalties to try, as shares of the kernel's mean diagonal (default: 0.0003 to 1); with --landmarks, of the "
            "mean eigenvalue (default: 1e-06 to 10).",
        ),
    ] = None,
    temperature: Annotated[float, typer.Option(help="T of the kernel exp((cosine - 1) / T).")] = 0.5,
    mirrored: Annotated[
        bool,
        typer.Option(
            "--mirrored/--not-mirrored", help="Use the features of mirror images, if the file has any."
        ),
    ] = True,
    seed: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="Seed of the choice of landmarks, or of held-out rows."),
    ] = 0,
    where: opt.Where = opt.HERE,
    checkpoint: opt.Checkpoint = None,
    overwrite: opt.Overwrite = False,
    json: opt.Json = False,
) -> None:
    """Fit kernel ridge regression on labelled representations, choose its penalty, and keep it.

    smtdist works out the memory first, and refuses a head that does not fit before it reads a row. A stopped fit
    with --checkpoint continues with smtdist resume.
    """
    import scipy.optimize  # noqa: F401  # before memory is measured

    from smtdist.evaluate import heads, run, stored
    from smtdist.evaluate.kernel_head import KernelHead
    from smtdist.evaluate.ridge_head import RidgeHead

    started = time.perf_counter()
    check_target(out, overwrite, inputs=(train,))
    chosen = {} if penalties is None else {"penalties": _penalties(penalties)}
    if landmarks is None and (where.workers or where.cluster is not None):
        raise WrongUsage(
            "The exact kernel is computed in one process; give --landmarks, or leave out --workers and --cluster."
        )
    with stored.opened(train) as known:
        layout = known.layout if mirrored else readout.without_mirrored(known.layout)
        about: dict[str, Any] = {
            "temperature": temperature,
            "layout": layout,
            "random_state": seed,
            **chosen,
        }
        fitted: RidgeHead | KernelHead
        if landmarks is None:
            fitted = KernelHead(**about, checkpoint=checkpoint and checkpoint / "kernel")
        else:
            fitted = RidgeHead(**about, landmarks=landmarks)
        with usage():
            fitted.configuration  # noqa: B018  # refused here
        labels, shape = known.labels, known.rows.shape
    _require_rows(train, len(labels), landmarks)
    remedy = "give --landmarks, or fewer rows" if landmarks is None else "ask for fewer landmarks"
    n_classes = len(np.unique(labels))
    heads.require_memory(fitted, shape, n_classes, remedy)  # before a worker starts
    source = as_table((train, "z"))
    with engine_for(where, source, checkpoint, lambda: fitted.facts(source, labels)) as engine:
        needed, sentence = heads.require_memory(fitted, shape, n_classes, remedy)  # all is loaded now
        engine.note(sentence)
        peak = _peak(engine)
        if isinstance(fitted, KernelHead):
            with run.in_pass(engine, "kernel", len(labels), needed) as progress:
                fitted.fit(source, labels, progress=progress)
        else:
            fitted.fit(source, labels, engine=engine)
    took = {"projected_bytes": needed, "peak_bytes": peak()}
    fitted.save(out, overwrite=overwrite)
    _say_head(out, {**took, "seconds": time.perf_counter() - started}, json)


def _require_rows(path: Path, n: int, landmarks: int | None) -> None:
    """Refuse more rows than the exact kernel is for, and fewer than landmarks are asked for."""
    if landmarks is None and n > EXACT:
        raise DataError(
            f"{path} has {counted(n, 'row')}, and the exact kernel is for {EXACT:,} at most; give --landmarks, such as 8192."
        )
    if landmarks is not None and landmarks > n:
        raise DataError(
            f"{path} has {counted(n, 'row')}, fewer than {counted(landmarks, 'landmark')}; ask for fewer."
        )


@head.command("predict", epilog="Example: smtdist head predict head.h5 z.h5 --out predictions.h5")
def predict(
    model: HeadFile,
    z: Representations,
    out: Annotated[
        Path,
        typer.Option(
            metavar="PREDICTIONS.h5",
            help="File to write, with label (sample) and probability (sample, class).",
        ),
    ],
    as_csv: Annotated[
        bool,
        typer.Option("--csv", help="Write comma-separated values instead: sample, label, probabilities."),
    ] = False,
    overwrite: opt.Overwrite = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Classify representations: the label of each row and the probability of each class.

    The rows must come from the model and the options that the head was fitted with; others are refused.
    Probabilities are a soft-max with one factor, which was fitted on left-out training rows.
    """
    from smtdist.evaluate import head_files, heads, predictions, run, stored

    started = time.perf_counter()
    check_target(out, overwrite, inputs=(model, z))
    known = store.load(model, kind="head")
    with stored.opened(z, labelled=False) as asked:
        n = len(asked.rows)
    source = known.known((z, "z"))
    with engine_for(opt.Where(0, None, quiet), source) as engine:

        def told() -> Iterator[tuple[int, NDArray[Any], NDArray[np.float64]]]:
            for first, decision in heads.pieces(known, source):
                labels = known.classes_[decision.argmax(axis=1)]
                yield first, labels, known.probabilities(decision)
                progress(first + len(labels), n)

        with run.in_pass(engine, "predict", n) as progress:
            if as_csv:
                size = predictions.save_csv(out, told(), known.classes_, overwrite=overwrite)
            else:
                about = {"title": "Predictions", "head": str(model.absolute()), "source": source.name}
                size = predictions.save_predictions(
                    out, told(), n, known.classes_, about, names=known.names_, overwrite=overwrite
                )
    result = {
        "out": str(out.absolute()),
        "bytes": size,
        "n_samples": n,
        "classes": known.classes_.tolist(),
        "names": head_files.names_of(known.classes_, known.names_),
        "seconds": time.perf_counter() - started,
    }
    if json:
        print_json(result)
    else:
        say(
            f"{result['out']}: {counted(n, 'sample')}, {counted(len(known.classes_), 'class')}, {tables.size(size)}"
        )


@head.command("update", epilog="Example: smtdist head update head.h5 zmore.h5")
def update(
    model: HeadFile,
    z: Annotated[
        Path,
        typer.Argument(metavar="Z.h5", help="Representations with labels, written by smtdist transform."),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="H.h5", help="File to write. Default: replace HEAD.h5.")
    ] = None,
    withdraw: Annotated[
        bool, typer.Option("--withdraw", help="Withdraw the rows instead of adding them.")
    ] = False,
    allow_repeats: opt.Repeats = False,
    where: opt.Where = opt.HERE,
    checkpoint: opt.Checkpoint = None,
    overwrite: opt.Overwrite = False,
    json: opt.Json = False,
) -> None:
    """Add rows to a head that was fitted with landmarks, or withdraw them, and solve again; only these rows are read.

    Landmarks and penalty stay. The result is bit-identical to one fit of the remaining rows with them. A head
    identifies its rows by hashes: you cannot withdraw what was never added, or add the same rows twice without
    --allow-repeats. HEAD.h5 is replaced when the new head is complete.
    """
    from smtdist.evaluate import heads, stored
    from smtdist.evaluate.ridge_head import RidgeHead

    started = time.perf_counter()
    if out is not None:
        check_target(out, overwrite, inputs=(model, z))
    with locking.held(model) if out is None else nullcontext():
        source = as_table((z, "z"))
        present = store.load(model, kind="head")
        if not isinstance(present, RidgeHead):
            raise DataError(
                f"{model} holds an exact kernel, to which no rows can be added; fit it again, with --landmarks if rows will "
                f"change."
            )
        with stored.opened(z) as more:
            labels = more.labels
        present.known(source)  # refused before a row is read
        shape, n_classes = (present.n_rows, present.n_features_in_), len(present.classes_)
        remedy = "use a machine with more memory"
        heads.require_memory(present, shape, n_classes, remedy)
        given = {"the head": present.fingerprint}
        with engine_for(where, source, checkpoint, lambda: present.facts(source, labels, given)) as engine:
            needed, sentence = heads.require_memory(present, shape, n_classes, remedy)
            engine.note(sentence)
            peak = _peak(engine)
            if withdraw:
                present.withdraw(source, labels, engine=engine)
            else:
                present.partial_fit(source, labels, allow_repeats=allow_repeats, engine=engine)
        target = model if out is None else out
        present.save(target, overwrite=out is None or overwrite)
    took = {"projected_bytes": needed, "peak_bytes": peak()}
    _say_head(target, {**took, "seconds": time.perf_counter() - started}, json)


def _peak(engine: Engine) -> Callable[[], int]:
    """Return what tells the largest peak of the passes of a run from here on."""
    peaks = [0]

    def see(event: dict[str, Any]) -> None:
        peaks.append(int(event.get("peak_bytes") or 0))

    engine.events.subscribe(see)
    return lambda: max(peaks)


def _penalties(text: str) -> list[float]:
    """Return the penalties that --penalties lists."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise WrongUsage(
            f"--penalties {text} is not a list of numbers; write it as 0.1,0.01,0.001."
        ) from None


def _say_head(path: Path, more: dict[str, Any], json: bool) -> None:
    """Say what a head is, as `info` does."""
    facts = facts_of(path)
    if json:
        print_json({"out": facts.pop("file"), **facts, **more})
        return
    if len(facts["audit"]) > 1:
        result_console().print(tables.audit_table(facts["audit"]))
    share, top = head_facts.penalty_of(facts)
    judged = (
        ""
        if top is None
        else f" (top-1 {tables.percent(top)} on rows left out; images that the model has not seen may have less)"
    )
    say(
        f"{facts['file']}: {tables.size(facts['bytes'])}, {head_facts.head_named(facts)}, {counted(facts['n_samples'], 'row')}, "
        f"{counted(facts['n_classes'], 'class')}, penalty {share:g}{judged}"
    )
    if line := head_facts.edge_sentence(share, facts["path"]):
        say(line)
