"""A look at a pass before it ends: statistics are sums, so the sum so far is the statistic of the samples so far.

Previews are made while passes run, by a thread that spends at most a small share of the run's time.

What is looked at is the sum as a task left it, never one that is being added to. Of a dictionary of more than
`MOST_ATOMS` atoms only the most active ones are looked at, so that a preview costs a moment whatever the
dictionary.
"""

from __future__ import annotations

import base64
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.engine.events import PATIENCE, Event
from smtdist.engine.partial import Cover
from smtdist.engine.passes import Engine
from smtdist.errors import SmtdistError
from smtdist.kernels.device import to_host
from smtdist.kernels.threads import single_blas
from smtdist.kernels.types import Whitener
from smtdist.statistics.base import State, Statistic
from smtdist.statistics.candidates import Candidates, Centroids
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

SHARE: Final = 0.005
GRACE: Final = 0.02
"""Seconds that may be spent before anything is saved up."""
GROWTH: Final = ("sums", "progress")
"""Kinds of events after which there may be more to see."""
APART, AGAIN = 1.0, 0.1
"""Seconds from one preview to the next, at least, and from one that found nothing."""

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
        activity = np.sum([each for _, (_, each) in looks], axis=0)
        parts = [(covers, own) for covers, (own, _) in looks]
        counts, state = _counts(parts), _sum(sums, parts)
        own = state["activity"].astype(np.float64)
        statistics, sites = finish(sums, state), counts["n_positions"]
        scatter = statistics.context_scatter / (sites * statistics.scatter_scale)
        moment: NDArray[np.float64] = (own if statistics.one_hot else statistics.second_moment) / sites
        from smtdist.solve import generalized  # loads SciPy, for those who watch alone

        count = min(COMPONENTS, max(1, int(np.count_nonzero(own)) // 2))
        solution = generalized.smallest_components(scatter, moment, count)
        # for a few atoms, spread over the active ones, those nearest in the embedding
        components = solution.components.T
        lengths = np.linalg.norm(components, axis=1)  # a row is an atom's place in the embedding
        active = np.flatnonzero((own > 0) & (lengths > 0))
        unit = components[active] / lengths[active, None]
        cosines = unit @ unit.T
        order = np.argsort(-own[active], kind="stable")
        shown = order[np.linspace(0, len(order) - 1, min(SHOWN, len(order))).astype(int)]
        nearest = [np.argsort(-cosines[one], kind="stable")[: NEIGHBOURS + 1] for one in shown]
        rows = np.array(nearest, dtype=int)
        numbers = chosen.atoms[active[rows]] if len(rows) else np.zeros((0, 0), int)
        patches = sums.encoder.atoms[numbers.reshape(-1)]
        return {
            **counts,
            "spectrum": [float(value) for value in solution.eigenvalues],
            "atoms": sums.n_atoms,
            "of_atoms": len(chosen.atoms),
            "atoms_in_use": int(np.count_nonzero(activity)),
            "neighbours": {
                "atoms": numbers.tolist(),
                **chosen.pictures(sums.encoder.whitener, patches),
            },
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


class Previewer:
    """Subscribes to an engine's events and adds `preview` events to them.

    A preview is made when something was added to sums and the time spent so far stays below `share` of the
    time that has passed: a run that previews cost much has few of them. It does not wait for a task to end:
    a task under way is asked for what it has so far (that wait is not spent time). Nothing that goes wrong
    here reaches the run.
    """

    def __init__(self, engine: Engine, share: float = SHARE) -> None:
        self._engine, self._share = engine, share
        self._began = time.monotonic()
        self._spent, self._last, self._apart = 0.0, 0.0, 0.0
        self._changed, self._over = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._pass = ""
        self._calculating = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Take one event."""
        if event["kind"] == "pass_started":
            self._over.set()  # of the thread of the pass before
            self._changed, self._over = threading.Event(), threading.Event()
            self._thread, self._pass, self._apart = None, event["pass"], 0.0
        elif event["kind"] in ("pass_finished", "pass_failed", "run_finished", "run_failed"):
            self._over.set()
            self._changed.set()
            with self._calculating:
                pass  # what comes after the pass must have all threads of BLAS: with fewer, its last bits differ
            if self._thread is not None and event["kind"] in ("run_finished", "run_failed"):
                self._thread.join(timeout=PATIENCE)
        elif (
            event["kind"] in GROWTH
            and event["pass"] == self._pass  # reports of an earlier one may come late
            and (event["covers"] if event["kind"] == "sums" else event["n_positions"])
            and not self._over.is_set()
        ):
            self._changed.set()
            if self._thread is None:
                arguments = (event["pass"], self._changed, self._over)
                self._thread = threading.Thread(
                    target=self._watch, args=arguments, name="smtdist-preview", daemon=True
                )
                self._thread.start()

    def _watch(self, name: str, changed: threading.Event, over: threading.Event) -> None:
        chosen = Chosen()
        while not over.is_set():
            changed.wait()
            changed.clear()
            if over.wait(self._pause()):
                return
            with contextlib.suppress(Exception):
                self._make(name, chosen, over)

    def _pause(self) -> float:
        """Return the seconds until the next preview is due, if it costs what the last one did."""
        saved = self._share * (time.monotonic() - self._began) + GRACE - self._spent
        return max((self._last - saved) / self._share, self._apart)

    def _make(self, name: str, chosen: Chosen, over: threading.Event) -> None:
        reduction = self._engine.current
        if reduction is None or reduction.job.name != name:
            return
        self._apart = AGAIN
        # the time of this thread and of those who looked for it: what it waits for them is not spent
        started, spent = time.thread_time(), reduction.spent
        try:
            found = preview(reduction.job.statistic, reduction.peek, chosen, lambda: self._calm(over))
        finally:
            self._last = time.thread_time() - started + reduction.spent - spent
            self._spent += self._last
        if found is not None and not over.is_set():
            self._apart = APART
            total = {"n_leaves": reduction.n_leaves, "of_samples": reduction.plan.n_samples}
            self._engine.events.emit("preview", **{"pass": name}, **total, cost=self._last, **found)

    @contextlib.contextmanager
    def _calm(self, over: threading.Event) -> Iterator[None]:
        """Calculate while the pass goes on, on one thread: those of BLAS spin on after each call, and kernels want the cores."""
        with self._calculating:
            if over.is_set():
                raise _PassOver
            with single_blas():
                yield


class _PassOver(Exception):
    """The pass has ended while its sums were looked at."""
