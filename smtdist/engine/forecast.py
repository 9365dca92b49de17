"""What a pass will move, write and take: plain arithmetic on its plan, and on rates where they were measured.

bytes    sums S that meet on another worker (merges x S), the last one gathered (S), what every worker is
sent;
         with a checkpoint also files of S now and then, by a rough rate of work; where each task has its sum
         in a file, instead a file of S for each task, each merge and the result
seconds  the slot with most tasks: reading and adding its samples, copying or storing its sum after each task;
         then the levels on which sums meet, and handing the last one to the driver
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Final

from smtdist.data.fingerprint import DIGEST_BYTES
from smtdist.engine.executor import writers
from smtdist.engine.plan import PassPlan
from smtdist.solve import lanczos
from smtdist.solve.lapack import finds_all
from smtdist.solve.tiled import suits

FILE_BYTES: Final = 10_200
"""Of a file of the checkpoint beside its arrays: the index, HDF5's own, about 400 bytes an array, and the counters."""
TASK_SECONDS: Final = {False: 0.002, True: 0.03}
"""To start a task and take its result, in this process and through Dask, as measured."""

Curve = tuple[tuple[float, float], ...]
"""(samples a slot has added so far, seconds the next one takes), ascending; constant before the first and after the last."""


@dataclass(frozen=True)
class Traffic:
    """Bytes of one pass that go through a network or a disk, in all.

    Attributes
    ----------
    read : of the data, raw or encoded, as readers count them.
    scattered : what tasks share, to every worker, and samples that are in the driver's memory.
    moved : sums that go to another worker to meet one there.
    gathered : the last sum, to the driver.
    written, reread : files of the checkpoint, the finished pass among them.
    """

    read: int
    scattered: int = 0
    moved: int = 0
    gathered: int = 0
    written: int = 0
    reread: int = 0

    @property
    def network(self) -> int:
        """All that goes from one process to another."""
        return self.scattered + self.moved + self.gathered

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*(a + b for a, b in zip(asdict(self).values(), asdict(other).values(), strict=True)))

    def times(self, rounds: int) -> Traffic:
        """Return the traffic of so many passes that are alike."""
        return Traffic(*(rounds * value for value in asdict(self).values()))

    def to_dict(self) -> dict[str, int]:
        """Return the bytes by name, and those of the network in all."""
        return {
            **{f"{name}_bytes": value for name, value in asdict(self).items()},
            "network_bytes": self.network,
        }


@dataclass(frozen=True)
class PassCost:
    """One pass of a fit: its plan, and how often it runs over the data (k-means rounds).

    `traffic` and `seconds` are those of all rounds; `driver_bytes` is what the driver holds at most, on top
    of what it holds before the fit.
    """

    name: str
    plan: PassPlan
    rounds: int = 1
    traffic: Traffic | None = None
    driver_bytes: int = 0
    seconds: float | None = None
    tiles: int = 1  # of rows in which K x K sums are made, each a round: see `row_tiles`

    def to_dict(self) -> dict[str, Any]:
        """Return the cost as plain JSON types; `read_bytes` counts all rounds."""
        return {
            **self.plan.to_dict(),
            "name": self.name,
            "rounds": self.rounds,
            "read_bytes": self.rounds * self.plan.read_bytes,
            **({} if self.traffic is None else self.traffic.to_dict()),
            "driver_bytes": self.driver_bytes,
            "tiles": self.tiles,
            "seconds": self.seconds,
        }


