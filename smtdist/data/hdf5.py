"""Images in an HDF5 dataset, carried by name: no handle is kept between two uses."""

from __future__ import annotations

import difflib
import math
import os
import re
import zipfile
from array import array
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import h5py
import numpy as np
import numpy.typing as npt

from smtdist.data.conventions import attributes_of, inverted
from smtdist.data.guarded import (
    MOST_OPEN,
    SOURCE_CACHE_BYTES,
    BrokenLink,
    FewOpen,
    GuardedFile,
    sources_of,
    unlocked,
    walk,
)
from smtdist.data.importers import journal
from smtdist.data.inflating import missing_filter, require_readable
from smtdist.data.locations import ZARR_FILES, is_zarr
from smtdist.data.remote import CACHE_BYTES, file_size, full_path, is_url, open_url
from smtdist.data.source import (
    MOST_CHUNKS,
    MOST_NUMBERED,
    NOTHING_WRITTEN,
    Reader,
    StoredImages,
    aligned_samples,
    boxes,
    gaps_said,
    image_shape,
    pixel_dtype,
    read_boxes,
)
from smtdist.errors import DataError, MissingDatasetError, SmtdistError, UnreadableError, command

CACHED_CHUNK_ROWS: Final = (
    2  # a read that straddles two rows of chunks must not decompress either of them twice
)
READ_CHUNK_BYTES: Final = 8 * 2**10
"""What HDF5 keeps of each chunk of one read (6.7 KB were measured)."""
CACHED_CHUNK_BYTES: Final = 2**10
"""What a chunk takes in HDF5's cache beside its bytes: a hundred places in a table, and its entry."""
DAMAGE: Final = (
    OSError,
    RuntimeError,
    KeyError,
    ValueError,
    TypeError,
    OverflowError,
    AttributeError,
    IndexError,
    MemoryError,
)
"""What h5py, JSON and NumPy raise over bytes that are not what was written."""
_PLAIN_WORDS: Final = (
    (r"^.*fails its checksum$", r"\g<0>"),
    (r"object '([^']*)' doesn't exist", r"\1 is missing"),
    (r"can't locate attribute: '([^']*)'", r"the attribute \1 is missing"),
    (r"file signature not found", "it is empty, or of another format"),
    (r"truncated file", "it is shorter than its own header says"),
    (
        r"filter returned failure|inflate\(\) failed|[Ff]letcher32|checksum",
        "its stored data cannot be decoded",
    ),
    (r"Permission denied", "there is no permission to read it"),
    (r"No such file", "it does not exist"),
    (r"zip\(\) argument", "columns of a table differ in length"),
    (r"errno = \d+, error message = '([^']*)'", r"\1"),
    (r"^(Can't|Unable to|Can not|Unspecified error) ", "its structure is damaged"),
)
"""What HDF5, h5py and Python say over damaged files, and what that means."""
LISTED_NAMES: Final = 5
VISITED_OBJECTS: Final = 10_000


