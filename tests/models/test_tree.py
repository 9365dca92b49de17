"""`smtdist.open_datatree`: every file as a tree, equal to what h5py and the model say, and read only when asked."""

import json
import os
import pickle
import tracemalloc

import h5py
import numpy as np
import pytest
import xarray as xr
from arrays_in_files import write_arrays
from drawing import small_images
from hypothesis import example, given, settings
from hypothesis import strategies as st

import smtdist
from smtdist.data.array import as_source
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.errors import DataError, ModelError
from smtdist.models import kinds, store
from smtdist.models.fit import fit
from smtdist.models.transform import save_representation

MATRICES = ("second_moment", "context_scatter", "cooccurrence")
CASES = {
    "one-hot": {"feature": "vq", "constant_patch": "activate_best", "context": 2},
    "one-hot, left out": {"feature": "vq", "context": 2, "min_contrast": 8},
    "equal degrees": {"feature": "gq", "context": "whole", "zero_code": "activate_best", "min_contrast": 0},
    "borders": {"feature": "gq", "context": 1},
    "second order": {"feature": "vq", "context": 1, "order": 2},
}


@pytest.fixture(scope="module", params=CASES)
def model(request):
    asked = {"patch": 3, "dictionary": 14, "n_components": 3, "pool_size": 2, **CASES[request.param]}
    images = small_images(1, 30, 8, 8)
    return fit(as_source(images), smtdist.Configuration().replace(**asked), Engine(SerialExecutor()))[0]


def without_derived(path):
    """Make of a model file what a larger dictionary would have: derived matrices left out."""
    with h5py.File(path, "a") as file:
        group = file["statistics"]
        for name in json.loads(group.attrs["derived"]):
            del group[name]


def test_a_model_is_what_was_saved(model, tmp_path):
    path = tmp_path / "model.h5"
    store.save(model, path)
    for prepare in (lambda path: None, without_derived):
        prepare(path)
        with smtdist.open_datatree(path) as tree:
            assert set(tree.children) >= {"whitening", "dictionary", "statistics", "embedding"}
            assert smtdist.Configuration.from_json(tree.attrs["configuration"]) == model.settings
            statistics = tree["statistics"]
            for name in MATRICES:
                assert statistics[name].dims == ("atom", "atom_")
                np.testing.assert_array_equal(statistics[name], getattr(model.statistics, name))
            assert json.loads(statistics.attrs["derived"]) == model.statistics.derived
            assert statistics.attrs["order"] == model.settings.difference_order
            assert int(statistics["n_positions"]) == model.statistics.n_positions
            np.testing.assert_array_equal(tree["dictionary/atoms"], model.dictionary.atoms)
            assert tree["embedding/components"].dims == ("component", "atom")
            np.testing.assert_array_equal(tree["embedding/components"], model.embedding.components)


def test_the_tree_agrees_with_xarray(model, tmp_path):
    store.save(model, tmp_path / "model.h5")
    with smtdist.open_datatree(tmp_path / "model.h5") as tree:
        for group in tree.children:
            with xr.open_dataset(tmp_path / "model.h5", group=group, engine="h5netcdf") as expected:
                xr.testing.assert_identical(tree[group].to_dataset(), expected.load())


K = 5000


@pytest.fixture(scope="module", params=["one-hot", "equal degrees"])
def large(request, tmp_path_factory):
    """A model's statistics over 5,000 atoms, 100 MB a matrix if it were stored: most chunks of it are not."""
    path = tmp_path_factory.mktemp("large") / "model.h5"
    rng = np.random.default_rng(2)
    with h5py.File(path, "w") as file:
        file.attrs["smtdist_schema"] = 1
        group = file.create_group("statistics")
        group.attrs["equal_degree"] = np.array([7 if request.param == "equal degrees" else -1])
        group["activity"] = rng.integers(0, 2**40, K)
        for name in ("cooccurrence", *(["second_moment"] if request.param == "equal degrees" else [])):
            matrix = group.create_dataset(name, (K, K), "int32", chunks=(500, 500))
            matrix[:500, :500] = rng.integers(0, 1000, (500, 500))
        missing = ["context_scatter"]
        if request.param == "one-hot":
            group["degree_activity"] = rng.integers(0, 2**44, K)
            missing.append("second_moment")
        group.attrs["derived"] = json.dumps(missing)
    return path


@pytest.fixture(scope="module")
def whole(large):
    """The matrices as numbers, by the plain rules."""
    with h5py.File(large) as file:
        group = file["statistics"]
        cooccurrence = group["cooccurrence"][()].astype(np.int64)
        if "second_moment" in group:
            moment = group["second_moment"][()].astype(np.int64)
            return {"second_moment": moment, "context_scatter": 7 * moment - cooccurrence}
        scatter = np.diag(group["degree_activity"][()]) - cooccurrence
        return {"second_moment": np.diag(group["activity"][()]), "context_scatter": scatter}


