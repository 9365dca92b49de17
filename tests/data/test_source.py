"""What every source promises, whichever kind it is."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr
from arrays_in_files import read_samples

from smtdist.data.array import ArraySource, as_source
from smtdist.data.hdf5 import Hdf5Source
from smtdist.data.source import Source, aligned_samples, image_shape, pixel_dtype
from smtdist.errors import DataError


def images(dtype: str, shape: tuple[int, ...] = (37, 5, 4, 3)) -> np.ndarray:
    rng = np.random.default_rng(3)
    return rng.integers(0, 256, shape).astype(dtype)


@pytest.fixture(params=["array", "contiguous", "chunked", "gzip"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def make(kind: str, array: np.ndarray, folder: Path) -> Source:
    if kind == "array":
        return ArraySource(array)
    options: dict[str, Any] = {
        "contiguous": {},
        "chunked": {"chunks": True},
        "gzip": {"compression": "gzip"},
    }[kind]
    if kind != "contiguous":
        options["chunks"] = (8, *array.shape[1:])
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("train/images", data=array, **options)
    return Hdf5Source.open(folder / "a.h5", "/train/images")


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64", ">f4"])
def test_reads_ranges_exactly_and_counts_them(kind: str, dtype: str, tmp_path: Path) -> None:
    array = images(dtype)
    source = make(kind, array, tmp_path)
    with source.opened() as reader:
        for start, stop in ((0, 37), (3, 20), (36, 37), (5, 5)):
            block = reader.read(start, stop)
            assert block.flags.c_contiguous
            assert block.dtype == source.dtype
            assert block.dtype.isnative
            np.testing.assert_array_equal(block, array[start:stop])
        assert reader.n_reads == 3
        assert reader.read_bytes == (37 + 17 + 1) * source.sample_bytes
        buffer = np.empty((10, 5, 4, 3), source.dtype)
        block = reader.read(30, 37, out=buffer)
        assert np.shares_memory(block, buffer)
        np.testing.assert_array_equal(block, array[30:37])


def test_grey_images_get_a_channel(kind: str, tmp_path: Path) -> None:
    array = images("uint8", (9, 5, 4))
    source = make(kind, array, tmp_path)
    assert source.shape == (9, 5, 4, 1)
    assert source.sample_bytes == 20
    np.testing.assert_array_equal(read_samples(source, 2, 9), array[2:, ..., None])


def test_alignment_follows_chunks_or_size_alone(kind: str, tmp_path: Path) -> None:
    source = make(kind, images("uint8"), tmp_path)
    expected = 8 if kind in ("chunked", "gzip") else 256
    assert source.chunk_samples == expected
    assert source.chunk_bytes == expected * 60
    assert source.describe()["chunk_samples"] == expected
    assert source.describe()["shape"] == [37, 5, 4, 3]


def test_survives_a_pickle(kind: str, tmp_path: Path) -> None:
    array = images("float32")
    copy = pickle.loads(pickle.dumps(make(kind, array, tmp_path)))
    np.testing.assert_array_equal(read_samples(copy, 0, 37), array)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_floats_that_are_not_finite_are_named(kind: str, value: float, tmp_path: Path) -> None:
    array = images("float32")
    array[23, 1, 2, 0] = value
    source = make(kind, array, tmp_path)
    with source.opened() as reader:
        reader.read(0, 23)
        with pytest.raises(DataError, match="sample 23: row 1, column 2, channel 0"):
            reader.read(16, 30)


def test_ranges_and_buffers_that_do_not_fit_are_refused(kind: str, tmp_path: Path) -> None:
    source = make(kind, images("uint8"), tmp_path)
    with source.opened() as reader:
        for start, stop in ((-1, 3), (4, 3), (0, 38)):
            with pytest.raises(ValueError, match="37 samples"):
                reader.read(start, stop)
        with pytest.raises(ValueError, match="at least"):
            reader.read(0, 5, out=np.empty((4, 5, 4, 3), np.uint8))


def test_arrays_of_other_layouts_are_read_in_order() -> None:
    array = images("uint8", (6, 3, 4, 5)).transpose(3, 1, 2, 0)
    np.testing.assert_array_equal(read_samples(ArraySource(array), 1, 4), array[1:4])


@pytest.mark.parametrize("dtype", ["complex64", "S3", "O", "longdouble"])
def test_other_dtypes_are_refused_with_a_remedy(dtype: str) -> None:
    with pytest.raises(
        DataError, match=f"array has the type {np.dtype(dtype).name}.*convert them to uint8"
    ):
        pixel_dtype(dtype, "array")


def test_values_of_variable_length_are_refused_with_another() -> None:
    with pytest.raises(DataError, match=r"variable length.*offsets = numpy\.cumsum"):
        pixel_dtype(h5py.vlen_dtype(np.uint8), "x.h5:images")


@pytest.mark.parametrize("shape", [(), (3,), (3, 4), (1, 2, 3, 4, 5), (0, 4, 4), (3, 4, 4, 0)])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match="x:images"):
        image_shape(shape, "x:images")


def test_alignment_is_a_power_of_two_within_four_mebibytes_and_256_samples() -> None:
    for size in (1, 3, 784, 3072, 150528, 2**22, 2**22 + 1, 2**30):
        samples = aligned_samples(size)
        assert samples.bit_count() == 1
        assert samples in (1, 256) or samples * size <= 2**22 < 2 * samples * size
        assert samples == 1 or samples * size <= 2**22


def test_as_source_takes_arrays_data_arrays_pairs_and_sources(tmp_path: Path) -> None:
    array = images("uint8")
    stored = make("chunked", array, tmp_path)
    assert as_source(stored) is stored
    assert as_source((tmp_path / "a.h5", "train/images")) == stored
    named = xr.DataArray(array, dims=("sample", "y", "x", "channel"))
    for samples in (array, named):
        np.testing.assert_array_equal(read_samples(as_source(samples), 0, 37), array)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (["a.png"], "There is no file .*a.png; check the name"),
        (["a.png", 3], "paths of images"),
        ([object()], "list of object; give arrays of one shape"),
        ("a.h5", r"no file or folder a\.h5"),
        (("a.h5", 3), "paths of images"),
        (None, "a NoneType, from which no samples can be read; give an array"),
        (7, "a int, from which no samples can be read; give an array"),
        ([], "empty list"),
    ],
)
def test_as_source_refuses_anything_else(samples: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        as_source(samples)
