"""Virtual datasets: what is missing in their files is found, and never read as zeros."""

import os
import resource
from contextlib import contextmanager, nullcontext

import h5py
import numpy as np
import pytest
from arrays_in_files import add_arrays, add_virtual, read_samples, write_arrays
from encoding import pillow_bytes, write_encoded

from smtdist.data import guarded
from smtdist.data.look import read_labels
from smtdist.data.manifest import describe_files, write_manifest
from smtdist.data.opening import open_labels, open_source
from smtdist.data.table import as_table
from smtdist.errors import DataError, DataWarning

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
TOTAL = FILES * EACH
WHOLE = ([(slice(None), slice(None))],)
TURNED = ([(slice(0, TOTAL - 9), slice(9, None)), (slice(TOTAL - 9, None), slice(0, 9))],)
MIXED = ([(slice(0, None, 2), slice(0, TOTAL // 2)), (slice(1, None, 2), slice(TOTAL // 2, None))],)


def outside(path, layers):
    """Return a file of virtual datasets of those of a file, and so on, by (their samples, samples of those) in each, and what
    it should hold.
    """
    expected = EXPECTED
    for number, pieces in enumerate(layers):
        outer, old = path.with_name(f"outer-{number}.h5"), expected
        expected = np.zeros_like(old)
        with h5py.File(path) as inner, h5py.File(outer, "w") as file:
            for name in ("train/images", "train/labels"):
                layout = h5py.VirtualLayout(inner[name].shape, inner[name].dtype)
                for here, there in pieces:
                    whole = there == slice(None)
                    source = h5py.VirtualSource(path.name, name, inner[name].shape)
                    layout[here] = source if whole else source[there]
                    expected[here] = old[there]
                file.create_virtual_dataset(name, layout)
        path = outer
    return path, expected


@contextmanager
def files_left(count):
    """Let this process open so many files beside those that it has open."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = [os.open(os.devnull, os.O_RDONLY) for _ in range(count)]  # the lowest numbers that are free
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[-1] + 1, before[1]))
    for descriptor in free:
        os.close(descriptor)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def open_files():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("step", [1, 5, 30, FILES * EACH])
@pytest.mark.parametrize("pieces", [(), WHOLE, TURNED, (*TURNED, WHOLE[0])])
def test_no_value_is_made_up_where_a_process_may_open_few_files(path, step, pieces):
    path, expected = outside(path, pieces)
    source, before = open_source(path, "train"), open_files()
    with files_left(30), source.opened() as reader:
        found = []
        for start in range(0, source.n_samples, step):
            found.append(reader.read(start, min(start + step, source.n_samples))[:, 0, 0, 0])
            assert open_files() <= before + guarded.MOST_OPEN + 1 + len(pieces)
    assert np.array_equal(np.concatenate(found), expected)
    with files_left(30):
        assert np.array_equal(open_labels(path, "train", source), expected)
    assert open_files() == before


def test_the_files_are_in_the_plan(path):
    assert open_source(path, "train").reader_bytes >= guarded.MOST_OPEN * guarded.SOURCE_CACHE_BYTES


@pytest.mark.parametrize("layers", [(), WHOLE])
def test_a_file_that_goes_missing_after_opening_is_named(path, layers):
    outer, _ = outside(path, layers)
    source = open_source(outer, "train")
    with source.opened() as reader:
        reader.read(0, 6)
        (path.parent / "part-7.h5").unlink()
        with pytest.raises(DataError, match=r"part-7\.h5 does not exist; restore it"):
            reader.read(0, source.n_samples)
        reader.read(60, 66)
        with pytest.raises(DataError, match=r"part-7\.h5 does not exist"):
            read_labels(outer, "train/labels", source.n_samples)
        path.unlink()
        with (
            pytest.raises(DataError, match=r"all\.h5 does not exist; restore it")
            if layers
            else nullcontext()
        ):
            reader.read(60, 66)


def test_parts_that_are_not_there_are_refused(path):
    part = path.parent / "part-3.h5"
    whole = part.read_bytes()
    with h5py.File(part, "a") as file:
        del file["x"]
    with pytest.raises(DataError, match=r"dataset of x in .*part-3\.h5, which is not there"):
        open_source(path, "train")
    add_arrays(part, {"x": np.ones((EACH - 1, 4, 4), np.uint8)})
    with pytest.raises(DataError, match=r"takes 96 values of x in .*its shape is \(5, 4, 4\)"):
        open_source(path, "train")
    part.write_bytes(whole[:100])
    with pytest.raises(DataError, match=r"part-3\.h5 cannot be opened"):
        open_source(path, "train")


def test_gaps_and_patterns_are_refused(tmp_path):
    write_arrays(tmp_path / "a0.h5", {"x": np.ones((6, 4, 4), np.uint8)})
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
    assert read_samples(open_source(tmp_path / "v.h5", "y"), 0, 3).ravel().tolist() == list(range(48, 96))


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


def test_virtual_datasets_in_any_order_need_their_files_at_once(path):
    outer, expected = outside(path, MIXED)
    source = open_source(outer, "train")
    assert np.array_equal(read_samples(source, 0, TOTAL)[:, 0, 0, 0], expected)
    with (
        files_left(30),
        source.opened() as reader,
        pytest.raises(DataError, match=r"4[01] files at once.*ulimit"),
    ):
        reader.read(0, 1)


@pytest.mark.parametrize("layers", [WHOLE, (*TURNED, WHOLE[0]), MIXED])
def test_what_a_source_lacks_that_is_virtual_itself_is_not_made_up(path, layers):
    outer, _ = outside(path, layers)
    (path.parent / "part-39.h5").unlink()
    for name in ("train", "train/labels"):
        with pytest.raises(DataError, match=r"all\.h5:train.*part-39\.h5 does not exist; restore it"):
            open_source(outer, name) if name == "train" else read_labels(outer, name, TOTAL)


@pytest.mark.parametrize("layers", [(), WHOLE])
def test_chunks_that_sources_do_not_store_are_named(path, layers):
    outer, _ = outside(path, layers)
    for number in (3, 4, 5):
        with h5py.File(path.parent / f"part-{number}.h5", "a") as file:
            del file["x"]
            file.create_dataset("x", (EACH, 4, 4), np.uint8, chunks=(4, 4, 4))[:2] = 1
            del file["y"]
            file.create_dataset("y", (EACH,), np.int64, chunks=(4,))[:2] = 1
    reading = {
        "x": lambda: open_source(outer, "train"),
        "y": lambda: read_labels(outer, "train/labels", TOTAL),
    }
    for name, read in reading.items():
        said = rf"part-3\.h5:{name}: 1 of 2 chunks is not stored.* in 2 more of the datasets"
        with pytest.warns(DataWarning, match=said):
            read()


def test_chunks_of_rows_that_are_not_stored_are_named(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("rows", (8, 5), np.float32, chunks=(4, 5))[4:] = 1
    with pytest.warns(DataWarning, match=r"a\.h5:rows: 1 of 2 chunks is not stored, at \[0, 0\]"):
        as_table((tmp_path / "a.h5", "rows"))


def test_pieces_that_overlap_hide_no_gap(tmp_path):
    write_arrays(tmp_path / "a.h5", {"x": np.ones((6, 4, 4), np.uint8)})
    layout = h5py.VirtualLayout((8, 4, 4), np.uint8)
    layout[:6] = layout[1:7] = h5py.VirtualSource("a.h5", "x", (6, 4, 4))
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file.create_virtual_dataset("x", layout)
    with pytest.raises(DataError, match="takes 112 of its 128 values"):
        open_source(tmp_path / "v.h5", "x")


def test_a_virtual_dataset_of_itself_is_refused(tmp_path):
    for name, other in (("v", "w"), ("w", "v")):
        add_virtual(tmp_path / f"{name}.h5", "x", f"{other}.h5", "x", (6, 4, 4))
    with pytest.raises(DataError, match="made of itself"):
        open_source(tmp_path / "v.h5", "x")
