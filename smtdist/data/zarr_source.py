"""Images in a Zarr array (formats 2 and 3), carried by name; needs the extra `zarr`."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from smtdist.data.axes import shown
from smtdist.data.conventions import attributes_of
from smtdist.data.guarded import require_allowed
from smtdist.data.remote import full_path, is_url
from smtdist.data.source import (
    MOST_CHUNKS,
    Reader,
    StoredImages,
    boxes,
    gaps_said,
    image_shape,
    pixel_dtype,
    read_boxes,
)
from smtdist.errors import DataError, MissingDatasetError, UnreadableError

READ_CHUNK_BYTES: Final = 2 * 2**10
"""What the library keeps of each chunk of one read (1.6 KB were measured)."""


@dataclass(frozen=True, kw_only=True)
class ZarrSource(StoredImages):
    """A Zarr array of images in a folder or behind an address; make it with `ZarrSource.open`.

    Zarr leaves out chunks that hold the fill value alone, so a chunk that got
    lost cannot be told from one of them: `gaps` says which chunks (or shards) a folder lacks; behind an address
    they are not counted. Where chunks are kept in shards, samples are aligned to shards.
    """

    chunks: tuple[int, ...]
    file_bytes = None

    @classmethod
    def open(cls, path: str | os.PathLike[str], array: str) -> ZarrSource:
        """Look at an array once and remember its name, shape, dtype and chunking.

        Raises DataError without the library, for an array that is missing or a group, and for one that does
        not hold images.
        """
        where, array = full_path(path), array.strip("/")
        name = f"{where}:{array}"
        stored = open_array(where, array)
        dtype = pixel_dtype(stored.dtype, name)
        axes = (
            pyramid_of(open_node(where, array.rpartition("/")[0]))[1]
            if "/" in array or array.isdigit()
            else ()
        )
        dimensions = dimensions_of(stored, axes)
        if stored.ndim > 4 and dimensions:
            axes_said = ", ".join(map(shown, dimensions))
            raise DataError(
                f"{name} has the axes {axes_said} of the lengths {stored.shape}, but images have samples, y, x and "
                f"channels; give an array without the others, in Python zarr.open({where!r})[{array!r}][...] with an index for "
                f"each of them."
            )
        chunks = _stored_together(stored)
        return cls(
            path=where,
            dataset=array,
            shape=image_shape(stored.shape, name),
            dtype=dtype,
            chunk_samples=chunks[0],
            chunks=chunks,
            has_channels=stored.ndim == 4,
            dimensions=dimensions,
            attributes=attributes_of(stored, name),
            gaps=gaps_of(stored, where, array),
        )

    @property
    def reader_bytes(self) -> int:
        """Bytes of one row of chunks as stored, decoded, and as the library hands it over, and of its tasks."""
        return 3 * self.chunk_bytes + READ_CHUNK_BYTES * min(MOST_CHUNKS, self.chunks_in_row)

    def describe(self) -> dict[str, Any]:
        """Return kind, path, array, shape, dtype and chunking as plain JSON."""
        return self.described("zarr", self.path, self.dataset)

    @contextmanager
    def opened(self) -> Iterator[Reader]:
        """Open the array; raise a DataError if it is no longer what it was when this source was made."""
        stored = open_array(self.path, self.dataset)
        self.require_unchanged(stored, _stored_together(stored))
        yield _ZarrReader(self, stored)


class _ZarrReader(Reader):
    source: ZarrSource

    def __init__(self, source: ZarrSource, stored: Any) -> None:
        super().__init__(source)
        self._stored = stored

    def _fill(self, start: int, stop: int, out: npt.NDArray[Any]) -> int:
        shape, chunks = self._stored.shape, self.source.chunks
        target = out.reshape(len(out), *shape[1:])
        # at most a row of chunks at a time bounds the memory
        for box in boxes(start, stop, shape, chunks, min(MOST_CHUNKS, self.source.chunks_in_row)):
            at, end = box[0].start, box[0].stop
            try:
                read_boxes(self._stored, at, end, target[at - start : end - start], [box])
            except Exception as error:  # stores and codecs have errors of their own
                raise UnreadableError(
                    f"{self.source.name}, samples {at} to {end - 1}: the stored data cannot be read "
                    f"({' '.join(str(error).split()).rstrip('.') or type(error).__name__}); restore them from a good copy."
                ) from error
        return out.nbytes


def gaps_of(stored: Any, path: str | os.PathLike[str], array: str) -> str:
    """Return a sentence on chunks without a file in the folder of an array, or without a place in a file of shards.

    Behind an address nothing is counted. Raises DataError for links that lead out of the folder of the store.
    """
    if is_url(path):
        return ""
    where, array = full_path(path), array.strip("/")
    folder, name = os.path.join(where, array), f"{where}:{array}"
    require_allowed(where, folder)
    chunks = _stored_together(stored)
    index = _index_of(stored)
    inner = chunks if index is None else tuple(int(length) for length in stored.chunks)
    outer = tuple(-(-length // chunk) for length, chunk in zip(stored.shape, chunks, strict=True))
    grid = tuple(-(-length // chunk) for length, chunk in zip(stored.shape, inner, strict=True))
    each = tuple(shard // chunk for shard, chunk in zip(chunks, inner, strict=True))

    def numbers() -> Iterator[int]:
        for path in _files(folder, where, stored.ndim + 1):
            place = _place(os.path.relpath(path, folder).replace(os.sep, "/"), outer, stored.metadata)
            if place is None:
                continue
            if index is None:
                yield int(np.ravel_multi_index(place, grid))
                continue
            at = np.argwhere(index(path).reshape(each)) + np.multiply(place, each)
            inside = at[(at < grid).all(axis=1)]  # the last shard of an axis may go on behind its end
            yield from np.ravel_multi_index(tuple(inside.T), grid).tolist()

    return gaps_said(name, numbers(), grid, inner)


def _files(folder: str, where: str, depth: int) -> Iterator[str]:
    """Yield the files in the folder of an array, as deep as keys of chunks go; a link to nothing is none.

    Links are followed as the store at `where` may name what they lead to.
    """
    with suppress(OSError), os.scandir(folder) as entries:  # what cannot be listed cannot be read either
        for entry in entries:
            if entry.is_symlink():
                require_allowed(where, entry.path)
            if depth and entry.is_dir():
                yield from _files(entry.path, where, depth - 1)
            elif entry.is_file():
                yield entry.path


def _stored_together(stored: Any) -> tuple[int, ...]:
    """Return the lengths of what has a file of its own: chunks, or shards of several."""
    return tuple(int(length) for length in (getattr(stored, "shards", None) or stored.chunks))


def _index_of(stored: Any) -> Callable[[str], npt.NDArray[np.bool_]] | None:
    """Return what tells which chunks a file of shards holds; None for an array without shards, or with an index in another way.

    The index has two numbers for each chunk, its place and its length, all ones where it is not there, and a
    checksum.
    """
    if not getattr(stored, "shards", None) or len(stored.metadata.codecs) != 1:
        return None
    (sharding,) = stored.metadata.codecs
    ways = [codec.to_dict() for codec in sharding.index_codecs]
    endian = ways[0].get("configuration", {}).get("endian", "little")
    if ways[0]["name"] != "bytes" or [way["name"] for way in ways[1:]] not in ([], ["crc32c"]):
        return None
    count = math.prod(stored.shards) // math.prod(stored.chunks)
    room = 16 * count + 4 * len(ways[1:])
    at_end = str(getattr(sharding.index_location, "value", sharding.index_location)) == "end"

    def look(path: str) -> npt.NDArray[np.bool_]:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - room) if at_end else 0)
            index = file.read(16 * count)
        if size < room:
            raise DataError(
                f"{path} has {size:,} bytes, but its index alone takes {room:,}; restore it from a good copy."
            )
        kind = ">u8" if endian == "big" else "<u8"
        held: npt.NDArray[np.bool_] = (np.frombuffer(index, kind).reshape(count, 2) != 2**64 - 1).any(
            axis=1
        )
        return held

    return look


def _place(key: str, grid: tuple[int, ...], metadata: Any) -> tuple[int, ...] | None:
    """Return the place of the chunk that the library looks for under a key; None for another file, and beyond the grid."""
    numbers = re.findall(r"[0-9]{1,19}", key)
    place = tuple(map(int, numbers[-len(grid) :]))
    inside = len(place) == len(grid) and all(at < length for at, length in zip(place, grid, strict=True))
    return place if inside and metadata.encode_chunk_key(place) == key else None


def pyramid_of(node: Any) -> tuple[str, tuple[str, ...]]:
    """Return the name of the largest array of a group of OME-NGFF, and its axes; "" and () for another node."""
    about = node.attrs.get("ome", node.attrs)
    try:
        first = about["multiscales"][0]
        axes = (axis["name"] if isinstance(axis, dict) else axis for axis in first.get("axes", ()))
        return str(first["datasets"][0]["path"]), tuple(map(str, axes))
    except (LookupError, TypeError, AttributeError):
        return "", ()


def dimensions_of(stored: Any, axes: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the names of the dimensions of a Zarr array, as format 3 or xarray keeps them, else `axes`; "" for one without."""
    names = getattr(stored.metadata, "dimension_names", None) or stored.attrs.get("_ARRAY_DIMENSIONS", ())
    names = names or axes
    return tuple(name or "" for name in names) if len(names) == stored.ndim and any(names) else ()


