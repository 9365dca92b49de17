"""Exact kernel ridge regression as a classifier that is kept: duals beside the training features."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from smtdist.data.netcdf import Group, Streamed
from smtdist.data.table import TableRows, as_table
from smtdist.engine.memory import memory_limit
from smtdist.evaluate import head_files, kernel_ridge
from smtdist.evaluate.cosine_rows import TEMPERATURES, Sets, layout_for, parts_of
from smtdist.evaluate.head import Head, penalties
from smtdist.evaluate.kernel_ridge import KernelRidge
from smtdist.kernels import convergence
from smtdist.kernels.threads import even_ranges
from smtdist.models import store
from smtdist.models.store import Array
from smtdist.settings import Settings, number, seed, setting

Float64 = NDArray[np.float64]

_ARRAYS: Final = {
    "solution": {
        "duals": Array(("row", "class"), "alpha of f = mean + sum alpha k(x, x_i)"),
        "mean": Array(("class",)),
    },
    "training": {"rows": Array(("row", "input"), "training features")},
}
MEMORY_SHARE = 4
"""A kernel, or training features from a file, that fit this part (1/4) of the memory limit stay in memory."""


class KernelHeadSettings(Settings):
    """Settings of an exact head."""

    OF: ClassVar[str] = "heads"

    temperature: float = setting(number(*TEMPERATURES), "T of the kernel.", default=0.5)
    penalties: tuple[float, ...] = penalties(
        "shares of the kernel's mean diagonal to choose from, by the squared error of left-out rows.",
        kernel_ridge.PENALTIES,
    )
    random_state: int = seed("seed of the choice of held-out rows, if there are more than 4,096.")


class KernelHead(Head, of=KernelHeadSettings, run=("checkpoint",)):
    """Kernel ridge regression with k(x, y) = exp((cosine - 1) / T), exact, with all training rows.

    Attributes
    ----------
    classes_ : labels (c,).
    fitted_ : `smtdist.evaluate.kernel_ridge.KernelRidge`, with the duals.
    penalty_ : the share that was chosen.
    path_ : for each penalty its squared error and top-1 share on held-out rows.
    heat_ : β of `predict_proba`.
    rows_ : the training rows.
    n_iter_, converged_ : steps of conjugate gradients, and whether they reached their tolerance; with more than 4,096 rows
        only, because fewer are solved directly.

    Rows X are an array (n, F), or the place of rows in a file: (path, dataset). Labels are whole numbers,
    strings or booleans. Memory: `planned_bytes`. `save` also writes the n F numbers of the training rows
    (float64 as float32, from which the kernel is computed).

    >>> rows = np.array([[0.0, 1.0], [0.2, 0.9], [1.0, 0.1], [0.8, 0.0]])
    >>> KernelHead().fit(rows, ["up", "up", "down", "down"]).predict([[0.1, 0.8], [0.9, 0.1]]).tolist()
    ['up', 'down']
    """

    KIND: ClassVar[str] = "kernel"

    def fit(self, X: Any, y: Any, *, progress: kernel_ridge.Progress | None = None) -> Self:
        """Compute the kernel, choose the penalty, and solve. Raises DataError for labels that do not match, or a single class.

        progress : called with the number of entries of the kernel that are done, and with their total number.
        """
        settings = self.configuration
        source, places = self._begun(X, y)
        self.rows_ = TableRows(source)
        known = self._sets(self.rows_)
        self.fitted_ = kernel_ridge.fit_kernel_ridge(
            known,
            places,
            temperature=settings.temperature,
            penalties=settings.penalties,
            seed=settings.random_state,
            memory_bytes=memory_limit() // MEMORY_SHARE,
            folder=None if self.checkpoint is None else Path(self.checkpoint),
            progress=progress,
        )
        self.path_, self.heat_ = list(self.fitted_.path), self.fitted_.heat
        self.penalty_ = self.fitted_.penalty
        convergence.keep(self, self.fitted_.ending)
        convergence.warn(self.fitted_.advice())
        self.audit_ = [
            {
                "action": "added",
                "fingerprint": kernel_ridge.digest(self.fitted_.comparer, known),
                "n_samples": source.n_samples,
                "source": source.name,
            }
        ]
        return self

    def decision_function(self, X: Any, *, progress: kernel_ridge.Progress | None = None) -> Float64:
        """Return f (n, c): about 1 for the class of a row and -1 for others. Memory: two blocks of features."""
        source = self.known(X)
        return self.fitted_.decision(self._sets(TableRows(source)), progress=progress)

    def planned_bytes(self, shape: tuple[int, int], n_classes: int) -> int:
        """Return the most memory that a fit of rows (n, F) needs besides the rows, before any is read."""
        sets = self._sets(np.broadcast_to(np.float32(0), shape))
        return kernel_ridge.planned_bytes(sets, n_classes, memory_limit() // MEMORY_SHARE)

    def told(self) -> dict[str, Any]:
        """Return figures of the fit, with the names of `smtdist.evaluate.kernel_ridge.KernelEvaluation`."""
        return {"metric": "kernel", **self.fitted_.told()}

    def _sets(self, rows: Any) -> Sets:
        return parts_of(rows, layout_for(rows.shape[1], self.seen))

    def _numbers(self) -> dict[str, Any]:
        one = self.fitted_
        plain: dict[str, Any] = {"how": one.how, "n_held": one.n_held, "steps": one.steps}
        return plain | {name: float(getattr(one, name)) for name in ("penalty", "heat", "residual")}

    def _groups(self) -> Iterator[tuple[str, Group]]:
        fitted, rows = self.fitted_, self.rows_
        yield "solution", store.packed(_ARRAYS["solution"], vars(fitted))
        yield "scales", head_files.scales_group(fitted.comparer)
        dtype = np.dtype(np.float32) if rows.dtype == np.float64 else rows.dtype
        step = max(1, 2**24 // (rows.shape[1] * dtype.itemsize))

        def pieces() -> Iterator[tuple[int, NDArray[Any]]]:
            for start, stop in even_ranges(len(rows), step):
                yield start, np.asarray(rows[start:stop]).astype(dtype, copy=False)

        streamed = Streamed((len(rows), rows.shape[1]), dtype, pieces)
        yield "training", store.packed(_ARRAYS["training"], {"rows": streamed})

    def _restore(self, file: Any, about: head_files.About) -> None:
        count, solution, stored = len(about.classes), file["solution"], file["training"]["rows"]
        store.require(file, _ARRAYS, **{"class": count}, input=about.n_features)
        if stored.nbytes <= memory_limit() // MEMORY_SHARE:
            self.rows_ = TableRows(as_table(stored[()]))
        else:
            self.rows_ = TableRows(as_table((file.filename, "training/rows")))
        numbers = about.numbers
        layout = layout_for(about.n_features, about.layout)
        self.fitted_ = KernelRidge(
            np.arange(count),
            store.finite(solution, "duals", np.float64),
            store.finite(solution, "mean"),
            head_files.read_comparer(file["scales"], layout, self.temperature),
            parts_of(self.rows_, layout),
            float(numbers["penalty"]),
            tuple(dict(one) for one in about.path),
            str(numbers["how"]),
            int(numbers["n_held"]),
            float(numbers["heat"]),
            int(numbers["steps"]),
            float(numbers["residual"]),
        )
        self.penalty_, self.heat_ = self.fitted_.penalty, self.fitted_.heat
        convergence.keep(self, self.fitted_.ending)
