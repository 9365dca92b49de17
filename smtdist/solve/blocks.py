"""The Cholesky factor of a matrix that memory cannot hold: square blocks in files, read one ahead."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.linalg
from isal import isal_zlib

from smtdist.errors import CheckpointError, ModelError, option
from smtdist.solve.streamed import Streamed

Float64: TypeAlias = npt.NDArray[np.float64]
Place: TypeAlias = tuple[int, int]
"""Number of the block's row and column of blocks."""

_BLOCK = re.compile(r"factor-\d{4,}-\d{4,}\.(npy|part)")
_solve: Any = scipy.linalg.solve_triangular


def factor_bytes(size: int, height: int) -> int:
    """Return the bytes on disk of the factor of a matrix of so many rows.

    >>> factor_bytes(65536, 4096) / 2**30
    17.0
    """
    return sum(8 * min(height, size - first) * (size - first) for first in range(0, size, height))


def write_block(path: Path, block: npt.NDArray[Any]) -> None:
    """Write an array to a file of NumPy's, whole or not at all, with its checksum behind it."""
    block, temporary = np.ascontiguousarray(block), path.with_suffix(".part")
    try:
        with open(temporary, "wb") as file:
            np.save(file, block)
            file.write(_checksum(block))
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def read_block(path: Path) -> npt.NDArray[Any]:
    """Read what `write_block` wrote; OSError where it cannot be read, or is not what was written."""
    try:
        with open(path, "rb") as file:
            block: npt.NDArray[Any] = np.load(file, allow_pickle=False)
            said = file.read(5)
    except OSError:
        raise
    except Exception as error:  # whatever a header that is none makes NumPy's reader raise
        raise OSError(f"it is damaged: {error}") from error
    if said != _checksum(block):
        raise OSError("it fails its checksum")
    return block


def _checksum(block: npt.NDArray[Any]) -> bytes:
    kind = f"{block.dtype.str} {block.shape}".encode()
    numbers = np.ascontiguousarray(block).reshape(-1).view(np.uint8).data
    return int(isal_zlib.crc32(numbers, isal_zlib.crc32(kind))).to_bytes(4, "little")


def remove_blocks(folder: Path) -> None:
    """Delete the blocks in a folder, and the folder where nothing else is in it."""
    with suppress(OSError):
        for path in list(folder.iterdir()):
            if _BLOCK.fullmatch(path.name):
                path.unlink(missing_ok=True)
        folder.rmdir()


