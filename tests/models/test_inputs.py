"""What people hold: every kind of input gives the bits of the plain array of the same pixels."""

import importlib.util
import io
import subprocess
import sys
import threading
import tracemalloc

import dask.array as da
import h5py
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from arrays_in_files import read_array, write_arrays
from calling import run, same_fits, sets, told
from distributed import Client
from executors import dask_client
from PIL import Image

from smtdist import SMT
from smtdist.data.array import as_source
from smtdist.data.table import as_table
from smtdist.errors import DataError, DataWarning
from smtdist.kernels.pixels import pixel_grid, pixel_scale

SMALL = {
    "patch": 3,
    "feature": "vq",
    "dictionary": 16,
    "n_components": 4,
    "pool_size": 2,
    "min_contrast": 0.1,
}
RNG = np.random.default_rng(5)
IMAGES = RNG.integers(0, 256, (37, 9, 8, 3), dtype=np.uint8)
GREY = np.ascontiguousarray(IMAGES[..., 0])
DEEP = RNG.integers(0, 65536, (37, 9, 8), dtype=np.uint16)
SIGNS = (DEEP.astype(np.int32) - 32768).astype(np.int16)
MASK = GREY > 127
BANDS = RNG.integers(0, 256, (37, 9, 8, 13), dtype=np.uint8)
DIMENSIONS = ("sample", "y", "x", "channel")


def in_hdf5(folder, images=IMAGES, name="images", **options):
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset(name, data=images, **options)
    return h5py.File(folder / "a.h5", "r")[name]


def in_netcdf(folder, *dimensions):
    array = xr.DataArray(IMAGES, dims=DIMENSIONS, name="images").transpose(*dimensions)
    array.to_netcdf(folder / "a.nc", engine="h5netcdf")
    return xr.open_dataarray(folder / "a.nc", engine="h5netcdf")


def in_zarr(folder, images=IMAGES, store=None):
    return zarr.create_array(
        store or folder / "a.zarr", data=images, chunks=(10, *images.shape[1:]), overwrite=True
    )