@st.composite
def selections(draw):
    """One axis of a square matrix: a slice with any step, a whole number, or a list with repeats."""
    numbers = st.integers(-K, K - 1)
    kind = draw(st.sampled_from(["slice", "number", "list"]))
    if kind == "number":
        return draw(numbers)
    if kind == "list":
        return draw(st.lists(st.integers(0, 30) | numbers, min_size=1, max_size=5))
    start = draw(st.integers(0, K))
    length, step = draw(st.integers(0, 40)), draw(st.sampled_from([1, 2, 3, -1, -2]))
    stop = start + length * (1 if step > 0 else -1)
    return slice(start, None if stop < 0 else stop, step)


@settings(max_examples=50, deadline=None)
@example(rows=0, columns=slice(0, 0, -1), name="second_moment")
@given(rows=selections(), columns=selections(), name=st.sampled_from(["second_moment", "context_scatter"]))
def test_blocks_of_derived_matrices(large, whole, rows, columns, name):
    with smtdist.open_datatree(large) as tree:
        found = tree["statistics"][name][rows, columns]
        np.testing.assert_array_equal(found, whole[name][rows][..., columns])
        assert found.dtype == np.int64 or name == "second_moment"


def test_whole_derived_matrices_in_strips(large, whole, monkeypatch):
    monkeypatch.setattr("smtdist.models.tree.STRIP_BYTES", 8 * K * 600)
    with smtdist.open_datatree(large) as tree:
        for name, expected in whole.items():
            np.testing.assert_array_equal(tree["statistics"][name].values, expected)


def test_nothing_is_read_at_open_and_little_for_a_block(large):
    tracemalloc.start()
    tree = smtdist.open_datatree(large)
    scatter = tree["statistics/context_scatter"]
    opened = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    block = scatter[100:200, 50:250].values
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert block.shape == (100, 200)
    # the matrix has 200 MB
    assert opened < 2 * 2**20
    assert peak < 4 * 2**20


def test_every_array_waits_until_it_is_used(large, monkeypatch):
    reads = []
    original = h5py.Dataset.__getitem__
    monkeypatch.setattr(
        h5py.Dataset, "__getitem__", lambda self, key: reads.append(self.name) or original(self, key)
    )
    tree = smtdist.open_datatree(large)
    assert repr(tree)
    part = tree["statistics"].to_dataset().isel(atom=slice(0, 10))
    assert reads == []
    assert part["cooccurrence"].sum() >= 0
    assert reads == ["/statistics/cooccurrence"]


def test_dask_takes_it_block_by_block(large, whole):
    with smtdist.open_datatree(large) as tree:
        scatter = tree["statistics/context_scatter"].chunk({"atom": 1000, "atom_": 5000})
        assert int(scatter.sum().compute(scheduler="threads")) == int(whole["context_scatter"].sum())
        copy = pickle.loads(pickle.dumps(tree["statistics/cooccurrence"]))
        assert int(copy[0, 0]) == int(tree["statistics/cooccurrence"][0, 0])


def test_the_file_is_free(tmp_path):
    """No handle is kept: another process may write to the file, and rename another one onto it."""
    path = tmp_path / "data.h5"
    write_arrays(path, {"images": np.arange(48, dtype=np.uint8).reshape(3, 4, 4)})
    tree = smtdist.open_datatree(path)
    with h5py.File(path, "a") as file:  # refused where a reader holds the lock
        file["images"][0] = 9
    assert int(tree["images"][0, 0, 0]) == 9
    changed = smtdist.open_datatree(path)
    changed["images"][0, 0, 0] = 5  # a copy in memory
    assert int(changed["images"][0, 0, 0]) == 5
    assert int(smtdist.open_datatree(path)["images"][0, 0, 0]) == 9
    write_arrays(path, {"images": np.zeros((2, 4, 4), np.uint8)})
    with pytest.raises(DataError, match=r"no longer the uint8 \(3, 4, 4\)"):
        tree["images"][1].load()
    tree.close()


@pytest.mark.parametrize("locking", [None, True, "best-effort"])
def test_a_file_that_this_process_has_open_with_a_lock(locking, tmp_path):
    """HDF5 refuses to open a file in two ways at once, and other readers of the same process may lock."""
    write_arrays(tmp_path / "data.h5", {"images": np.ones((3, 4, 4), np.uint8)})
    with h5py.File(tmp_path / "data.h5", "r", locking=locking):
        tree = smtdist.open_datatree(tmp_path / "data.h5")
        assert int(tree["images"].sum()) == 48
    assert int(tree["images"].sum()) == 48


def test_a_representation(tmp_path):
    z = np.random.default_rng(0).normal(size=(7, 12)).astype(np.float32)
    save_representation(tmp_path / "z.h5", [(0, z[:4]), (4, z[4:])], 7, (2, 2, 3), "float32", {"drop": 1})
    with smtdist.open_datatree(tmp_path / "z.h5") as tree:
        assert tree["z"].dims == ("sample", "feature")
        np.testing.assert_array_equal(tree["z"][2:5, ::-2], z[2:5, ::-2])
        np.testing.assert_array_equal(tree["sample"], np.arange(7))
        assert list(tree.attrs["feature_shape"]) == [2, 2, 3]


