"""Variables written by our own compression are read by HDF5, and hold what they were given."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from smtdist.data import netcdf
from smtdist.data.netcdf import Group, write_netcdf


@given(
    arrays(
        st.sampled_from([np.uint8, np.int16, np.uint32, np.int64]),
        st.tuples(st.integers(1, 40), st.integers(1, 30)),
    ),
    st.integers(1, 400),
)
def test_deflated_tables_are_read_back(tmp_path_factory, values, chunk_bytes):
    path = tmp_path_factory.mktemp("netcdf") / "one.h5"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(netcdf, "CHUNK_BYTES", chunk_bytes)
        write_netcdf(
            path,
            Group(attributes={"title": "One"}),
            [("sums", Group({"counts": (("row", "column"), values, {"units": "1"})}))],
            overwrite=False,
        )
    with h5py.File(path, locking=False) as file:
        counts = file["sums/counts"]
        assert (counts.compression, counts.shuffle, counts.dtype) == ("gzip", True, values.dtype)
        np.testing.assert_array_equal(counts[()], values)
    with xr.open_dataset(path, group="sums", engine="h5netcdf") as dataset:
        assert dataset["counts"].dims == ("row", "column")
        assert dataset["counts"].attrs == {"units": "1"}
        np.testing.assert_array_equal(dataset["counts"].values, values)


def test_lists_text_scalars_and_empty_tables(tmp_path):
    path = tmp_path / "one.h5"
    root = Group(
        {
            "words": ("word", ["über", "b"]),
            "number": ((), 3),
            "nothing": (("word", "none"), np.zeros((2, 0), np.int64)),
        },
    )
    write_netcdf(path, root, [], overwrite=False)
    with xr.open_dataset(path, engine="h5netcdf") as dataset:
        assert dataset["words"].values.tolist() == ["über", "b"]
        assert int(dataset["number"]) == 3
        assert dataset["nothing"].shape == (2, 0)


def test_variables_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="counts has 3 along atom, others 2"):
        Group({"mass": ("atom", np.zeros(2)), "counts": ("atom", np.zeros(3))}).sizes()