def in_folder(folder, images=IMAGES):
    for number, image in enumerate(images):
        (folder / "photos" / f"class{number // 20}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / "photos" / f"class{number // 20}" / f"{number:03}.png")
    return folder / "photos"


def animated():
    room = io.BytesIO()
    frames = [Image.new("L", (9, 9), level) for level in (0, 99)]
    frames[0].save(room, "GIF", save_all=True, append_images=frames[1:])
    return Image.open(room)


def pictures(mode="RGB"):
    return [Image.fromarray(image).convert(mode) for image in IMAGES]


# kind: what makes it, the plain array of the same pixels, settings
KINDS = {
    "numpy, fortran order": (lambda _: np.asfortranarray(IMAGES), IMAGES, {}),
    "numpy, masked": (lambda _: np.ma.masked_array(IMAGES, mask=np.zeros(IMAGES.shape, bool)), IMAGES, {}),
    "numpy, channels first": (lambda _: IMAGES.transpose(0, 3, 1, 2), IMAGES, {}),
    "numpy, one channel first": (lambda _: GREY[:, None], GREY, {}),
    "numpy, rows": (lambda _: IMAGES.reshape(37, -1), IMAGES, {"image_shape": (9, 8, 3)}),
    "13 bands": (lambda _: BANDS, BANDS, {}),
    "bool": (lambda _: MASK, np.where(MASK, 255, 0).astype(np.uint8), {}),
    "uint16": (lambda _: DEEP, DEEP.astype(np.float64), {"plain": {"pixel_range": (0, 65535)}}),
    "int16": (lambda _: SIGNS, SIGNS.astype(np.float64), {"plain": {"pixel_range": (-32768, 32767)}}),
    "int64": (lambda _: GREY.astype(np.int64), GREY, {"pixel_range": (0, 255)}),
    "float, 0 to 255": (lambda _: da.from_array(GREY / 1.0), GREY / 1.0, {"pixel_range": (0, 255)}),
    "float, 0 to 1": (lambda _: list(GREY / 255), GREY / 255, {}),
    "dask": (lambda _: da.from_array(IMAGES, chunks=(7, 5, 8, 1)), IMAGES, {}),
    "dask, uneven, channels first": (
        lambda _: da.from_array(IMAGES.transpose(0, 3, 1, 2), chunks=((20, 1, 16), 3, 9, 8)),
        IMAGES,
        {},
    ),
    "dask, bool": (lambda _: da.from_array(MASK), np.where(MASK, 255, 0).astype(np.uint8), {}),
    "xarray": (lambda _: xr.DataArray(IMAGES, dims=DIMENSIONS), IMAGES, {}),
    "a variable": (lambda _: xr.Variable(DIMENSIONS, IMAGES), IMAGES, {}),
    "xarray, other order, other words": (
        lambda _: xr.DataArray(IMAGES.transpose(3, 2, 0, 1), dims=("Band", "lon", "time", "lat")),
        IMAGES,
        {},
    ),
    "xarray of dask": (
        lambda _: xr.DataArray(IMAGES.transpose(3, 1, 2, 0), dims=("c", "h", "w", "digit")).chunk(
            {"digit": 9}
        ),
        IMAGES,
        {},
    ),
    "xarray, in a file": (lambda folder: in_netcdf(folder, "channel", "x", "sample", "y"), IMAGES, {}),
    "NetCDF": (
        lambda folder: (
            in_netcdf(folder, "sample", "channel", "x", "y").close() or (folder / "a.nc", "images")
        ),
        IMAGES,
        {},
    ),
    "h5py": (in_hdf5, IMAGES, {}),
    "h5py, channels first": (
        lambda folder: in_hdf5(folder, IMAGES.transpose(0, 3, 1, 2), chunks=(8, 1, 9, 8)),
        IMAGES,
        {},
    ),
    "h5py, int32": (lambda folder: in_hdf5(folder, GREY.astype("<i4")), GREY, {"pixel_range": (0, 255)}),
    "h5py, bool": (lambda folder: in_hdf5(folder, MASK), np.where(MASK, 255, 0).astype(np.uint8), {}),
    "h5py, uint16": (lambda folder: in_hdf5(folder, DEEP.astype(">u2")), DEEP, {}),
    "the only images of a file": (lambda folder: in_hdf5(folder).file.filename, IMAGES, {}),
    "zarr": (in_zarr, IMAGES, {}),
    "zarr, channels first": (lambda folder: in_zarr(folder, IMAGES.transpose(0, 3, 1, 2)), IMAGES, {}),
    "zarr, in memory": (
        lambda folder: in_zarr(folder, IMAGES.transpose(0, 3, 1, 2), zarr.storage.MemoryStore()),
        IMAGES,
        {},
    ),
    "list of arrays": (lambda _: list(IMAGES), IMAGES, {}),
    "list of arrays, channels first": (lambda _: list(IMAGES.transpose(0, 3, 1, 2)), IMAGES, {}),
    "list of lists": (lambda _: GREY.tolist(), GREY, {"pixel_range": (0, 255)}),
    "PIL": (lambda _: pictures(), IMAGES, {}),
    "PIL, with alpha": (lambda _: pictures("RGBA"), IMAGES, {}),
    "PIL, 16 bits": (lambda _: [Image.fromarray(image) for image in DEEP], DEEP, {}),
    "folder": (in_folder, IMAGES, {}),
    "paths": (lambda folder: sorted(in_folder(folder).rglob("*.png")), IMAGES, {}),
    "pandas, rows": (lambda _: pd.DataFrame(GREY.reshape(37, -1)), GREY, {"image_shape": (9, 8)}),
    "pandas, a column": (lambda _: pd.DataFrame({"image": list(IMAGES)}), IMAGES, {}),
    "numpy, objects": (lambda _: pd.Series(list(IMAGES)).to_numpy(), IMAGES, {}),
    "xarray, rows": (
        lambda _: xr.DataArray(GREY.reshape(37, -1), dims=("sample", "pixel")),
        GREY,
        {"image_shape": (9, 8)},
    ),
    "pandas, a series": (lambda _: pd.Series(list(IMAGES), index=range(37, 0, -1)), IMAGES, {}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_input_gives_the_bits_of_the_plain_array(kind, tmp_path):
    make, plain, about = KINDS[kind]
    settings = {name: value for name, value in about.items() if name != "plain"}
    same = {**settings, **about.get("plain", {})}
    same.pop("image_shape", None)
    if plain.dtype == np.uint8:
        same.pop("pixel_range", None)
    expected = SMT(**SMALL, **same).fit(plain)
    found = SMT(**SMALL, **settings).fit(make(tmp_path))
    same_fits(found.model_, expected.model_)
    assert np.array_equal(found.eigenvalues_, expected.eigenvalues_)
    assert np.array_equal(found.transform(make(tmp_path)), expected.transform(plain))


@pytest.fixture(scope="module")
def client():
    with dask_client(2, 2) as client:
        yield client


COMPUTED_BY = set()


def _noted(block):
    COMPUTED_BY.add(threading.current_thread().name)
    return block


@pytest.mark.parametrize("persisted", [False, True])
def test_a_dask_array_is_computed_by_workers_and_gathered_by_nobody(client, persisted, monkeypatch):
    fetched = []
    gather = Client.gather
    monkeypatch.setattr(Client, "gather", lambda *a, **k: fetched.append(gather(*a, **k)) or fetched[-1])
    lazy = da.from_array(np.concatenate([IMAGES] * 9), chunks=(50, 9, 8, 3)).map_blocks(
        _noted, meta=IMAGES[:0]
    )
    COMPUTED_BY.clear()
    array = client.persist(lazy) if persisted else lazy
    found = SMT(**SMALL, cluster=client).fit(array)
    z = found.transform(array)
    expected = SMT(**SMALL).fit(np.concatenate([IMAGES] * 9))
    assert np.array_equal(found.components_, expected.components_)
    assert np.array_equal(z, expected.transform(np.concatenate([IMAGES] * 9)))
    assert COMPUTED_BY
    assert all("Dask-Default-Threads" in name for name in COMPUTED_BY), COMPUTED_BY
    assert not [value for value in fetched if isinstance(value, np.ndarray) and value.dtype == np.uint8]


@pytest.mark.parametrize("kind", ["int64", "PIL", "zarr, in memory", "h5py, channels first", "folder"])
def test_other_kinds_go_to_workers_too(client, kind, tmp_path):
    make, plain, settings = KINDS[kind]
    expected = SMT(**SMALL).fit(plain)
    found = SMT(**SMALL, **settings, cluster=client).fit(make(tmp_path))
    assert np.array_equal(found.components_, expected.components_)
    assert np.array_equal(found.transform(make(tmp_path)), expected.transform(plain))


def test_a_dask_array_is_read_in_parts_that_the_plan_counts():
    array = da.random.default_rng(0).integers(0, 256, (4096, 64, 64), dtype=np.uint8, chunks=(256, 64, 64))
    source = as_source(array)
    assert source.chunk_samples == 256
    assert source.reader_bytes == 3 * 256 * 64 * 64
    seen = []
    with source.opened() as reader:
        tracemalloc.start()
        for start in range(0, 4096, 1024):
            out = np.empty((1024, 64, 64, 1), np.uint8)
            reader.read(start, start + 1024, out)
            seen.append(tracemalloc.get_traced_memory()[1] - out.nbytes)
        tracemalloc.stop()
    assert max(seen) < source.reader_bytes + out.nbytes  # not the 16 MiB of the array


@pytest.mark.parametrize(
    ("images", "settings", "message"),
    [
        (np.ma.masked_equal(IMAGES, IMAGES[0, 0, 0, 0]), {}, r"masked pixels.*fill them"),
        (da.ma.masked_equal(da.from_array(IMAGES), 7), {}, "masked pixels"),
        ([GREY[0], np.ma.masked_equal(GREY[1], GREY[1, 0, 0])], {}, "image 1 is a masked array"),
        (GREY.astype(np.int64), {}, r"does not say what is black.*\(0, 255\)"),
        (
            GREY.astype(np.float32),
            {},
            r"do the pixels run from 0 to 255\? Then set pixel_range to \(0, 255\)",
        ),
        (GREY.astype(np.int64) * 2, {"pixel_range": (0, 255)}, "sample 0: pixels lie between 0 and 5"),
        (np.zeros((9, 5, 16, 16)), {}, r"are its 5 channels first\? .*transpose\(0, 2, 3, 1\)"),
        (np.zeros((9, 2, 3, 3)), {"patch": 4}, "images of 2 x 3, smaller than the patch of 4"),
        (np.zeros((9, 5, 60, 64)), {"patch": 6}, r"are its 5 channels first\?"),
        (IMAGES[0], {"patch": 6}, r"if this is one image, give X\[None\]"),
        (GREY.reshape(37, -1)[:, :64], {}, r"image_shape=\(8, 8\)"),
        (
            GREY.reshape(37, -1),
            {"image_shape": (9, 9)},
            r"rows of 72 numbers, but image_shape=\(9, 9\) has 81",
        ),
        *(
            (
                one,
                {"image_shape": (3, 8, 9)},
                r"means images of 3 rows.*give .*\(8, 9, 3\).*X\.reshape\(-1, 3, 8, 9\)",
            )
            for one in (IMAGES.reshape(37, -1), IMAGES.transpose(0, 3, 1, 2))
        ),
        (xr.DataArray(IMAGES[0], dims=("y", "x", "c")), {}, r"one image; .*expand_dims"),
        (xr.DataArray(IMAGES, dims=("a", "b", "y", "x")), {}, "dimensions a, b, y, x.*rename them"),
        (xr.DataArray(IMAGES, dims=("n", "y", "row", "x")), {}, "two dimensions of rows"),
        ([IMAGES[0], IMAGES[1, :8]], {}, r"image 1 is uint8 of the shape \(8, 8, 3\).*one shape and type"),
        (
            [Image.new("L", (9, 9)), Image.new("L", (9, 8))],
            {},
            "image 1 is 9 x 8, the first is 9 x 9; make all 8 x 8: a fit with resize=8",
        ),
        (
            [Image.new("L", (9, 9)), animated()],
            {},
            "image 1 has several frames; give the one that is meant",
        ),
        ((b"d.h5", "images"), {}, "list of bytes; .*paths as text"),
        ([b"a.png", b"b.png"], {}, "list of bytes; .*paths as text"),
        (b"d.h5", {}, "array is bytes; give a path as text"),
        ([Image.new("L", (9, 9)), GREY[0]], {}, "image 1 is a ndarray, but image 0 is a PIL image"),
        (
            pd.DataFrame({"a": [1, 2], "label": ["x", "y"]}),
            {},
            "column 'label' .*holds str.*leave out labels",
        ),
        (
            pd.DataFrame({"label": pd.Categorical(["x", "y"]), "a": 1}),
            {},
            "column 'label' .*holds category",
        ),
        (
            np.zeros((9, 5, 16, 16)),
            {"image_shape": (9, 9)},
            r"images of the shape \(5, 16, 16\), but image_shape=\(9, 9\)",
        ),
        (da.from_array(GREY)[da.from_array(GREY[:, 0, 0]) > 9], {}, r"compute_chunk_sizes\(\)"),
        (list(GREY), {"resize": 8}, "plain images, but resize"),
        (GREY[0], {}, r"if this is one image, give X\[None\]"),
        ([GREY[0], None], {}, "image 1 is a NoneType, from which no samples can be read"),
        ({"train": GREY}, {}, r"a dict of several things \(train\); give one of them"),
        (xr.Dataset({"train": (("n", "y", "x"), GREY)}), {}, r"a Dataset of several things \(train\)"),
    ],
)
def test_what_is_not_understood_is_asked_for(images, settings, message):
    with pytest.raises((DataError, ValueError), match=message):
        SMT(**{**SMALL, **settings}).fit(images)


def stored_in(kind, images, folder):
    """One array in whatever holds it."""
    return {
        "numpy": lambda: images,
        "list": lambda: list(images),
        "dask": lambda: da.from_array(images, chunks=tuple(-(-length // 2) for length in images.shape)),
        "xarray": lambda: xr.DataArray(images),
        "h5py": lambda: in_hdf5(folder, images),
        "zarr": lambda: in_zarr(folder, images),
    }[kind]()


@pytest.mark.parametrize("kind", ["numpy", "list", "dask", "xarray", "h5py", "zarr"])
@pytest.mark.parametrize(
    ("shape", "question"),
    [
        ((32, 32, 3, 40), r"40 samples last\? .*transpose\(3, 0, 1, 2\)"),
        ((28, 28, 1, 60), r"60 samples last\? .*transpose\(3, 0, 1, 2\)"),
        ((24, 30, 3, 100), r"100 samples last\? .*transpose\(3, 0, 1, 2\)"),
        ((3, 16, 16, 40), r"40 samples last\? .*transpose\(3, 1, 2, 0\)"),
        ((28, 28, 60), r"60 samples last\? .*transpose\(2, 0, 1\)"),
        ((24, 30, 400), r"400 samples last\? .*transpose\(2, 0, 1\)"),
        ((20, 28, 28, 28), r"28 channels first\? .*volumes\? .*reshape\(-1, 28, 28\)"),
        ((20, 10, 16, 16), r"10 channels first\? .*volumes\?"),
        ((20, 10, 16, 20), r"10 channels first\?"),
    ],
)
def test_it_asks_where_more_than_one_reading_fits(kind, shape, question, tmp_path):
    held = stored_in(kind, np.ones(shape, np.uint8), tmp_path)  # Zarr does not store zeros
    with pytest.raises(DataError, match=question) as caught:
        as_source(held)
    way_on = (
        "name the dimensions in the file"
        if kind in ("h5py", "zarr")
        else r"image_shape=(height, width, channels)"
    )
    assert way_on in str(caught.value)
    assert as_source(held, image_shape=shape[1:]).shape == (*shape, 1)[:4]


@pytest.mark.parametrize("shape", [(9, 8, 8), (8, 8, 8), (64, 28, 28), (40, 9, 200), (4, 4, 9), (3, 9, 9)])
@pytest.mark.parametrize("channels", [(), (1,), (3,), (4,)])
def test_usual_images_are_never_asked_about(shape, channels):
    full = (*shape, *channels)
    assert as_source(np.zeros(full, np.uint8)).shape == (*full, 1)[:4]


@pytest.mark.parametrize(
    "shape", [(400, 64, 64, 13), (400, 60, 64, 13), (30, 8, 8, 32), (1, 64, 64, 13), (9, 16, 16, 2)]
)
def test_many_channels_at_the_end_are_taken_where_nothing_else_fits(shape):
    assert as_source(np.zeros(shape, np.uint8)).shape == shape


@pytest.mark.parametrize("kind", ["numpy", "dask", "xarray"])
def test_the_shape_that_a_model_takes_tells_the_axes_apart(kind, tmp_path):
    model = SMT(**SMALL).fit(IMAGES)
    z = model.transform(IMAGES)
    for order in ((0, 3, 1, 2), (1, 2, 3, 0), (3, 1, 2, 0)):
        assert np.array_equal(model.transform(stored_in(kind, IMAGES.transpose(order), tmp_path)), z), order
        asked = SMT(**SMALL, image_shape=(9, 8, 3)).fit(stored_in(kind, IMAGES.transpose(order), tmp_path))
        assert np.array_equal(asked.components_, model.components_)
    grey = SMT(**SMALL).fit(GREY)
    assert np.array_equal(
        grey.transform(stored_in(kind, GREY.transpose(1, 2, 0), tmp_path)), grey.transform(GREY)
    )
    found = model.evaluate(
        IMAGES.transpose(1, 2, 3, 0), np.arange(37) % 2, IMAGES, np.arange(37) % 2, neighbours=3
    )
    assert (
        found.top1
        == model.evaluate(IMAGES, np.arange(37) % 2, IMAGES, np.arange(37) % 2, neighbours=3).top1
    )
    added = model.partial_fit(IMAGES[:9].transpose(1, 2, 3, 0) // 2)
    assert added.model_.statistics.n_samples == 46


@pytest.mark.parametrize("kind", ["h5py", "zarr"])
def test_names_of_dimensions_in_a_file_and_a_model_decide(kind, tmp_path):
    """Nine rows, columns and channels."""
    cubes = RNG.integers(0, 256, (20, 9, 9, 9), dtype=np.uint8)
    with pytest.raises(DataError, match="volumes"):
        SMT(**SMALL).fit(stored_in(kind, cubes, tmp_path))
    expected = SMT(**SMALL, image_shape=(9, 9, 9)).fit(cubes)
    assert np.array_equal(expected.transform(stored_in(kind, cubes, tmp_path)), expected.transform(cubes))
    if kind == "h5py":
        with h5py.File(tmp_path / "a.h5", "r+") as file:
            for dimension, name in zip(file["images"].dims, ("sample", "y", "x", "channel"), strict=True):
                dimension.label = name
        assert np.array_equal(
            SMT(**SMALL).fit((tmp_path / "a.h5", "images")).components_, expected.components_
        )
        write_arrays(tmp_path / "b.h5", {"images": cubes})
        model, z = tmp_path / "m.h5", tmp_path / "z.h5"
        expected.save(model)
        assert "volumes" in run(
            "fit", tmp_path / "b.h5", "--dataset images --out", tmp_path / "n.h5", code=1
        )
        run("transform", model, tmp_path / "b.h5", "--dataset images --out", z)


@pytest.mark.parametrize("kind", ["h5py", "zarr"])
@pytest.mark.parametrize("nameless", range(3))
def test_a_dimension_without_a_name_is_that_of_samples_or_asked_about(kind, nameless, tmp_path):
    """Names that are there count: "x" before "y" never comes in as rows before columns."""
    names = ["sample", "x", "y"]
    names[nameless] = ""
    if kind == "zarr":
        group = zarr.open_group(tmp_path / "a", mode="w", zarr_format=3)
        group.create_array("images", data=GREY, dimension_names=[name or None for name in names])
    else:
        with h5py.File(tmp_path / "a", "w") as file:
            file["images"] = GREY
            for dimension, name in zip(file["images"].dims, names, strict=True):
                dimension.label = name
    if nameless:
        with pytest.raises(DataError, match=r"\(without a name\).*; name all of them"):
            as_source((tmp_path / "a", "images"))
        return
    with as_source((tmp_path / "a", "images")).opened() as reader:
        assert np.array_equal(reader.read(0, len(GREY))[..., 0], GREY.transpose(0, 2, 1))


def test_a_lone_name_of_samples_says_nothing_of_the_others(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["images"] = GREY
        file["images"].dims[0].label = "time"
    assert as_source((tmp_path / "a.h5", "images")).shape == (*GREY.shape, 1)


def test_attributes_that_were_not_applied_are_named():
    with pytest.warns(DataWarning, match="array still has the attributes _FillValue"):
        as_source(xr.DataArray(GREY, dims=("sample", "y", "x"), attrs={"_FillValue": 0}))


def with_parts(change, dtype=np.uint8):
    return da.from_array(GREY[:30], chunks=(10, 9, 8)).map_blocks(
        change, dtype=dtype, meta=GREY[:0].astype(dtype)
    )


@pytest.mark.parametrize(
    ("change", "dtype", "found"),
    [
        (lambda part: part + 0.9, np.uint8, r"float64 of the shape \(10, 9, 8\), but the array says uint8"),
        (lambda part: part.astype(np.uint16), np.uint8, "uint16 of the shape"),
        (lambda part: part.astype(np.float64), np.float32, "float64 of the shape"),
        (lambda part: part[::2], np.uint8, r"\(5, 9, 8\), but the array says uint8 of \(10, 9, 8\)"),
        (lambda part: np.concatenate([part, part]), np.uint8, r"\(20, 9, 8\)"),
        (lambda part: part[:, :, 1:], np.uint8, r"\(10, 9, 7\)"),
        (lambda part: part[..., None], np.uint8, r"\(10, 9, 8, 1\)"),
        (lambda part: part.tolist(), np.uint8, "a list"),
    ],
    ids=["floats", "wide", "double", "shorter", "longer", "narrower", "another axis", "list"],
)
@pytest.mark.parametrize(
    "wrapped",
    [lambda array: array, lambda array: xr.DataArray(array, dims=("n", "y", "x"))],
    ids=["dask", "xarray"],
)
def test_parts_of_a_dask_array_are_what_it_says(change, dtype, found, wrapped):
    array = wrapped(with_parts(change, dtype))
    with pytest.raises(
        DataError, match=rf"array: the part \(\d, 0, 0\) of the Dask array is (.* )?{found}"
    ):
        SMT(**SMALL, pixel_range=(0, 255)).fit(array)


def test_rows_and_later_images_of_a_dask_array_are_looked_at_too(client):
    model = SMT(**SMALL, cluster=client).fit(GREY)
    array = with_parts(lambda part: part if part[0, 0, 0] == GREY[0, 0, 0] else part * 0.5)
    for call in (model.transform, model.partial_fit):
        with pytest.raises(DataError, match=r"the part .* of the Dask array is float64"):
            call(array)
    rows = da.from_array(GREY.reshape(37, 72), chunks=(10, 72)).map_blocks(
        lambda part: part[:, :-1], dtype=np.uint8, meta=GREY[:0, 0]
    )
    with pytest.raises(
        DataError, match=r"uint8 of the shape \(\d+, 71\), but the array says uint8 of \(\d+, 72\)"
    ):
        SMT(**SMALL, image_shape=(9, 8)).fit(rows)


NULLABLE = {
    "UInt8": lambda table: table.astype("UInt8"),
    "one column": lambda table: table.astype({3: "Int16"}),
    "Int64": lambda table: table.astype("Int64"),
    "Float32": lambda table: table.astype("Float32"),
    "Arrow": lambda table: table.astype("uint8[pyarrow]"),
    "Arrow, doubles": lambda table: table.astype("float64[pyarrow]"),
    "what pandas makes of it": lambda table: table.convert_dtypes(dtype_backend="pyarrow"),
}


@pytest.mark.parametrize("kind", NULLABLE)
def test_nullable_and_arrow_tables_of_pandas_are_numbers(kind):
    table = NULLABLE[kind](pd.DataFrame(GREY.reshape(37, -1)))
    settings = {**SMALL, "pixel_range": (0, 255), "image_shape": (9, 8)}
    plain = GREY.astype(np.asarray(table.iloc[:, 3].to_numpy()).dtype)
    found, expected = SMT(**settings).fit(table), SMT(**{**settings, "image_shape": None}).fit(plain)
    assert np.array_equal(found.components_, expected.components_)
    assert as_table(table).shape == (37, 72)
    table.iloc[5, 3] = pd.NA
    for take in (SMT(**settings).fit, as_table):
        with pytest.raises(
            DataError, match="the column '3' of the table has no number in row 5; fill missing values"
        ):
            take(table)


def test_what_was_written_a_moment_ago_is_read(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        stored = file.create_dataset("images", data=IMAGES)
        with as_source(stored).opened() as reader:
            assert np.array_equal(reader.read(0, 37), IMAGES)
    with pytest.raises(DataError, match="a file that is closed; open the file again"):
        as_source(stored)
    with h5py.File("in memory", "w", driver="core", backing_store=False) as file:
        file["images"] = IMAGES
        with pytest.raises(DataError, match=r"is in no file.*dataset\[:\]"):
            as_source(file["images"])


def test_pictures_of_several_sizes_are_scaled(tmp_path):
    several = [Image.fromarray(np.repeat(image, 2, axis=number % 2)) for number, image in enumerate(IMAGES)]
    for number, picture in enumerate(several):
        picture.save(tmp_path / f"{number:02}.png")
    listed, lying = (as_source(one, Scaled()) for one in (several, tmp_path))
    assert listed.shape == lying.shape == (37, 6, 6, 1)
    with listed.opened() as one, lying.opened() as other:
        assert np.array_equal(one.read(0, 37), other.read(0, 37))
        assert other.read_bytes == sum(path.stat().st_size for path in tmp_path.iterdir())


class Scaled:
    resize, center_crop, channels, pixel_range = 7, 6, 1, None


def test_sixteen_bits_lose_nothing():
    every = np.arange(65536, dtype=np.uint16).reshape(1, 256, 256)
    for images, span in (
        (every, None),
        (every[:, :16], (0, 4095)),
        ((every.astype(np.int32) - 32768).astype(np.int16), None),
    ):
        scale = pixel_scale(images.dtype, span)
        grid = pixel_grid(images, scale, False)
        assert len(np.unique(grid)) == images.size
        assert (grid.min(), grid.max()) == (0, 65536)
        plain = pixel_grid(images.astype(np.float64), scale, False)
        assert np.array_equal(grid, plain)


def test_models_refuse_pixels_of_another_range():
    model = SMT(**SMALL).fit(GREY)
    assert np.array_equal(model.transform(GREY.astype(np.int32)), model.transform(GREY))
    for other, said in (
        (GREY / 255, "float64 pixels, which are taken to run from 0 to 1"),
        (DEEP, "uint16 pixels, which are taken to run from 0 to 65535"),
    ):
        with pytest.raises(
            DataError, match=f"{said}, but the model was fitted on pixels from 0 to 255 as uint8"
        ):
            model.transform(other)
        with pytest.raises(
            DataError, match=f"{said}, but the model was fitted on pixels from 0 to 255 as uint8"
        ):
            model.partial_fit(other)


def stored(path, images, **options):
    """Write groups train and test, with labels."""
    with h5py.File(path, "w") as file:
        for name, part in (("train", images[:30]), ("test", images[30:])):
            file.create_dataset(f"{name}/images", data=part, **options)
            file[f"{name}/labels"] = np.arange(len(part)) % 2
    return path


@pytest.mark.parametrize(
    ("images", "plain", "settings"),
    [
        (IMAGES.transpose(0, 3, 1, 2).astype(np.int32), IMAGES, "--set 'pixel_range=(0, 255)'"),
        (DEEP, DEEP.astype(np.float32), ""),
    ],
    ids=["int32, channels first", "uint16"],
)
def test_the_command_line_takes_what_files_hold(images, plain, settings, tmp_path):
    said = []
    other = "--set pixel_range=[0,65535]" if plain.dtype == np.float32 else ""
    for name, held, asked in (("a", images, settings), ("b", plain, other)):
        data = stored(tmp_path / f"{name}.h5", held, chunks=(7, *held.shape[1:]))
        model, z = tmp_path / f"{name}-m.h5", tmp_path / f"{name}-z.h5"
        run("fit", data, "--dataset train --out", model, sets(**SMALL), asked)
        run("transform", model, data, "--dataset test --out", z)
        judged = told("evaluate", model, data, "--train train --test test")
        said.append((read_array(z, "z").tolist(), judged["top1"]))
    assert said[0] == said[1]


@pytest.mark.skipif(importlib.util.find_spec("hdf5plugin") is None, reason="hdf5plugin is not installed")
def test_filters_of_hdf5plugin_need_no_import(tmp_path):
    program = "import sys, h5py, hdf5plugin, numpy as np; h5py.File(sys.argv[1], 'w').create_dataset('train/images', "
    program += "data=np.load(sys.argv[2]), chunks=(8, 9, 8, 3), **hdf5plugin.Blosc())"
    np.save(tmp_path / "a.npy", IMAGES)
    subprocess.run([sys.executable, "-c", program, tmp_path / "a.h5", tmp_path / "a.npy"], check=True)
    read = "import sys, numpy as np; from smtdist.data.array import as_source; assert 'hdf5plugin' not in sys.modules\n"
    read += "source = as_source((sys.argv[1], 'train'))\nassert 'hdf5plugin' in sys.modules\n"
    read += "with source.opened() as reader: assert (reader.read(0, 37) == np.load(sys.argv[2])).all()"
    subprocess.run([sys.executable, "-c", read, tmp_path / "a.h5", tmp_path / "a.npy"], check=True)
