"""From sums to an embedding: where the solve finds memory for its matrices, and what it is given."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.configuration import Configuration
from smtdist.data.spilled import forget
from smtdist.engine.checkpoint import make_inside
from smtdist.engine.memory import memory_limit, readable, resident_bytes
from smtdist.engine.passes import Engine
from smtdist.engine.spread import SpreadMatrix, spread
from smtdist.errors import DataError
from smtdist.kernels.device import to_device
from smtdist.models.records import Record
from smtdist.models.ways import (
    SOLVE,
    Way,
    first_that_fits,
    iterates,
    require_room,
    solve_way,
    ways_to_solve,
)
from smtdist.solve import generalized
from smtdist.solve.blocks import BlockFiles, factor_bytes, remove_blocks
from smtdist.solve.generalized import smallest_mirrored, smallest_mirrored_of_tiles
from smtdist.solve.pencil import Means
from smtdist.solve.solution import Solution
from smtdist.solve.streamed import Streamed
from smtdist.solve.tiled import Unsuitable
from smtdist.statistics.sums import Statistics, tile_views

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
    if means is not None or on_device or statistics.tiled:
        try:
            return _solve_without_squares(statistics, settings, means, on_device)
        except Unsuitable:
            whole = (
                way
                for way in ways_to_solve(len(statistics.activity), settings, 0, False, False)
                if way.name == "whole"
            )
            first_that_fits(len(statistics.activity), whole, resident_bytes(), memory_limit())
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
    statistics: Statistics, settings: Configuration, means: Means | None, on_device: bool
) -> Solution:
    """As `solve`, for sums in tiles; matrices are made anew as the solver asks for them."""
    if not iterates(settings, len(statistics.activity)):
        raise Unsuitable("a centred moment, or many components")
    scatter, moment = _streams(statistics, to_device if on_device else None)
    if settings.dictionary_mirrored and isinstance(moment, Streamed):
        return smallest_mirrored_of_tiles(
            scatter,
            moment,
            settings.n_components + settings.drop_components,
            null_tolerance=settings.null_tolerance,
            means=means,
        )
    return generalized.smallest_components_of_tiles(
        scatter,
        moment,
        settings.n_components + settings.drop_components,
        null_tolerance=settings.null_tolerance,
        means=means,
    )


def _streams(
    statistics: Statistics, place: Callable[[NDArray[np.float64]], Any] | None
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

    streamed = Streamed(heights, scatter, place=place)
    if statistics.one_hot:
        return streamed, statistics.activity / count

    def moment(index: int) -> NDArray[np.float64]:
        made: NDArray[np.float64] = stored["second_moment"][index] / count
        let_go(index)
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
        with _means(way, statistics, engine) as means:
            return solve(statistics, settings, means, way.name == "device")

    return engine.solve(SOLVE, solved, way.working_bytes, way=way.name)


@contextmanager
def _means(way: Way, statistics: Statistics, engine: Engine) -> Iterator[Means | None]:
    """Yield what a solve that is not in memory works with; let go of it in the end.

    In a checkpoint folder blocks of a factor outlive a solve that was stopped, and the next one takes them.
    """
    if way.height == 0:
        yield None
        return
    matrices: list[SpreadMatrix] = []

    def handed(*arguments: Any) -> SpreadMatrix:
        matrices.append(spread(engine, *arguments))
        return matrices[-1]

    try:
        with _folder(way, statistics, engine) as folder:
            files = partial(_block_files, folder, way, engine)
            yield Means(files, handed if way.name == "workers" else None)
    finally:
        for matrix in matrices:
            matrix.close()


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
