"""What can be wrong with an HDF5 file, and what is said about it."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from arrays_in_files import add_arrays, add_virtual, read_samples, write_arrays
from calling import program
from encoding import pillow_bytes, write_encoded
from hypothesis import given
from hypothesis import strategies as st

import smtdist
from smtdist.data import source as source_module
from smtdist.data.hdf5 import CACHED_CHUNK_BYTES, READ_CHUNK_BYTES, Hdf5Source
from smtdist.data.look import read_labels
from smtdist.data.opening import open_source
from smtdist.data.source import boxes
from smtdist.errors import DataError, DataWarning, SmtdistError

SHAPE = (40, 4, 4)
IMAGES = {"train/images": np.arange(640, dtype=np.uint8).reshape(SHAPE)}


def write(path: Path, name: str = "train/images", **options: Any) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset(name, data=IMAGES["train/images"], **options)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "digits.h5"


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not hdf5 at all" * 50])
def test_a_file_of_another_kind_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"digits\.h5 is (not an HDF5 file|empty)"):
        Hdf5Source.open(path, "images")


@pytest.mark.parametrize(
    ("stored", "asked", "message"),
    [
        ({}, "images", "holds no dataset at all"),
        (IMAGES, "train/image", "no dataset 'train/image'; use one of train/images"),
        (IMAGES, "images", "no dataset 'images'; use one of train/images"),
        *((IMAGES, group, r"is a group.*such as train/images") for group in ("train", "/", "")),
        (
            dict.fromkeys(("X/data", "X/indices", "X/indptr"), range(3)),
            "X",
            "'X' is a sparse matrix in parts",
        ),
    ],
)
def test_a_name_of_no_dataset_brings_those_that_there_are(
    path: Path, stored: dict[str, Any], asked: str, message: str
) -> None:
    write_arrays(path, stored)
    with pytest.raises(DataError, match=message):
        Hdf5Source.open(path, asked)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.zeros((3, 4), np.uint8), r"\(3, 4\), but images are"),
        (np.zeros((3, 4, 4, 1, 1), np.uint8), "but images are"),
        (
            np.zeros((5, 2, 2), [("a", np.uint8), ("b", np.float32)]),
            r"fields a, b in each value; write .*\['a'\]",
        ),
        (np.zeros((0, 4, 4), np.uint8), "is empty"),
        (np.zeros((3, 4, 4), np.complex64), "has the type complex64"),
        (h5py.Empty("uint8"), "has no shape"),
    ],
)
def test_datasets_that_are_not_images_are_refused(path: Path, data: Any, message: str) -> None:
    write_arrays(path, {"images": data})
    with pytest.raises(DataError, match=message) as error:
        Hdf5Source.open(path, "images")
    assert str(error.value).startswith(f"{path}:images ")


def test_values_that_are_arrays_are_told_of(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("images", (5,), np.dtype((np.uint8, (12, 12))))
    with pytest.raises(
        DataError, match=r"images has an array of uint8 \(12, 12\) in each value; write these axes"
    ):
        Hdf5Source.open(path, "images")


def test_a_pickle_holds_names_and_numbers_only(path: Path) -> None:
    write(path, chunks=(8, 4, 4))
    source = Hdf5Source.open(path, "train/images")
    text = pickle.dumps(source)
    assert b"h5py" not in text
    assert len(text) < 1000
    assert pickle.loads(text) == source


def test_relative_paths_work_from_another_folder(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path)
    monkeypatch.chdir(path.parent)
    source = Hdf5Source.open(path.name, "train/images")
    monkeypatch.chdir("/")
    assert read_samples(source, 0, 40).shape == (40, 4, 4, 1)


def damage_first_chunk(path: Path) -> None:
    with h5py.File(path, "r") as file:
        info = file["train/images"].id.get_chunk_info(1)
    with path.open("r+b") as raw:
        raw.seek(info.byte_offset + 5)
        raw.write(b"\xff\x00\xff\x00\xff")


@pytest.mark.parametrize("options", [{"fletcher32": True}, {"compression": "gzip"}])
def test_a_damaged_chunk_is_named(path: Path, options: dict[str, Any]) -> None:
    write(path, chunks=(8, 4, 4), **options)
    damage_first_chunk(path)
    source = Hdf5Source.open(path, "train/images")
    with source.opened() as reader:
        reader.read(0, 8)
        with pytest.raises(DataError, match=r"digits\.h5:train/images, samples 8 to 15: .* damaged"):
            reader.read(8, 16)


def pad(path: Path) -> None:
    with path.open("ab") as raw:
        raw.truncate(20_000)


def replaced_by_a_longer_file(path: Path) -> None:
    add_arrays(path, {"more": np.zeros(20_000)})


def replaced_by_another_shape(path: Path) -> None:
    write_arrays(path, {"train/images": np.zeros((20, 4, 8), np.uint8)})
    pad(path)


@pytest.mark.parametrize("change", [replaced_by_a_longer_file, replaced_by_another_shape])
def test_a_file_that_changed_is_refused(path: Path, change: Callable[[Path], None]) -> None:
    write(path)
    pad(path)
    source = Hdf5Source.open(path, "train/images")
    change(path)
    with pytest.raises(DataError, match="opened; "), source.opened():
        pass


def test_a_file_that_vanished_is_refused(path: Path) -> None:
    write(path)
    source = Hdf5Source.open(path, "train/images")
    path.unlink()
    with pytest.raises(DataError, match="does not exist"), source.opened():
        pass


def test_a_missing_filter_is_named(path: Path) -> None:
    with h5py.File(path, "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((8, 4, 4))
        # optional, so that the file can be written where the filter is not installed
        properties.set_filter(32999, h5py.h5z.FLAG_OPTIONAL, ())
        h5py.h5d.create(
            file.id, b"images", h5py.h5t.NATIVE_UINT8, h5py.h5s.create_simple(SHAPE), properties
        )
    with pytest.raises(DataError, match=r"filter 32999.*install smtdist\[filters\]"):
        Hdf5Source.open(path, "images")


def test_a_virtual_dataset_needs_its_files(path: Path, tmp_path: Path) -> None:
    write(tmp_path / "part.h5", "images")
    add_virtual(path, "images", "part.h5", "images", SHAPE)
    assert read_samples(Hdf5Source.open(path, "images"), 1, 2).ravel()[0] == 16
    (tmp_path / "part.h5").unlink()
    with pytest.raises(DataError, match=r"part\.h5 does not exist"):
        Hdf5Source.open(path, "images")


def test_chunks_that_split_an_image_count_whole(path: Path) -> None:
    write(path, chunks=(8, 3, 4), compression="gzip")
    source = Hdf5Source.open(path, "train/images")
    assert source.chunk_samples == 8
    assert source.chunk_bytes == 2 * 8 * 3 * 4
    caches, filtering = 2 * (source.chunk_bytes + 2 * CACHED_CHUNK_BYTES), 2 * 8 * 3 * 4 + 10
    assert source.reader_bytes == caches + filtering + 10 * READ_CHUNK_BYTES
    assert read_samples(source, 3, 40)[-1].ravel().tolist() == list(range(112, 128))


@given(data=st.data())
def test_boxes_cover_all_once_and_touch_few_chunks(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=4)))
    chunks = tuple(data.draw(st.integers(1, 5)) for _ in shape)
    start, stop = sorted((data.draw(st.integers(0, shape[0])), data.draw(st.integers(0, shape[0]))))
    most = data.draw(st.integers(1, 20))
    seen = np.zeros(shape, int)
    for box in boxes(start, stop, shape, chunks, most):
        seen[box] += 1
        each = zip(box, chunks, strict=True)
        assert math.prod(-(-part.stop // chunk) - part.start // chunk for part, chunk in each) <= most
    assert (seen[start:stop] == 1).all()
    assert seen.sum() == seen[start:stop].size


@pytest.mark.parametrize("chunks", [(1, 1, 1, 1), (1, 1, 12, 3), (2, 4, 4, 3), (40, 1, 1, 3)])
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_tiny_chunks_have_the_same_values(
    path: Path, monkeypatch: pytest.MonkeyPatch, chunks: tuple[int, ...], compression: str | None
) -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 12, 12, 3), np.uint8)
    write_arrays(path, {"images": images}, chunks=chunks, compression=compression)
    monkeypatch.setattr(source_module.boxes, "__defaults__", (100,))
    assert np.array_equal(read_samples(Hdf5Source.open(path, "images"), 3, 40), images[3:])


MEASURED = """
import sys
from smtdist.data.encoded import bytes_of
from smtdist.data.opening import open_labels, open_source

