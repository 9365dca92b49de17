"""Images that are in memory already, and the one function that accepts every kind of input."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from smtdist.data.opening import EncodedSettings, open_source, refuse_scaling
from smtdist.data.source import Reader, Source, aligned_samples, image_shape, pixel_dtype
from smtdist.errors import DataError


@dataclass(frozen=True, eq=False)
class ArraySource(Source):
    """A NumPy array of images, or an xarray DataArray around one; the array is used where it is, not copied.

    It is aligned as a contiguous HDF5 dataset of the same shape and dtype is, so both give the same leaves.

    >>> source = ArraySource(np.zeros((10, 4, 4), np.uint8))
    >>> source.shape, source.sample_bytes
    ((10, 4, 4, 1), 16)
    >>> with source.opened() as reader:
    ...     reader.read(2, 5).shape
    (3, 4, 4, 1)
    """

    array: npt.NDArray[Any]
    name: str = "array"
    shape: tuple[int, ...] = field(init=False)
    dtype: np.dtype[Any] = field(init=False)
    chunk_samples: int = field(init=False)
    file_bytes = None

    def __post_init__(self) -> None:
        array = _in_memory(self.array, self.name)
        # frozen: these follow from the array, once
        object.__setattr__(self, "array", array)
        object.__setattr__(self, "dtype", pixel_dtype(array.dtype, self.name))
        object.__setattr__(self, "shape", self._shape(array.shape))
        object.__setattr__(self, "chunk_samples", aligned_samples(self.sample_bytes))

    def _shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return image_shape(shape, self.name)

    def describe(self) -> dict[str, Any]:
        """Return kind, name, shape, dtype and alignment as plain JSON."""
        return {
            "kind": "array",
            "path": None,
            "dataset": self.name,
            "shape": list(self.shape),
            "dtype": self.dtype.name,
            "chunk_samples": self.chunk_samples,
            "chunks": None,
        }

    @contextmanager
    def opened(self) -> Iterator[Reader]:
        """Yield a reader that copies ranges out of the array."""
        yield _ArrayReader(self)


@dataclass(frozen=True, eq=False)
class ArraySamples(ArraySource):
    """Samples in memory that are no images: rows (n, p), or sequences (n, T, p).

    They are aligned to `aligned` of them, so that they have the leaves of a file that is.

    >>> ArraySamples(np.zeros((10, 4))).shape
    (10, 4)
    """

    aligned: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.aligned:
            object.__setattr__(self, "chunk_samples", self.aligned)

    def _shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape


class _ArrayReader(Reader):
    source: ArraySource

    def _fill(self, start: int, stop: int, out: npt.NDArray[Any]) -> int:
        out[...] = self.source.array[start:stop].reshape(out.shape)
        return out.nbytes


def as_source(samples: Any, settings: EncodedSettings | None = None, *, fitted: bool = False) -> Source:
    """Return the source of an array, a DataArray, a (path, name) pair or a source; refuse anything else.

    The path may be many files: a list, a pattern, a folder or a manifest
    (`smtdist.data.opening.open_source`).

    `settings` (resize, crop, channels) and `fitted` are as in `smtdist.data.opening.open_source`. Raises
    DataError, also where the samples are not images of a pixel dtype.

    >>> as_source(np.zeros((2, 3, 3, 1), np.float32)).name
    'array'
    """
    if isinstance(samples, Source):
        return samples
    if isinstance(samples, tuple) and len(samples) == 2:
        path, dataset = samples
        if isinstance(path, str | os.PathLike | list | tuple) and isinstance(dataset, str):
            return open_source(path, dataset, settings, fitted=fitted)
    if isinstance(samples, np.ndarray) or (hasattr(samples, "dims") and hasattr(samples, "data")):
        source = ArraySource(samples)
        if settings is not None and not fitted:
            refuse_scaling(source.name, settings)
        return source
    raise DataError(
        f"Samples cannot be read from a {type(samples).__qualname__}; "
        f"give a NumPy array, an xarray DataArray, or a (path, dataset) pair of an HDF5 file."
    )


def _in_memory(samples: Any, name: str) -> npt.NDArray[Any]:
    array = samples if isinstance(samples, np.ndarray) else getattr(samples, "data", None)
    if not isinstance(array, np.ndarray):
        raise DataError(
            f"{name} holds a {type(array).__qualname__}, not a NumPy array; "
            f"load it into memory first, or give the (path, dataset) pair of its HDF5 file."
        )
    return array
