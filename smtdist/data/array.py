"""Images in memory, or in the parts of a Dask array, and the one function that accepts every kind of input.

Libraries that are not installed are not imported: what an object is shows in what it has.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from smtdist import errors
from smtdist.data.axes import IN_MEMORY, image_axes, require_channels_last
from smtdist.data.conventions import FILLS, PACKED
from smtdist.data.decode import GREY_MODES, endings, one_size, resized, with_channels
from smtdist.data.encoded import picture_files
from smtdist.data.hdf5 import LISTED_NAMES, open_dataset, place_of, require_open, require_plain
from smtdist.data.locations import is_zarr
from smtdist.data.look import image_sets
from smtdist.data.opening import open_source, refuse_scaling
from smtdist.data.source import Reader, Source, aligned_samples, image_shape, pixel_dtype, put_pixels
from smtdist.data.views import Chosen, EncodedSettings, as_bytes, shape_of
from smtdist.data.zarr_source import folder_of, is_zarr_array
from smtdist.errors import DataError, DataWarning, option


@dataclass(frozen=True, eq=False)
class Sliced:
    """Samples that are made when a range is asked for: an array elsewhere, or a list of images of one shape.

    `axes` are those of what `parts` gives, in the order sample, row, column[, channel].
    """

    parts: Any  # sliced by samples; gives what NumPy makes an array of
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    axes: tuple[int, ...]

    def __getitem__(self, chosen: Any) -> npt.NDArray[Any]:
        return np.asarray(self.parts[chosen]).transpose(self.axes)


@dataclass(frozen=True, eq=False)
class _Each:
    """So many images of one shape, made or looked up one by one when a range is asked for."""

    count: int
    image: Callable[[int], npt.NDArray[Any]]

    def __getitem__(self, chosen: Any) -> npt.NDArray[Any]:
        return np.stack([self.image(number) for number in np.arange(self.count)[chosen]])


def _picture(
    pictures: Sequence[Any], channels: int | None, resize: int | None, crop: int | None, number: int
) -> npt.NDArray[Any]:
    """Return a PIL image as an array, scaled and cut; without `channels` pixels of more than 8 bits, as they are."""
    picture = pictures[number]
    if channels is None:
        return np.asarray(picture)
    found = np.asarray(picture.convert("L" if picture.mode in GREY_MODES else "RGB"))
    whole = with_channels(found.reshape(*found.shape[:2], -1), channels)
    return resized(whole, resize, crop)


def is_dask(samples: Any) -> bool:
    """Say whether something is a Dask array, which is computed where its parts lie."""
    return hasattr(samples, "__dask_graph__") and hasattr(samples, "chunks") and hasattr(samples, "dtype")


def _as_stated(part: Any, name: str, block_info: Any = None) -> Any:
    """Return a part of a Dask array; DataError where it is not what the array says of it."""
    about = block_info[None]
    stated = np.dtype(about["dtype"]), tuple(about["chunk-shape"])
    kind = f"a {type(part).__qualname__}"
    if hasattr(part, "dtype") and hasattr(part, "shape"):
        if (part.dtype.newbyteorder("="), tuple(part.shape)) == stated:
            return part
        kind = f"{part.dtype} of the shape {tuple(part.shape)}"
    raise DataError(
        f"{name}: the part {tuple(about['chunk-location'])} of the Dask array is {kind}, but the array says {stated[0]} of "
        f"{stated[1]}; let the function that makes it return that, or state its dtype and chunks as they are."
    )


def held_images(
    samples: Any,
    name: str,
    image_shape: tuple[int, ...] | None,
    settings: EncodedSettings | None,
    fitted_shape: tuple[int, ...] | None = None,
) -> Any:
    """Return images (n, height, width[, channels]) that give ranges of samples, of whatever holds them.

    Takes NumPy and Dask arrays, DataArrays, Zarr arrays, tables of pixels and columns of arrays of pandas,
    lists of arrays or of PIL images, and whatever NumPy makes an array of. Nothing that lies elsewhere is
    read. Rows of numbers have the `image_shape`, which 2-D arrays need; of others it tells which axis is which, as the
    `fitted_shape` of a model's images does. `settings` scale PIL images; others refuse them. Raises DataError for anything else.
    """
    names: tuple[str, ...] = ()
    if hasattr(samples, "iloc"):
        samples = _of_table(samples, name)
    if isinstance(samples, list | tuple) and samples and hasattr(samples[0], "getbands"):
        return _pictures(samples, name, settings)
    if settings is not None:
        refuse_scaling(name, settings)
    if hasattr(samples, "dims") and (hasattr(samples, "variable") or hasattr(samples, "to_base_variable")):
        if undone := [key for key in (*FILLS, *PACKED) if key in samples.attrs]:
            errors.warn(
                f"{name} still has the attributes {' and '.join(undone)}, which are not applied; decode it with "
                f"xarray.decode_cf, or remove them.",
                DataWarning,
            )
        names, samples = tuple(map(str, samples.dims)), _of_data_array(samples)
    if isinstance(samples, np.ndarray) and samples.dtype == object and samples.ndim == 1:
        samples = list(samples)
    if isinstance(samples, list | tuple):
        samples = _of_list(samples, name)
    if is_dask(samples):
        if not all(math.isfinite(length) for length in samples.shape):
            raise DataError(
                f"{name} is a Dask array of unknown lengths, {samples.shape}; call its compute_chunk_sizes() first."
            )
        # its parts are compared, when they are computed, with what it says of them
        samples = samples.map_blocks(_as_stated, name, dtype=samples.dtype, meta=samples._meta)
    elif not isinstance(samples, Sliced) and not is_zarr_array(samples):
        samples = in_memory(samples, name)
    if image_shape is not None and len(samples.shape) == 2:
        count = math.prod(image_shape)
        if len(image_shape) not in (2, 3) or samples.shape[1] != count:
            raise DataError(
                f"{name} has rows of {samples.shape[1]} numbers, but image_shape={tuple(image_shape)} has {count}; give "
                f"(height, width) or (height, width, channels) of {samples.shape[1]} numbers."
            )
        samples, names = samples.reshape(samples.shape[0], *image_shape), ()
    images = _in_order(samples, names, name, image_shape or fitted_shape)
    if image_shape is not None and (*images.shape[1:], 1)[:3] != (*image_shape, 1)[:3]:
        raise DataError(
            f"{name} has images of the shape {images.shape[1:]}, but image_shape={tuple(image_shape)}; give the shape that they "
            f"have, or leave it out."
        )
    return images


def _in_order(samples: Any, names: tuple[str, ...], name: str, image_shape: tuple[int, ...] | None) -> Any:
    """Return images with their axes in order; no number is moved."""
    shape = tuple(samples.shape)
    if len(shape) not in (3, 4):
        if len(shape) == 2:
            side = math.isqrt(shape[1])
            example = (side, side) if side * side == shape[1] else "(height, width, channels)"
            raise DataError(
                f"{name} has the shape {shape}, rows of {shape[1]} numbers; say what images they are with "
                f"image_shape={example}, or reshape them; if this is one image, give X[None]."
            )
        raise DataError(
            f"{name} has the shape {shape}, but images are (samples, height, width) or (samples, height, width, channels); "
            f"reshape them."
        )
    axes = image_axes(shape, names, name, image_shape, IN_MEMORY)
    if isinstance(samples, np.ndarray) or is_dask(samples):
        return samples.transpose(axes)
    if axes[0] != 0:
        raise DataError(
            f"{name} has its samples along another axis than the first; give an array in memory."
        )
    parts, inner = (
        (samples.parts, samples.axes) if isinstance(samples, Sliced) else (samples, range(len(shape)))
    )
    return Sliced(
        parts, tuple(shape[axis] for axis in axes), samples.dtype, tuple(inner[axis] for axis in axes)
    )


def in_memory(samples: Any, name: str) -> npt.NDArray[Any]:
    """Return a NumPy array of what is one, or of what NumPy makes one of; a Dask array is computed.

    Raises DataError for anything else, and for a masked array with masked pixels.
    """
    if is_dask(samples):
        try:
            samples = samples.compute()
        except CancelledError as error:  # its parts were kept on a cluster
            raise DataError(
                f"{name} is a Dask array whose parts cannot be had ({error}); give the Client of the cluster that keeps them as "
                f"{option('cluster')} while it is open, or an array that is not persisted."
            ) from error
    if isinstance(samples, np.ma.MaskedArray):
        hidden = int(np.count_nonzero(np.ma.getmaskarray(samples)))
        if hidden:
            kind = "pixels" if samples.ndim > 2 else "numbers"
            raise DataError(
                f"{name} is a masked array with {hidden:,} masked {kind}, which are not supported; fill them "
                f"(X.filled(0)), or leave those samples out."
            )
        return np.asarray(samples.data)
    if isinstance(samples, np.ndarray):
        return samples
    if isinstance(samples, h5py.Dataset | h5py.Group):
        require_open(samples)
    if isinstance(samples, h5py.Dataset) and (samples.is_virtual or samples.external):
        # h5py alone makes up what is missing in other files
        path, dataset = place_of(samples)
        with open_dataset(path, dataset) as stored:
            require_plain(stored, path)
            return np.asarray(stored[()])
    found = None
    if hasattr(samples, "__array__") or hasattr(samples, "__array_interface__"):
        with contextlib.suppress(TypeError, ValueError, RuntimeError):
            found = np.asarray(samples)
    if isinstance(samples, bytes | bytearray):
        raise DataError(
            f"{name} is {type(samples).__qualname__}; give a path as text, and images as arrays."
        )
    if found is None or found.dtype.kind == "O":
        if hasattr(samples, "keys"):  # of Python, xarray, HDF5, Zarr and others
            names = ", ".join(map(str, islice(samples, LISTED_NAMES)))
            raise DataError(
                f"{name} is a {type(samples).__qualname__} of several things ({names}); give one of them, by its name."
            )
        raise DataError(
            f"{name} is a {type(samples).__qualname__}, from which no samples can be read; give an array (NumPy, Dask, xarray, "
            f"Zarr, HDF5), a list of images, a pandas table, a folder of images, or a (path, dataset) pair."
        )
    return found


def _of_data_array(samples: Any) -> Any:
    """Return the array in a DataArray or Variable; one that lies unread in a file becomes a Dask array, read in parts."""
    if samples.chunks is None and not getattr(getattr(samples, "variable", samples), "_in_memory", True):
        first = next(iter(samples.dims))
        each = math.prod(samples.shape[1:]) * samples.dtype.itemsize
        stored = samples.encoding.get("chunksizes") or (1,)
        aligned = aligned_samples(max(1, each))
        samples = samples.chunk({first: stored[0] * max(1, aligned // stored[0])})
    found = samples.data
    if not is_dask(found) and not hasattr(found, "__array__"):
        raise DataError(
            f"The DataArray holds a {type(found).__qualname__}, which NumPy cannot convert to an array; load it first."
        )
    return found


def _of_table(table: Any, name: str) -> Any:
    """Return a table of pixels, a row an image, as an array, or a column of arrays as a list.

    The rows of a Dask table are counted, which reads it once.
    """
    if getattr(table, "ndim", 1) == 2 and table.shape[1] == 1:
        table = table.iloc[:, 0]
    if getattr(table, "ndim", 1) == 1:
        return list(table)
    if not hasattr(table, "to_dask_array"):
        return numbers_of(table, name)
    _, wide = number_types(table, name)
    extended = {column: wide for column, kind in table.dtypes.items() if not isinstance(kind, np.dtype)}
    return (table.astype(extended) if extended else table).to_dask_array(lengths=True)


def numbers_of(table: Any, name: str) -> npt.NDArray[Any]:
    """Return a table of pandas as an array, also one of nullable or Arrow types; DataError for what is no number, or missing."""
    kinds, wide = number_types(table, name)
    for place, (column, kind) in enumerate(kinds):
        if not isinstance(kind, np.dtype) and (missing := table.iloc[:, place].isna().to_numpy()).any():
            raise DataError(
                f"{name}: the column {column!r} of the table has no number in row {int(missing.argmax())}; fill missing values, "
                f"or leave those rows out."
            )
    found = table.to_numpy()
    return np.asarray(found if found.dtype.kind in "biuf" else table.to_numpy(dtype=wide))


def number_types(table: Any, name: str) -> tuple[list[tuple[str, Any]], np.dtype[Any]]:
    """Return the columns of a table with their types, and the type of NumPy that holds all their numbers."""
    kinds = [(str(column), kind) for column, kind in table.dtypes.items()]
    for column, kind in kinds:
        if getattr(kind, "kind", "O") not in "biuf":
            raise DataError(
                f"{name}: the column {column!r} of the table holds {kind}, not numbers; leave out labels, and convert others."
            )
    plain = [getattr(kind, "numpy_dtype", getattr(kind, "subtype", kind)) for _, kind in kinds]
    return kinds, np.result_type(np.bool_, *plain)


def _of_list(items: Sequence[Any], name: str) -> Any:
    """Return arrays of one shape, which stay where they are, or a list of lists of numbers as an array."""
    if not items:
        raise DataError(f"{name} is an empty list; give at least one image.")
    if not hasattr(items[0], "shape"):
        with contextlib.suppress(TypeError, ValueError):
            found = np.asarray(items)
            if found.dtype.kind not in "OSU":
                return found
        raise DataError(
            f"{name} is a list of {type(items[0]).__qualname__}; give arrays of one shape, PIL images, or paths as text."
        )
    arrays = [in_memory(item, f"{name}, image {number}") for number, item in enumerate(items)]
    first = arrays[0]
    for number, array in enumerate(arrays):
        if (array.shape, array.dtype) != (first.shape, first.dtype):
            raise DataError(
                f"{name}, image {number} is {array.dtype} of the shape {array.shape}, but image 0 is {first.dtype} of "
                f"{first.shape}; convert them to one shape and type."
            )
    shape = (len(arrays), *first.shape)
    return Sliced(_Each(len(arrays), arrays.__getitem__), shape, first.dtype, tuple(range(len(shape))))


def _pictures(pictures: Sequence[Any], name: str, settings: EncodedSettings | None) -> Sliced:
    """Return PIL images: grey where all are, else in colour, as encoded images are; those of more than 8 bits as they are."""
    resize, crop, channels = (
        (settings.resize, settings.center_crop, settings.channels) if settings else (None,) * 3
    )
    for number, picture in enumerate(pictures):
        if not hasattr(picture, "getbands"):
            raise DataError(
                f"{name}, image {number} is a {type(picture).__qualname__}, but image 0 is a PIL image; give one kind."
            )
        if getattr(picture, "is_animated", False):
            raise DataError(
                f"{name}, image {number} has several frames; give the one that is meant, as picture.copy() after picture.seek(n)."
            )
    deep = pictures[0].mode.startswith(("I", "F"))
    if deep:
        if any(picture.mode != pictures[0].mode for picture in pictures):
            raise DataError(
                f"{name} has images of several modes with more than 8 bits; convert them to one mode."
            )
        if settings is not None:
            refuse_scaling(name, settings)
    grey = all(picture.mode in GREY_MODES for picture in pictures)
    depth = None if deep else channels or (1 if grey else 3)
    image = partial(_picture, pictures, depth, resize, crop)
    if resize is None and crop is None:
        for number, picture in enumerate(pictures):
            if picture.size != pictures[0].size:
                raise DataError(
                    f"{name}, image {number} is {picture.width} x {picture.height}, the first is {pictures[0].width} x "
                    f"{pictures[0].height}; {one_size(min(*picture.size, *pictures[0].size))}."
                )
    first = image(0)
    shape = (len(pictures), *first.shape)
    return Sliced(_Each(len(pictures), image), shape, first.dtype, tuple(range(len(shape))))


@dataclass(frozen=True, eq=False)
class ArraySource(Source):
    """An array of images, used where it is, not copied: NumPy's, Dask's, or a list of images (`smtdist.data.array`).

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
        return self.described("array", None, self.name)

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


