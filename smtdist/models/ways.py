"""What the solve of a fit will hold, and where: in a GPU, in memory, on disk or on workers; arithmetic alone."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from smtdist.configuration import Configuration
from smtdist.data.spilled import Spill
from smtdist.engine.memory import (
    SOLVE_LEAST,
    device_memory,
    limited_by,
    memory_limit,
    readable,
    resident_bytes,
)
from smtdist.engine.passes import Engine
from smtdist.engine.plan import PassPlan
from smtdist.engine.spread import require_workers
from smtdist.errors import CheckpointError, ConfigurationError, MemoryBudgetError, equals, option
from smtdist.kernels.device import gpu_available
from smtdist.kernels.triangle import tile_height
from smtdist.solve import generalized, pencil
from smtdist.solve.tiled import suits, tiled_bytes
from smtdist.statistics.cooccurrence import CodeSums

SOLVE: Final = "solve"
DEVICE_SHARE: Final = 0.85
"""Of a GPU's memory, for the matrices of a solve: kernels and their libraries are there too."""


@dataclass(frozen=True)
class Way:
    """How a solve holds its matrices on the driver.

    name : "device" in the memory of the driver's GPU; "whole" or "tiles" in its own; "disk" with a factor
        in files; "workers" with matrices in their memory.
    height : rows of a row of blocks of the factor, for the last two.
    """

    name: str
    working_bytes: int
    height: int = 0
    disk_bytes: int = 0


def solve_plan(way: Way, baseline: int) -> PassPlan:
    """Return the solve as a pass, which runs on the driver: no samples, no leaves, C and V with their workspace."""
    projected = baseline + way.working_bytes
    return PassPlan(SOLVE, (0,), 0, 0, 0, 0, way.working_bytes, projected, 0, 0, slots=0)


def solve_way(
    n_atoms: int,
    settings: Configuration,
    held_bytes: int = 0,
    *,
    baseline: int | None = None,
    limit: int | None = None,
    tiled: bool | None = None,
    on_workers: bool = False,
) -> Way:
    """Choose how to solve: matrices are whole where that fits, else tiles of rows, else streamed, with a factor on disk.

    `held_bytes`: of sums that will be in memory by then, and are not yet; `tiled` says whether they are
    tiles, where that is settled. Raises MemoryBudgetError where the driver has too little memory for any
    way, ConfigurationError where there can never be as many components as asked for.
    """
    wanted = settings.n_components + settings.drop_components
    if wanted > n_atoms:
        raise ConfigurationError(
            f"{n_atoms} atoms give at most {n_atoms} components, fewer than n_components + drop = {wanted}; "
            f"lower n_components or raise n_atoms."
        )
    baseline = resident_bytes() if baseline is None else baseline
    limit = memory_limit() if limit is None else limit
    ways = (
        replace(way, working_bytes=max(SOLVE_LEAST, way.working_bytes))
        for way in ways_to_solve(n_atoms, settings, held_bytes, tiled, on_workers)
    )
    return first_that_fits(n_atoms, ways, baseline, limit)


def first_that_fits(n_atoms: int, ways: Iterable[Way], baseline: int, limit: int) -> Way:
    """Return the first way for which there is memory, or raise MemoryBudgetError."""
    needed = []
    for way in ways:
        needed.append(baseline + way.working_bytes)
        if needed[-1] <= limit:
            return way
    raise MemoryBudgetError(
        f"The solve for {n_atoms} atoms needs {readable(min(needed))} on the driver, which may use "
        f"{readable(limit)}{limited_by(limit)}; use a smaller dictionary or a larger machine for the driver.",
        f"The solve for {n_atoms} atoms does not fit into the {readable(limit)} of the driver",
    )


