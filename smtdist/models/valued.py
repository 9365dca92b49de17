"""Transforms whose codes are values: one pass for the sums, one solve, one group of their files, whatever the samples are."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from smtdist.data.netcdf import Group
from smtdist.data.source import Source
from smtdist.engine.passes import Engine
from smtdist.errors import DataError, ModelError
from smtdist.kernels.threads import single_blas
from smtdist.models.merge import Transform
from smtdist.models.provenance import NO_ATOMS, Record, ordered_digests, origin_of
from smtdist.models.store import Array, alike, number, packed, require_counts, text
from smtdist.solve.solution import Solution
from smtdist.statistics import values as value_sums
from smtdist.statistics.origin import Origin
from smtdist.statistics.values import SecondOrder, ValueStatistics, ValueSums


class ValuedTransform(Transform):
    """What transforms of values share. given : what a file keeps in place of sums."""

    statistics: ValueStatistics | None
    given: SecondOrder | None = None

    @property
    @abstractmethod
    def sums(self) -> ValueSums:
        """The statistic that sums the codes of samples."""

    @property
    def wanted(self) -> int:
        """Components that a solve is asked for."""
        return int(self.settings.n_components)

    @cached_property
    def means(self) -> SecondOrder:
        """V, A D Dᵀ Aᵀ and the mean code: the sums divided by the positions. ModelError where there are no sums."""
        if self.given is not None:
            return self.given
        if self.statistics is None:
            raise ModelError("The model keeps no sums; fit it again.")
        return self.statistics.means()

    def read_as(self, source: Source) -> Source:
        """Return the source that a pass over samples reads."""
        return source

    def summed(self, source: Source, engine: Engine) -> tuple[ValueStatistics, Record]:
        """Sum the codes of all samples of a source, as a step of a run."""
        sums, read = self.sums, self.read_as(source)
        partial, record = engine.reduce("statistics", sums, read, fingerprint=True)
        origin = origin_of(self.basis, ordered_digests(partial), read.name)
        return replace(value_sums.finish(partial.state, sums), origin=origin), record

    def solved(self, statistics: ValueStatistics, engine: Engine) -> tuple[Solution, Record]:
        """Solve for an embedding, as a step of the run."""
        return solved(statistics, self.settings.second_moment, self.wanted, engine)


def hashed(*told: Any) -> str:
    """Return a hash of plain JSON.

    >>> hashed("code", 1) == hashed("code", 1) != hashed("code", 2)
    True
    """
    return hashlib.blake2b(json.dumps(told).encode(), digest_size=16).hexdigest()


def solved(
    statistics: ValueStatistics, moment: str, n_components: int, engine: Engine
) -> tuple[Solution, Record]:
    """Solve min ‖P A D‖² with P V Pᵀ = I (SMT 2018, eq. 8), V the second or the centred moment, as a step of a run.

    Memory: `smtdist.solve.generalized.solve_bytes`, and both matrices. Raises DataError where A D Dᵀ Aᵀ is zero.
    """
    if not any(limb.any() for limb in statistics.context_scatter):
        raise DataError(
            "No two sites with a code are neighbours, or all neighbours have the same code, so nothing says which are alike; "
            "give data that vary, more of them, a wider context, or a lower threshold or penalty."
        )
    # a model that is only used needs no SciPy
    from smtdist.solve import generalized

    def solve() -> Solution:
        means = statistics.means()
        with single_blas():  # bits follow the number of its threads
            return generalized.smallest_components(means.scatter, means.constraint(moment), n_components)

    return engine.solve(
        "solve", solve, generalized.solve_bytes(len(statistics.activity), False, n_components)
    )


def statistics_arrays(codes: str = "code") -> dict[str, Array]:
    """Declare the arrays of sums, beside the hashes of samples; the dimension of codes has a name of its own."""
    square = (codes, f"{codes}_")
    limbs = {}
    for name in value_sums.SUMS:
        what = f"{name} in steps of 1 / grid², of which this is"
        limbs[f"{name}_high"] = Array(square, f"{what} the part above 2^32", dtype="int")
        limbs[f"{name}_low"] = Array(square, f"{what} the rest", dtype="uint32")
    return {
        **alike(("n_samples", "n_positions")),
        "activity": Array((codes,), "sums of codes, in steps of 1 / grid"),
        **limbs,
    }


def statistics_group(sums: ValueStatistics, codes: str = "code") -> Group:
    """Return sums as a group of a file."""
    arrays = statistics_arrays(codes)
    arrays["sample_digest"] = Array(("sample",), "hash of the sample", optional=True)
    values = {**vars(sums), "sample_digest": None if sums.origin is None else sums.origin.samples}
    for name in value_sums.SUMS:
        values[f"{name}_high"], values[f"{name}_low"] = getattr(sums, name)
    about: dict[str, Any] = {"grid": sums.grid, "scale": sums.scale}
    return packed(arrays, values, about | ({"products": sums.products} if sums.products else {}))


def read_statistics(group: Any, basis: str, audit: Any = ()) -> ValueStatistics:
    """Read such a group of sums, whose shapes `store.require_all` has looked at."""
    limbs = {
        name: tuple(group[f"{name}_{limb}"][()].astype(np.int64) for limb in ("high", "low"))
        for name in value_sums.SUMS
    }
    origin = None
    if "sample_digest" in group:
        origin = Origin(basis, group["sample_digest"][()], NO_ATOMS, tuple(audit))
    counts = int(group["n_samples"][()]), int(group["n_positions"][()])
    require_counts(*counts)
    return ValueStatistics(
        n_samples=counts[0],
        n_positions=counts[1],
        activity=group["activity"][()],
        grid=number(group, "grid"),
        scale=number(group, "scale"),
        origin=origin,
        products=text(group, "products"),
        **limbs,
    )
