"""A disk that fills up at any moment ends in an OSError, not in a crash of the HDF5 library."""

import errno

import h5netcdf
import h5py
import numpy as np
import pytest
from disks import largest_file

from smtdist.data.writing import lenient


def write(path):
    rng = np.random.default_rng(0)
    with lenient(path) as raw, h5py.File(raw, "w") as file:
        for name in "abc":
            group = file.create_group(name)
            group.attrs["text"] = "x" * 500
            group.create_dataset("values", data=rng.random(4000), chunks=(500,), compression="gzip")
            group.create_dataset("scale", data=np.arange(50)).make_scale("n")


def test_a_full_disk_at_every_size_is_an_oserror(tmp_path):
    write(tmp_path / "whole.h5")
    size = (tmp_path / "whole.h5").stat().st_size
    for limit in [*range(0, size, max(1, size // 40)), size - 1]:
        with largest_file(limit), pytest.raises(OSError, match="File too large") as raised:
            write(tmp_path / "cut.h5")
        assert raised.value.errno == errno.EFBIG
    with largest_file(size):
        write(tmp_path / "fits.h5")
    assert (tmp_path / "fits.h5").read_bytes() == (tmp_path / "whole.h5").read_bytes()


def test_a_long_write_can_stop_early(tmp_path):
    def endless():
        with lenient(tmp_path / "a.h5") as raw, h5py.File(raw, "w") as file:
            for number in range(1000):
                file.create_dataset(str(number), data=np.ones(1000))
                raw.check()
            pytest.fail("no check stopped the loop")

    with largest_file(10_000), pytest.raises(OSError, match="File too large"):
        endless()


def test_others_read_what_was_written(tmp_path):
    with lenient(tmp_path / "n.nc") as raw, h5netcdf.File(raw, "w") as file:
        group = file.create_group("g")
        group.dimensions = {"x": 3}
        group.create_variable("v", ("x",), data=np.arange(3.0))
    with h5netcdf.File(tmp_path / "n.nc", "r") as file:
        assert file["g"].variables["v"].dimensions == ("x",)
        assert file["g"].variables["v"][:].tolist() == [0, 1, 2]
