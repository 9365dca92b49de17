"""Virtual datasets: what is missing in their files is found, and never read as zeros."""

import os
import resource

import h5py
import numpy as np
import pytest
from encoding import pillow_bytes, write_encoded

from smtdist.data import virtual
from smtdist.data.labels import read_labels
from smtdist.data.manifest import describe_files, write_manifest
from smtdist.data.opening import open_labels, open_source
from smtdist.data.table import as_table
from smtdist.errors import DataError

FILES, EACH = 40, 6


@pytest.fixture
def path(tmp_path):
    """A virtual dataset of 40 files of six images, with virtual labels; no pixel and no label is zero."""
    shape, total = (EACH, 4, 4), FILES * EACH
    images, labels = h5py.VirtualLayout((total, 4, 4), np.uint8), h5py.VirtualLayout((total,), np.int64)
    for number in range(FILES):
        name, where = f"part-{number}.h5", slice(number * EACH, (number + 1) * EACH)
        with h5py.File(tmp_path / name, "w") as file:
            file.create_dataset("x", data=np.full(shape, number + 1, np.uint8), chunks=(4, 4, 4))
            file["y"] = np.full(EACH, number + 1)
        images[where], labels[where] = (
            h5py.VirtualSource(name, "x", shape),
            h5py.VirtualSource(name, "y", (EACH,)),
        )
    with h5py.File(tmp_path / "all.h5", "w") as file:
        file.create_virtual_dataset("train/images", images)
        file.create_virtual_dataset("train/labels", labels)
    return tmp_path / "all.h5"


EXPECTED = np.repeat(np.arange(1, FILES + 1), EACH)


@pytest.fixture
def few_files():
    """A process that may open 30 more files than it has open."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    now = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (now + 30, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def open_files():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("step", [1, 5, 30, FILES * EACH])
def test_no_value_is_made_up_where_a_process_may_open_few_files(path, few_files, step):
    source, before = open_source(path, "train"), open_files()
    with source.opened() as reader:
        found = []
        for start in range(0, source.n_samples, step):
            found.append(reader.read(start, min(start + step, source.n_samples))[:, 0, 0, 0])
            assert open_files() <= before + virtual.MOST_OPEN + 1
    assert np.array_equal(np.concatenate(found), EXPECTED)
    assert np.array_equal(open_labels(path, "train", source), EXPECTED)
    assert open_files() == before


def test_the_files_are_in_the_plan(path):
    assert open_source(path, "train").reader_bytes >= virtual.MOST_OPEN * virtual.CACHE_BYTES


def test_a_file_that_goes_missing_after_opening_is_named(path):
    source = open_source(path, "train")
    with source.opened() as reader:
        reader.read(0, 6)
        (path.parent / "part-7.h5").unlink()
        with pytest.raises(DataError, match=r"part-7\.h5 does not exist; restore it"):
            reader.read(0, source.n_samples)
        reader.read(60, 66)
    with pytest.raises(DataError, match=r"part-7\.h5 does not exist"):
        read_labels(path, "train/labels", source.n_samples)


def test_parts_that_are_not_there_are_refused(path):
    part = path.parent / "part-3.h5"
    whole = part.read_bytes()
    with h5py.File(part, "a") as file:
        del file["x"]
    with pytest.raises(DataError, match=r"dataset of x in .*part-3\.h5, which is not there"):
        open_source(path, "train")
    with h5py.File(part, "a") as file:
        file["x"] = np.ones((EACH - 1, 4, 4), np.uint8)
    with pytest.raises(DataError, match=r"takes 96 values of x in .*its shape is \(5, 4, 4\)"):
        open_source(path, "train")
    part.write_bytes(whole[:100])
    with pytest.raises(DataError, match=r"part-3\.h5 cannot be opened"):
        open_source(path, "train")


def test_gaps_and_patterns_are_refused(tmp_path):
    with h5py.File(tmp_path / "a0.h5", "w") as file:
        file["x"] = np.ones((6, 4, 4), np.uint8)
    layout = h5py.VirtualLayout((7, 4, 4), np.uint8)
    layout[:6] = h5py.VirtualSource("a0.h5", "x", (6, 4, 4))
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file.create_virtual_dataset("x", layout)
        space = h5py.h5s.create_simple((6, 4, 4), (h5py.h5s.UNLIMITED, 4, 4))
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        selected = space.copy()
        whole = (6, 4, 4)
        selected.select_hyperslab((0, 0, 0), (h5py.h5s.UNLIMITED, 1, 1), stride=whole, block=whole)
        properties.set_virtual(selected, b"a%b.h5", b"x", h5py.h5s.create_simple(whole))
        h5py.h5d.create(file.id, b"y", h5py.h5t.NATIVE_UINT8, space, properties)
    with pytest.raises(DataError, match="takes 96 of its 112 values"):
        open_source(tmp_path / "v.h5", "x")
    with pytest.raises(DataError, match="named by a pattern"):
        open_source(tmp_path / "v.h5", "y")


def test_a_virtual_dataset_of_its_own_file(tmp_path):
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file["x"] = np.arange(96, dtype=np.uint8).reshape(6, 4, 4)
        layout = h5py.VirtualLayout((3, 4, 4), np.uint8)
        layout[:] = h5py.VirtualSource(file["x"])[3:]
        file.create_virtual_dataset("y", layout)
    with open_source(tmp_path / "v.h5", "y").opened() as reader:
        assert reader.read(0, 3).ravel().tolist() == list(range(48, 96))


def test_encoded_images_and_tables_cannot_be_virtual(tmp_path):
    write_encoded(tmp_path / "a.h5", [pillow_bytes(np.zeros((4, 4), np.uint8))] * 3)
    with h5py.File(tmp_path / "a.h5") as file:
        shapes = {name: file["train"][name] for name in ("bytes", "offsets")}
        with h5py.File(tmp_path / "v.h5", "w") as out:
            for name, stored in shapes.items():
                layout = h5py.VirtualLayout(stored.shape, stored.dtype)
                layout[:] = h5py.VirtualSource(stored)
                out.create_virtual_dataset(f"train/{name}", layout)
    with pytest.raises(
        DataError, match=r"virtual dataset, which is possible for plain images only.*manifest"
    ):
        open_source(tmp_path / "v.h5", "train")
    with pytest.raises(DataError, match="virtual dataset"):
        as_table((tmp_path / "v.h5", "train/offsets"))


def test_virtual_datasets_in_a_manifest(path):
    out = path.parent / "train.json"
    write_manifest(describe_files([str(path)], out))
    one, other = open_source(out, "train"), open_source(path, "train")
    assert one == other
