"""The sums of the codes of images: in one pass, or in tiles of rows where a worker cannot hold them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from smtdist.configuration import Configuration
from smtdist.data.fingerprint import Digests
from smtdist.data.source import Source
from smtdist.data.spilled import Spill
from smtdist.engine import plan as pass_plan
from smtdist.engine.memory import memory_limit, readable, resident_bytes
from smtdist.engine.passes import Engine
from smtdist.engine.plan import PassPlan, WorkerLimits
from smtdist.errors import ConfigurationError, DataError, MemoryBudgetError, equals
from smtdist.models.provenance import Record, joined, ordered_digests
from smtdist.models.solving import solve_way, spill_of
from smtdist.statistics.base import State
from smtdist.statistics.cooccurrence import CodeSums
from smtdist.statistics.sums import Statistics, finish, finish_tiles

TILE_COUNTS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Numbers of tiles of rows that are tried: each is one more reading of the data, and codes are made anew."""
PASS_SECONDS: Final = 1.0
"""To begin a pass and to end it: rough, it only decides between more tiles and larger batches."""


def row_tiles(
    sums: CodeSums,
    source: Source,
    limits: WorkerLimits,
    *,
    checkpointed: bool,
    fingerprint: bool,
    driver_room: int | None = None,
    begun: Sequence[int] = (),
) -> tuple[CodeSums, ...]:
    """Return the sums whole, or in tiles of rows that a worker can hold, each a pass over the data: what takes least time.

    More tiles code the data more often, but leave room for larger batches, each of which passes over the
    sums.

    `driver_room`: what the driver has for a tile at a time, where those that are done do not stay in
    memory. `begun`: numbers of tiles that an earlier run was cut off in; the first that fits is kept.

    Raises MemoryBudgetError, of the whole sums, where even small tiles do not fit.
    """
    refused: MemoryBudgetError | None = None
    best: tuple[CodeSums, ...] = ()
    least = math.inf
    for count in (*begun, *(count for count in TILE_COUNTS if count not in begun)):
        tiles = sums.tiled(count)
        gathering = gathering_bytes(tiles, spilled=driver_room is not None)
        if (
            driver_room is not None
            and gathering + pass_plan.ALLOWANCE + source.n_samples * 8 * fingerprint > driver_room
        ):
            continue
        # a process alone keeps the tiles that are done, and finishes them
        held = limits.alone and driver_room is None
        if held and count > 1 and limits.baseline_bytes + gathering > limits.limit_bytes:
            continue
        try:
            plans = [
                pass_plan.plan_pass(
                    "statistics",
                    tile,
                    source,
                    beside(limits, held_beside(tile, tiles)) if held else limits,
                    checkpointed=checkpointed,
                    work_per_sample=sums.work_per_sample,
                    fingerprint=fingerprint,
                )
                for tile in _demanding(tiles)
            ]
        except MemoryBudgetError as error:
            refused = error if refused is None or count == 1 else refused
            continue
        if count in begun:
            return tiles
        seconds = _tiled_seconds(sums, plans, count)
        if seconds < least:
            best, least = tiles, seconds
    if best:
        return best
    if refused is None:
        raise MemoryBudgetError(
            f"The driver has {readable(driver_room or 0)}, too little for a tile of the sums of {sums.n_atoms:,} atoms; use "
            f"a smaller dictionary or a larger machine for the driver."
        )
    raise refused


def _demanding(tiles: tuple[CodeSums, ...]) -> tuple[CodeSums, ...]:
    """Return those of which one needs most memory: the first, and the largest whose batches drop codes of earlier atoms."""
    return tiles[0], *([max(tiles[1:], key=CodeSums.state_bytes)] if len(tiles) > 1 else [])


def most_demanding(tiles: tuple[CodeSums, ...]) -> CodeSums:
    """Return the tile whose pass needs most memory."""
    return max(_demanding(tiles), key=lambda tile: tile.state_bytes() + tile.batch_bytes(1))


def held_beside(tile: CodeSums, tiles: tuple[CodeSums, ...]) -> int:
    """Return the bytes of the other tiles."""
    return sum(other.state_bytes() for other in tiles) - tile.state_bytes()


def beside(limits: WorkerLimits, held_bytes: int) -> WorkerLimits:
    """Return the limits of a process that keeps so much for itself."""
    return replace(
        limits,
        limit_bytes=limits.limit_bytes - held_bytes,
        baseline_bytes=limits.baseline_bytes + held_bytes,
        held_bytes=limits.held_bytes + held_bytes,
    )


def _tiled_seconds(sums: CodeSums, plans: list[PassPlan], tiles: int) -> float:
    """Return roughly what sums in tiles take: reading and coding once a tile, and a sweep of all sums a batch."""
    plan = min(plans, key=lambda plan: plan.batch)
    reading = PASS_SECONDS + plan.read_bytes / pass_plan.DISK_BYTES_PER_SECOND
    coding = plan.n_samples * sums.work_per_sample / pass_plan.MULTIPLICATIONS_PER_SECOND
    sweeps = sums.swept_bytes(plan.batch) * plan.n_samples / plan.batch / pass_plan.SWEPT_BYTES_PER_SECOND
    return tiles * (reading + coding) + sweeps