def traffic(
    plan: PassPlan,
    *,
    distributed: bool,
    checkpointed: bool,
    shared_bytes: int = 0,
    sample_bytes: int = 0,
    digests: bool = False,
) -> Traffic:
    """Return what an undisturbed pass moves; a lost task repeats its part.

    shared_bytes : what all tasks need (atoms, whitening), once a worker; sample_bytes : of a sample that is
    in the driver's memory, else 0; digests : whether the pass takes the hashes of the samples.
    """
    state, tasks, sums = plan.state_bytes, plan.n_tasks, plan.n_sums
    hashes = DIGEST_BYTES * plan.n_samples if digests else 0
    moved = plan.n_merges * state + hashes * plan.depth // 2
    scattered = plan.slots * shared_bytes + sample_bytes * plan.n_samples
    file = state + FILE_BYTES
    if not plan.in_files:
        sent = (scattered, moved, state + hashes) if distributed else (0, 0, 0)
        written = plan.n_stored * (file + hashes) if checkpointed else 0
        return Traffic(plan.read_bytes, *sent, written)
    # a sum's k-th file has the hashes of k tasks; on each level of the merges all of them are written once
    grown = hashes * (tasks / max(1, sums) + 1) / 2 if plan.exact else hashes
    written = (tasks + plan.n_merges + 1) * file + math.ceil(grown) + (plan.depth + 1) * hashes
    continued = tasks - sums if plan.exact else 0
    reread = (continued + 2 * plan.n_merges + 1) * file + math.ceil(grown - hashes / max(1, sums))
    return Traffic(plan.read_bytes, scattered if distributed else 0, 0, 0, written, max(0, reread))


@dataclass(frozen=True)
class Pace:
    """What a worker needs for one pass, as measured on real samples.

    Attributes
    ----------
    read : seconds to read and decode a sample.
    add : seconds to add a sample to the sum, while as many workers as will run share the machine; see
        `Curve`.
    start : seconds before the first sample: kernels are loaded or compiled.
    basis : how the figures came about, for people.
    """

    read: float
    add: Curve
    start: float = 0.0
    basis: str = "measured"

    def to_dict(self) -> dict[str, Any]:
        """Return the pace as plain JSON types."""
        return {
            "read_seconds_per_sample": self.read,
            "add_seconds_per_sample": [list(point) for point in self.add],
            "start_seconds": self.start,
            "basis": self.basis,
        }


@dataclass(frozen=True)
class Rates:
    """Bytes a second of what is not arithmetic on samples: copying and adding sums, storing, loading, sending them."""

    copy: float
    merge: float
    write: float
    load: float
    network: float


def added_seconds(curve: Curve, samples: float) -> float:
    """Return the time of the first `samples` samples along a curve, linear in the logarithm of the samples so far.

    >>> added_seconds(((1.0, 2.0),), 10)
    20.0
    >>> round(added_seconds(((1.0, 2.0), (100.0, 1.0)), 200) - added_seconds(((1.0, 2.0), (100.0, 1.0)), 100), 6)
    100.0
    """
    (first, cost), total = curve[0], 0.0
    total = cost * min(samples, first)
    for (low, before), (high, after) in pairwise(curve):
        stop = min(samples, high)
        if stop > low:
            slope = (after - before) / math.log(high / low)
            # ∫ (b + m ln(x / l)) dx from l to s
            total += before * (stop - low) + slope * (stop * math.log(stop / low) - (stop - low))
    return total + curve[-1][1] * max(0.0, samples - max(first, curve[-1][0]))


def pass_seconds(
    plan: PassPlan, pace: Pace, rates: Rates, *, distributed: bool, checkpointed: bool
) -> float:
    """Return the time of one undisturbed pass: the slot with most tasks, then the merges, then the hand-over."""
    state, slots = plan.state_bytes, max(1, plan.slots)
    tasks = math.ceil(plan.n_tasks / slots)
    samples = min(plan.n_samples, math.ceil(plan.n_samples / max(1, plan.n_tasks)) * tasks)
    working = pace.read * samples + added_seconds(pace.add, samples) + tasks * TASK_SECONDS[distributed]
    # the workers' kernels are loaded once to measure memory on one of them, and then on the others
    starting = pace.start * (2 if distributed and slots > 1 else 1)
    if plan.in_files:
        storing = plan.n_tasks * state / rates.write / min(slots, writers(slots))
        loading = max(0, plan.n_tasks - plan.n_sums) * state / rates.load / slots
        level = 2 * state / rates.load + state / rates.merge + state / rates.write
        handing = state / rates.load + state / rates.write
    else:
        storing, loading = tasks * state / rates.copy, 0.0
        if checkpointed:
            storing += plan.n_stored * state / rates.write / min(slots, writers(slots))
        level = state / rates.network + state / rates.copy + state / rates.merge
        handing = state / rates.network if distributed else 0.0
    meeting = plan.depth * (level + TASK_SECONDS[distributed])
    return starting + working + storing + loading + meeting + handing


