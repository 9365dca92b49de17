"""Rows of numbers, such as embeddings or word vectors, and points with whoever is near them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import IO, Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import scipy.sparse

from smtdist import errors
from smtdist.data.array import ArraySamples, in_memory, number_types, numbers_of
from smtdist.data.conventions import require_plain_numbers
from smtdist.data.fingerprint import sample_digests
from smtdist.data.hdf5 import (
    READ_CHUNK_BYTES,
    gaps_of,
    open_dataset,
    require_content,
    require_plain,
    unreadable_named,
)
from smtdist.data.source import (
    MOST_CHUNKS,
    Derived,
    Reader,
    Source,
    aligned_samples,
    read_boxes,
    require_countable,
)
from smtdist.errors import ConfigurationError, DataError, DataWarning, masked

TABLE_DTYPES = ("uint8", "float16", "float32", "float64")


@dataclass(frozen=True)
class StoredTable(Source):
    """The rows of an HDF5 dataset or a .npy file, carried by name; make it with `as_table`.

    A row is a sample of n numbers; further axes of the stored array are flattened.
    """

    path: str
    dataset: str | None  # None for a .npy file
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunk_samples: int
    stored_shape: tuple[int, ...]
    file_bytes = None

    @property
    def name(self) -> str:  # type: ignore[override]  # a field of the base class, computed here
        """What messages call it: path:dataset."""
        path = masked(self.path)
        return path if self.dataset is None else f"{path}:{self.dataset}"

    @property
    def reader_bytes(self) -> int:
        """Bytes of the row of chunks that HDF5 keeps."""
        return 2 * self.chunk_bytes + READ_CHUNK_BYTES * MOST_CHUNKS if self.dataset is not None else 0

    def describe(self) -> dict[str, Any]:
        """Return kind, path, dataset, shape and dtype as plain JSON."""
        return {
            "kind": "table",
            "path": masked(self.path),
            "dataset": self.dataset,
            "shape": list(self.stored_shape),
            "dtype": self.dtype.name,
            "chunk_samples": self.chunk_samples,
        }

    @contextmanager
    def opened(self) -> Iterator[Reader]:
        """Open the file for the length of a `with` block; DataError where its shape is no longer the same."""
        if self.dataset is None:
            stored = _npy(self.path)
            _require_same(self, stored.shape)
            yield _TableReader(self, stored)
            return
        cache = {"rdcc_nbytes": max(2 * self.chunk_bytes, 1), "rdcc_w0": 1.0}
        with open_dataset(self.path, self.dataset, **cache) as dataset:
            _require_same(self, dataset.shape)
            yield _TableReader(self, dataset)


class _TableReader(Reader):
    def __init__(self, source: StoredTable, stored: Any) -> None:
        super().__init__(source)
        self._stored = stored

    def _fill(self, start: int, stop: int, out: npt.NDArray[Any]) -> int:
        target = out.reshape(len(out), *self._stored.shape[1:])
        with unreadable_named(f"{self.source.name}, rows {start} to {stop - 1}", DataError):
            if hasattr(self._stored, "read_direct"):
                read_boxes(self._stored, start, stop, target)
            else:
                target[...] = self._stored[start:stop]
        return out.nbytes


class NotRows(DataError):
    """What is no rows of numbers by its shape alone."""


def as_table(rows: Any, *, aligned: int | None = None) -> Source:
    """Return the source of a 2-D array, a DataArray, a (path, dataset) pair of an HDF5 file, or a .npy path.

    Arrays of whole numbers other than uint8 become float64. `aligned` says how many rows belong together in
    an array or a .npy file, by default about 256. Raises DataError for anything that is not rows of numbers.

    >>> as_table(np.zeros((5, 3))).shape
    (5, 3)
    """
    if isinstance(rows, Source):
        if len(rows.shape) != 2:
            raise DataError(f"{rows.name} has the shape {rows.shape}, but rows are (samples, n).")
        return rows
    if isinstance(rows, tuple) and len(rows) == 2 and isinstance(rows[1], str):
        path = os.path.abspath(os.fsdecode(rows[0]))
        with open_dataset(path, rows[1]) as stored:
            require_plain(stored, path)
            require_plain_numbers(stored, name := f"{path}:{rows[1].strip('/')}")
            chunk = None if stored.chunks is None else int(stored.chunks[0])
            table = _stored_table(path, rows[1].strip("/"), stored.shape, stored.dtype, chunk)
            if gaps := gaps_of(stored, name):
                errors.warn(gaps, DataWarning)
            return table
    if isinstance(rows, str | os.PathLike):
        path = os.path.abspath(os.fspath(rows))
        array = _npy(path)
        return _stored_table(path, None, array.shape, array.dtype, aligned)
    if scipy.sparse.issparse(rows):
        raise DataError(
            "The rows are a sparse matrix, which is not supported; give rows.toarray(), or fewer columns if that is too large."
        )
    if hasattr(rows, "iloc") and getattr(rows, "ndim", 1) == 2 and not hasattr(rows, "to_dask_array"):
        rows = numbers_of(rows, "table")
    array = np.asarray(plain_rows(rows))
    if array.dtype.kind in "biu" and array.dtype != np.uint8:
        array = array.astype(np.float64)
    shape = _table_shape(array.shape, array.dtype, "array")
    return ArraySamples(np.ascontiguousarray(array).reshape(shape), aligned=aligned or 0)


def plain_rows(rows: Any) -> Any:
    """Return what the checks of scikit-learn take: lists, tables and sparse matrices as they are, else an array of NumPy.

    Raises DataError for what NumPy makes no array of, for columns of text, and for masked numbers, whose mask these checks
    drop.
    """
    if hasattr(rows, "iloc") and getattr(rows, "ndim", 1) == 2:
        number_types(rows, "X")
    if isinstance(rows, list | tuple) or hasattr(rows, "columns") or scipy.sparse.issparse(rows):
        return rows
    return in_memory(rows, "array")


def read_rows(source: Source, start: int = 0, stop: int | None = None) -> npt.NDArray[Any]:
    """Return rows [start, stop) of a table as (m, n), in memory."""
    with source.opened() as reader:
        return reader.read(start, source.n_samples if stop is None else stop)


@dataclass(frozen=True, eq=False)
class TableRows:
    """The rows of a table, sliced by rows, or by rows and columns, as an array in memory is; nothing stays open."""

    source: Source

    shape: ClassVar[Any] = property(attrgetter("source.shape"))
    """Rows and numbers of a row."""
    dtype: ClassVar[Any] = property(attrgetter("source.dtype"))
    """Of the numbers."""

    def __len__(self) -> int:
        return self.source.n_samples

    def __getitem__(self, chosen: Any) -> npt.NDArray[Any]:
        rows, columns = chosen if isinstance(chosen, tuple) else (chosen, slice(None))
        source = self.source
        if isinstance(source, ArraySamples):
            return np.asarray(source.array.reshape(len(self), -1)[rows, columns])
        start, stop, _ = rows.indices(len(self))
        if isinstance(source, StoredTable) and source.dataset and len(source.stored_shape) == 2:
            with open_dataset(source.path, source.dataset) as stored:
                _require_same(source, stored.shape)
                with unreadable_named(f"{source.name}, rows {start} to {stop - 1}", DataError):
                    return np.asarray(stored[start:stop, columns], source.dtype)
        return read_rows(source, start, stop)[:, columns]


def _npy(path: str) -> npt.NDArray[Any]:
    if not Path(path).is_file():
        raise DataError(f"The file {path} does not exist; check the path.")
    require_content(path)
    try:
        with open(path, "rb") as file:
            require_short_header(file)
        return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
    except ValueError as error:
        raise DataError(
            f"{path} is not a .npy file of numbers ({error}); give one, or an HDF5 dataset."
        ) from error


def require_short_header(stream: IO[bytes]) -> None:
    """Raise a ValueError for a .npy header of more than 64 KiB, which NumPy would read whole, up to 4 GiB; else stand there."""
    start = stream.read(12)
    stream.seek(0)
    if start[:6] == b"\x93NUMPY" and start[6:7] > b"\x01" and any(start[10:]):
        raise ValueError("its header says that it has more than 64 KiB")


def _stored_table(path: str, dataset: str | None, shape: Any, dtype: Any, chunk: int | None) -> StoredTable:
    name = path if dataset is None else f"{path}:{dataset}"
    full = _table_shape(shape, dtype, name)
    native = np.dtype(dtype).newbyteorder("=")
    return StoredTable(
        path,
        dataset,
        full,
        native,
        chunk or aligned_samples(full[1] * native.itemsize),
        tuple(int(length) for length in shape),
    )


def _table_shape(shape: Any, dtype: Any, name: str) -> tuple[int, int]:
    if shape is None or len(shape) < 2 or 0 in shape:
        raise NotRows(
            f"{name} has the shape {shape}, but rows of numbers must be (points, dimensions), with at least one of each; "
            f"reshape it."
        )
    kind = np.dtype(dtype)
    if kind.newbyteorder("=").name not in TABLE_DTYPES:
        raise DataError(
            f"{name} has the type {kind.name}, but rows are one of {', '.join(TABLE_DTYPES)}; convert them to float32."
        )
    require_countable(shape, name)
    return int(shape[0]), math.prod(int(length) for length in shape[1:])


def _require_same(source: StoredTable, shape: tuple[int, ...]) -> None:
    if tuple(shape) != source.stored_shape:
        raise DataError(
            f"{source.name} is now of shape {tuple(shape)}, but was {source.stored_shape} when first opened; start again."
        )


ALIGNED: Final = 64


@dataclass(frozen=True, eq=False)
class NeighbourSource(Derived):
    """Points of a table, each with k neighbours: samples of shape (1 + k, d + 1), float64.

    Row 0 is the point, the others are neighbours; the last column is 1 for the point and the weight for a
    neighbour, 0 where a point has fewer. Memory: the table once while it is read, and 16 k bytes a point
    that travel with the job.
    starts : of rows in time, those that begin a sequence. Their own last column is 2, so that the hash of a
        row tells whether one comes before it: no part can be withdrawn that leaves half of a difference behind.
    """

    source: Source  # the table
    numbers: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]
    starts: npt.NDArray[np.bool_] | None = None
    chunk_samples = damage_samples = ALIGNED
    file_bytes = None
    dtype = np.dtype(np.float64)

    @classmethod
    def of(
        cls, points: Any, numbers: npt.NDArray[np.int64], weights: npt.NDArray[np.float64]
    ) -> NeighbourSource:
        """Check that neighbours (N, k) and weights fit the points; points are as in `smtdist.data.table.as_table`."""
        table = as_table(points)
        n = table.n_samples
        if numbers.shape != weights.shape or numbers.ndim != 2 or len(numbers) != n:
            raise DataError(
                f"{table.name} has {n} points, but neighbours of the shape {numbers.shape} and weights {weights.shape}; "
                f"give (points, k) of both."
            )
        if numbers.size and (numbers.min() < 0 or numbers.max() >= n):
            raise DataError(
                f"{table.name} has {n} points, but a neighbour is number {numbers.max()}; count from 0."
            )
        return cls(table, numbers, weights)

    def __post_init__(self) -> None:
        super().__post_init__()
        n, width = self.source.shape
        object.__setattr__(self, "shape", (n, 1 + self.numbers.shape[1], width + 1))

    @property
    def reader_bytes(self) -> int:
        """The rows of the table that a block's neighbours are among: at most all."""
        return self.source.reader_bytes + 2 * self.source.n_samples * self.source.sample_bytes

    def describe(self) -> dict[str, Any]:
        """Return kind, table and neighbours as plain JSON."""
        return {"kind": "neighbours", "table": self.source.describe(), "neighbours": self.numbers.shape[1]}

    def fill(self, inner: Reader, start: int, stop: int, out: npt.NDArray[Any]) -> None:
        """Write points and their neighbours, which are looked up among the rows they are in."""
        numbers = np.concatenate([np.arange(start, stop)[:, None], self.numbers[start:stop]], axis=1)
        first = int(numbers.min())
        rows = inner.read(first, int(numbers.max()) + 1)
        for place, own in enumerate(numbers.T):  # all at once would make a second block
            out[:, place, :-1] = rows[own - first]
        out[:, 0, -1] = 1.0 if self.starts is None else 1.0 + self.starts[start:stop]
        out[:, 1:, -1] = self.weights[start:stop]


