"""The tiles of rows in which K x K sums are made where a worker cannot hold them whole."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from smtdist.data.source import Source
from smtdist.engine.memory import readable
from smtdist.engine.plan import (
    DISK_BYTES_PER_SECOND,
    MULTIPLICATIONS_PER_SECOND,
    SWEPT_BYTES_PER_SECOND,
    PassPlan,
    WorkerLimits,
    plan_pass,
)
from smtdist.errors import MemoryBudgetError
from smtdist.statistics.cooccurrence import CodeSums
from smtdist.statistics.sums import strip_bytes

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
    work: float,
    fingerprint: bool,
    driver_room: int | None = None,
    begun: Collection[int] = (),
) -> tuple[CodeSums, ...]:
    """Return the sums whole, or in tiles of rows that a worker can hold, each a pass over the data: what takes least time.

    More tiles code the data more often, but leave room for larger batches, each of which passes over the sums.

    `work`: multiplications of an image's coding. `driver_room`: what the driver has for a tile at a time, where those that are
    done do not stay in memory. `begun`: numbers of tiles that an earlier run was cut off in, which are kept where they fit.

    Raises MemoryBudgetError, of the whole sums, where even small tiles do not fit.
    """
    refused: MemoryBudgetError | None = None
    best: tuple[CodeSums, ...] = ()
    least = math.inf
    for count in sorted(TILE_COUNTS, key=lambda count: (count not in begun, count)):
        tiles = sums.tiled(count)
        largest = max(tiles, key=CodeSums.state_bytes)
        others = sum(tile.state_bytes() for tile in tiles) - largest.state_bytes()
        # a process alone keeps the tiles that are done, and finishes them
        held = limits.alone and driver_room is None
        finishing = largest.state_bytes() + gathering_bytes(tiles, spilled=driver_room is not None)
        if driver_room is not None and finishing > driver_room:
            continue
        if held and count > 1 and limits.baseline_bytes + finishing > limits.limit_bytes:
            continue
        room = replace(limits, limit_bytes=limits.limit_bytes - others) if held else limits
        try:
            plan = plan_pass(
                "statistics",
                largest,
                source,
                room,
                checkpointed=checkpointed,
                work_per_sample=work,
                fingerprint=fingerprint,
            )
        except MemoryBudgetError as error:
            refused = refused or error
            continue
        if count in begun:
            return tiles
        seconds = _tiled_seconds(sums, plan, count, work)
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


def _tiled_seconds(sums: CodeSums, plan: PassPlan, count: int, work: float) -> float:
    """Return roughly what sums in so many tiles take: reading and coding once a tile, and a sweep of all sums a batch."""
    reading = PASS_SECONDS + plan.read_bytes / DISK_BYTES_PER_SECOND
    coding = plan.n_samples * work / MULTIPLICATIONS_PER_SECOND
    # rows of atoms that do not occur in a batch are not touched: most, where a patch has one
    drawn = plan.batch * sums.encoder.whitener.drawn
    swept = min(1.0, drawn / sums.n_atoms) if sums.encoder.feature == "vq" else 1.0
    upper = sums.state_bytes() / 2
    return count * (reading + coding) + swept * upper * plan.n_samples / plan.batch / SWEPT_BYTES_PER_SECOND


def gathering_bytes(tiles: tuple[CodeSums, ...], spilled: bool) -> int:
    """Return what it takes, beside the largest tile, to finish the sums of all; `spilled`: others and results lie in files."""
    strip = strip_bytes(tiles[0].n_atoms)
    if spilled:
        return strip
    largest = max(tiles, key=CodeSums.state_bytes)
    others = [max(tile.state_bytes(), tile.finished_bytes()) for tile in tiles if tile is not largest]
    return sum(others) + largest.finished_bytes() + strip
