"""Models that follow from sums over rows: what a package derives from that brings a model of its own.

A package names its class as an entry point of the group `smtdist.models`, under the name of the kind; every command and
function then takes it. The page "Extending" of the documentation has an example.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from smtdist.data.netcdf import Group
from smtdist.data.showing import n_samples
from smtdist.data.source import Source
from smtdist.engine.forecast import PassCost
from smtdist.engine.memory import require_driver
from smtdist.engine.passes import Engine
from smtdist.kernels.threads import single_blas
from smtdist.models import kinds, merge, plan, store, valued
from smtdist.models.jobs import Job, Request
from smtdist.models.plan import Step
from smtdist.models.provenance import NO_ATOMS, Record, ordered_digests, origin_of
from smtdist.models.rows import RowModel, table_of
from smtdist.models.store import Array, Arrays, Stored
from smtdist.settings import Settings
from smtdist.statistics.base import State, Statistic
from smtdist.statistics.origin import Additive, Origin

COPIES: Final = 6
"""Of the sums, that a solve holds at most: in float64, factors and workspaces."""
_DIGESTS: Final = {"sample_digest": Array(("sample",), "hash of the sample")}


@dataclass(frozen=True, eq=False)
class Sums(Additive):
    """Finished sums and the samples in them."""

    statistic: Statistic
    state: State
    origin: Origin

    @property
    def n_samples(self) -> int:  # type: ignore[override]
        """Samples in the sums."""
        return len(self.origin.samples)

    @property
    def held_bytes(self) -> int:
        """Bytes of the sums."""
        return sum(value.nbytes for value in self.state.values())

    def _summed(self, other: Self, sign: int, origin: Origin) -> Self:
        combined = self.statistic.merge if sign > 0 else self.statistic.without
        own = {name: value.copy() for name, value in self.state.items()}
        return replace(self, state=combined(own, other.state), origin=origin)


def array(*dims: str, about: str = "", units: str = "") -> Any:
    """Declare a field of a `SumModel` that is an array of its files; without dimensions it is a number."""
    return field(default=None, metadata={"array": Array(dims, about, units)})


@dataclass(frozen=True, eq=False)
class SumModel(Stored, RowModel, merge.Transform):
    """A model of rows that is solved for from exact sums over them.

    A subclass is a frozen dataclass that names its kind and its settings, declares what it solves for as fields that are an
    `array`, and has `sums`, `solve` and `transform`. `free` are the settings that no sum depends on, which may change
    after the fit.
    """

    settings: Any = None
    n_inputs: int = 0
    statistics: Sums | None = None
    provenance: dict[str, Any] = field(default_factory=dict)

    free: ClassVar[tuple[str, ...]] = ()
    ARRAYS: ClassVar[Arrays] = {"n_inputs": Array()}

    def __init_subclass__(cls, *, kind: str = "", of: type[Settings] = Settings) -> None:
        """Add the kind to the table, where it has no row yet."""
        new = bool(kind) and kind not in kinds.KINDS
        own = {name: one.metadata for name, one in vars(cls).items() if isinstance(one, Field)}
        cls.ARRAYS = {**cls.ARRAYS, **{name: one["array"] for name, one in own.items() if "array" in one}}
        super().__init_subclass__(kind=kind, of=of)
        if new:
            kinds.KINDS[kind] = kinds.of_sums(kind, kinds.KINDS[kind])

    @classmethod
    def declared(cls) -> Mapping[str, Field[Any]]:
        """Return the settings of such a model, as they are declared."""
        return cls.SETTINGS.declared()

    @property
    @abstractmethod
    def sums(self) -> Statistic:
        """The statistic of rows (m, n_inputs), whose state is made of whole numbers."""

    @abstractmethod
    def solve(self, state: State) -> dict[str, Any]:
        """Return what follows from the sums: the values of fields, by name."""

    @abstractmethod
    def transform(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return embedded rows (m, k): of each the same numbers beside whichever others."""

    @property
    def solve_bytes(self) -> int:
        """Memory that a solve takes at most on the driver, beside the sums."""
        return COPIES * self.sums.state_bytes()

    @property
    def feature_shape(self) -> tuple[int, ...]:
        """Shape of an embedded row."""
        return self.transform(np.zeros((1, self.n_inputs))).shape[1:]

    def embed(self, samples: NDArray[Any]) -> NDArray[Any]:
        """Return embedded rows."""
        return self.transform(samples.reshape(len(samples), -1).astype(np.float64))

    @property
    def basis(self) -> str:
        """Hash of all that the sums depend on but the data."""
        free, asked = self.settings.stored_names(self.free), self.settings.to_dict()
        fixed = {name: value for name, value in asked.items() if name not in free}
        return valued.hashed(self.STORED_AS, fixed, self.n_inputs)

    def summed(self, source: Source, engine: Engine) -> tuple[Sums, Record]:
        """Sum the rows of a source, as a step of a run."""
        sums = self.sums
        made, record = engine.reduce("statistics", sums, source, fingerprint=True)
        return Sums(sums, made.state, origin_of(self.basis, ordered_digests(made), source.name)), record

    def solved(self, statistics: Sums, engine: Engine) -> tuple[dict[str, Any], Record]:
        """Solve, as a step of a run."""

        def solve() -> dict[str, Any]:
            with single_blas():  # bits follow the number of its threads
                return self.solve(statistics.state)

        return engine.solve("solve", solve, self.solve_bytes)

    def with_solution(self, solution: Mapping[str, Any]) -> Self:
        """Return the model with what was solved for."""
        return replace(self, **solution)

    def summary(self) -> dict[str, Any]:
        """Return the figures that a person asks for first, as plain JSON."""
        about = {"n_samples": n_samples(self.provenance), "n_features": self.n_inputs}
        return {**about, "fingerprint": self.fingerprint}

    @classmethod
    def begun(cls, source: Source, settings: Any) -> Self:
        """Return a model of settings for the samples of a source, of which it has seen none."""
        return cls(settings=settings, n_inputs=math.prod(source.shape[1:]))

    @classmethod
    def fit(cls, source: Source, settings: Any, engine: Engine) -> tuple[Self, list[Record]]:
        """Fit rows: one pass, then a solve."""
        start = cls.begun(source, settings)
        require_driver("solve", start.solve_bytes)  # before data are read
        return merge.fit_alone(start, source, engine)

    @classmethod
    def job(cls, request: Request) -> Job:
        """Open the rows of a fit."""
        source, settings = table_of(request.data, request.dataset), cls.SETTINGS(**request.settings)
        start = cls.begun(source, settings)
        return Job(
            source,
            lambda engine: cls.fit(source, settings, engine),
            partial(start.facts, source),
            costs=partial(start.costs, source),
        )

    def costs(self, source: Source, engine: Engine) -> list[PassCost]:
        """Return what the steps of a fit cost."""
        step = Step("statistics", self.sums, source, digests=True)
        return [*plan.costs_of([step], engine), plan.on_driver("solve", self.solve_bytes)]

    def stored(self) -> Iterator[tuple[str, Group]]:
        """Yield what its file holds: arrays in the root, `/audit`, and `/statistics`, sums and hashes of their samples."""
        yield from super().stored()
        yield "audit", store.audit_group(self.provenance["audit"])
        if self.statistics is not None:
            values = {**self.statistics.state, "sample_digest": self.statistics.origin.samples}
            yield "statistics", store.packed({**declared(self.sums), **_DIGESTS}, values)

    @classmethod
    def restored(cls, file: Any, statistics: bool) -> Self:
        """Read what `stored` yielded."""
        model = super().restored(file, statistics)
        if not (statistics and "statistics" in file):
            return model
        sums, group = model.sums, file["statistics"]
        store.require(group, {"": _DIGESTS})
        audit = tuple(model.provenance["audit"])
        origin = Origin(model.basis, group["sample_digest"][()], NO_ATOMS, audit)
        return replace(model, statistics=Sums(sums, state_in(group, sums), origin))


def declared(sums: Statistic) -> Arrays:
    """Return the arrays of sums in a file."""
    return {name: Array(_dims(name, shape), dtype="int") for name, (shape, _) in sums.layout().items()}


def state_in(group: Any, sums: Statistic) -> State:
    """Read sums from a group of a file; ValueError where an array is missing or has another shape."""
    layout = sums.layout()
    lengths = {
        dim: length
        for name, (shape, _) in layout.items()
        for dim, length in zip(_dims(name, shape), shape, strict=True)
    }
    store.require(group, {"": declared(sums)}, **lengths)
    return {name: np.asarray(group[name][()], dtype) for name, (_, dtype) in layout.items()}


def _dims(name: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(f"{name}_{at}" for at in range(len(shape)))
