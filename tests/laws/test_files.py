"""One law for the files of all kinds: read and written again they hold the same, xarray opens them, others are refused.

A bit that is flipped anywhere in what this version writes, checkpoints among them, is noticed or changes nothing.
"""

import shutil
import struct
from contextlib import suppress

import h5py
import numpy as np
import pytest
import representation_files
import xarray as xr
from every_kind import FIRST, FOLDER, KIND, MODELS
from numpy.typing import NDArray

from smtdist.concepts.progress import Progress
from smtdist.data.netcdf import Streamed
from smtdist.engine import folder as lock
from smtdist.engine.checkpoint import Learned, PassFolder, ThetaFile
from smtdist.engine.partial import Counters, Partial
from smtdist.errors import ModelError, SmtdistError
from smtdist.evaluate import head_files, stored
from smtdist.models import kinds, store
from smtdist.report.checking import WHOLE, checked


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
    assert of_model(once) == of_model(path)
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
    about, path = kinds.KINDS[kind], tmp_path / "model.h5"

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


@pytest.mark.parametrize(
    ("name", "array"), [("head-exact", "solution/duals"), ("rows-0", "z"), ("predictions", "label")]
)
def test_checksums_of_earlier_versions_are_compared(name, array, tmp_path):
    shutil.copy(FOLDER / f"{name}.h5", path := tmp_path / "m.h5")
    assert [verdict.state for verdict in checked(path)] == [WHOLE]
    with h5py.File(path, "r+") as file:
        file[array][...] = file[array][()][::-1].copy()
    (verdict,) = checked(path)
    assert f"the array {array}" in verdict.text
    assert "fails its checksum" in verdict.text


def of_model(path):
    model = store.load(path)
    return [
        (
            name,
            str(group.attributes),
            [(array, dims, kept(values)) for array, (dims, values, _) in group.items()],
        )
        for name, group in kinds.KINDS[model.STORED_AS].imported().stored(model)
    ]


def kept(values):
    if isinstance(values, Streamed):
        values = np.concatenate([rows for _, rows in values.pieces()])
    return values.dtype.str, values.shape, values.tolist() if values.dtype == object else values.tobytes()


def of_rows(path):
    with stored.opened(path) as file:
        return kept(file.rows[:]), kept(file.labels), file.names, file.layout, file.votes, file.asked


def of_predictions(path):
    with store.opened(path, "predictions") as file:
        return [kept(file[name][()]) for name in (*head_files.PREDICTIONS, "class")], str(dict(file.attrs))


def of_partial(path):
    partial = PassFolder(str(path.parent), "key").result()
    return partial and (kept(partial.state["total"]), partial.covers, partial.counters.skipped)


def of_rounds(path):
    learned = ThetaFile(path, "key").read(NDArray, lambda text: None)
    return learned and (kept(learned.theta), learned.rounds, learned.records, learned.over)


def of_step(path):
    step = Progress(path.parent, path.stem).load()
    return kept(step["packed"]), step["counts"]


def write(name, path):
    if name in FIRST:
        store.save(store.load(FIRST[name]), path)
    elif name == "rows":
        representation_files.write(path, *representation_files.made(9, 0), names=("ape", "bee", "cat"))
    elif name == "predictions":
        classes, shares = np.array(["ape", "bee"]), np.array([[0.5, 0.5], [0.2, 0.8]])
        head_files.save_predictions(path, [(0, classes, shares)], 2, classes, {"title": "Predictions"})
    elif name == "partial sum":
        counters = Counters(n_samples=7, skipped=((2, 3),))
        PassFolder(str(path.parent), "key").finish(Partial({"total": np.arange(5)}, ((0, 2),), counters))
    elif name == "rounds of a loop":
        ThetaFile(path, "key").write(Learned(np.arange(5.0), 2, [{"loss": 0.5}], over=False))
    else:
        with lock.locked(path.parent):
            Progress(path.parent, path.stem).save(packed=np.arange(9, dtype=np.uint8), counts="{}")


CONTAINERS = {"partial sum": of_partial, "rounds of a loop": of_rounds, "step of a search": of_step}
READERS = {**dict.fromkeys(FIRST, of_model), "rows": of_rows, "predictions": of_predictions, **CONTAINERS}


def bits(name, whole):
    """Return which bits are flipped: all of the index of a container, or every seventh, and of the rest some, evenly spread."""
    index = 8 * (whole.index(b"\0") + 1) if name in CONTAINERS else 0
    step = 8 * len(whole) // (24 if name in FIRST else 100) | 1
    places = lengths_of_texts(whole)
    spread = (*range(0, index, 1 if name == "rounds of a loop" else 7), *range(index, 8 * len(whole), step))
    return [bit for bit in spread if bit // 8 not in places]


def lengths_of_texts(whole):
    """Return where the lengths of texts lie: HDF5 keeps texts without a checksum, and with some lengths does not come back."""
    places, at = set(), whole.find(b"GCOL")
    while at >= 0:
        end, here = at + struct.unpack_from("<Q", whole, at + 8)[0], at + 16
        while here + 16 <= end and struct.unpack_from("<H", whole, here)[0]:
            places.update(range(here + 8, here + 16))
            here += 16 + -(-struct.unpack_from("<Q", whole, here + 8)[0] // 8) * 8
        places.update(range(here + 8, here + 16))
        at = whole.find(b"GCOL", end)
    return places


@pytest.mark.parametrize("name", READERS)
def test_a_flipped_bit_is_noticed_or_changes_nothing(name, tmp_path):
    path, read, noticed = tmp_path / "result.h5", READERS[name], 0
    write(name, path)
    whole, held = path.read_bytes(), read(path)
    for bit in bits(name, whole):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        (verdict,) = checked(path)
        now = None
        with suppress(SmtdistError):
            now = read(path)
        assert now in (None, held), bit
        assert now == held or verdict.state != WHOLE, bit
        noticed += now is None
    assert noticed
