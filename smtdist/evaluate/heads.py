"""Heads of every kind: read from their files, applied to rows block by block, judged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.data.table import read_rows
from smtdist.engine.memory import memory_limit, readable
from smtdist.errors import DataError, MemoryBudgetError, ModelError
from smtdist.evaluate import head_files
from smtdist.evaluate.classes import Named
from smtdist.evaluate.head import Head
from smtdist.evaluate.kernel_head import KernelHead
from smtdist.evaluate.kernel_ridge import KernelEvaluation, Progress, judged
from smtdist.evaluate.metrics import checked_labels
from smtdist.evaluate.ridge_head import RidgeHead
from smtdist.evaluate.run import projected
from smtdist.evaluate.stored import names_for
from smtdist.evaluate.sum_head import READ
from smtdist.kernels.threads import even_ranges
from smtdist.models import plugins

Float64 = NDArray[np.float64]
OWN: Final[dict[str, type[Head]]] = {one.KIND: one for one in (RidgeHead, KernelHead)}
"""Heads that no package brings."""


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
    needed = projected(head.planned_bytes(shape, n_classes))
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
