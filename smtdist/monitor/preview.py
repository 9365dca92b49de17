"""A look at a pass before it ends: statistics are sums, so the sum so far is the statistic of the samples so far.

What is looked at is the sum as a task left it, never one that is being added to. Of a dictionary of more than
`MOST_ATOMS` atoms only the most active ones are looked at, so that a preview costs a moment whatever the
dictionary.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.engine.partial import Cover
from smtdist.errors import SmtdistError
from smtdist.kernels.device import to_host
from smtdist.kernels.threads import single_blas
from smtdist.kernels.types import Encoder, Whitener
from smtdist.statistics.base import State, Statistic
from smtdist.statistics.candidates import Candidates
from smtdist.statistics.centroids import Centroids
from smtdist.statistics.cooccurrence import CodeSums
from smtdist.statistics.covariance import PatchMoment, covariance
from smtdist.statistics.sums import finish

MOST_ATOMS: Final = 128
MOST_PIXELS: Final = 512
"""Patches of more pixels are whitened without a preview: their moments are as large as they are."""
COMPONENTS: Final = 48
SHOWN: Final = 6
NEIGHBOURS: Final = 6
PATCHES: Final = 42

Look = Callable[..., list[tuple[Cover, Any]]]
"""Calls function(state, ...) on each partial sum there is, where it lies; returns (cover, value) of each."""
Calm = Callable[[], AbstractContextManager[None]]
"""Makes the context in which a preview calculates, once it has what it looked for."""


@dataclass
class Chosen:
    """What is kept from one preview of a pass to the next: the atoms it is looked at by, so that previews can be compared."""

    atoms: NDArray[np.int64] | None = None
    unwhiten: NDArray[np.float64] | None = None

    def pictures(self, whitener: Whitener, atoms: NDArray[np.floating[Any]]) -> dict[str, Any]:
        """Return atoms in whitened space as the patches they stand for, each on a grey scale of its own."""
        patches = np.asarray(atoms, np.float64)
        if whitener.whiten is not None:
            if self.unwhiten is None:
                self.unwhiten = np.linalg.pinv(np.asarray(whitener.whiten, np.float64))
            patches = patches @ self.unwhiten
        geometry = whitener.geometry
        return packed(patches.reshape(-1, geometry.patch, geometry.patch, geometry.channels))


def preview(
    statistic: Statistic, look: Look, chosen: Chosen, calm: Calm = single_blas
) -> dict[str, Any] | None:
    """Return what the sums so far say, as plain JSON types; None where there is nothing to say yet.

    All have `leaves`, `n_samples` and `n_positions` covered. A whitening pass has the `spectrum` of the patch
    covariance; a dictionary pass the `patches` chosen so far; a statistics pass the `spectrum` of the
    generalised problem (SMT 2023, eq. 3; V uncentred) among the `of_atoms` atoms looked at, `atoms_in_use`
    of all `atoms`, and for some atoms the `neighbours` whose embeddings have the highest cosine. Pictures
    are uint8 in base64.
    """
    try:
        return _seen(statistic, look, chosen, calm)
    except (SmtdistError, ArithmeticError, np.linalg.LinAlgError):
        return None  # too few samples yet for a statistic to have a meaning
    except (KeyError, RuntimeError):
        return None  # the pass has ended meanwhile, and whoever finishes its sum takes it apart


@singledispatch
def _seen(statistic: Statistic, look: Look, chosen: Chosen, calm: Calm) -> dict[str, Any] | None:
    """Return what a statistic shows; by default nothing."""
    return None


def part(state: State, names: tuple[str, ...] | None, rows: NDArray[np.int64] | int | None) -> State:
    """Return copies of some arrays of a state: of matrices the rows and columns asked for, of vectors the entries.

    A number asks for so many first rows. Runs where the state lies; what it returns is small, and on the
    host.
    """
    found: State = {}
    for name, value in state.items():
        if names is not None and name not in names:
            continue
        if rows is None or value.ndim == 0:
            found[name] = np.array(to_host(value))
        elif isinstance(rows, int):
            found[name] = np.array(to_host(value[:rows]))
        elif value.ndim == 1:
            found[name] = to_host(value[rows])
        else:
            found[name] = to_host(value[np.ix_(rows, rows)])
    return found


def looked_at(state: State, atoms: NDArray[np.int64]) -> tuple[State, NDArray[np.int64]]:
    """Return the part of code sums that concerns some atoms, and the activity of all."""
    return part(state, None, atoms), np.array(to_host(state["activity"]))


def _sum(statistic: Statistic, parts: list[tuple[Cover, State]]) -> State:
    """Return the sum of disjoint parts."""
    (_, total), *others = parts
    for _, state in others:
        total = statistic.merge(total, state)
    return total


@_seen.register
def _(sums: CodeSums, look: Look, chosen: Chosen, calm: Calm) -> dict[str, Any] | None:
    if sums.rows is not None:
        return None  # a tile of rows has no spectrum
    if chosen.atoms is None:
        counted = look(part, ("activity",), None)
        total = _sum(sums, counted)["activity"] if counted else np.zeros(0)
        if not total.any():
            return None
        chosen.atoms = np.sort(np.argsort(-total, kind="stable")[:MOST_ATOMS])
    looks = look(looked_at, chosen.atoms)
    if not looks:
        return None
    with calm():
        return _codes_seen(sums, looks, chosen, chosen.atoms)


def _codes_seen(
    sums: CodeSums,
    looks: list[tuple[Cover, tuple[State, NDArray[np.int64]]]],
    chosen: Chosen,
    atoms: NDArray[np.int64],
) -> dict[str, Any]:
    activity = np.sum([each for _, (_, each) in looks], axis=0)
    parts = [(covers, own) for covers, (own, _) in looks]
    counts, state = _counts(parts), _sum(sums, parts)
    own = state["activity"].astype(np.float64)
    statistics = finish(sums, state)
    scatter = statistics.context_scatter / (counts["n_positions"] * statistics.scatter_scale)
    moment: NDArray[np.float64] = (own if statistics.one_hot else statistics.second_moment) / counts[
        "n_positions"
    ]
    from smtdist.solve import generalized  # loads SciPy, for those who watch alone

    solution = generalized.smallest_components(
        scatter, moment, min(COMPONENTS, max(1, int(np.count_nonzero(own)) // 2))
    )
    return {
        **counts,
        "spectrum": [float(value) for value in solution.eigenvalues],
        "atoms": sums.n_atoms,
        "of_atoms": len(atoms),
        "atoms_in_use": int(np.count_nonzero(activity)),
        "neighbours": _neighbours(chosen, sums.encoder, atoms, own, solution.components.T),
    }


def _neighbours(
    chosen: Chosen,
    encoder: Encoder,
    atoms: NDArray[np.int64],
    activity: NDArray[np.float64],
    components: NDArray[np.float64],
) -> dict[str, Any]:
    """Return for a few atoms, spread over the active ones, those nearest in the embedding, with their patches."""
    lengths = np.linalg.norm(components, axis=1)  # a row is an atom's place in the embedding
    active = np.flatnonzero((activity > 0) & (lengths > 0))
    unit = components[active] / lengths[active, None]
    cosines = unit @ unit.T
    order = np.argsort(-activity[active], kind="stable")
    shown = order[np.linspace(0, len(order) - 1, min(SHOWN, len(order))).astype(int)]
    rows = np.array(
        [np.argsort(-cosines[one], kind="stable")[: NEIGHBOURS + 1] for one in shown], dtype=int
    )
    numbers = atoms[active[rows]] if len(rows) else np.zeros((0, 0), int)
    return {
        "atoms": numbers.tolist(),
        **chosen.pictures(encoder.whitener, encoder.atoms[numbers.reshape(-1)]),
    }


def packed(patches: NDArray[np.float64]) -> dict[str, Any]:
    """Return pictures (patches, height, width, channels) as plain types, each stretched to 0 to 255."""
    flat = patches.reshape(len(patches), -1)
    low = flat.min(1, keepdims=True, initial=np.inf)
    high = flat.max(1, keepdims=True, initial=-np.inf)
    grey = np.rint(255 * (flat - low) / np.where(high > low, high - low, 1)).astype(np.uint8)
    return {"shape": list(patches.shape), "pixels": base64.b64encode(grey.tobytes()).decode("ascii")}


@_seen.register
def _(moments: PatchMoment, look: Look, chosen: Chosen, calm: Calm) -> dict[str, Any] | None:
    if moments.whitener.geometry.pixels > MOST_PIXELS:
        return None
    parts = look(part, None, None)
    counts = _counts(parts)
    if not counts["n_positions"]:
        return None
    with calm():
        matrix, _ = covariance(_sum(moments, parts), moments.whitener)
        values = np.linalg.eigvalsh(matrix)[::-1]
    return {**counts, "spectrum": [float(value) for value in values[:COMPONENTS]]}


@_seen.register
def _(sketch: Candidates, look: Look, chosen: Chosen, calm: Calm) -> dict[str, Any] | None:
    """Show the patches with the smallest hashes so far: the first atoms of a random dictionary, if nothing smaller comes."""
    parts = look(part, ("n_samples", "n_positions", "hash", "vector"), PATCHES)
    if not parts:
        return None
    states = [state for _, state in parts]
    vectors = np.concatenate([state["vector"] for state in states])
    first = np.argsort(np.concatenate([state["hash"] for state in states]), kind="stable")[:PATCHES]
    with calm():
        return {**_counts(parts), "patches": chosen.pictures(sketch.whitener, vectors[first])}


@_seen.register
def _(round_: Centroids, look: Look, chosen: Chosen, calm: Calm) -> dict[str, Any] | None:
    """Show the atoms that a k-means round has used so far, the busiest ones as they were when it began."""
    parts = look(part, ("n_samples", "n_positions", "counts"), None)
    if not parts:
        return None
    counts = np.sum([state["counts"] for _, state in parts], axis=0)
    busiest = np.argsort(-counts, kind="stable")[:PATCHES]
    with calm():
        pictures = chosen.pictures(round_.encoder.whitener, round_.encoder.atoms[busiest])
    return {
        **_counts(parts),
        "atoms": len(counts),
        "atoms_in_use": int(np.count_nonzero(counts)),
        "patches": pictures,
    }


def _counts(parts: list[tuple[Cover, State]]) -> dict[str, int]:
    """Return how much the sums so far cover."""
    leaves = sum(stop - start for covers, _ in parts for start, stop in covers)
    totals = {name: sum(int(state[name]) for _, state in parts) for name in ("n_samples", "n_positions")}
    return {"leaves": leaves, **totals}
