"""Calibrate the passes of a fit: the fit itself on a few real samples, against the clock.

The whitening of the sample is that of the data but for noise, and random patches of the sample under it are
as the dictionary will be, so codes are as dense as they will be.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np
import psutil
from numpy.typing import NDArray

from smtdist.configuration import Configuration
from smtdist.data.source import Source
from smtdist.engine import calibration as timing
from smtdist.engine import worker
from smtdist.engine.calibration import Deadline
from smtdist.engine.forecast import Curve, Pace
from smtdist.engine.memory import BUDGET_SHARE
from smtdist.errors import DataError
from smtdist.kernels.cpu.jit import compile_timer
from smtdist.kernels.threads import set_threads
from smtdist.kernels.types import Encoder, Whitener
from smtdist.models.dictionary import moved_once
from smtdist.models.fit import whitening_of
from smtdist.models.model import whitened
from smtdist.models.plan import Step
from smtdist.statistics.base import State, Statistic
from smtdist.statistics.candidates import Candidates, Centroids
from smtdist.statistics.cooccurrence import CodeSums
from smtdist.statistics.covariance import PatchMoment

SHARES = {"whitening": 0.15, "dictionary": 0.2, "dictionary rounds": 0.25, "statistics": 1.0}
"""Parts of the time left that a pass may take of what comes after it."""
SMALLER = 0.2
"""Part of the time left that sums of fewer atoms take: those of all atoms tell most of themselves."""
SOME_ROWS = 0.7
"""Part of the time left that some rows of the sums of all atoms take: several images of some rows tell what grows with the
images, for which all rows, slow to touch for the first time, leave no time."""
AGES = 3
"""Later moments of a sketch's life at which its update is measured."""
LEFT = 32 * 2**20
"""What a whole pass leaves in the heap, as measured: gaps that later arrays do not fit; a few batches leave fewer."""
MOST_BYTES = 4 * 2**30
"""Memory that a calibration takes at most."""
SLICE_BYTES = 256 * 2**20
"""Rows of large sums that are tried before all of them: what an image costs beside its sums shows at any number of atoms."""


Size = tuple[int, int, int]
"""Of a pass: its batch, the samples of a slot, its tiles of rows."""


class Learnt(NamedTuple):
    """The whitening and the atoms found so far, or given, in place of placeholders."""

    whitener: Whitener | None
    grid: NDArray[np.float32] | None


@dataclass(frozen=True)
class Asked:
    """What a process is to measure: a fit's passes with their batches, and what it starts from."""

    source: Source
    settings: Configuration
    steps: tuple[Step, ...]
    sizes: tuple[Size, ...]  # of each
    threads: int
    processes: int  # that measure at the same time, and share the memory
    whitener: Whitener | None = None  # of a model that is reused
    grid: NDArray[np.float32] | None = None


class Measured(NamedTuple):
    """The pace of each pass and the bytes in memory before it, by name, and the seconds for which kernels were compiled."""

    paces: dict[str, Pace]
    baselines: dict[str, int]
    compile_seconds: float


def measured(question: Asked, deadline: Deadline) -> Measured:
    """Measure each pass of a fit; runs where a worker would.

    Kernels that no fit has compiled on this machine are compiled first: the time that takes is counted
    apart, and the deadline moves by it. Memory: the sums of the passes, one after another, where they fit in
    `MOST_BYTES`, else of fewer atoms.
    """
    set_threads(question.threads)
    baselines: dict[str, int] = {}
    most = max(batch for batch, _, _ in question.sizes)
    images, reading = timing.read_sample(question.source, most, deadline.share(0.15))
    known, paces = Learnt(question.whitener, question.grid), {}
    with compile_timer() as compiled:
        for step, size in zip(question.steps, question.sizes, strict=True):
            # here and not before all of them: a pass leaves gaps in the heap to those that follow
            before = compiled()
            in_use, start = _probed(step, question.threads)
            compiling = compiled() - before
            deadline = deadline.later(compiling)
            baselines[step.name] = in_use - images.nbytes + LEFT * bool(baselines)
            due = deadline.share(SHARES.get(step.name, 0.3))
            statistic = fitted(step.statistic, known)
            curve, basis, state = _curve(statistic, images, size, due, question.processes)
            paces[step.name] = Pace(reading, curve, max(0.0, start - compiling), basis)
            known = _learnt(statistic, state, question.settings, step.source.name, known)
        return Measured(paces, baselines, compiled())


@singledispatch
def _learnt(
    statistic: Statistic, state: State, settings: Configuration, name: str, known: Learnt
) -> Learnt:
    """Return what the passes after this one begin with."""
    return known


