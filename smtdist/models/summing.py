"""The sums of the codes of images: in one pass, or in tiles of rows where a worker cannot hold them."""

from __future__ import annotations

from typing import Final

from smtdist.configuration import Configuration
from smtdist.data.fingerprint import Digests
from smtdist.data.source import Source
from smtdist.data.spilled import Spill
from smtdist.engine.memory import memory_limit, resident_bytes
from smtdist.engine.passes import Engine
from smtdist.errors import DataError, equals
from smtdist.models.provenance import ordered_digests
from smtdist.models.records import Record, joined
from smtdist.models.row_tiles import TILE_COUNTS, held_beside, row_tiles
from smtdist.models.ways import spill_of, whole_solve_fits
from smtdist.statistics.base import State
from smtdist.statistics.cooccurrence import CodeSums
from smtdist.statistics.sums import Statistics, finish, finish_tiles

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
    tiles = _row_tiles(sums, source, engine, samples is None, spill is not None)
    if len(tiles) > 1:
        engine.note(
            f"The sums of {sums.n_atoms:,} atoms are computed in {len(tiles)} tiles of rows, and the data are read as "
            f"often, because a worker's memory is too small for all."
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
    small = (
        spill is None
        and len(tiles) == 1
        and whole_solve_fits(sums.n_atoms, settings, sums.finished_bytes())
    )
    statistics = finish(*parts[0]) if small else finish_tiles(parts, *([spill] if spill else []))
    if not statistics.activity.any():
        raise DataError(
            f"No patch of {source.name} has a code; fit with a lower threshold or min_contrast, or with "
            f"{equals('zero_code', 'activate_best')}."
        )
    assert samples is not None
    return statistics, samples, record


def _spilled(state: State, spill: Spill) -> State:
    return {name: spill(value) if value.ndim == 2 else value for name, value in state.items()}


def _row_tiles(
    sums: CodeSums, source: Source, engine: Engine, fingerprint: bool, spilled: bool
) -> tuple[CodeSums, ...]:
    """Return the sums in tiles that a worker can hold; in those of the run that is resumed, if it can hold them still."""
    begun = _begun(engine)
    if not (begun or spilled) and SMALL_SHARE * engine.executor.limit_bytes() > sums.state_bytes():
        return (sums,)  # no need to measure
    return row_tiles(
        sums,
        source,
        engine.limits(sums, source),
        checkpointed=engine.checkpoint is not None,
        fingerprint=fingerprint,
        driver_room=memory_limit() - resident_bytes() if spilled else None,
        begun=begun,
    )


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
