"""What attributes say of stored numbers is applied as xarray applies it, or refused."""

import json
from contextlib import nullcontext

import h5py
import numpy as np
import pytest
import xarray as xr
from arrays_in_files import read_samples

from smtdist import SMT
from smtdist.data import conventions
from smtdist.data.array import as_source
from smtdist.data.look import read_labels
from smtdist.data.manifest import describe_files, write_manifest
from smtdist.data.opening import open_source
from smtdist.data.table import as_table
from smtdist.data.video import open_clips
from smtdist.errors import DataError, DataWarning

N = 40
IMAGES = np.random.default_rng(0).integers(1, 100, (N, 6, 5), dtype=np.uint8)
AXES = ("time", "y", "x")

CASES = {
    "unsigned": (IMAGES.view("i1") * np.int8(2), {"_Unsigned": "true"}),
    "not unsigned": (IMAGES * np.uint8(2), {"_Unsigned": "false"}),
    "unsigned with a gap": (IMAGES.view("i1"), {"_Unsigned": "true", "_FillValue": np.int8(-1)}),
    "scaled": (IMAGES.astype("i2"), {"scale_factor": np.float64(0.01)}),
    "scaled floats": (
        IMAGES.astype("f4"),
        {"scale_factor": np.float32(0.01), "_FillValue": np.float32(np.nan)},
    ),
    "scaled and moved": (IMAGES, {"scale_factor": np.float32(0.01), "add_offset": np.float32(0.125)}),
    "wide": (IMAGES.astype("i4"), {"scale_factor": np.float32(0.5), "add_offset": np.float32(0.125)}),
    "moved": (IMAGES.astype(">i2"), {"add_offset": np.float64(-1)}),
    "gaps that are none": (IMAGES, {"_FillValue": np.uint8(255)}),
    "wide gaps": (IMAGES.astype("i8"), {"missing_value": np.int64(-1)}),
    "several gaps": (
        IMAGES.astype("i2"),
        {"_FillValue": np.int16(-1), "missing_value": np.int16([-2, -3])},
    ),
    "gaps of floats": (IMAGES.astype("f4") / 255, {"_FillValue": np.float32(-999)}),
    "true and false": ((IMAGES > 50).astype("i1"), {"dtype": "bool"}),
    "other attributes": (IMAGES, {"units": "counts", "valid_range": np.uint8([0, 9]), "dtype": "uint8"}),
    "not a number": (IMAGES.astype("f8") / 255, {"_FillValue": np.nan}),
}


def write(path, images, attributes, chunks=(8, 6, 5)):
    with h5py.File(path, "w") as file:
        stored = file.create_dataset("img", data=images, chunks=chunks)
        stored.attrs.update(attributes)
        for axis, (name, length) in enumerate(zip(AXES, images.shape, strict=True)):
            file[name] = np.arange(length)
            file[name].make_scale(name)
            stored.dims[axis].attach_scale(file[name])
    return path


@pytest.mark.filterwarnings("ignore:variable .* has multiple fill values")
@pytest.mark.parametrize("case", CASES)
def test_a_variable_of_netcdf_is_the_dataarray_of_it(tmp_path, case):
    path = write(tmp_path / "a.nc", *CASES[case])
    with xr.open_dataset(path, engine="h5netcdf") as opened:
        wanted = as_source(opened["img"])
        source = open_source(path, "img")
        assert (source.shape, source.dtype) == (wanted.shape, wanted.dtype)
        with source.opened() as reader, wanted.opened() as plain:
            for start, stop in ((0, N), (3, 17)):
                assert np.array_equal(reader.read(start, stop), plain.read(start, stop))


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(
    ("images", "encoding"),
    [
        (IMAGES / 100, {"dtype": "uint16", "_FillValue": 65535, "scale_factor": 1 / 65534}),
        (IMAGES / 100, {"dtype": "int16", "_FillValue": 0, "scale_factor": 1e-3, "add_offset": -1.0}),
        (IMAGES.astype("f4"), {"_FillValue": -1.0}),
        (IMAGES.astype("f4"), {}),
        (IMAGES > 50, {}),
    ],
)
def test_an_array_of_zarr_is_the_dataarray_of_it(tmp_path, zarr_format, images, encoding):
    path = tmp_path / "a.zarr"
    data = xr.Dataset({"img": (AXES, images)})
    data.to_zarr(path, encoding={"img": encoding}, zarr_format=zarr_format, consolidated=False)
    wanted = as_source(xr.open_zarr(path, consolidated=False)["img"].compute())
    source = open_source(path, "img")
    assert source.dtype == wanted.dtype
    with source.opened() as reader, wanted.opened() as plain:
        assert np.array_equal(reader.read(1, N), plain.read(1, N))


def test_black_pixels_of_zarr_are_no_gaps_and_its_other_fill_values_are(tmp_path):
    zarr = pytest.importorskip("zarr")
    black = IMAGES.copy()
    black[0, 0, 0] = 0
    for zarr_format in (2, 3):
        array = zarr.create_array(
            tmp_path / f"{zarr_format}.zarr",
            name="img",
            shape=black.shape,
            dtype="u1",
            zarr_format=zarr_format,
        )
        array[:] = black
        assert np.array_equal(
            read_samples(open_source(tmp_path / f"{zarr_format}.zarr", "img"), 0, N)[..., 0], black
        )
    array = zarr.create_array(
        tmp_path / "a.zarr", name="img", shape=black.shape, dtype="u1", zarr_format=2, fill_value=255
    )
    array[:] = black
    array[5, 2, 1] = 255
    with (
        open_source(tmp_path / "a.zarr", "img").opened() as reader,
        pytest.raises(DataError, match="sample 5: row 2, column 1, channel 0 is nan"),
    ):
        reader.read(0, N)
    zero = zarr.open_group(tmp_path / "2.zarr")["img"]
    zero.attrs["_FillValue"] = 0  # said, so meant
    with (
        open_source(tmp_path / "2.zarr", "img").opened() as reader,
        pytest.raises(DataError, match="is nan"),
    ):
        reader.read(0, N)