def test_data_files_plain_and_encoded(tmp_path):
    rng = np.random.default_rng(0)
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["train/images"] = rng.integers(0, 256, (6, 5, 5, 3), dtype=np.uint8)
        file["train/labels"] = np.arange(6)
        file["train/names"] = [f"digit {i}" for i in range(6)]
        file["test/images"] = rng.random((4, 5, 5))
        file["test/sizes"] = np.ones((4, 2))
        file["packed/bytes"] = rng.integers(0, 256, 100, dtype=np.uint8)
        file["packed/offsets"] = np.array([0, 40, 70, 100])
        file["packed/labels"] = np.array([2, 0, 1])
        file["odd/square"] = np.eye(3, dtype=complex)
        file["odd/sample"] = rng.random((4, 5, 5))
        file["odd/link"] = h5py.SoftLink("/nowhere")
        file["odd/nothing"] = h5py.Empty("f")
    with smtdist.open_datatree(tmp_path / "data.h5") as tree:
        dims = {
            node.path: {name: array.dims for name, array in node.data_vars.items()} for node in tree.leaves
        }
        assert dims["/train"] == {
            "images": ("sample", "row", "column", "channel"), "labels": ("sample",), "names": ("sample",),
        }  # fmt: skip
        assert dims["/test"] == {"images": ("sample", "row", "column"), "sizes": ("sample", "dim_2")}
        assert dims["/packed"] == {"bytes": ("byte",), "labels": ("sample",), "offsets": ("edge",)}
        assert dims["/odd"] == {"square": ("dim_3", "dim_3_"), "sample": ("sample_", "row", "column")}
        assert tree["train/names"].values.tolist()[4] == "digit 4"
        with h5py.File(tmp_path / "data.h5") as file:
            for name in ("train/images", "test/images", "packed/bytes", "odd/square"):
                np.testing.assert_array_equal(tree[name], file[name][()])


def test_groups_within_groups_keep_their_lengths_apart(tmp_path):
    images, more = np.zeros((6, 5, 5), np.uint8), np.ones((2, 5, 5), np.uint8)
    write_arrays(tmp_path / "data.h5", {"images": images, "more/images": more})
    with smtdist.open_datatree(tmp_path / "data.h5") as tree:
        assert tree["more/images"].dims == ("images_sample", "row", "column")
        assert int(tree["more/images"].sum()) == 50


def test_real_data_files_open(real_data):
    with smtdist.open_datatree(real_data("mnist.h5")) as tree, h5py.File(real_data("mnist.h5")) as file:
        np.testing.assert_array_equal(tree["test/images"][5000:5003], file["test/images"][5000:5003])
    path = real_data("cifar10_jpeg.h5")
    with smtdist.open_datatree(path) as tree, h5py.File(path) as file:
        count = len(file["test/labels"])
        assert dict(tree["test"].sizes) == {
            "byte": len(file["test/bytes"]),
            "sample": count,
            "edge": count + 1,
        }


def test_a_checkpoint_opens(tmp_path):
    asked = smtdist.Configuration().replace(
        patch=3, feature="vq", dictionary=8, n_components=2, pool_size=2
    )
    engine = Engine(SerialExecutor(), checkpoint=tmp_path, key="a")
    model, _ = fit(as_source(small_images(1, 20, 8, 8)), asked, engine)
    with smtdist.open_datatree(tmp_path / "statistics" / "result.h5") as tree:
        activity = next(node["activity"] for node in tree.subtree if "activity" in node)
        np.testing.assert_array_equal(activity, model.statistics.activity)


def test_what_cannot_be_opened_is_said_in_a_sentence(tmp_path):
    (tmp_path / "text.h5").write_text("no HDF5")
    with pytest.raises(DataError, match="not an HDF5 file"):
        smtdist.open_datatree(tmp_path / "text.h5")
    with pytest.raises(DataError, match="does not exist"):
        smtdist.open_datatree(tmp_path / "none.h5")
    with h5py.File(tmp_path / "new.h5", "w") as file:
        file.attrs["smtdist_schema"] = kinds.KINDS["smt"].newest + 1
    with pytest.raises(ModelError, match="newer smtdist"):
        smtdist.open_datatree(tmp_path / "new.h5")
    with h5py.File(tmp_path / "part.h5", "w") as file:
        file.attrs["smtdist_schema"] = 1
        file.create_group("statistics").attrs["derived"] = '["second_moment"]'
    with pytest.raises(ModelError, match="not a complete smtdist model"):
        smtdist.open_datatree(tmp_path / "part.h5")
    assert sorted(os.listdir(tmp_path)) == ["new.h5", "part.h5", "text.h5"]