@dataclass(frozen=True)
class BlockFiles:
    """Square blocks of an upper triangular (K, K) matrix in a folder, a file of NumPy's each.

    A file has its name only when it is whole, so that those that are there can be used after a crash.
    `heed` is called before each block that is worked on, and may raise to end the solve.
    """

    folder: Path
    size: int
    height: int
    heed: Callable[[], None] = lambda: None

    @property
    def count(self) -> int:
        """Number of rows of blocks."""
        return -(-self.size // self.height)

    def span(self, index: int) -> slice:
        """Return the rows of a row of blocks."""
        return slice(index * self.height, min((index + 1) * self.height, self.size))

    def right_of(self, index: int) -> range:
        """Return the columns of blocks to the right of the diagonal."""
        return range(index + 1, self.count)

    def write(self, place: Place, block: npt.NDArray[np.float64]) -> None:
        """Store a block; CheckpointError where the disk does not take it."""
        try:
            write_block(self.path(place), block)
        except OSError as error:
            raise CheckpointError(
                f"The solve could not write to {self.folder} ({error.strerror or error}); free space, or give "
                f"{option('checkpoint')} a folder with room."
            ) from error

    def read(self, place: Place) -> Float64:
        """Return a block."""
        rows, columns = (self.span(index) for index in place)
        try:
            block: Float64 = read_block(self.path(place))
        except OSError as error:
            raise CheckpointError(
                f"{self.path(place)} cannot be read ({error}); delete the folder and solve again."
            ) from error
        assert block.shape == (rows.stop - rows.start, columns.stop - columns.start)
        return block

    def ahead(self, places: Iterable[Place]) -> Iterator[tuple[Place, Float64]]:
        """Yield blocks in order; the next one is read while one is worked on."""
        with ThreadPoolExecutor(1) as reader:
            waiting: list[Any] = []
            for place in places:
                self.heed()
                waiting.append((place, reader.submit(self.read, place)))
                if len(waiting) > 1:
                    known, block = waiting.pop(0)
                    yield known, block.result()
            for known, block in waiting:
                yield known, block.result()

    def clear(self) -> None:
        """Remove the blocks, and the folder where nothing else is in it."""
        remove_blocks(self.folder)

    def path(self, place: Place) -> Path:
        """Return the file of a block."""
        return self.folder / f"factor-{place[0]:04}-{place[1]:04}.npy"


def factored(moment: Streamed, files: BlockFiles) -> BlockFactor | None:
    """Write the U of V = Uᵀ U into files, row of blocks by row of blocks; None where a pivot is not positive.

    Each row is made from V's and all rows above (left-looking), so that blocks are written once; rows that
    are there are kept. Time K³ / 3 multiplications; memory: a row of blocks and four blocks; K³ 4 / (3 h)
    bytes are read.
    """
    for index in range(files.count):
        whole = all(files.path((index, column)).exists() for column in range(index, files.count))
        if not (whole or _factored_row(moment, files, index)):
            return None
    return BlockFactor(files)


def _factored_row(moment: Streamed, files: BlockFiles, index: int) -> bool:
    rows = files.span(index)
    panel = moment.panel(rows.start, rows.stop)
    if not (np.isfinite(panel.min()) and np.isfinite(panel.max())):
        raise ModelError("V is not finite; the statistics are damaged: fit again.")

    def part(column: int) -> Float64:
        here = files.span(column)
        return panel[:, here.start - rows.start : here.stop - rows.start]

    above = [(row, column) for row in range(index) for column in range(index, files.count)]
    over: Float64 = panel[:0]
    for (_, column), block in files.ahead(above):
        if column == index:
            over = block
        part(column)[...] -= over.T @ block
    try:
        square = scipy.linalg.cholesky(part(index), check_finite=False)
    except scipy.linalg.LinAlgError:
        return False
    for column in files.right_of(index):
        files.write((index, column), _solve(square, part(column), trans="T", check_finite=False))
    files.write((index, index), square)
    return True


@dataclass(frozen=True)
class BlockFactor:
    """U, upper triangular, in files; each product with columns (K, m) reads all of it. Memory: the columns, two blocks."""

    files: BlockFiles

    def back_substituted(self, block: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return U⁻¹ X, in the type of X."""
        files, result = self.files, block.copy()
        rows = range(files.count - 1, -1, -1)
        places = [(row, column) for row in rows for column in (*files.right_of(row), row)]
        for (row, column), part in files.ahead(places):
            here, upper = files.span(row), part.astype(block.dtype, copy=False)
            if row == column:
                result[here] = _solve(upper, result[here], check_finite=False)
            else:
                result[here] -= upper @ result[files.span(column)]
        return result

    def forward_substituted(self, block: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return U⁻ᵀ X, in the type of X."""
        files, result = self.files, block.copy()
        places = [(row, column) for row in range(files.count) for column in range(row, files.count)]
        for (row, column), part in files.ahead(places):
            here, upper = files.span(row), part.astype(block.dtype, copy=False)
            if row == column:
                result[here] = _solve(upper, result[here], trans="T", check_finite=False)
            else:
                result[files.span(column)] -= upper.T @ result[here]
        return result

    def inverse_rows(self, index: int) -> Float64:
        """Return the rows of U⁻¹ that belong to a row of blocks, from its diagonal on, (h, K - s)."""
        files, rows = self.files, self.files.span(index)
        result = np.zeros((rows.stop - rows.start, files.size - rows.start))
        np.fill_diagonal(result, 1)
        places = [(row, column) for row in range(index, files.count) for column in range(row, files.count)]
        for (row, column), part in files.ahead(places):
            here, there = (
                slice(span.start - rows.start, span.stop - rows.start)
                for span in (files.span(row), files.span(column))
            )
            if row == column:
                result[:, here] = _solve(part, result[:, here].T, trans="T", check_finite=False).T
            else:
                result[:, there] -= result[:, here] @ part
        return result
