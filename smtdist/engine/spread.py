"""A K x K matrix in the memory of the workers, who multiply: the driver holds a tile at a time, and columns."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from smtdist.engine.executor import Executor, Handle, TaskLost
from smtdist.engine.memory import BUDGET_SHARE, readable
from smtdist.engine.passes import Engine
from smtdist.engine.reduction import POLL_SECONDS, count_failure
from smtdist.errors import ConfigurationError, MemoryBudgetError, option
from smtdist.kernels.threads import even_ranges, run_ranges, set_threads, single_blas

Block: TypeAlias = NDArray[Any]

TILES: Final = 32
"""Tiles of a matrix at least: enough for the work to be even on several workers, whatever their number."""
TILE_BYTES: Final = 256 * 2**20
COLUMNS: Final = 32
"""Columns that a thread multiplies at a time; fixed, so that the bits do not depend on the number of threads."""


def spread(
    engine: Engine, size: int, make: Callable[[int, int], NDArray[np.float64]], height: int | None
) -> SpreadMatrix:
    """Hand a symmetric or upper triangular (K, K) matrix to the workers, in tiles of rows from the diagonal on.

    `make(start, stop)` returns rows from column `start` on, (stop - start, K - start); `height` is their
    number where that is settled. A tile whose worker is lost is made again. Raises MemoryBudgetError where
    the workers together cannot hold the matrix, ConfigurationError where there are none.
    """
    executor = engine.executor
    require_workers(executor)
    engine.heed_stop()
    workers, limit = executor.slots(), executor.limit_bytes()
    needed = 4 * size * size // max(1, workers)
    if needed > BUDGET_SHARE * limit:
        raise MemoryBudgetError(
            f"Each of {workers} workers would hold {readable(needed)} of a matrix of {size:,} rows, and may use "
            f"{readable(limit)}; add workers, or leave out {option('solve_on')}."
        )
    return SpreadMatrix(engine, make, _bounds(size, height))


def require_workers(executor: Executor) -> None:
    """Refuse an executor that is this process alone; ConfigurationError."""
    if executor.slots() == 1 and executor.alone:
        raise ConfigurationError(
            f"The solve needs workers, and there are none; give {option('n_workers')} or {option('cluster')}, or "
            f"leave out {option('solve_on')}."
        )


def _bounds(size: int, height: int | None) -> list[tuple[int, int]]:
    """Return rows of about equal area, a triangle's; by the matrix alone, so that sums have one order everywhere."""
    if height is not None:
        return even_ranges(size, height)
    tiles = max(TILES, -(-4 * size * size // TILE_BYTES))
    # what lies below a row goes with the square of the rows below it
    left = np.sqrt(np.linspace(1, 0, tiles + 1))
    ends = np.unique(np.round(size * (1 - left)).astype(int)).tolist()
    return list(itertools.pairwise(ends))


class SpreadMatrix:
    """Tiles on workers, and what multiplies them. `close` lets go of them."""

    def __init__(
        self,
        engine: Engine,
        make: Callable[[int, int], NDArray[np.float64]],
        bounds: list[tuple[int, int]],
    ) -> None:
        self._engine, self._make, self._bounds = engine, make, bounds
        self._threads, self._failures = engine.executor.threads(), 0
        self._tiles = [self._placed(*rows) for rows in bounds]

    def symmetric(self, block: Block) -> Block:
        """Return A X for columns (K, m), in their type."""
        return self._summed("symmetric", block)

    def upper(self, block: Block) -> Block:
        """Return W X for an upper triangular W."""
        return self._summed("upper", block)

    def transposed(self, block: Block) -> Block:
        """Return Wᵀ X."""
        return self._summed("transposed", block)

    def close(self) -> None:
        """Let the workers forget the tiles."""
        self._engine.executor.release(self._tiles)

    def _sent(self, block: Block) -> Handle:
        """Bring a tile, or columns, to one worker, from whom the others take them."""
        while True:
            try:
                return self._engine.executor.share(block, everywhere=False)
            except TaskLost as lost:
                self._failures = count_failure(self._failures, lost)

    def _placed(self, start: int, stop: int) -> Handle:
        self._engine.heed_stop()
        return self._sent(self._make(start, stop))

    def _summed(self, kind: str, block: Block) -> Block:
        """Add up what the tiles give, in their order, so that the sum does not depend on who is first."""
        self._engine.heed_stop()
        executor, result = self._engine.executor, np.zeros(block.shape, block.dtype)
        sent = self._sent(block)
        running: list[Handle | None] = [self._begun(index, kind, sent) for index in range(len(self._tiles))]
        try:
            for index, (start, _) in enumerate(self._bounds):
                while True:
                    try:
                        handle = running[index]
                        if handle is None:
                            raise TaskLost("a tile was lost before it was multiplied")
                        while executor.wait([handle], POLL_SECONDS) is None:
                            self._engine.heed_stop()
                        part: Block = executor.result(handle)
                        break
                    except TaskLost as lost:
                        self._failures = count_failure(self._failures, lost)
                        executor.release([self._tiles[index], sent])
                        self._tiles[index] = self._placed(*self._bounds[index])
                        sent = self._sent(block)
                        running[index] = self._begun(index, kind, sent)
                result[start : start + len(part)] += part
                executor.release([running[index]])
                running[index] = None
        finally:
            executor.release([sent, *(handle for handle in running if handle is not None)])
        return result

    def _begun(self, index: int, kind: str, sent: Handle) -> Handle | None:
        try:
            tile = self._tiles[index]
            start = self._bounds[index][0]
            return self._engine.executor.submit(
                _multiplied, tile, sent, start, kind, self._threads, near=tile
            )
        except TaskLost:
            return None  # whoever waits for it puts the tile elsewhere


def _multiplied(
    tile: NDArray[np.float64],
    block: Block,
    start: int,
    kind: str,
    threads: int,
    *,
    report: Any,
    permit: Any,
) -> Block:
    """Return what a tile gives to the rows from its own first on: all of them, or for "upper" those of the tile."""
    height, part = len(tile), tile.astype(block.dtype, copy=False)
    rows = height if kind == "upper" else len(block) - start
    result = np.zeros((rows, block.shape[1]), block.dtype)

    def columns(low: int, high: int) -> None:
        here = np.ascontiguousarray(block[start:, low:high])
        if kind == "transposed":
            result[:, low:high] = part.T @ here[:height]
            return
        result[:height, low:high] = part @ here
        if kind == "symmetric":
            result[height:, low:high] = part[:, height:].T @ here[:height]

    set_threads(threads)
    with single_blas():
        run_ranges(columns, even_ranges(block.shape[1], COLUMNS))
    return result