@dataclass(frozen=True, kw_only=True)
class Hdf5Source(StoredImages):
    """A dataset of images in an HDF5 file; make it with `Hdf5Source.open`.

    `file_bytes` is the size the file had, to notice that it was replaced; its contents are what fingerprints are for.
    `virtual_bytes` is what HDF5 holds of the files of a virtual dataset, None for one that is none. `path` may be an
    address, `scheme://...`, whose file is read in ranges.
    """

    filtered: bool
    file_bytes: int
    virtual_bytes: int | None = None

    @classmethod
    def open(cls, path: str | os.PathLike[str], dataset: str) -> Hdf5Source:
        """Look at a dataset once and remember its name, shape, dtype and chunking.

        Raises DataError for a file that is missing, truncated or not HDF5, and for a dataset that is missing,
        a group, empty, not of rank 3 or 4, not of a pixel dtype, or stored with a filter or in files that are
        not there.
        """
        where = full_path(path)
        with damage_named(where), open_dataset(where, dataset) as stored:
            dataset = dataset.strip("/")  # not the stored name: behind a link that is one of another file
            name = f"{where}:{dataset}"
            dtype = pixel_dtype(stored.dtype, name)
            shape = image_shape(stored.shape, name)
            require_readable(stored, where)
            sample_bytes = math.prod(shape[1:]) * dtype.itemsize
            virtual_bytes, gaps = None, gaps_of(stored, name)
            if stored.is_virtual:
                virtual_bytes, gaps = looked_through(stored, where)
            names = dimension_names(stored, name)
            chunks = None if stored.chunks is None else tuple(int(length) for length in stored.chunks)
            return cls(
                path=where,
                dataset=dataset,
                shape=shape,
                dtype=dtype,
                chunk_samples=chunks[0] if chunks else aligned_samples(sample_bytes),
                chunks=chunks,
                filtered=stored.id.get_create_plist().get_nfilters() > 0,
                has_channels=stored.ndim == 4,
                file_bytes=file_size(where),
                virtual_bytes=virtual_bytes,
                dimensions=names if any(names) else (),
                attributes=attributes_of(stored, name),
                gaps=" ".join(filter(None, (gaps, inverted(stored, name)))),
            )

    @property
    def reader_bytes(self) -> int:
        """Bytes of the caches of an open reader, of the chunks of one read, and of the chunk a filter is working on."""
        remote = CACHE_BYTES if is_url(self.path) else 0
        if self.chunks is None:
            return remote + (self.virtual_bytes or 0)
        every = -(-self.n_samples // self.chunks[0]) * self.chunks_in_row
        filtering = 2 * math.prod(self.chunks) * self.dtype.itemsize + every if self.filtered else 0
        cached = CACHED_CHUNK_ROWS * (self.chunk_bytes + CACHED_CHUNK_BYTES * self.chunks_in_row)
        reading = READ_CHUNK_BYTES * min(MOST_CHUNKS, every)
        return cached + reading + filtering + remote

    def describe(self) -> dict[str, Any]:
        """Return kind, path, dataset, shape, dtype and chunking as plain JSON."""
        return self.described("hdf5", self.path, self.dataset)

    @contextmanager
    def opened(self) -> Iterator[Reader]:
        """Open the file for the length of a `with` block, with room for two rows of chunks in HDF5's cache.

        Raises DataError if the file or the dataset is no longer what it was when this source was made.
        """
        cache: dict[str, Any] = {}
        if self.chunks is not None:
            cache = chunk_cache(
                CACHED_CHUNK_ROWS * self.chunks_in_row, CACHED_CHUNK_ROWS * self.chunk_bytes
            )
        with open_dataset(self.path, self.dataset, **cache) as stored:
            with damage_named(self.path):
                require_same_size(self.path, self.file_bytes)
                self.require_unchanged(stored, stored.chunks)
            if self.virtual_bytes is None:
                yield _Hdf5Reader(self, stored)
                return
        with open_file(self.path) as file:
            yield _VirtualReader(self, file)


class _Hdf5Reader(Reader):
    def __init__(self, source: Hdf5Source, stored: Any) -> None:
        super().__init__(source)
        self._stored = stored

    def _fill(self, start: int, stop: int, out: npt.NDArray[Any]) -> int:
        with unreadable_named(f"{self.source.name}, samples {start} to {stop - 1}"):
            read_boxes(self._stored, start, stop, out.reshape(out.shape[: self._stored.ndim]))
        return out.nbytes


class _VirtualReader(Reader):
    def __init__(self, source: Hdf5Source, file: Any) -> None:
        super().__init__(source)
        with damage_named(source.path):
            self._few = FewOpen(file, source.dataset, source.path)

    def _fill(self, start: int, stop: int, out: npt.NDArray[Any]) -> int:
        for at, end, stored in self._few.ranges(start, stop):
            # chunks are those of its sources: each value counts for its part of one
            cut = boxes(at, end, stored.shape, (1,) * stored.ndim, self._few.most_values)
            part = out[at - start : end - start]
            with unreadable_named(f"{self.source.name}, samples {at} to {end - 1}"):
                read_boxes(stored, at, end, part.reshape(part.shape[: stored.ndim]), cut)
            del stored  # whoever holds it keeps its files open
        return out.nbytes


@contextmanager
def open_dataset(path: str | os.PathLike[str], dataset: str, **cache: Any) -> Iterator[Any]:
    """Open an HDF5 file without locking it and yield the h5py dataset of that name; errors are DataErrors."""
    with open_file(path, **cache) as file:
        with damage_named(path):
            found = find_dataset(file, os.fspath(path), dataset)
        yield found


@contextmanager
def open_file(path: str | os.PathLike[str], **cache: Any) -> Iterator[Any]:
    """Open an HDF5 file for reading without locking it; a file that cannot be opened is a DataError."""
    with ExitStack() as stack:
        try:
            if is_url(path):
                remote = stack.enter_context(open_url(os.fspath(path)))
                file = stack.enter_context(GuardedFile(remote, os.fspath(path), **cache))
            else:
                journal.require_finished(path)
                file = stack.enter_context(unlocked(path, **cache))
        except OSError as error:
            raise DataError(_why_unopened(os.fspath(path), error)) from error
        yield file


@contextmanager
def damage_named(
    path: str | os.PathLike[str], remedy: str = "restore it from a good copy"
) -> Iterator[None]:
    """Turn what h5py raises over a file whose structure is damaged into a DataError that names the file."""
    try:
        yield
    except SmtdistError:
        raise
    except DAMAGE as error:
        raise DataError(f"{os.fspath(path)} is damaged ({reason_of(error)}); {remedy}.") from error


@contextmanager
def unreadable_named(what: str, kind: type[DataError] = UnreadableError) -> Iterator[None]:
    """Turn what h5py raises over stored values that cannot be read into an error that says where they are."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        raise kind(
            f"{what}: the stored data cannot be read ({reason_of(error)}); the file is damaged there: restore it from a good "
            f"copy."
        ) from error


def chunk_cache(chunks: int, nbytes: int) -> dict[str, Any]:
    """Return the arguments of `open_file` that make room for so many chunks, of so many bytes together."""
    # a chunk is dropped when its hash slot is taken; w0 = 1 evicts chunks that were read whole first
    slots = max(min(100 * chunks, 1_000_000), 521) | 1
    while any(slots % divisor == 0 for divisor in range(3, math.isqrt(slots) + 1, 2)):
        slots += 2  # to the next prime
    return {"rdcc_nbytes": max(nbytes, 1), "rdcc_nslots": slots, "rdcc_w0": 1.0}


def require_same_size(path: str, file_bytes: int) -> None:
    """Raise a DataError if a file does not have the size it had when it was first opened."""
    size = file_size(path)
    if size != file_bytes:
        raise DataError(
            f"{path} has {size} bytes but had {file_bytes} when it was first opened; "
            f"it was changed meanwhile: start again with the finished file."
        )


def find_dataset(file: Any, path: str, dataset: str) -> Any:
    """Return a dataset of an open file; a missing one, or a group, is a DataError that lists near names."""
    try:
        found = file[dataset.strip("/") or "/"]
    except BrokenLink as error:
        raise DataError(
            f"{path} has no dataset {dataset!r}: {error.args[0]}; restore what it leads to."
        ) from None
    except (KeyError, OSError, ValueError):
        asked, names = dataset.strip("/"), _dataset_names(file)
        above = [name for name in names if asked.startswith(f"{name}/")]
        same_leaf = [name for name in names if name.rpartition("/")[2] == asked.rpartition("/")[2]]
        close = difflib.get_close_matches(asked, names, n=LISTED_NAMES, cutoff=0.5)
        near = list(dict.fromkeys([*above, *close, *same_leaf, *names]))[:LISTED_NAMES]
        nothing = broken_links(file) or "it holds no dataset at all"
        hint = f"use one of {', '.join(near)}" if near else nothing
        if any(str(name).endswith("_schema") for name in {*file.attrs} - {IMPORTED}):
            hint = "it holds results of smtdist, not data; smtdist info says which"
        elif dataset.strip("/").rpartition("/")[2] == "labels":
            hint = "write the labels of the images there, a whole number for each"
        raise MissingDatasetError(f"{path} has no dataset {dataset!r}; {hint}.") from None
    if not isinstance(found, h5py.Dataset):
        if {"data", "indices", "indptr"} <= set(found):
            raise DataError(
                f"{path}: {dataset!r} is a sparse matrix in parts, which is not supported; store its rows as a dense dataset."
            )
        inside = [
            f"{dataset.strip('/')}/{name}".lstrip("/") for name in _dataset_names(found)[:LISTED_NAMES]
        ]
        if not inside:
            why = broken_links(found) or "name another, or a dataset"
            raise DataError(f"{path}: {dataset!r} is a group without a dataset; {why}.")
        raise DataError(
            f"{path}: {dataset!r} is a group, but a dataset is needed; name one, such as {', '.join(inside)}."
        )
    missing_filter(found)  # registers what it needs, in each process that reads
    return found


def dimension_names(stored: Any, name: str) -> tuple[str, ...]:
    """Return the names of the dimensions of an open dataset, by NetCDF's scales or by labels: "" for one without.

    HDF5 takes for granted that the attributes which hold them are as it writes them, and crashes over others: they are
    refused here.
    """
    for attribute, kind in (("DIMENSION_LABELS", "a text"), ("DIMENSION_LIST", "a list of references")):
        if attribute in stored.attrs:
            about = stored.attrs.get_id(attribute)
            text, item = h5py.check_string_dtype(about.dtype), h5py.check_vlen_dtype(about.dtype)
            plain = text is not None and text.length is None if kind == "a text" else item == h5py.ref_dtype
            if about.shape != (stored.ndim,) or not plain:
                raise DataError(
                    f"{name} has an attribute {attribute} that is not {kind} for each dimension; delete it, or name the "
                    f"dimensions with h5py's dims."
                )
    dims = (next(iter(dim.values())).name if len(dim) else dim.label for dim in stored.dims)
    return tuple(dim.rpartition("/")[2] for dim in dims)


def require_open(stored: Any) -> None:
    """Raise a DataError for a dataset or group of h5py whose file was closed."""
    if not stored:
        kind = "dataset" if isinstance(stored, h5py.Dataset) else "group"
        raise DataError(
            f"The HDF5 {kind} is of a file that is closed; open the file again, or give (path, name)."
        )


def place_of(stored: Any) -> tuple[str, str]:
    """Return the path and the name by which workers find a dataset that h5py has open.

    Raises DataError where they would find another, or none: by the name alone, the values of what has it now
    would be read.
    """
    require_open(stored)
    file, values = stored.file, "give its values, dataset[:]"
    path = os.path.abspath(file.filename)
    if not os.path.isfile(path):
        raise DataError(
            f"The HDF5 dataset {stored.name} is in no file that workers could open, for there is no {path}; open its file by "
            f"the full path, or {values}."
        )
    if file.mode != "r":
        file.flush()  # what was written and is still in memory
    with open_file(path) as now:
        for name in (
            stored.name,
            (h5py.h5r.get_name(stored.ref, file.id) or b"").decode(errors="surrogateescape"),
        ):
            if name and now.leads_to(name, stored):
                return path, name
    raise DataError(
        f"The HDF5 dataset {stored.name or 'without a name'} cannot be read from {path} by workers: the file was replaced since "
        f"it was opened, or holds it in memory alone; open it again, or {values}."
    )


_EMPTY: Final = "{path} is empty, a file of 0 bytes; write or copy it again in full."


def require_content(path: str | os.PathLike[str], error: type[SmtdistError] = DataError) -> None:
    """Raise an error for a file of 0 bytes, as a copy that was interrupted leaves it."""
    if not os.path.getsize(path):
        raise error(_EMPTY.format(path=path))


def _why_unopened(path: str, error: OSError) -> str:
    if not is_url(path) and not os.path.exists(path):
        return f"The file {path} does not exist; check the path, also as the workers see it."
    if is_zarr(path):
        return f"{path} is a Zarr store, but an HDF5 file is needed; write its arrays to one with h5py."
    if os.path.isdir(path):
        return f"{path} is a folder, but an HDF5 file is needed; name the file."
    reason, start = reason_of(error), b""
    with suppress(OSError), open(path, "rb") as file:
        start = file.read(512)  # with the whole of a superblock of HDF5
        if not start:
            return _EMPTY.format(path=path)
    if start.startswith(b"\x89HDF") and (drivers := [d for mark, d in _SPLIT.items() if mark in start]):
        return (
            f"{path} is one of the files over which HDF5 splits its data with driver={drivers[0]!r}; copy the datasets to one "
            f"file with h5py."
        )
    if "truncated" in str(error):
        return f"{path} is shorter than its own header says; copy or download it again in full."
    if "signature" in str(error):
        with suppress(OSError, zipfile.BadZipFile, RuntimeError), zipfile.ZipFile(path) as archive:
            if any(os.path.basename(name) in ZARR_FILES for name in archive.namelist()):
                return f"{path} is a Zarr store in a zip archive; unpack it into a folder, or in Python give the array itself."
        for mark, kind in _NOT_IMPORTED.items():
            if start.startswith(mark) and not path.lower().endswith(".npz"):
                return f"{path} is not an HDF5 file but {kind}."
        return (
            table_elsewhere(path, *TEXTS)
            or f"{path} is not an HDF5 file; bring its data into one with smtdist import."
        )
    return f"{path} cannot be opened as HDF5 ({reason}); check its permissions and that the copy is whole."


TEXTS: Final = (".csv", ".tsv")
"""How the names of tables end that are text."""
_READ_BY: Final = {
    ".csv": "read_csv({!r})",
    ".tsv": "read_csv({!r}, sep='\\t')",
    ".parquet": "read_parquet({!r})",
}
"""What of pandas reads a table, by the end of its name."""


def table_elsewhere(path: str, *kinds: str) -> str:
    """Say how a table of one of these kinds, ends of names, becomes one that is read; "" for other files.

    >>> table_elsewhere("x/a.csv", ".csv")
    "x/a.csv is a table, of which rows of numbers are read from a .npy file; write it, in Python with \
numpy.save('x/a.npy', pandas.read_csv('x/a.csv').select_dtypes('number')), and fit a model of points with it."
    """
    root, ending = os.path.splitext(path)
    if ending.lower() not in kinds:
        return ""
    made = f"numpy.save({f'{root}.npy'!r}, pandas.{_READ_BY[ending.lower()].format(path)}.select_dtypes('number'))"
    return (
        f"{path} is a table, of which rows of numbers are read from a .npy file; write it, in Python with {made}, and fit a "
        f"model of points with it."
    )


IMPORTED: Final = "smtdist_data_schema"
"""An attribute of files of images that smtdist wrote: data, not results."""
_SPLIT: Final = {b"NCSAfami": "family", b"NCSAmult": "split"}
_NOT_IMPORTED: Final = {
    b"PK": "a zip archive; unpack it",
    b"CDF": "one of NetCDF 3; write it as NetCDF 4, as xarray.load_dataset(...).to_netcdf(...) does",
}


def reason_of(error: BaseException) -> str:
    """Return what is wrong, fit for the middle of a sentence; in plain words where HDF5 says it in its own.

    >>> reason_of(KeyError("Unable to synchronously open object (object 'atoms' doesn't exist)"))
    'atoms is missing'
    >>> reason_of(OSError("Can't synchronously read data (filter returned failure during read)"))
    'its stored data cannot be decoded'
    """
    said = " ".join(str(error).split()).strip("\"'").rstrip(".")
    for pattern, words in _PLAIN_WORDS:
        found = re.search(pattern, said)
        if found:
            return found.expand(words)
    return said


def _dataset_names(group: Any) -> list[str]:
    """Return the names below a group: of datasets, and of groups of encoded images, which stand for their parts."""
    names: list[str] = []
    parts: set[str] = set()
    # a very large file is not walked through to its end
    for name, item in islice(walk(group, links=True), VISITED_OBJECTS):
        if isinstance(item, h5py.Dataset):
            names.append(name)
        elif "bytes" in item and "offsets" in item:
            names.append(name)
            parts.update((f"{name}/bytes", f"{name}/offsets"))
    return [name for name in names if name not in parts]


def broken_links(group: Any) -> str:
    """Say that a group holds links that cannot be followed, for the end of a sentence; "" where it holds none."""
    broken: dict[str, str] = {}
    for _ in islice(walk(group, links=True, broken=broken), VISITED_OBJECTS):
        pass
    return said_of_links(broken)


def said_of_links(broken: dict[str, str]) -> str:
    """Say which links cannot be followed, for the end of a sentence; "" where there are none."""
    if not broken:
        return ""
    name, why = next(iter(broken.items()))
    return f"it holds {'a link' if len(broken) == 1 else f'{len(broken)} links'} that cannot be followed, {name}: {why}"


def gaps_of(stored: Any, name: str) -> str:
    """Return a sentence on chunks that were never written, or got lost with a writer: HDF5 gives the fill value there."""
    if stored.chunks is None:
        written = stored.is_virtual or stored.external or stored.id.get_storage_size()
        return "" if written else f"{name}: {NOTHING_WRITTEN}"
    grid = tuple(-(-length // chunk) for length, chunk in zip(stored.shape, stored.chunks, strict=True))
    if stored.id.get_num_chunks() >= math.prod(grid):
        return ""
    numbers = array("q")

    def note(chunk: Any) -> None:
        numbers.append(np.ravel_multi_index(np.floor_divide(chunk.chunk_offset, stored.chunks), grid))

    if math.prod(grid) <= MOST_NUMBERED:
        stored.id.chunk_iter(note)
    return gaps_said(name, numbers, grid, stored.chunks)


def looked_through(stored: Any, path: str) -> tuple[int, str]:
    """Check the files of a virtual dataset; return the bytes that reading it holds of them, and a sentence on their gaps."""
    name, largest, gaps = f"{path}:{stored.name.strip('/')}", 0, list[str]()
    if is_url(path):
        raise DataError(
            f"{name} is a virtual dataset, whose files cannot be found from an address; copy them here."
        )
    for where, source in sources_of(stored, path):
        require_readable(source, where)
        largest = max(largest, math.prod(source.chunks or (0,)) * source.dtype.itemsize)
        if said := gaps_of(source, f"{where}:{source.name.strip('/')}"):
            gaps.append(said)
    more = (
        f" So it is in {len(gaps) - 1:,} more of the datasets that {name} is made of." if gaps[1:] else ""
    )
    held = MOST_OPEN * SOURCE_CACHE_BYTES + 2 * largest + READ_CHUNK_BYTES * MOST_CHUNKS
    return held, "".join([*gaps[:1], more])


def require_plain(stored: Any, path: str) -> None:
    """Raise a DataError for a virtual dataset: its values, where a file is missing, would be made up."""
    if stored.is_virtual:
        raise DataError(
            f"{path}:{stored.name.strip('/')} is a virtual dataset, which is possible for plain images only; copy it to one "
            f"dataset, or list its files in a manifest: {command('manifest FILES', 'out', 'DATA.json')}."
        )
