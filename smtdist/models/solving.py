"""From sums to an embedding: where the solve finds memory for its matrices, and what it is given."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.configuration import Configuration
from smtdist.data.spilled import Spill, forget
from smtdist.engine.checkpoint import make_inside
from smtdist.engine.memory import (
    SOLVE_LEAST,
    device_memory,
    limited_by,
    memory_limit,
    readable,
    resident_bytes,
)
from smtdist.engine.passes import Engine
from smtdist.engine.spread import SpreadMatrix, require_workers, spread
from smtdist.errors import CheckpointError, ConfigurationError, DataError, MemoryBudgetError, equals, option
from smtdist.kernels.device import gpu_available, to_device
from smtdist.kernels.triangle import tile_height
from smtdist.models.provenance import Record
from smtdist.solve import generalized, lanczos, pencil
from smtdist.solve.blocks import BlockFiles, factor_bytes, remove_blocks
from smtdist.solve.generalized import smallest_mirrored, smallest_mirrored_of_tiles
from smtdist.solve.pencil import Means
from smtdist.solve.solution import Solution
from smtdist.solve.streamed import Streamed
from smtdist.solve.tiled import Unsuitable, direct_bytes, suits, tiled_bytes
from smtdist.statistics.cooccurrence import CodeSums
from smtdist.statistics.sums import Statistics, tile_views

SOLVE: Final = "solve"
DEVICE: Final = "device"
DEVICE_SHARE: Final = 0.85
"""Of a GPU's memory, for the matrices of a solve: kernels and their libraries are there too."""


@dataclass(frozen=True)
class Way:
    """How a solve holds its matrices on the driver.

    name : "device" in the memory of the driver's GPU, by iterations, or "device whole", all eigenvectors; "whole" or
        "tiles" in its own; "disk" with a factor in files; "workers" with matrices in their memory.
    height : rows of a row of blocks of the factor, for the last two.
    """

    name: str
    working_bytes: int
    height: int = 0
    disk_bytes: int = 0

    @property
    def on_device(self) -> bool:
        """Whether the driver's GPU solves."""
        return self.name.startswith(DEVICE)


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
    size = n_atoms // 2 if settings.dictionary_mirrored else n_atoms
    making = making_bytes(n_atoms, settings)
    whole = generalized.solve_bytes(n_atoms, diagonal, wanted)
    working = held_bytes + whole
    held = held_bytes if tiled is False else held_in_tiles(held_bytes, n_atoms)
    if fits_device(n_atoms, settings, direct=False) and not on_workers:
        yield Way(DEVICE, held + making + pencil.streamed_bytes(size, True, wanted, 1))
    elif fits_device(n_atoms, settings, direct=True) and not on_workers:
        # tiles in passing, and some copies of the components
        yield Way(f"{DEVICE} whole", held + making + 8 * n_atoms * (6 * tile_height(n_atoms) + 6 * wanted))
    if not iterative:
        if not tiled:
            yield Way("whole", working)
        if tiled is not False:
            yield Way("whole", held_in_tiles(held_bytes, n_atoms) + whole)
        return
    beside = making + tiled_bytes(size, diagonal, wanted)
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


def fits_device(n_atoms: int, settings: Configuration, *, direct: bool) -> bool:
    """Tell whether the driver's GPU solves in its memory, by iterations where they are its way, or `direct`."""
    card = device_memory() if gpu_available() else None
    size = n_atoms // 2 if settings.dictionary_mirrored else n_atoms
    if card is None or not (size > lanczos.SMALL_ROWS if direct else iterates(settings, n_atoms, True)):
        return False
    wanted = min(size, settings.n_components + settings.drop_components)
    iterating = tiled_bytes(size, settings.diagonal_moment, wanted)
    needed = direct_bytes(size, wanted) if direct else iterating
    return needed + making_bytes(n_atoms, settings) <= DEVICE_SHARE * card


def making_bytes(n_atoms: int, settings: Configuration) -> int:
    """Return what tiles of two halves take while they are made from those of the whole."""
    return 3 * 8 * tile_height(n_atoms) * n_atoms if settings.dictionary_mirrored else 0