@dataclass(frozen=True, eq=False)
class _Picked:
    """Samples of an array in memory, which are copied when a range is asked for."""

    array: npt.NDArray[Any]
    numbers: npt.NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.numbers), *self.array.shape[1:]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    def __getitem__(self, chosen: Any) -> npt.NDArray[Any]:
        found: npt.NDArray[Any] = self.array[self.numbers[chosen]]
        return found


def chosen_samples(source: Source, numbers: npt.NDArray[np.int64]) -> Source:
    """Return the samples of these numbers, ascending; those of an array in memory travel with their task, too.

    >>> few = chosen_samples(ArraySource(np.arange(4, dtype=np.uint8).reshape(4, 1, 1)), np.array([1, 3]))
    >>> with few.opened() as reader:
    ...     reader.read(0, 2).ravel().tolist()
    [1, 3]
    """
    if isinstance(source, ArraySource) and source.whole:
        return replace(source, array=_Picked(source.array, numbers))
    return Chosen(source, numbers)


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
    place = None
    if isinstance(samples, h5py.Dataset):
        place = place_of(samples)
    elif is_zarr_array(samples):
        place = folder_of(samples)
    if place is not None:  # where workers read it
        return open_source(*place, settings, fitted=fitted, image_shape=image_shape)
    # settings that scale images apply to a list of pictures
    pictured = isinstance(samples, list | tuple) and bool(samples) and hasattr(samples[0], "getbands")
    scaling = None if fitted and not pictured else settings
    array = held_images(samples, "array", image_shape, scaling, shape_of(settings))
    return ArraySource(array, eight=as_bytes(np.dtype(array.dtype), settings, fitted))


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