def most():
    with open("/proc/self/status") as text:
        return next(int(line.split()[1]) for line in text if line.startswith("VmHWM")) * 1024

path, name = sys.argv[1:]
source = open_source(path, name)
with source.opened() as reader:
    reader.read(0, 1)
    before = most()
    reader.read(0, source.n_samples)
    open_labels(path, name, source)
    print(most() - before, source.n_samples * source.sample_bytes + source.reader_bytes)
"""


@pytest.mark.parametrize("kind", ["plain", "virtual", "encoded"])
def test_tiny_chunks_take_the_memory_of_the_plan(path: Path, kind: str) -> None:
    """One read of 43,200 chunks took 290 MB."""
    images = np.zeros((100, 12, 12, 3), np.uint8)
    if kind == "encoded":
        write_encoded(path, [pillow_bytes(images[0])] * 300, chunks=(1,))
    with h5py.File(path, "a") as file:
        if kind != "encoded":
            name = "images" if kind == "plain" else "tiny"
            file.create_dataset(f"train/{name}", data=images, chunks=(1, 1, 1, 1))
        if kind == "virtual":
            layout = h5py.VirtualLayout(images.shape, np.uint8)
            layout[:] = h5py.VirtualSource(file["train/tiny"])
            file.create_virtual_dataset("train/images", layout)
        n = len(images) if kind != "encoded" else 300
        file.create_dataset("train/labels", data=np.arange(n), chunks=(1,))
    taken, planned = program(MEASURED, path, "train").stdout.split()
    assert int(taken) <= int(planned) + 4 * 2**20


def test_chunks_that_are_not_stored_are_named(path: Path) -> None:
    images = IMAGES["train/images"]
    with h5py.File(path, "w") as file:
        for name, compression in (("plain", None), ("packed", "gzip")):
            stored = file.create_dataset(name, SHAPE, np.uint8, chunks=(8, 4, 2), compression=compression)
            stored[:8], stored[16:, :, :2], stored[24:] = images[:8], images[16:, :, :2], images[24:]
        file.create_dataset("never", SHAPE, np.uint8)
        file["whole"] = images
    for name in ("plain", "packed"):
        with pytest.warns(
            DataWarning, match=r"3 of 10 chunks are not stored, at \[8, 0, 0\], \[8, 0, 2\], \[16, 0, 2\],"
        ):
            source = open_source(path, name)
        values = read_samples(source, 0, 40)[..., 0]
        assert (values[8:16].any(), np.array_equal(values[24:], images[24:])) == (False, True)
    with pytest.warns(DataWarning, match="nothing was written there"):
        open_source(path, "never")
    open_source(path, "whole")  # a warning would be an error


WRITERS = {
    "killed": "f.flush(); os._exit(9)",
    "writing": "f.swmr_mode = True; print('now', flush=True); sys.stdin.read()",
}


@pytest.mark.parametrize("how", WRITERS)
def test_a_file_that_somebody_writes_is_named_as_such(path: Path, how: str) -> None:
    script = (
        f"import h5py, os, sys; f = h5py.File({str(path)!r}, 'w', libver='latest'); "
        f"f.create_dataset('images', data=[[[1]]], chunks=(1, 1, 1), maxshape=(None, 1, 1)); {WRITERS[how]}"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=-1, stdout=-1) as writer:
        if how == "killed":
            writer.wait()
        else:
            writer.stdout.readline()  # type: ignore[union-attr]
        for read in (lambda: Hdf5Source.open(path, "images"), lambda: smtdist.load(path)):
            with pytest.raises(
                SmtdistError, match=r"open for writing by another program; close it there.*h5clear -s"
            ):
                read()
        with h5py.File(path.parent / "all.h5", "w") as file:
            file["images"] = h5py.ExternalLink(path.name, "images")
        with pytest.raises(DataError, match=r"digits\.h5 is open for writing"):
            Hdf5Source.open(path.parent / "all.h5", "images")
        writer.communicate()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros(39, np.int64), r"has the shape \(39,\), but there are 40 samples"),
        (np.zeros((40, 2), np.int64), "has the shape"),
        (np.zeros(40), "labels are whole numbers"),
        (np.full(40, 2**63, np.uint64), "does not fit in int64"),
    ],
)
def test_labels_are_validated(path: Path, labels: np.ndarray, message: str) -> None:
    write_arrays(path, {"labels": labels})
    with pytest.raises(DataError, match=message):
        read_labels(path, "labels", 40)


@pytest.mark.parametrize("dtype", ["uint8", "int32", ">i8"])
@pytest.mark.parametrize("shape", [(40,), (40, 1), (40, 1, 1, 1)])
def test_labels_come_as_int64(path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    write_arrays(path, {"train/labels": np.arange(40).astype(dtype).reshape(shape)})
    labels = read_labels(path, "train/labels", 40)
    assert labels.dtype == np.int64
    assert labels.tolist() == list(range(40))