@dataclass(frozen=True)
class SolveSpeed:
    """What a dense symmetric eigensolve is made of, as measured: see `solve_seconds`.

    Attributes
    ----------
    multiply : multiplications a second of products of matrices.
    stream : bytes a second of a symmetric matrix that a product with a vector reads from memory, and from
        caches while it has at most `cached_bytes`.
    factor, row_seconds : a real solve of n rows, up to `size`, takes `factor` times what the model says of it,
        and `row_seconds` n.
    """

    multiply: float
    stream: float
    stream_cached: float
    cached_bytes: int
    factor: float = 1.0
    row_seconds: float = 0.0
    size: int = 0


def solve_seconds(n_atoms: int, n_components: int, diagonal: bool, speed: SolveSpeed) -> float:
    """Return the time of `smallest_components` for K atoms and L components.

    Reducing a matrix of n rows to tridiagonal form takes n products of what is left of it (half of it read,
    4/3 n³ bytes) with a vector, and 2/3 n³ multiplications. All eigenvectors by divide and conquer cost
    4/3 n³ more, E of them one by one some 60 n E²; bringing them back n² E. For a full V a Cholesky factor
    takes n³ / 6 multiplications, C behind it n³ / 2, and bringing vectors back n² E / 2. Where V has a null
    space it is diagonalised instead, and all takes about 1.6 times as long; that shows only in the solve.
    Where iterations are faster (`suits`), they are products alone.
    """
    every = finds_all(n_atoms, n_components)

    def reduced() -> float:
        n = float(n_atoms)
        inside = min(n, math.sqrt(speed.cached_bytes / 4))  # rows whose half fits the caches
        streamed = (n**3 - inside**3) * 4 / 3 / speed.stream + inside**3 * 4 / 3 / speed.stream_cached
        vectors = 7 / 3 * n**3 if every else 60 * n * n_components**2 + n * n * n_components
        return streamed + (2 / 3 * n**3 + vectors) / speed.multiply

    quality = 2.0 * n_atoms * n_atoms * n_components / speed.multiply
    if suits(n_atoms, n_components):
        whitening = 0.0 if diagonal else 2 / 3 * float(n_atoms) ** 3
        return whitening / speed.multiply + _iterating(n_atoms, n_components, speed) + 2 * quality
    taken = reduced() + quality
    if not diagonal:
        products = 2 / 3 * float(n_atoms) ** 3 + n_atoms * n_atoms * n_components / 2
        taken += products / speed.multiply + quality
    return speed.factor * taken + speed.row_seconds * n_atoms


def _iterating(n_atoms: int, n_components: int, speed: SolveSpeed) -> float:
    """Return the time of `lanczos.largest_pairs`, by what was counted of K = 4,096 to 16,384 and L = 33 to 400.

    Some 30 products with a block in float32, 17 with all vectors kept in float64; each reads the matrix,
    which takes as long as some 25 columns. Keeping a basis of 2 to 3 L vectors orthogonal goes with K L²,
    its eigenproblems with L³.
    """
    n, vectors = float(n_atoms), float(n_components)
    columns = 30 * (lanczos.block_size(n_components) / 2 + 25) + 17 * (
        lanczos.kept_vectors(n_components) + 25
    )
    return (n * n * columns + 290 * n * vectors**2 + 3850 * vectors**3) / speed.multiply
