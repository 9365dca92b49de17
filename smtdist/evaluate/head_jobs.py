"""Fits of heads, and rows that are added to them or withdrawn: from files of representations."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import Field
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import scipy.optimize  # noqa: F401  # a fit needs it, and memory is measured before
from numpy.typing import NDArray

from smtdist.data.table import as_table
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError, counted, option
from smtdist.evaluate import head_files, heads, predictions, run, stored
from smtdist.evaluate.evaluations import Asking, Evaluation
from smtdist.evaluate.head import Head
from smtdist.evaluate.kernel_head import KernelHead
from smtdist.evaluate.ridge_head import RidgeHead
from smtdist.models import readout, store
from smtdist.models.jobs import Change, Job, Look, Request, Seen
from smtdist.models.provenance import Record
from smtdist.settings import FLAG, Settings, setting

EXACT: Final = 100_000
"""Rows up to which the kernel of all pairs is made, in 2 n² bytes: 20 GB of files."""
SERIAL: Final = f"The exact kernel takes one process; set landmarks, or leave out {option('n_workers')} and {option('cluster')}."


class Views(Settings):
    """What a head sees of a file of representations."""

    OF: ClassVar[str] = "heads"

    mirrored: bool = setting(FLAG, "use the features of mirror images, if the file has any.", default=True)


def declared(model: str) -> Mapping[str, Field[Any]]:
    """Return the settings of a head, as they are declared; those of an exact one are among those of ours."""
    return {**(heads.class_of(model) or RidgeHead).SETTINGS.declared(), **Views.declared()}


def job(request: Request) -> Job:
    """Open labelled representations; a head that does not fit into memory is refused before a row is read."""
    given = dict(request.settings)
    views = Views(**{name: given.pop(name) for name in list(given) if name in Views.declared()})
    if len(request.data) > 1:
        raise ConfigurationError("A head is fitted on one file of representations; give one.")
    (path,) = request.data
    brought = heads.class_of(request.model)  # by a package; None for ours
    exact = brought is None and given.get("landmarks") is None
    if exact:
        given.pop("landmarks", None)
    made: Any = brought or (KernelHead if exact else RidgeHead)
    settings = made.SETTINGS(**given)
    with stored.opened(path) as rows:
        layout = rows.layout if views.mirrored else readout.without_mirrored(rows.layout)
        labels, shape = rows.labels, rows.rows.shape
    head = made(**{name: getattr(settings, name) for name in settings.declared()}, layout=layout)
    if brought is None:
        _require_rows(path, len(labels), settings)
    remedy = "set landmarks, or give fewer rows" if exact else "ask for fewer landmarks"
    size = shape, len(np.unique(labels)), remedy
    heads.require_memory(head, *size)  # before a worker starts
    source = as_table((path, "z"))

    def fit(engine: Engine) -> tuple[Head, list[Record]]:
        with _recorded(head, engine, *size) as (records, needed):
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
    source = as_table((path, "z"))
    if not hasattr(head, "partial_fit"):
        raise DataError(
            "The head is an exact kernel, to which no rows can be added; fit it again, with landmarks if rows will change."
        )
    with stored.opened(path) as more:
        labels = more.labels
    head.known(source)  # refused before a row is read
    size = (head.n_rows, head.n_features_in_), len(head.classes_), "use a machine with more memory"
    heads.require_memory(head, *size)
    given = {"the head": head.fingerprint}

    def changed(engine: Engine) -> tuple[Head, list[Record]]:
        with _recorded(head, engine, *size) as (records, _):
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
    with stored.opened(look.data, labelled=False) as rows:
        n = len(rows.rows)
    source, classes = head.known((look.data, "z")), head.classes_

    def write(engine: Engine, out: Path, overwrite: bool) -> int:
        with run.in_pass(engine, "predict", n) as progress:

            def pieces() -> Iterator[tuple[int, NDArray[Any], NDArray[np.float64]]]:
                for first, decision in heads.pieces(head, source):
                    labels = classes[decision.argmax(axis=1)]
                    yield first, labels, head.probabilities(decision)
                    progress(first + len(labels), n)

            if look.csv:
                return predictions.save_csv(out, pieces(), classes, overwrite=overwrite)
            about = {
                "title": "Predictions",
                "head": str(look.model.absolute()),
                "source": source.name,
            }
            return predictions.save_predictions(
                out, pieces(), n, classes, about, names=head.names_, overwrite=overwrite
            )

    names = head_files.names_of(classes, head.names_)
    return Seen(source, write, {"n_samples": n, "classes": classes.tolist(), "names": names})


def evaluation(asking: Asking) -> Evaluation:
    """Judge a head by representations with labels."""
    asking.require_plain(
        "A head is evaluated with the settings of its fit, on one file of representations; leave out other options."
    )
    head, rows = store.load(asking.model), (asking.data[0], "z")
    with stored.opened(asking.data[0]) as far:
        labels = far.labels

    def judge(engine: Engine) -> Any:
        with run.in_pass(engine, "head", len(labels)) as progress:
            return heads.evaluate(head, rows, labels, progress)

    return Evaluation(as_table(rows), judge, about={"mirrored": head.mirrored})


@contextmanager
def _recorded(
    head: Head, engine: Engine, shape: tuple[int, int], n_classes: int, remedy: str
) -> Iterator[tuple[list[Record], int]]:
    """Yield the record of what is done, and the memory that it may take: all that is needed is loaded now."""
    needed, sentence = heads.require_memory(head, shape, n_classes, remedy)
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
            "n_samples": shape[0],
            "n_positions": shape[0],
            "unit": "rows",
            "seconds": time.perf_counter() - started,
            "read_bytes": 0,
            "peak_bytes": max(peaks),
            "projected_bytes": max(stated),
        }
    )


def _require_rows(path: str, n: int, settings: Any) -> None:
    """Refuse more rows than the exact kernel is for, and fewer than landmarks are asked for."""
    landmarks = getattr(settings, "landmarks", None)
    if landmarks is None and n > EXACT:
        raise DataError(
            f"{path} has {counted(n, 'row')}, and the exact kernel is for {EXACT:,} at most; set landmarks, such as 8192."
        )
    if landmarks is not None and landmarks > n:
        raise DataError(
            f"{path} has {counted(n, 'row')}, fewer than {counted(landmarks, 'landmark')}; ask for fewer."
        )
