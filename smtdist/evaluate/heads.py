"""Heads of every kind: fitted, read from their files, given rows or rid of them, applied to rows block by block, judged."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import Field
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.data.table import as_table, read_rows
from smtdist.engine.memory import memory_limit, readable
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError, MemoryBudgetError, ModelError, counted, option
from smtdist.evaluate import head_files, run
from smtdist.evaluate.classes import Named
from smtdist.evaluate.evaluations import Asking, Evaluation
from smtdist.evaluate.head import Head
from smtdist.evaluate.kernel_head import KernelHead
from smtdist.evaluate.kernel_ridge import KernelEvaluation, Progress, judged
from smtdist.evaluate.metrics import checked_labels
from smtdist.evaluate.ridge_head import RidgeHead
from smtdist.evaluate.stored import names_for, opened
from smtdist.evaluate.sum_head import READ
from smtdist.kernels.threads import even_ranges
from smtdist.models import plugins, readout, store
from smtdist.models.jobs import Change, Job, Look, Request, Seen
from smtdist.models.provenance import Record
from smtdist.settings import FLAG, Settings, named, setting

Float64 = NDArray[np.float64]
OWN: Final[dict[str, type[Head]]] = {one.KIND: one for one in (RidgeHead, KernelHead)}
"""Heads that no package brings."""
EXACT: Final = 100_000
"""Rows up to which the kernel of all pairs is made, in 2 n² bytes: 20 GB of files."""
SERIAL: Final = f"The exact kernel takes one process; set landmarks, or leave out {option('n_workers')} and {option('cluster')}."


stored = Head.stored


def class_of(kind: str) -> type[Head] | None:
    """Return the class of heads of a kind, one of ours or of a package; None where there is none."""
    return OWN.get(kind) or plugins.brought(plugins.HEADS, kind, "KIND")


def restored(file: Any, statistics: bool) -> Head:
    """Read a head, whatever its kind."""
    about = head_files.about_of(file)
    if (made := class_of(about.kind)) is None:
        raise ModelError(
            f"{file.filename} holds a head of an unknown kind, {about.kind!r}; install a newer smtdist, or the package that "
            f"brings it."
        )
    return made.of_file(file, about)


def require_memory(head: Head, shape: tuple[int, int], n_classes: int, remedy: str) -> tuple[int, str]:
    """Return the memory of the process in the fit of rows (n, F), and a sentence that says so; before a row is read.

    Raises MemoryBudgetError, with a remedy, where there is less.
    """
    import scipy.optimize  # noqa: F401  # a fit needs it, and memory is measured before

    needed = run.projected(head.planned_bytes(shape, n_classes))
    limit = memory_limit()
    sentence = f"A head on {shape[0]:,} rows of {shape[1]:,} numbers needs {readable(needed)}, and {readable(limit)} may be used"
    if needed > limit:
        raise MemoryBudgetError(f"{sentence}; {remedy}.")
    return needed, sentence


def pieces(head: Head, X: Any) -> Iterator[tuple[int, Float64]]:
    """Yield f of rows, block by block: (first row, (m, c)). Raises DataError for rows unlike those of the fit."""
    source = head.known(X)
    for start, stop in even_ranges(source.n_samples, READ):
        yield start, head.decision_function(read_rows(source, start, stop))


def evaluate(head: Head, X: Any, y: Any, progress: Progress | None = None) -> KernelEvaluation:
    """Count how many rows a head gets right, by classes of the same names where it has some.

    Warns of labels that the head does not know: they count as wrong. Raises DataError for a head whose classes are
    neither names nor numbers from 0.
    """
    if head.classes_.dtype.kind not in "iuU":
        raise DataError(
            f"The classes of the head are {', '.join(map(str, head.classes_[:3]))} ..., but whole numbers or names are needed; "
            f"evaluate it with its method score."
        )
    source, own = head.known(X), head.own_classes
    n = source.n_samples
    asked = Named.of(y, n, source.name)
    if (names := names_for(source, asked.labels)) is not None and not asked.names:
        asked = Named(asked.labels, names, source.name)
    elif not asked.names and head.names_:  # numbers of the caller are those of the fit
        asked = Named(asked.labels, head.names_, source.name)
    classes = checked_labels(own.labels, len(own.labels), "classes of the head")
    labels = own.matched(asked).labels
    found = np.empty((n, len(classes)))
    for first, decision in pieces(head, X):
        found[first : first + len(decision)] = decision
        if progress is not None:
            progress(first + len(decision), n)
    return judged(found, classes, labels, **head.told(), n_train=head.n_rows)


class Views(Settings):
    """What a head sees of a file of representations."""

    OF: ClassVar[str] = "heads"

    mirrored: bool = setting(FLAG, "use the features of mirror images, if the file has any.", default=True)


def declared(model: str) -> Mapping[str, Field[Any]]:
    """Return the settings of a head, as they are declared; those of an exact one are among those of ours."""
    return {**(class_of(model) or RidgeHead).SETTINGS.declared(), **Views.declared()}


def job(request: Request) -> Job:
    """Open labelled representations; a head that does not fit into memory is refused before a row is read."""
    given = named(request.settings, declared(request.model), "heads")
    views = Views(**{name: given.pop(name) for name in list(given) if name in Views.declared()})
    if len(request.data) > 1:
        raise ConfigurationError("A head is fitted on one file of representations; give one.")
    (path,) = request.data
    brought = class_of(request.model)  # None for `head`: with landmarks or exact
    exact = brought is None and given.get("landmarks") is None
    if exact:
        given.pop("landmarks", None)
    made: Any = brought or (KernelHead if exact else RidgeHead)
    settings = made.SETTINGS(**given)
    with opened(path) as rows:
        layout = rows.layout if views.mirrored else readout.without_mirrored(rows.layout)
        labels, shape = rows.labels, rows.rows.shape
    head = made(**{name: getattr(settings, name) for name in settings.declared()}, layout=layout)
    if exact and len(labels) > EXACT:
        raise DataError(
            f"{path} has {counted(len(labels), 'row')}, and the exact kernel is for {EXACT:,} at most; set landmarks, such as "
            f"8192."
        )
    if brought is None and not exact and settings.landmarks > len(labels):
        raise DataError(
            f"{path} has {counted(len(labels), 'row')}, fewer than {counted(settings.landmarks, 'landmark')}; ask for fewer."
        )
    remedy = "set landmarks, or give fewer rows" if exact else "ask for fewer landmarks"
    size = shape, len(np.unique(labels)), remedy
    require_memory(head, *size)  # before a worker starts
    source = as_table((path, "z"))

    def fit(engine: Engine) -> tuple[Head, list[Record]]:
        with _recorded(head, engine, size, len(labels)) as (records, needed):
            if exact:
                head.checkpoint = engine.checkpoint and engine.checkpoint / "kernel"
                with (
                    engine.run(("kernel",), lambda: head.facts(source, labels)),
                    run.in_pass(engine, "kernel", len(labels), needed) as progress,
                ):
                    head.fit(source, labels, progress=progress)
            else:
                head.fit(source, labels, engine=engine)
        return head, records

    return Job(
        source,
        fit,
        lambda: head.facts(source, labels),
        alone=SERIAL if exact else "",
        lines=_penalty,
        advice=lambda head: [head.edge()],
    )


def update_job(head: Any, change: Change) -> Job:
    """Open labelled representations that are added to a head or withdrawn from it."""
    (path,) = change.data if len(change.data) == 1 else ("",)
    if change.alone or change.lengths or not path:
        raise ConfigurationError(
            "A head takes the rows of one file of representations; leave out what else is given."
        )
    if not hasattr(head, "partial_fit"):
        raise DataError(
            "The head is an exact kernel, to which no rows can be added; fit it again, with landmarks if rows will change."
        )
    with opened(path) as more:
        labels = more.labels
    source = as_table((path, "z"))
    head.known(source)  # refused before a row is read
    size = (head.n_rows, head.n_features_in_), len(head.classes_), "use a machine with more memory"
    require_memory(head, *size)
    given = {"the head": head.fingerprint}

    def changed(engine: Engine) -> tuple[Head, list[Record]]:
        with _recorded(head, engine, size, len(labels)) as (records, _):
            if change.withdraw:
                head.withdraw(source, labels, engine=engine)
            else:
                head.partial_fit(source, labels, allow_repeats=change.repeats, engine=engine)
        return head, records

    return Job(source, changed, lambda: head.facts(source, labels, given), lines=_penalty)


def _penalty(head: Head) -> list[str]:
    """Say which penalty was chosen, if any, and by what, where rows have not come or gone since."""
    if not head.path_:
        return []
    share, top = head_files.chosen(head.summary()["numbers"], head.path_, head.audit_)
    judged = (
        ""
        if top is None
        else f", top-1 {100 * top:.1f} % on rows left out; images that the model has not seen may have less"
    )
    return [f"  penalty {share:g}{judged}"]


def seen(head: Head, look: Look) -> Seen:
    """Open representations that a head classifies: labels, and the probability of each class.

    They must come from the model and the options that the head was fitted with; others are refused. Probabilities are a
    soft-max with one factor, which was fitted on left-out training rows.
    """
    with opened(look.data, labelled=False) as rows:
        n = len(rows.rows)
    source, classes = head.known((look.data, "z")), head.classes_

    def write(engine: Engine, out: Path, overwrite: bool) -> int:
        with run.in_pass(engine, "predict", n) as progress:

            def said() -> head_files.Pieces:
                for first, decision in pieces(head, source):
                    labels = classes[decision.argmax(axis=1)]
                    yield first, labels, head.probabilities(decision)
                    progress(first + len(labels), n)

            if look.csv:
                return head_files.save_csv(out, said(), classes, names=head.names_, overwrite=overwrite)
            about = {
                "title": "Predictions",
                "head": str(look.model.absolute()),
                "source": source.name,
            }
            return head_files.save_predictions(
                out, said(), n, classes, about, names=head.names_, overwrite=overwrite
            )

    names = head_files.names_of(classes, head.names_)
    return Seen(source, write, {"n_samples": n, "classes": classes.tolist(), "names": names})


def evaluation(asking: Asking) -> Evaluation:
    """Judge a head by representations with labels."""
    asking.require_plain(
        "A head is evaluated with the settings of its fit, on one file of representations; leave out other options."
    )
    head, rows = store.load(asking.model), (asking.data[0], "z")
    with opened(asking.data[0]) as far:
        labels = far.labels

    def judge(engine: Engine) -> Any:
        with run.in_pass(engine, "head", len(labels)) as progress:
            return evaluate(head, rows, labels, progress)

    return Evaluation(as_table(rows), judge, about={"mirrored": head.mirrored})


@contextmanager
def _recorded(
    head: Head, engine: Engine, size: tuple[tuple[int, int], int, str], rows: int
) -> Iterator[tuple[list[Record], int]]:
    """Yield the record of reading so many rows, and the memory that it may take: all that is needed is loaded now."""
    needed, sentence = require_memory(head, *size)
    engine.note(sentence)
    peaks, stated, started, records = [0], [needed], time.perf_counter(), list[Record]()

    def see(event: dict[str, Any]) -> None:
        peaks.append(int(event.get("peak_bytes") or 0))
        stated.append(int(event.get("projected_bytes") or 0))  # by a pass, once its kernels are compiled

    engine.events.subscribe(see)
    yield records, needed
    records.append(
        {
            "name": "head",
            "n_samples": rows,
            "n_positions": rows,
            "unit": "rows",
            "seconds": time.perf_counter() - started,
            "read_bytes": 0,
            "peak_bytes": max(peaks),
            "projected_bytes": max(stated),
        }
    )