@_learnt.register
def _(moments: PatchMoment, state: State, settings: Configuration, name: str, known: Learnt) -> Learnt:
    try:
        whitening = whitening_of(state, moments.whitener, settings, name)
    except DataError:  # all patches of the sample are constant
        return known
    return known._replace(whitener=whitened(moments.whitener, whitening))


@_learnt.register
def _(sketch: Candidates, state: State, settings: Configuration, name: str, known: Learnt) -> Learnt:
    # some more than once where the sample has fewer
    vectors = state["vector"].astype(np.float32)
    return known._replace(grid=_repeated(vectors, settings.n_atoms) if len(vectors) else None)


@_learnt.register
def _(moved: Centroids, state: State, settings: Configuration, name: str, known: Learnt) -> Learnt:
    return known._replace(grid=moved_once(moved.encoder.atoms, state, settings))


def probed(question: Asked) -> dict[str, int]:
    """Return the bytes in memory before each pass, by name, with what passes leave behind as it usually is."""
    set_threads(question.threads)
    return {
        step.name: _probed(step, question.threads)[0] + LEFT * (at > 0)
        for at, step in enumerate(question.steps)
    }


def _probed(step: Step, threads: int) -> tuple[int, float]:
    """Return the bytes in memory with a pass's kernels compiled, and the seconds that took."""
    started = time.perf_counter()
    in_use, *_ = worker.probe(step.statistic, step.source.shape, str(step.source.dtype), threads)
    return in_use, time.perf_counter() - started


@singledispatch
def fitted(statistic: Statistic, known: Learnt) -> Statistic:
    """Return the statistic with what was found so far."""
    return statistic


@fitted.register
def _(sketch: Candidates, known: Learnt) -> Statistic:
    return replace(sketch, whitener=known.whitener or sketch.whitener)


@fitted.register
def _(sums: CodeSums, known: Learnt) -> Statistic:
    return replace(sums, encoder=_encoder(sums.encoder, known))


@fitted.register
def _(moved: Centroids, known: Learnt) -> Statistic:
    encoder = _encoder(moved.encoder, known)
    return replace(moved, encoder=encoder, spares=replace(moved.spares, whitener=encoder.whitener))


def _encoder(encoder: Encoder, known: Learnt) -> Encoder:
    atoms = encoder.atoms if known.grid is None else known.grid
    return replace(encoder, whitener=known.whitener or encoder.whitener, atoms=atoms)


@singledispatch
def _curve(
    statistic: Statistic, images: NDArray[Any], size: Size, due: Deadline, processes: int
) -> tuple[Curve, str, State]:
    """Return the seconds a sample takes, along the pass where that changes, how they were found, and a state."""
    batch = size[0]
    state = statistic.zero()
    statistic.update(state, images[:1], 0)  # touches memory and warms kernels

    def measure(size: int) -> float:
        return timing.timed(lambda: statistic.update(state, _repeated(images, size), 0))

    seconds, largest = timing.grown(measure, batch, due)
    basis = "measured" if largest == batch else f"from batches of up to {largest} of {batch} samples"
    return ((1.0, seconds / batch),), basis, state


def _repeated(images: NDArray[Any], size: int) -> NDArray[Any]:
    """Return `size` images, some more than once where there are fewer."""
    return images[:size] if size <= len(images) else images[np.arange(size) % len(images)]