@dataclass(frozen=True, eq=False)
class NoisePairs(Derived):
    """Two noisy copies of every point of a table, as neighbours: samples (2, d + 1), float64 (SMT 2023, section 2).

    The noise is Gaussian, of standard deviation `noise`, and a function of the seed and of the point
    itself: a point has the same noise in any table, so that it can be withdrawn from sums by whichever
    table holds it.
    """

    source: Source  # the table
    noise: float
    seed: int = 0
    chunk_samples = damage_samples = ALIGNED
    file_bytes = None
    dtype = np.dtype(np.float64)

    def __post_init__(self) -> None:
        if not self.noise >= 0:
            raise ConfigurationError(f"noise is {self.noise}; give a standard deviation of at least 0.")
        super().__post_init__()
        object.__setattr__(self, "shape", (self.source.n_samples, 2, self.source.shape[1] + 1))

    @property
    def reader_bytes(self) -> int:
        """What the table's reader holds, and a block of rows and noise."""
        return self.source.reader_bytes + 2**24

    def describe(self) -> dict[str, Any]:
        """Return kind, table, noise and seed as plain JSON."""
        return {
            "kind": "noise pairs",
            "table": self.source.describe(),
            "noise": self.noise,
            "seed": self.seed,
        }

    def fill(self, inner: Reader, start: int, stop: int, out: npt.NDArray[Any]) -> None:
        """Write points with their noise."""
        rows = inner.read(start, stop)
        out[..., -1] = 1.0
        for key, row, to in zip(sample_digests(rows.astype(np.float64)), rows, out, strict=True):
            draw = np.random.Generator(np.random.Philox(key=[self.seed, key]))
            to[:, :-1] = row + self.noise * draw.standard_normal((2, row.shape[-1]))
