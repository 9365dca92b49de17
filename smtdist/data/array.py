"""Images in memory, or in the parts of a Dask array, and the one function that accepts every kind of input."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from smtdist.data.adapted import as_bytes, shape_of
from smtdist.data.axes import require_channels_last
from smtdist.data.hdf5 import place_of
from smtdist.data.held import held_images, in_memory, is_dask
from smtdist.data.look import image_sets
from smtdist.data.opening import EncodedSettings, open_source
from smtdist.data.picture_files import picture_files
from smtdist.data.pillow import endings
from smtdist.data.source import Reader, Source, aligned_samples, image_shape, pixel_dtype, put_pixels
from smtdist.data.zarr_source import folder_of, is_zarr, is_zarr_array
from smtdist.errors import DataError


@dataclass(frozen=True, eq=False)
class ArraySource(Source):
    """An array of images, used where it is, not copied: NumPy's, Dask's, or a list of images (`smtdist.data.held`).

    `eight` reads whole numbers as uint8, as bool always is. An array in memory is aligned as a contiguous
    HDF5 dataset of the same shape and dtype is, so both give the same leaves; another to the parts it has.

    >>> source = ArraySource(np.zeros((10, 4, 4), np.uint8))
    >>> source.shape, source.sample_bytes
    ((10, 4, 4, 1), 16)
    >>> with source.opened() as reader:
    ...     reader.read(2, 5).shape
    (3, 4, 4, 1)
    """

    array: Any
    name: str = "array"
    eight: bool = False
    shape: tuple[int, ...] = field(init=False)
    dtype: np.dtype[Any] = field(init=False)
    chunk_samples: int = field(init=False)
    file_bytes = None

    def __post_init__(self) -> None:
        dtype = pixel_dtype(self.array.dtype, self.name)
        # frozen: these follow from the array, once
        object.__setattr__(self, "dtype", np.dtype(np.uint8) if self.eight or dtype.kind == "b" else dtype)
        object.__setattr__(self, "shape", self._shape(self.array.shape))
        aligned = aligned_samples(self.sample_bytes)
        if is_dask(self.array):
            chunk = max(self.array.chunks[0])
            aligned = chunk * max(1, aligned // chunk)
        object.__setattr__(self, "chunk_samples", aligned)

    def _shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return image_shape(shape, self.name)

    @property
    def whole(self) -> bool:
        """Whether it lies in this process's memory as one array."""
        return isinstance(self.array, np.ndarray)

    def carried_bytes(self, samples: int) -> int:
        """Bytes that so many samples take on their way to a task: once as sent and once as received.

        Those of a Dask array are made by the workers, and counted as its parts, put together and moved. What
        computing a part takes beside its result only the graph knows.
        """
        copies = 3 if is_dask(self.array) else 2
        return copies * samples * self._raw_bytes

    @property
    def _raw_bytes(self) -> int:
        """Of a sample before it is brought to `dtype`."""
        return math.prod(self.shape[1:]) * max(self.dtype.itemsize, int(self.array.dtype.itemsize))

    @property
    def reader_bytes(self) -> int:
        """Bytes of the parts that a reader makes at once, and of the array they make; none for an array in memory."""
        return 0 if self.whole else 3 * self.chunk_samples * self._raw_bytes

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
        yield ArrayReader(self, self.array, 0)


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