def ways_to_solve(
    n_atoms: int, settings: Configuration, held_bytes: int, tiled: bool | None, on_workers: bool
) -> Iterator[Way]:
    """Yield ways to solve, the fastest first."""
    wanted = settings.n_components + settings.drop_components
    diagonal = settings.diagonal_moment
    iterative = iterates(settings, n_atoms)
    if on_workers and not iterative:
        raise ConfigurationError(
            f"{wanted} components of {n_atoms:,} atoms, {equals('second_moment', settings.second_moment)}, are solved on the "
            f"driver alone; leave out {option('solve_on')}."
        )
    # a dictionary that is closed under mirroring is two problems of half the size, one after the other
    size = solved_size(n_atoms, settings)
    making = 0 if size == n_atoms else 3 * 8 * tile_height(n_atoms) * n_atoms
    working = held_bytes + generalized.solve_bytes(n_atoms, diagonal, wanted)
    if not iterative:
        yield Way("whole", working)
        return
    beside = making + tiled_bytes(size, diagonal, wanted)
    card = device_memory() if gpu_available() else None
    if card is not None and beside <= DEVICE_SHARE * card and not on_workers:
        passing = making + pencil.streamed_bytes(size, True, wanted, 1)
        held = held_bytes if tiled is False else held_in_tiles(held_bytes, n_atoms)
        yield Way("device", held + passing)
    if not on_workers:
        # iterations are tried first, beside C and V; where they do not do, LAPACK solves in its own memory
        if not tiled:
            yield Way("whole", max(working, held_bytes + 8 * n_atoms**2 * (1 if diagonal else 2) + beside))
        if tiled is not False:
            yield Way("tiles", held_in_tiles(held_bytes, n_atoms) + beside)
    if tiled is False and not on_workers:
        return
    held = held_bytes if on_workers and not tiled else held_in_tiles(held_bytes, n_atoms)
    name = "workers" if on_workers else "disk"
    for height in pencil.HEIGHTS:
        needed = held + making + pencil.streamed_bytes(size, diagonal, wanted, height)
        on_disk = n_atoms // size * pencil.disk_bytes(size, diagonal, height)
        yield Way(name, needed, height, on_disk)


def solved_size(n_atoms: int, settings: Configuration) -> int:
    """Return the rows of a problem that is solved."""
    return n_atoms // 2 if settings.dictionary_mirrored else n_atoms


def iterates(settings: Configuration, n_atoms: int) -> bool:
    """Tell whether block Lanczos iterations are the way to solve."""
    return settings.second_moment == "second" and suits(
        n_atoms, settings.n_components + settings.drop_components
    )


def held_in_tiles(held_bytes: int, n_atoms: int) -> int:
    """Return the bytes that K x K sums take in tiles of rows, of those that they take whole."""
    return int(held_bytes * (n_atoms + tile_height(n_atoms)) / (2 * n_atoms))


def spills(n_atoms: int, settings: Configuration, held_bytes: int, baseline: int, limit: int) -> bool:
    """Tell whether the driver is to keep the sums in files: it cannot solve beside them, but can when they are not in memory."""
    if not iterates(settings, n_atoms):
        return False
    least = min(way.working_bytes for way in ways_to_solve(n_atoms, settings, 0, True, False))
    return least <= limit - baseline < least + held_in_tiles(held_bytes, n_atoms)


def spill_bytes(sums: CodeSums) -> int:
    """Return the bytes on disk of sums that are spilled: as they were summed, and as they are kept."""
    return held_in_tiles(sums.state_bytes() + sums.finished_bytes(), sums.n_atoms)


def spill_of(sums: CodeSums, settings: Configuration, engine: Engine) -> Spill | None:
    """Return where the sums go that the driver's memory cannot hold, None where it can."""
    if not spills(sums.n_atoms, settings, sums.finished_bytes(), resident_bytes(), memory_limit()):
        return None
    folder = engine.checkpoint or Path(tempfile.gettempdir())
    require_room(folder, spill_bytes(sums), "sums")
    engine.note(
        f"The sums of {sums.n_atoms:,} atoms are kept in files in {folder}, because the driver's memory cannot hold them."
    )
    return Spill(folder)


def require_solvable(n_atoms: int, settings: Configuration, held_bytes: int, engine: Engine) -> None:
    """Refuse, before any data is read, a solve that cannot be; raises as `solve_way` and `spread` do."""
    baseline = resident_bytes()
    limit = memory_limit()
    on_workers = engine.solve_on == "workers"
    if on_workers:
        require_workers(engine.executor)
    tiled = spills(n_atoms, settings, held_bytes, baseline, limit) or None
    held = 0 if tiled else held_bytes
    solve_way(n_atoms, settings, held, baseline=baseline, limit=limit, tiled=tiled, on_workers=on_workers)


def whole_solve_fits(n_atoms: int, settings: Configuration, held_bytes: int) -> bool:
    """Tell whether the driver can solve with full matrices; where it cannot, tiles take half."""
    try:
        solve_way(n_atoms, settings, held_bytes, tiled=False)
    except MemoryBudgetError:
        return False
    except ConfigurationError:
        return True  # the solve itself says it better
    return True


def require_room(folder: Path, needed: int, what: str) -> None:
    """Refuse a folder on a disk without room; CheckpointError."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise CheckpointError(
            f"The driver keeps {what} of {readable(needed)} in {folder}, which has room for {readable(free)}; "
            f"give {option('checkpoint')} a folder with room, or set TMPDIR to one."
        )