def gathering_bytes(tiles: tuple[CodeSums, ...], spilled: bool) -> int:
    """Return what it takes to hold the sums of all tiles while the largest is finished.

    `spilled`: the others, and what is finished, lie in files.
    """
    largest = max(tiles, key=CodeSums.state_bytes)
    strip = max(tile.strip_bytes() for tile in tiles)
    if spilled:
        return largest.state_bytes() + strip
    others = [max(tile.state_bytes(), tile.finished_bytes()) for tile in tiles if tile is not largest]
    return largest.state_bytes() + sum(others) + largest.finished_bytes() + strip


def finishes_whole(sums: CodeSums, settings: Configuration, baseline: int, limit: int) -> bool:
    """Tell whether sums that a driver has in memory, in `baseline`, become full matrices: it can solve with these, too."""
    try:
        solve_way(
            sums.n_atoms, settings, sums.finished_bytes(), baseline=baseline, limit=limit, tiled=False
        )
    except MemoryBudgetError:
        return False
    except ConfigurationError:
        pass  # the solve itself says it better
    return True


SMALL_SHARE: Final = 0.1
"""Sums of less than this share of a worker's memory are never cut into tiles."""


def summed(
    source: Source, sums: CodeSums, settings: Configuration, engine: Engine, samples: Digests | None = None
) -> tuple[Statistics, Digests, Record]:
    """Sum the codes of a source in one pass; return the hashes of its samples too.

    Where a worker cannot hold the sums well they are made in tiles of rows, a pass each: the same numbers
    (`row_tiles`). `samples` are the hashes where an earlier pass took them.
    """
    spill = spill_of(sums, settings, engine)
    tiles: tuple[CodeSums, ...] = (sums,)
    begun = _begun(engine)
    # small sums need no measuring
    if begun or spill is not None or SMALL_SHARE * engine.executor.limit_bytes() <= sums.state_bytes():
        tiles = row_tiles(
            sums,
            source,
            engine.limits(sums, source),
            checkpointed=engine.checkpoint is not None,
            fingerprint=samples is None,
            driver_room=None if spill is None else memory_limit() - resident_bytes(),
            begun=begun,
        )
    if len(tiles) > 1:
        engine.note(
            f"The sums of {sums.n_atoms:,} atoms are computed in {len(tiles)} tiles of rows, and the data are read as "
            f"often, because all at once leave a worker too little memory for its batches."
        )
    parts, records = list[tuple[CodeSums, State]](), list[Record]()
    for number, tile in enumerate(tiles, 1):
        name = _tile_name(number, len(tiles))
        partial, record = engine.reduce(
            name,
            tile,
            source,
            fingerprint=samples is None,
            work_per_sample=sums.work_per_sample,
            held_bytes=held_beside(tile, tiles) if spill is None else 0,
        )
        samples = ordered_digests(partial) if samples is None else samples
        parts.append((tile, partial.state if spill is None else _spilled(partial.state, spill)))
        records.append(record)
        del partial
    record = records[0] if len(tiles) == 1 else joined("statistics", records)
    # where the driver cannot solve with full matrices, tiles take half of their memory
    whole = (
        spill is None
        and len(tiles) == 1
        and finishes_whole(sums, settings, resident_bytes(), memory_limit())
    )
    statistics = finish(*parts[0]) if whole else finish_tiles(parts, *([spill] if spill else []))
    if not statistics.activity.any():
        raise DataError(
            f"No patch of {source.name} has a code; fit with a lower threshold or min_contrast, or with "
            f"{equals('zero_code', 'activate_best')}."
        )
    assert samples is not None
    return statistics, samples, record


def _spilled(state: State, spill: Spill) -> State:
    return {name: spill(value) if value.ndim == 2 else value for name, value in state.items()}


def _begun(engine: Engine) -> list[int]:
    """Return the numbers of tiles of which a checkpoint folder has sums, those first of which it has most: others begin anew."""
    if engine.checkpoint is None:
        return []
    done: dict[int, tuple[int, int]] = {}
    for tiles in TILE_COUNTS:
        names = (_tile_name(number, tiles) for number in range(1, tiles + 1))
        folders = (engine.checkpoint / f"{engine.stage}{name}" for name in names)
        files = [path.name for folder in folders for path in folder.glob("*.h5")]
        if files:
            done[tiles] = files.count("result.h5"), len(files)
    return sorted(done, key=done.__getitem__, reverse=True)


def _tile_name(number: int, count: int) -> str:
    return "statistics" if count == 1 else f"statistics-{number}-of-{count}"
