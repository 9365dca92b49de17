"""One law for the files of all kinds: read and written again they hold the same, xarray opens them, others are refused."""

import shutil
from pathlib import Path

import h5py
import pytest
import xarray as xr

from smtdist.errors import ModelError
from smtdist.models import store

FIXTURES = sorted((Path(__file__).parents[1] / "fixtures" / "models").glob("*.h5"))
KIND = {path: store.kind_at(path) for path in FIXTURES}
MODELS = [path for path in FIXTURES if store.KINDS[KIND[path]].home]
FIRST = {kind: path for path, kind in reversed(KIND.items()) if path in MODELS}
"""A file of each kind."""


def contents(path):
    """Return the attributes of every group, and the dimensions, type, attributes and bytes of every array."""
    held = {}

    def look(name, item):
        attributes = {key: str(item.attrs[key]) for key in item.attrs if not key.endswith("_LIST")}
        held[name] = attributes
        if isinstance(item, h5py.Dataset):
            dimensions = [dimension[0].name if len(dimension) else "" for dimension in item.dims]
            text = h5py.check_string_dtype(item.dtype)
            values = item[()].tolist() if text else item[()].tobytes()
            held[name] = attributes, dimensions, str(item.dtype), item.shape, values

    with h5py.File(path) as file:
        look("", file)
        file.visititems(look)
    return held


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_what_is_read_is_written_again(path, tmp_path):
    once, twice = tmp_path / "once.h5", tmp_path / "twice.h5"
    assert store.save(store.load(path), once) == once.stat().st_size
    store.save(store.load(once, kind=KIND[path]), twice)
    assert contents(once) == contents(twice)
    with xr.open_datatree(once, engine="h5netcdf") as tree, h5py.File(once) as file:
        for node in tree.subtree:
            group = file[node.path]
            scales = {key for key in group if group[key].attrs.get("CLASS") == b"DIMENSION_SCALE"}
            arrays = {key for key in group if isinstance(group[key], h5py.Dataset)} - scales
            assert arrays <= set(node.variables)
    with pytest.raises(ModelError, match="exists already; choose another name"):
        store.save(store.load(path), once)


@pytest.mark.parametrize("kind", FIRST)
def test_what_is_no_file_of_a_kind_is_refused(kind, tmp_path):
    about, path = store.KINDS[kind], tmp_path / "model.h5"

    def refused(said):
        with pytest.raises(ModelError, match=said):
            store.load(path, kind=kind)

    refused("There is no model file")
    path.write_bytes(b"no")
    refused(f"is not a readable HDF5 file .*give a .*written by {about.by}")
    for other in (name for name in FIRST if name != kind):
        shutil.copy(FIRST[other], path)
        refused("holds .*; give a model" if kind == "smt" else f"not a {about.called}; give one written by")
    with h5py.File(path, "w") as file:
        file["x"] = 1
    refused("not an smtdist model" if kind == "smt" else f"not a {about.called}; give one written by")
    whole = FIRST[kind].read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    refused(r"model\.h5 is not a (complete|readable)")
    path.write_bytes(whole)
    with h5py.File(path, "r+") as file:
        file.attrs[about.schema] = 99
    refused(
        f"has the schema 99 of {about.plural}, this version reads up to {about.newest}; install a newer"
    )
