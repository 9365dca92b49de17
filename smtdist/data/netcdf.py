"""Groups of variables in one HDF5/NetCDF4 file, written whole or not at all.

xarray reads such a file. It is not what writes it: importing xarray takes longer than writing a model. HDF5 hands a
chunk to zlib, at some 60 MB/s of counts. ISA-L writes the same format at seven times that, and smaller, and any HDF5
unpacks it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final

import h5netcdf
import h5py
import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from smtdist.data import checksums
from smtdist.data.writing import lenient, whole_file

CHUNK_BYTES: Final = 2**20
_LEVEL: Final = 1


def chunks_of(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the shape of chunks of whole rows, of about a mebibyte.

    >>> chunks_of((8192, 8192), 4)
    (32, 8192)
    """
    row = int(np.prod(shape[1:], dtype=np.int64)) * itemsize
    return (min(shape[0], max(1, CHUNK_BYTES // max(1, row))), *shape[1:])


def write_deflated(dataset: h5py.Dataset, values: NDArray[Any], start: int = 0) -> None:
    """Write rows from `start` on of a dataset that was made with `chunks_of` its shape, gzip and shuffle.

    They are whole chunks, but for the end of the dataset: the last chunk is padded with zeros, as HDF5 stores chunks
    whole. Memory: three chunks.
    """
    rows = dataset.chunks[0]
    for first in range(0, len(values), rows):
        block = np.ascontiguousarray(values[first : first + rows], dataset.dtype)
        if len(block) < rows:
            block = np.concatenate([block, np.zeros((rows - len(block), *block.shape[1:]), block.dtype)])
        shuffled = np.ascontiguousarray(block.reshape(-1).view(np.uint8).reshape(-1, block.itemsize).T)
        dataset.id.write_direct_chunk(
            (start + first, *(0,) * (values.ndim - 1)), isal_zlib.compress(shuffled, level=_LEVEL)
        )


# the first layout of HDF5 in which all of its structure has checksums: that of earlier ones could crash it when damaged
LAYOUT: Final = {"mode": "w", "libver": ("v110", "v110")}


def whole_tables(values: NDArray[Any]) -> bool:
    """Return whether values are a table of whole numbers: small counts and many zeros, which compress well.

    >>> whole_tables(np.zeros((2, 2), np.int64)), whole_tables(np.zeros((2, 2)))
    (True, False)
    """
    return values.ndim == 2 and values.dtype.kind in "iu"


@dataclass(frozen=True, eq=False)
class Streamed:
    """An array that is written piece by piece: its shape and type, and what yields (first row, rows), in their order.

    squeezed : whether it is compressed; then each piece has whole chunks (`smtdist.data.netcdf.chunks_of`), but for the last.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    pieces: Callable[[], Iterable[tuple[int, NDArray[Any]]]]
    squeezed: bool = False


@dataclass(frozen=True)
class Group:
    """What a group holds, as xarray would be told: name -> (dimensions, values[, attributes]).

    >>> Group({"counts": ("atom", np.zeros(3))}, {"title": "Counts"}).sizes()
    {'atom': 3}
    """

    variables: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def sizes(self) -> dict[str, int]:
        """Return the length of each dimension; ValueError where variables do not agree."""
        found: dict[str, int] = {}
        for name, (dims, values, _) in self.items():
            for dim, size in zip(dims, values.shape, strict=True):
                if found.setdefault(dim, size) != size:
                    raise ValueError(f"{name} has {size} along {dim}, others {found[dim]}.")
        return found

    def items(self) -> Iterable[tuple[str, tuple[tuple[str, ...], Any, Mapping[str, Any]]]]:
        """Yield the name of each variable, its dimensions, its values as an array or `Streamed`, and its attributes."""
        for name, (dims, values, *attributes) in self.variables.items():
            names = (dims,) if isinstance(dims, str) else tuple(dims)
            found = values if isinstance(values, Streamed) else np.asarray(values)
            yield name, (names, found, attributes[0] if attributes else {})


def write_netcdf(
    path: str | os.PathLike[str],
    root: Group,
    groups: Iterable[tuple[str, Group]],
    *,
    overwrite: bool,
    squeezed: Callable[[NDArray[Any]], bool] = whole_tables,
) -> int:
    """Write a root and named groups to one file and return its bytes; an existing file needs `overwrite`.

    What is `squeezed` is compressed. Groups are taken one by one. Raises ModelError for a file that cannot
    be written.
    """
    with (
        whole_file(path, overwrite) as temporary,
        lenient(temporary) as raw,
        h5py.File(raw, track_order=True, **LAYOUT) as plain,
        h5netcdf.File(plain, "w") as file,
    ):
        sums: dict[str, checksums.Running | checksums.Blocks] = {}
        attributes: dict[str, tuple[str, ...]] = {}
        packed = {"compression": "gzip", "compression_opts": 1, "shuffle": True}
        for place, group in chain([("", root)], groups):
            target = file.create_group(place) if place else file
            target.dimensions = group.sizes()
            target.attrs.update(group.attributes)
            for name, (dims, values, about) in group.items():
                array, streamed = f"{place}/{name}".lstrip("/"), isinstance(values, Streamed)
                if streamed or (values.size and values.dtype.kind not in "UO" and squeezed(values)):
                    how = packed if not streamed or values.squeezed else {}
                    chunks = chunks_of(values.shape, values.dtype.itemsize)
                    created = target.create_variable(name, dims, values.dtype, chunks=chunks, **how)
                    sums[array] = running = checksums.Running()
                    for first, rows in values.pieces() if streamed else [(0, values)]:
                        if how:  # through h5py: the same array in its eyes
                            write_deflated(plain[array], rows, first)
                        else:
                            created[first : first + len(rows)] = rows
                        running.add(rows)
                        del rows  # before the next ones are made
                else:
                    created = target.create_variable(name, dims, **as_h5py(values))
                    sums[array] = checksums.Running(values)
                created.attrs.update(about)
                del values
            attributes[place] = tuple(group.attributes)
            raw.check()
        checksums.record(plain, sums, attributes)
    return Path(path).stat().st_size


def as_h5py(values: NDArray[Any]) -> dict[str, Any]:
    """Return values, and the type that they have in files, as h5py takes them: texts of any length."""
    if values.dtype.kind in "UO":
        return {"data": values.astype(object), "dtype": h5py.string_dtype()}
    return {"data": values, "dtype": values.dtype}
