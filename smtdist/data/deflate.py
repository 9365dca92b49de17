"""Chunks of HDF5 datasets that are compressed here, by a faster library than HDF5's, and that any HDF5 unpacks.

HDF5 hands a chunk to zlib, at some 60 MB/s of counts. ISA-L writes the same format at seven times that, and
smaller.
"""

from __future__ import annotations

from typing import Any, Final

import h5py
import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

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