@pytest.mark.parametrize("name", conventions.FILLS)
def test_gaps_are_refused_as_nan_is(tmp_path, name):
    images = IMAGES.astype("i2")
    images[7, 1, 2] = -5
    source = open_source(write(tmp_path / "a.nc", images, {name: np.int16(-5)}), "img")
    with (
        source.opened() as reader,
        pytest.raises(DataError, match="sample 7: row 1, column 2, channel 0 is nan"),
    ):
        reader.read(0, N)


def test_a_fit_has_the_bits_of_one_on_the_dataarray(tmp_path):
    path = write(tmp_path / "a.nc", IMAGES.astype("i2"), {"scale_factor": np.float64(0.01)})
    small = SMT(patch=3, feature="vq", context=2, dictionary=8, n_components=4)
    with xr.open_dataset(path, engine="h5netcdf") as opened:
        of_array = small.fit(opened["img"]).components_
    assert np.array_equal(small.fit((path, "img")).components_, of_array)


def test_decoding_reads_several_small_chunks_at_once_and_is_in_the_plan(tmp_path):
    how = {"scale_factor": np.float64(0.01)}
    source = open_source(write(tmp_path / "a.nc", IMAGES, how, chunks=(1, 6, 5)), "img")
    assert source.step == 256
    assert source.reader_bytes >= source.source.reader_bytes + 256 * 30 * (1 + 2 * 8)


def test_attributes_are_in_manifests_and_may_not_change(tmp_path):
    path = write(tmp_path / "a.h5", IMAGES, {"scale_factor": 0.5})
    write_manifest(describe_files([str(path)], tmp_path / "all.json", ["img"]))
    source = open_source(tmp_path / "all.json", "img")
    assert read_samples(source, 0, 1)[0, 0, 0, 0] == IMAGES[0, 0, 0] / 2
    text = (tmp_path / "all.json").read_text()
    head, _, files = text.partition("\n")
    entry = json.loads(files.splitlines()[0])
    del entry["sets"]["img"]["attributes"]  # as manifests were before
    head = json.dumps({key: value for key, value in json.loads(f"{head} ]}}").items() if key != "crc32"})
    (tmp_path / "all.json").write_text(f"{head[:-2]}\n{json.dumps(entry)}\n]}}")
    with (
        pytest.raises(
            DataError, match=r"has scale_factor = 0\.5, but had none when first opened; .* manifest"
        ),
        open_source(tmp_path / "all.json", "img").opened(),
    ):
        pass
    with h5py.File(path, "a") as file:
        file["img"].attrs["scale_factor"] = 0.25
    with (
        pytest.raises(DataError, match=r"scale_factor = 0\.25, but had scale_factor = 0\.5"),
        source.opened(),
    ):
        pass


def test_what_cannot_be_applied_is_one_sentence(tmp_path):
    path = write(tmp_path / "a.h5", IMAGES, {"scale_factor": np.array([1.0, 2.0])})
    with pytest.raises(
        DataError, match=r"the attributes scale_factor = \[1\.0, 2\.0\], which cannot be applied"
    ):
        open_source(path, "img")
    path = write(tmp_path / "b.h5", IMAGES.astype("f4"), {"scale_factor": 2.0})
    with h5py.File(path, "a") as file:
        file["rows"] = np.zeros((4, 3), np.float32)
        file["rows"].attrs["_FillValue"] = np.float32(-1)
        file["clip/frames"] = file["img"]
    with pytest.raises(DataError, match=r"has the attributes _FillValue = -1\.0, .* open it with xarray"):
        as_table((path, "rows"))
    with pytest.raises(DataError, match=r"has the attributes scale_factor = 2\.0"):
        open_clips(str(path))


def test_white_as_zero_is_named(tmp_path):
    for white in (0, 1):
        path = write(tmp_path / f"{white}.h5", IMAGES, {"IMAGE_WHITE_IS_ZERO": np.uint8(white)})
        with pytest.warns(DataWarning, match="IMAGE_WHITE_IS_ZERO") if white else nullcontext():
            open_source(path, "img")


def test_labels_are_what_their_attributes_say(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["y"] = np.array([1, -1, 3], np.int8)
        file["y"].attrs["_Unsigned"] = "true"
        file["z"] = np.array([1, -1, 3], np.int8)
        file["z"].attrs["_FillValue"] = np.int8(-1)
        file["half"] = np.array([1, 2, 3], np.int8)
        file["half"].attrs["scale_factor"] = 0.5
    assert read_labels(tmp_path / "a.h5", "y", 3).tolist() == [1, 255, 3]
    with pytest.raises(DataError, match=r"z, sample 1: the label is nan \(_FillValue = -1\)"):
        read_labels(tmp_path / "a.h5", "z", 3)
    with pytest.raises(DataError, match=r"half, sample 0: the label is 0\.5"):
        read_labels(tmp_path / "a.h5", "half", 3)