def is_zarr_array(samples: Any) -> bool:
    """Say whether an object is a Zarr array, whatever it is kept in; the library need not be installed."""
    return hasattr(samples, "store_path") and hasattr(samples, "shape")


def folder_of(samples: Any) -> tuple[str, str] | None:
    """Return the folder that a Zarr array lies in and its name there; None for one kept elsewhere."""
    place = samples.store_path
    root = getattr(place.store, "root", None)
    return None if root is None else (os.fspath(root), place.path)


def open_array(path: str, array: str) -> Any:
    """Open a Zarr array for reading; a missing library, a missing array and a group are DataErrors."""
    found = open_node(path, array)
    if not hasattr(found, "chunks"):
        inside = sorted(name for name, _ in found.arrays())
        hint = f"name an array, such as {', '.join(inside[:5])}" if inside else "it holds no array"
        raise DataError(f"{path}: {array!r} is a group, but an array is needed; {hint}.")
    from smtdist.data.zarr_chunks import guarded  # imports Zarr, which is there now

    return guarded(found)


def arrays_in(path: str) -> list[tuple[str, Any]]:
    """Return (name, array) of all arrays of a Zarr store, in the order of their names; an array alone has the name ""."""
    node = open_node(path, "")
    if hasattr(node, "chunks"):
        return [("", node)]
    return sorted((name, one) for name, one in node.members(max_depth=None) if hasattr(one, "chunks"))


def open_node(path: str, name: str) -> Any:
    """Open a Zarr array or group for reading."""
    try:
        import zarr
    except ImportError:
        raise DataError(
            f"{path} is a Zarr store, which needs the library; install smtdist[zarr]."
        ) from None
    if not is_url(path) and not os.path.isdir(path):
        raise DataError(f"The folder {path} does not exist; check the path, also as the workers see it.")
    try:
        return zarr.open(path, mode="r", path=name.strip("/"))
    except (FileNotFoundError, KeyError):
        hint = "; check its name"
        with suppress(Exception):  # a store that cannot be listed has no hint to give
            names = sorted(inside for inside, _ in zarr.open_group(path, mode="r").members(max_depth=2))
            hint = f"; it holds {', '.join(names[:5])}" if names else "; it is empty"
        raise MissingDatasetError(f"{path} has no array {name!r}{hint}.") from None
    except Exception as error:  # stores and codecs have errors of their own
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise DataError(
            f"{path}:{name} cannot be opened as Zarr ({reason}); check that it is whole."
        ) from error