@_curve.register
def _(
    sketch: Candidates, images: NDArray[Any], planned: Size, due: Deadline, processes: int
) -> tuple[Curve, str, State]:
    """Return the falling cost of a sketch: the more samples it has seen, the fewer patches are small enough to be made.

    Aged by so many samples, a sketch has hashes smaller by that factor.
    """
    state, (batch, samples, _) = sketch.zero(), planned
    size = min(batch, len(images))

    def seconds(of: State, seen: int) -> float:
        started = time.perf_counter()
        sketch.update(of, images[:size], seen)
        return (time.perf_counter() - started) / size

    first = seconds(state, 0)
    kept = dict(state)

    def aged(seen: float) -> float:
        hashes = (kept["hash"] // math.ceil(seen / size)).astype(np.uint64)
        return seconds({**kept, "hash": hashes}, round(seen))

    if len(kept["hash"]) < sketch.size or samples <= size:
        return ((float(size), first),), "measured", kept
    last, points = aged(samples), [(float(size), first)]
    basis = "measured at several moments of the pass"
    for step in range(1, AGES):
        seen = size * (samples / size) ** (step / AGES)
        # between both ends the patches that are made fall as the samples before them grow
        expected = last + (first - last) * size / seen
        if due.left > expected * size:
            expected = aged(seen)
        else:
            basis = "measured at the beginning and the end of the pass"
        points.append((seen, expected))
    return (*points, (float(samples), last)), basis, kept


@_curve.register
def _(
    sums: CodeSums, images: NDArray[Any], size: Size, due: Deadline, processes: int
) -> tuple[Curve, str, State]:
    """Return the cost of the sums, or of one of so many tiles of their rows, at the real K and batch.

    Where those need too much memory or time, from smaller ones.
    """
    batch, _, tiles = size
    room = BUDGET_SHARE * min(MOST_BYTES, psutil.virtual_memory().available / processes)
    *smaller, whole = _slices(sums, tiles)
    n_atoms, area, found = sums.n_atoms, sums.area / tiles, list[Batch]()
    for part in (*smaller, whole):
        needed = part.state_bytes() + part.batch_bytes(1)
        # one image touches the memory, one is timed
        if found and (needed > room or 2 * predicted(found, part.n_atoms, 1, part.area) > due.left):
            break
        share = 1.0 if part is whole else SOME_ROWS if part.n_atoms == n_atoms else SMALLER
        due_then = due.share(share)
        found += _growing(part, images, batch, due_then, room - part.state_bytes(), found)
    largest = found[-1]
    if (largest.atoms, largest.area, largest.images) == (n_atoms, whole.area, batch):
        return ((1.0, largest.seconds / batch),), "measured", {}
    seconds = predicted(found, n_atoms, batch, area)
    rows = "" if 2 * largest.area == largest.atoms**2 else " in some rows"
    basis = f"from K up to {largest.atoms:,}{rows} and batches of up to {largest.images} of {batch} samples"
    return ((1.0, seconds / batch),), basis, {}


def _slices(sums: CodeSums, tiles: int) -> Iterator[CodeSums]:
    """Yield sums to try, the planned tile of rows last: of fewer atoms, and of some rows where there are many."""
    for size in _dictionaries(sums.n_atoms):
        part = replace(sums, encoder=replace(sums.encoder, atoms=sums.encoder.atoms[:size]))
        count = max(1, -(-part.state_bytes() // SLICE_BYTES))
        if size < sums.n_atoms or count > tiles:
            yield part.tiled(count)[0]
    yield sums.tiled(tiles)[0]


def _growing(
    sums: CodeSums, images: NDArray[Any], batch: int, due: Deadline, room: float, before: list[Batch]
) -> list[Batch]:
    """Return what batches of growing sizes take while there is time and room, and in any case what one image takes.

    Of the first, smallest dictionary two batches in any case: from one nothing is known of growth.
    """
    state, found = sums.zero(), list[Batch]()
    for value in state.values():
        value[...] = 0  # memory is touched once, by a whole pass too
    sums.update(state, images[:1], 0)
    for different, part in _parts(images, batch):
        settled = len(found) >= (1 if before else 2)
        late = settled and predicted([*before, *found], sums.n_atoms, len(part), sums.area) > due.left
        if late or (found and sums.batch_bytes(len(part)) > room):
            break
        before_it = state["activity"].copy()
        seconds = timing.timed(lambda part=part: sums.update(state, part, 0))  # type: ignore[misc]
        active = np.count_nonzero(state["activity"] - before_it)
        found.append(Batch(sums.n_atoms, len(part), int(active), seconds, different, sums.area))
    return found


def _parts(images: NDArray[Any], batch: int) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield (different images, batch) of growing sizes: an image, copies of it, and different ones.

    Copies tell what the image pays from what the active atoms do: of a few different images both grow alike.
    """
    sizes = timing.sizes_up_to(batch)
    yield 1, images[:1]
    if batch > 2:
        yield 1, images[np.zeros(max(2, sizes[0]), np.intp)]
    for size in sizes:
        if size > 1:
            yield min(size, len(images)), _repeated(images, size)


def _dictionaries(n_atoms: int) -> list[int]:
    """Return sizes of dictionaries to try, the real one last; small ones are cheap and few.

    >>> _dictionaries(8192), _dictionaries(64)
    ([128, 512, 2048, 8192], [64])
    """
    return [size for size in (n_atoms // 64, n_atoms // 16, n_atoms // 4) if size >= 128] + [n_atoms]


CONSTANT, IMAGES, PRODUCTS, PAIRS, SWEEP = range(5)
"""The terms of `Batch.terms`."""
FULL = 0.9
"""Share of active atoms from which their number says little of how often they were."""


@dataclass(frozen=True)
class Batch:
    """What one update of the K x K sums took; `active` atoms, of `atoms` = K, occurred in its `images`.

    different : images that are not copies of another; 0: all. area : entries of the upper triangle that
    were summed, those of some rows; 0: all, K² / 2.
    """

    atoms: int
    images: int
    active: int
    seconds: float
    different: int = 0
    area: float = 0.0

    @property
    def terms(self) -> tuple[float, ...]:
        """What an update consists of: see `predicted`."""
        n, k = float(self.images), float(self.atoms)
        square = 2 * self.area or k**2
        return 1.0, n, n * k, n * square, square * self.active / k

    @property
    def draws(self) -> float:
        """How often an atom is drawn in an image, if each time any of K is as likely."""
        share = min(self.active, self.atoms - 0.5) / self.atoms
        return -self.atoms * math.log1p(-share) / (self.different or self.images)


def predicted(found: Sequence[Batch], atoms: int, images: int, area: float = 0.0) -> float:
    """Return the seconds of an update by a + b n + c n K + d n S + e S r / K, none negative, through what was found.

    S is K², or twice the area that is summed of the upper triangle. Products of n images' patches with K
    atoms are n K, pairs of their active atoms n to n S by how many are active, and a row of the sums is
    swept for each of the r atoms that occur at all: few in a batch of a few images, soon nearly all, so
    that the sweep is paid by the batch and not by the image. Batches of one size do not tell what an update
    or an image costs from what grows with it, nor do those of one dictionary: that is taken for n S then,
    since a plan may rather be too long than too short.

    >>> law = lambda k, n, r: Batch(k, n, r, 1e-3 * n + 1e-6 * n * k + 1e-8 * k * r)
    >>> few = [law(512, 4, 300), law(512, 16, 500), law(512, 64, 512), law(2048, 4, 700), law(2048, 16, 1800)]
    >>> round(predicted(few, 8192, 256), 2), round(law(8192, 256, 8192).seconds, 2)
    (3.02, 3.02)
    >>> predicted([Batch(512, 1, 512, 0.5)], 512, 64)
    32.0
    """
    left_out = set[int]()
    if len({batch.images for batch in found}) == 1:
        left_out |= {CONSTANT, SWEEP}
    if {batch.atoms for batch in found} in ({one.atoms} for one in found if one.atoms != atoms):
        left_out |= {IMAGES, PRODUCTS}
    columns = [term for term in range(SWEEP + 1) if term not in left_out]
    active = active_of(found, atoms, images)
    wanted = np.array(Batch(atoms, images, active, 0.0, area=area).terms)[columns]
    terms = np.array([batch.terms for batch in found])[:, columns]
    times = np.array([batch.seconds for batch in found])
    from scipy.optimize import nnls  # 19 MiB of optimisers, which only a plan that is extrapolated needs

    # relative errors count: the largest would drown the others
    coefficients, _ = nnls(
        terms / wanted / times[:, None], np.ones(len(times)), maxiter=100 * terms.shape[1]
    )
    return float(coefficients.sum())


def active_of(found: Sequence[Batch], atoms: int, images: int) -> int:
    """Return how many of K atoms occur in so many images, each drawn as often as those of the batches found.

    Between dictionaries draws grow by a power of K that is seen in the two largest: none for one-hot codes,
    of which a patch has one, and K where a patch activates a share of all.

    >>> vq = [Batch(k, 4, round(k * (1 - math.exp(-800 / k))), 1.0) for k in (1024, 4096)]
    >>> active_of(vq, 65536, 64) / (65536 * (1 - math.exp(-64 * 200 / 65536)))  # doctest: +ELLIPSIS
    1.00...
    """
    telling = [
        _telling([one for one in found if one.atoms == size]) for size in {one.atoms for one in found}
    ]
    *_, near = telling = sorted(telling, key=lambda batch: batch.atoms)
    power = 1.0
    if len(telling) > 1:
        before = telling[-2]
        power = math.log(near.draws / before.draws) / math.log(near.atoms / before.atoms)
    draws = near.draws * (atoms / near.atoms) ** min(1.0, max(0.0, power)) * images
    return max(1, round(-atoms * math.expm1(-draws / atoms)))


def _telling(found: Sequence[Batch]) -> Batch:
    """Return the batch that tells most of how often atoms occur: of many images, but not so many that all atoms do."""
    few = [batch for batch in found if batch.active < FULL * batch.atoms]
    choose, among = (max, few) if few else (min, found)
    return choose(among, key=lambda batch: batch.different or batch.images)
