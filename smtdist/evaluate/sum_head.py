"""Heads that follow from exact sums over labelled rows: what a package derives from that brings a head of its own.

A package names its class as an entry point of the group `smtdist.heads`, under its `KIND`, which is then the name of a model.
The page "Extending" of the documentation has an example.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from smtdist.data.array import ArraySamples, ArraySource
from smtdist.data.fingerprint import array_hash
from smtdist.data.netcdf import Group
from smtdist.data.source import Source
from smtdist.data.table import read_rows
from smtdist.data.views import WithLabels
from smtdist.engine import folder
from smtdist.engine.passes import Engine
from smtdist.errors import DataError
from smtdist.evaluate.head import Head
from smtdist.evaluate.head_files import About
from smtdist.kernels.threads import even_ranges
from smtdist.models import provenance, store, summed
from smtdist.models.store import Array, Arrays
from smtdist.statistics.base import State, Statistic
from smtdist.statistics.origin import Origin

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

READ: Final = 4096
"""Rows that are read at a time to be classified."""
_ROWS: Final = {"digest": Array(("sample",), "hash of the row")}


class SumHead(Head):
    """A head that is solved for from sums over rows, which rows can be added to and withdrawn from in any order.

    A subclass has `statistic`, `solve` and `decide`. `SOLUTION` declares the arrays that it solves for; they are attributes
    whose names end in an underscore.
    """

    SOLUTION: ClassVar[Arrays] = {}
    heat_: float = 1.0
    sums_: State
    origin_: Origin

    @abstractmethod
    def statistic(self, n_features: int, n_classes: int) -> Statistic:
        """Return the statistic of rows (m, F + 1) whose last number is that of the class; its state has `counts`, by class."""

    @abstractmethod
    def solve(self, sums: State) -> Mapping[str, Any]:
        """Return what follows from the sums: the arrays of `SOLUTION`, by name."""

    @abstractmethod
    def decide(self, rows: NDArray[Any]) -> Float64:
        """Return f of rows (m, F), (m, c): the largest wins."""

    def fit(self, X: Any, y: Any, *, engine: Engine | None = None) -> Self:
        """Sum the rows, and solve. Raises DataError for labels that do not match, or a single class.

        engine : engine of a run that is under way, in place of `cluster`, `n_workers` and `checkpoint`.
        """
        _ = self.configuration  # refused before anything is read
        source, places = self._begun(X, y)
        table, self.path_ = _table(source, places), []
        with (
            nullcontext(engine) if engine else self._engine(self.checkpoint) as engine,
            engine.run(self._steps(), lambda: self.facts(table, self.classes_[places])),
        ):
            drawn = self._prepare(table, engine)
            self.sums_, origin = self._summed(table, source.name, engine)
            kept = provenance.NO_ATOMS if drawn is None else np.unique(origin.samples[drawn])
            self.origin_ = replace(origin, atom_samples=kept)
            self._conclude(table, engine)
        self.audit_ = [dict(entry) for entry in self.origin_.audit]
        return self

    def partial_fit(
        self, X: Any, y: Any, *, allow_repeats: bool = False, engine: Engine | None = None
    ) -> Self:
        """Add rows, of classes that are known; the first call is `fit`. What was chosen in the fit stays.

        ModelError if rows are in the sums already; with `allow_repeats` they are added and count twice.
        """
        if not hasattr(self, "sums_"):
            return self.fit(X, y, engine=engine)
        return self._changed(X, y, engine, withdraw=False, repeats=allow_repeats)

    def withdraw(self, X: Any, y: Any, *, engine: Engine | None = None) -> Self:
        """Take rows out of the sums, as if they had never been added.

        Rows are identified by hashes of their numbers and their class. ModelError for rows that were never
        added, DataError where fewer than two classes would be left, ModelError for rows that are landmarks;
        the head then stays as it was.
        """
        return self._changed(X, y, engine, withdraw=True)

    def decision_function(self, X: Any) -> Float64:
        """Return f (n, c), block by block."""
        source = self.known(X)
        found = np.empty((source.n_samples, len(self.classes_)))
        for start, stop in even_ranges(source.n_samples, READ):
            found[start:stop] = self.decide(read_rows(source, start, stop))
        return found

    def planned_bytes(self, shape: tuple[int, int], n_classes: int) -> int:
        """Return the most memory that a fit of rows (n, F) needs on the driver, before any is read."""
        sums = self.statistic(shape[1], n_classes)
        return (1 + summed.COPIES) * sums.state_bytes() + sums.batch_bytes(READ) + 24 * shape[0]

    def told(self) -> dict[str, Any]:
        """Return figures of the fit, with the names of `smtdist.evaluate.kernel_ridge.KernelEvaluation`."""
        return {"metric": self.KIND}

    def _numbers(self) -> dict[str, Any]:
        return {}

    def _steps(self) -> list[str]:
        """Return the names of the steps of a fit."""
        return ["sums", "solve"]

    def _prepare(self, table: Source, engine: Engine) -> Int64 | None:
        """Learn what sums depend on; return the numbers of the rows that are kept for it, None for none."""
        return None

    def _conclude(self, table: Source, engine: Engine) -> None:
        """Solve at the end of a fit."""
        self._renew(engine)

    def _renew(self, engine: Engine) -> None:
        """Solve for other sums."""
        self._take(engine.solve("solve", lambda: self.solve(self.sums_), self.solve_bytes)[0])

    def _take(self, solution: Mapping[str, Any]) -> None:
        for name in self.SOLUTION:
            setattr(self, f"{name}_", solution[name])

    @property
    def solve_bytes(self) -> int:
        """Memory that a solve takes at most on the driver, beside the sums."""
        return summed.COPIES * self.sums.state_bytes()

    @property
    def sums(self) -> Statistic:
        """The statistic of the rows of the fit, and of those that are added."""
        return self.statistic(self.n_features_in_, len(self.classes_))

    @property
    def fingerprint(self) -> str:
        """A hash of the sums."""
        return array_hash(*self.sums_.values())

    def _summed(self, table: Source, name: str, engine: Engine) -> tuple[State, Origin]:
        """Return the sums of rows, and which rows they are of: a hash of each."""
        partial, _ = engine.reduce("sums", self.sums, table, fingerprint=True)
        return partial.state, provenance.origin_of("", provenance.ordered_digests(partial), name)

    def _changed(
        self, X: Any, y: Any, engine: Engine | None, *, withdraw: bool, repeats: bool = True
    ) -> Self:
        source = self.known(X)
        places = self._places(source, y)
        table, sums = _table(source, places), self.sums
        given, place = {"the head": self.fingerprint}, folder.of_change(self.checkpoint, self.fingerprint)
        with (
            nullcontext(engine) if engine else self._engine(place) as engine,
            engine.run(["sums", "solve"], lambda: self.facts(table, self.classes_[places], given)),
        ):
            more, rows = self._summed(table, source.name, engine)
            origin = self.origin_.minus(rows) if withdraw else self.origin_.plus(rows, repeats=repeats)
            if withdraw and np.count_nonzero(self.sums_["counts"] > more["counts"]) < 2:
                raise DataError("Fewer than two classes would be left; keep rows of at least two.")
            # in place, for sums are the bulk of a head, where they are not those of a file
            kept = {name: np.require(array, requirements="W") for name, array in self.sums_.items()}
            self.sums_ = sums.without(kept, more) if withdraw else sums.merge(kept, more)
            self.origin_, self.audit_ = origin, [dict(entry) for entry in origin.audit]
            del more, kept
            self._renew(engine)
        return self

    def _groups(self) -> Iterator[tuple[str, Group]]:
        yield "sums", self._sums_group()
        yield "rows", store.packed(_ROWS, {"digest": self.origin_.samples})
        solution = {name: getattr(self, f"{name}_") for name in self.SOLUTION}
        yield "solution", store.packed(self.SOLUTION, solution)

    def _sums_group(self) -> Group:
        """Return the sums as a group of a file."""
        return store.packed(summed.declared(self.sums), self.sums_)

    def _restore(self, file: Any, about: About) -> None:
        self.sums_ = self._sums_in(file)
        sizes = {"sample": self.n_rows, "class": len(self.classes_)}
        store.require(file, {"rows": _ROWS, "solution": self.SOLUTION}, **sizes)
        digests = store.finite(file["rows"], "digest", np.uint64)
        self.origin_ = Origin("", digests, provenance.NO_ATOMS, tuple(about.audit))
        self._take({name: store.finite(file["solution"], name) for name in self.SOLUTION})

    def _sums_in(self, file: Any) -> State:
        """Read the sums."""
        return summed.state_in(file["sums"], self.sums)


def _table(source: Source, places: Int64) -> Source:
    """Return the rows with the numbers of their classes behind them."""
    if isinstance(source, ArraySource):
        rows = source.array.reshape(len(places), -1)
        kind = np.float64 if rows.dtype == np.float64 else np.float32
        return ArraySamples(np.column_stack([rows.astype(kind, copy=False), places.astype(kind)]))
    return WithLabels(source, places)