class ArrayReader(Reader):
    """Reads an array whose first sample is number `first` of its source, in parts where it is not in memory."""

    def __init__(self, source: Source, array: Any, first: int) -> None:
        super().__init__(source)
        self._array, self._first = array, first
        self._step = source.n_samples if isinstance(array, np.ndarray) else source.chunk_samples

    def _fill(self, start: int, stop: int, out: npt.NDArray[Any]) -> int:
        at = start
        while at < stop:
            end = min(stop, (at // self._step + 1) * self._step)
            part = in_memory(self._array[at - self._first : end - self._first], self.source.name)
            put_pixels(part, out[at - start : end - start], self.source.name, at)
            at = end
        return out.nbytes


@dataclass(frozen=True, eq=False)
class ArrayPiece(Source):
    """Samples `first` to `first + len(array)` of an in-memory source: what travels to the worker that needs them.

    It has the shape and the sample numbers of the whole, so that results do not depend on how it was cut. The
    array may be a Dask array, which is computed where the task runs.
    """

    array: Any
    first: int
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunk_samples: int
    file_bytes = None

    @contextmanager
    def opened(self) -> Iterator[Reader]:
        """Yield a reader that copies ranges out of the piece."""
        yield ArrayReader(self, self.array, self.first)


def piece_of(source: Source, start: int, stop: int) -> Source | None:
    """Return the samples that a task needs if the source is in memory, None if the task can read them by name.

    >>> piece_of(ArraySource(np.zeros((9, 2, 2), np.uint8)), 3, 5).array.shape
    (2, 2, 2)
    """
    if not isinstance(source, ArraySource):
        return None
    return ArrayPiece(
        source.array[start:stop], start, source.name, source.shape, source.dtype, source.chunk_samples
    )


def without_data(source: Source) -> Source:
    """Return the source without its array, for what all tasks share."""
    if not isinstance(source, ArraySource):
        return source
    nothing = np.empty((0, *source.shape[1:]), source.dtype)
    return ArrayPiece(nothing, 0, source.name, source.shape, source.dtype, source.chunk_samples)


def as_source(
    samples: Any,
    settings: EncodedSettings | None = None,
    *,
    fitted: bool = False,
    image_shape: tuple[int, ...] | None = None,
) -> Source:
    """Return the source of images, whatever holds them; refuse anything else.

    samples : an array (NumPy, Dask, xarray, Zarr, h5py), a list of arrays or of PIL images, a table of pixels or
        a column of arrays of pandas, a (path, name) pair, the path of a folder of images or of a file with
        one set of images, a list of paths of images, or a source. The path of a pair may be many files: a
        list, a pattern, a folder or a manifest (`smtdist.data.opening.open_source`). What lies in a file is
        carried by name, and a Dask array stays where it is.
    settings : resize, crop and channels, and the range of the pixels; with `fitted`, those of a model
        (`smtdist.data.opening.open_source`).
    image_shape : of rows of pixels, (height, width[, channels]); of other images it tells which axis is which.

    Raises DataError, also where the samples are not images of numbers.

    >>> as_source(np.zeros((2, 3, 3, 1), np.float32)).name
    'array'
    """
    require_channels_last(image_shape)
    if isinstance(samples, Source):
        return samples
    if isinstance(samples, tuple) and len(samples) == 2:
        path, dataset = samples
        if isinstance(path, str | os.PathLike | list | tuple) and isinstance(dataset, str):
            return open_source(path, dataset, settings, fitted=fitted, image_shape=image_shape)
    if isinstance(samples, str | os.PathLike):
        return _at_path(samples, settings, fitted)
    if isinstance(samples, list | tuple) and samples and isinstance(samples[0], str | os.PathLike):
        if not all(isinstance(one, str | os.PathLike) for one in samples):
            raise DataError("The list holds paths and other things; give only paths of images.")
        return picture_files(samples, settings)
    place = _place_of(samples)
    if place is not None:
        return open_source(*place, settings, fitted=fitted, image_shape=image_shape)
    scaling = None if fitted and not _pictured(samples) else settings
    array = held_images(samples, "array", image_shape, scaling, shape_of(settings))
    return ArraySource(array, eight=as_bytes(np.dtype(array.dtype), settings, fitted))


def _pictured(samples: Any) -> bool:
    """Say whether settings that scale images apply: to a list of pictures."""
    return isinstance(samples, list | tuple) and bool(samples) and hasattr(samples[0], "getbands")


def _at_path(path: str | os.PathLike[str], settings: EncodedSettings | None, fitted: bool) -> Source:
    """Return the images of a folder, or the only ones of an HDF5 file or Zarr store."""
    if not os.path.exists(path):
        raise DataError(f"There is no file or folder {os.fspath(path)}; check the name.")
    if os.path.isdir(path) and not is_zarr(path):
        return picture_files(path, settings)
    if os.path.splitext(path)[1].lower() in endings():
        return picture_files([path], settings)
    sets = image_sets(path)
    if len(sets) != 1:
        hint = f"one of {', '.join(map(repr, sets))}" if sets else "it has none"
        raise DataError(
            f"{os.fspath(path)} needs the name of its images; give the pair (path, name): {hint}."
        )
    return open_source(path, sets[0], settings, fitted=fitted)


def _place_of(samples: Any) -> tuple[str, str] | None:
    """Return where an array of HDF5 or Zarr lies, so that workers read it there; None for one that lies elsewhere."""
    if isinstance(samples, h5py.Dataset):
        return place_of(samples)
    return folder_of(samples) if is_zarr_array(samples) else None