def iterates(settings: Configuration, n_atoms: int, on_device: bool = False) -> bool:
    """Tell whether block Lanczos iterations are the way to solve."""
    wanted = settings.n_components + settings.drop_components
    return settings.second_moment == "second" and suits(n_atoms, wanted, on_device)


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


def require_room(folder: Path, needed: int, what: str) -> None:
    """Refuse a folder on a disk without room; CheckpointError."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise CheckpointError(
            f"The driver keeps {what} of {readable(needed)} in {folder}, which has room for {readable(free)}; "
            f"give {option('checkpoint')} a folder with room, or set TMPDIR to one."
        )


FOLDER: Final = "solve"
"""Of the blocks of a factor, in a checkpoint folder."""
ABOUT: Final = "about.json"
PARTS: Final = ("even", "odd")
"""What `smallest_mirrored_of_tiles` calls the two halves of a problem."""


def solve(
    statistics: Statistics, settings: Configuration, means: Means | None = None, on_device: bool = False
) -> Solution:
    """Solve min ‖PAD‖² subject to P V Pᵀ = I (SMT 2023, eq. 3) from the sums, both divided by the positions.

    With `means` the matrices are not held in memory, but streamed from the sums; `on_device` they are in
    the memory of a GPU.
    """
    if not statistics.cooccurrence.any():
        raise DataError(
            "No two patches with a code are neighbours, so nothing says which are alike; raise context_size or positions, or "
            "lower patch_stride or threshold."
        )
    size = len(statistics.activity)
    if means is not None or on_device or statistics.tiled:
        if iterates(settings, size, on_device):
            with suppress(Unsuitable):
                return _solve_without_squares(statistics, settings, means, on_device)
        if on_device and fits_device(size, settings, direct=True):
            # what it takes is estimated: where that was too little, the host solves
            with suppress(Unsuitable, MemoryError):
                return _solve_without_squares(statistics, settings, None, True, direct=True)
        *_, whole = ways_to_solve(size, settings, 0, False, False)
        first_that_fits(size, [whole], resident_bytes(), memory_limit())
        statistics = statistics.whole()
    count = statistics.n_positions
    moment: NDArray[np.float64]
    if settings.second_moment == "centred":
        moment = generalized.centred_moment(statistics.second_moment, statistics.activity, count)
    elif statistics.one_hot:
        moment = statistics.activity / count
    else:
        moment = statistics.second_moment / count
    scatter = statistics.context_scatter
    # a fresh array already where the sums are in two limbs
    scatter = scatter.astype(np.float64, copy=scatter is statistics.matrices.get("context_scatter"))
    scatter /= count * statistics.scatter_scale
    smallest = smallest_mirrored if settings.dictionary_mirrored else generalized.smallest_components
    return smallest(
        scatter,
        moment,
        settings.n_components + settings.drop_components,
        null_tolerance=settings.null_tolerance,
    )


def _solve_without_squares(
    statistics: Statistics,
    settings: Configuration,
    means: Means | None,
    on_device: bool,
    *,
    direct: bool = False,
) -> Solution:
    """As `solve`, for sums in tiles; matrices are made anew as the solver asks for them."""
    centred = settings.second_moment == "centred"
    scatter, moment = _streams(statistics, to_device if on_device else None, centred)
    halved = settings.dictionary_mirrored and isinstance(moment, Streamed)
    smallest: Any = smallest_mirrored_of_tiles if halved else generalized.smallest_components_of_tiles
    wanted, tolerance = settings.n_components + settings.drop_components, settings.null_tolerance
    found: Solution = smallest(
        scatter, moment, wanted, null_tolerance=tolerance, means=means, direct=direct
    )
    return found


def _streams(
    statistics: Statistics, place: Callable[[NDArray[np.float64]], Any] | None, centred: bool
) -> tuple[Streamed, Streamed | NDArray[np.float64]]:
    """Return C and V, divided by the positions, in tiles that are made when they are asked for."""
    heights, make = statistics.context_maker(np.float64)
    count = statistics.n_positions
    stored = {name: tile_views(matrix, heights) for name, matrix in statistics.matrices.items()}

    def let_go(index: int) -> None:
        for tiles in stored.values():
            forget(tiles[index])

    def scatter(index: int) -> NDArray[np.float64]:
        made = make(index)
        made /= count * statistics.scatter_scale
        let_go(index)
        return made

    streamed, mean = Streamed(heights, scatter, place=place), statistics.activity / count
    if statistics.one_hot and not centred:
        return streamed, mean
    starts = np.cumsum([0, *heights]).tolist()

    def moment(index: int) -> NDArray[np.float64]:
        here = slice(starts[index], starts[index + 1])
        made: NDArray[np.float64]
        if statistics.one_hot:
            made = np.zeros((heights[index], len(mean) - starts[index]))
            np.fill_diagonal(made, mean[here])
        else:
            made = stored["second_moment"][index] / count
            let_go(index)
        if centred:  # as `generalized.centred_moment` does
            made -= np.multiply.outer(mean[here], mean[starts[index] :])
        return made

    return streamed, Streamed(heights, moment, place=place)


def timed_solve(statistics: Statistics, settings: Configuration, engine: Engine) -> tuple[Solution, Record]:
    """Solve on the driver, as a pass of its own in the stream of events."""
    baseline = resident_bytes()
    way = solve_way(
        len(statistics.activity),
        settings,
        baseline=baseline,
        tiled=statistics.tiled,
        on_workers=engine.solve_on == "workers",
    )

    def solved() -> Solution:
        if way.height == 0:
            return solve(statistics, settings, None, way.on_device)
        # a solve that is not in memory; in a checkpoint folder blocks of a factor outlive one that was stopped, and the
        # next one takes them
        matrices: list[SpreadMatrix] = []

        def handed(*arguments: Any) -> SpreadMatrix:
            matrices.append(spread(engine, *arguments))
            return matrices[-1]

        try:
            with _folder(way, statistics, engine) as folder:
                files = partial(_block_files, folder, way, engine)
                means = Means(files, handed if way.name == "workers" else None)
                return solve(statistics, settings, means, False)
        finally:
            for matrix in matrices:
                matrix.close()

    return engine.solve(SOLVE, solved, way.working_bytes, way=way.name)


@contextmanager
def _folder(way: Way, statistics: Statistics, engine: Engine) -> Iterator[Path]:
    if engine.checkpoint is None:
        with tempfile.TemporaryDirectory(prefix="smtdist-solve-") as temporary:
            yield Path(temporary)
        return
    folder = engine.checkpoint / FOLDER
    about = json.dumps({"sums": _hashed(statistics), "height": way.height})
    if not (folder / ABOUT).exists() or (folder / ABOUT).read_text() != about:
        _remove(folder)
        make_inside(folder)
        (folder / ABOUT).write_text(about)
    yield folder
    _remove(folder)


def _remove(folder: Path) -> None:
    (folder / ABOUT).unlink(missing_ok=True)
    for part in PARTS:
        remove_blocks(folder / part)
    remove_blocks(folder)


def _block_files(folder: Path, way: Way, engine: Engine, size: int, part: str = "") -> BlockFiles:
    """Return room for a factor, or for that of a part of the problem; refuse a disk that has none."""
    place = folder / part
    place.mkdir(exist_ok=True)
    needed = factor_bytes(size, way.height)
    require_room(place, needed - sum(path.stat().st_size for path in place.glob("*.npy")), "a factor")
    engine.note(f"The solve keeps a factor of {readable(needed)} in {place} while it runs.")
    return BlockFiles(place, size, way.height, engine.heed_stop)


def _hashed(statistics: Statistics) -> str:
    """Hash what tells sums apart: those of other samples have other counts."""
    digest = hashlib.blake2b(digest_size=12)
    digest.update(str((statistics.n_samples, statistics.n_positions, statistics.order)).encode())
    digest.update(statistics.activity.tobytes())
    for name in sorted(statistics.matrices):
        for tile in tile_views(statistics.matrices[name]):
            digest.update(np.diagonal(tile).astype(np.int64).tobytes())
            forget(tile)
    return digest.hexdigest()
