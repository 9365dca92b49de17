"""Other ways to read codes out: counts in cells, grids, mirror images; from arrays, from files, and by the command line."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from arrays_in_files import write_labelled
from calling import call, run, told

from smtdist.configuration import Configuration
from smtdist.data.array import as_source
from smtdist.data.views import First
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError
from smtdist.evaluate.run import Comparison, Kernel, Labelled
from smtdist.kernels import codes as code_kernels
from smtdist.kernels import memory
from smtdist.models import store
from smtdist.models.fit import fit
from smtdist.models.joined import side_by_side
from smtdist.models.readout import Columns, ModelReadout, Readout, layout_of, with_readout
from smtdist.models.transform import represented

N = 30


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(2)
    found = rng.integers(0, 256, (N, 9, 8, 3), dtype=np.uint8)
    found[::2] //= 3
    return found


@pytest.fixture(scope="module")
def model(images):
    settings = Configuration(
        patch=3, dictionary=20, n_components=5, threshold=0.4, pool_size=2, pool_stride=1
    )
    return fit(as_source(images), settings, Engine(SerialExecutor(1)))[0]


def dense_codes(model, images):
    """Return the codes of every patch, (n, rows, columns, K), as zeros and ones."""
    encoder = model.encoder
    geometry = encoder.whitener.geometry
    shape = (len(images), geometry.rows, geometry.columns, len(encoder.atoms))
    capacity = memory.code_capacity(
        geometry, shape[-1], encoder.form, len(images), encoder.whitener.sampling
    )
    found = []
    for _, count, codes in code_kernels.encode_pieces(images, encoder, False, capacity):
        dense = np.zeros((count * geometry.positions, shape[-1]))
        for patch in range(len(dense)):
            dense[patch, codes.indices[codes.indptr[patch] : codes.indptr[patch + 1]]] = 1
        found.append(dense)
    return np.concatenate(found).reshape(shape)


def z_of(model, images, **how):
    z = represented(ModelReadout(model, Readout(**how)), as_source(images), Engine(SerialExecutor(1)))
    return z if how.get("mirrored") else z.reshape(len(z), -1)


def test_codes_are_roots_of_counts_in_cells(model, images):
    dense = dense_codes(model, images)  # 7 x 6 positions: cells of 4 and 3 rows, 3 and 3 columns
    cells = [
        dense[:, rows, columns].sum(axis=(1, 2))
        for rows in (np.s_[:4], np.s_[4:])
        for columns in (np.s_[:3], np.s_[3:])
    ]
    expected = np.sqrt(np.stack(cells, axis=1).reshape(N, -1))
    np.testing.assert_array_equal(z_of(model, images, features="codes"), expected.astype(np.float32))


def unit(rows):
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows / np.where(lengths == 0, 1, lengths)


def test_windows_of_the_embedding_cover_the_image(model, images):
    patches = unit(dense_codes(model, images) @ model.components())  # 7 x 6 positions: windows of 3 x 3
    windows = [
        patches[:, rows, columns].mean(axis=(1, 2))
        for rows in (np.s_[:3], np.s_[3:6])
        for columns in (np.s_[:3], np.s_[3:])
    ]
    expected = unit(np.stack(windows, axis=1)).reshape(N, -1)
    np.testing.assert_allclose(z_of(model, images, features="embedding", grid=2), expected, atol=1e-6)
    plain = represented(model, as_source(images), Engine(SerialExecutor(1)))
    whole = z_of(model, images, features="embedding", grid=None)
    assert (whole == plain.reshape(N, -1)).all()


def test_both_are_one_behind_the_other_and_mirror_images_beside_them(model, images):
    both = z_of(model, images, grid=2, mirrored=True)
    parts = [z_of(model, images, features=name, grid=2) for name in ("embedding", "codes")]
    assert both.shape == (N, 2, 2 * 2 * 5 + 2 * 2 * 20)
    assert (both[:, 0] == np.hstack(parts)).all()
    assert (both[:, 1] == z_of(model, np.ascontiguousarray(images[:, :, ::-1]), grid=2)).all()
    half = z_of(model, images, grid=2, dtype="float16")
    assert half.dtype == np.float16
    np.testing.assert_allclose(half, both[:, 0], rtol=1e-3, atol=1e-3)


def test_blocks_say_where_parts_are(model, images):
    seen = ModelReadout(model, Readout(grid=2))
    assert [(block.name, block.shape) for block in seen.blocks()] == [
        ("embedding", (2, 2, 5)),
        ("codes", (2, 2, 20)),
    ]
    seen = ModelReadout(model, Readout(grid=2, n_components=3))
    assert [block.shape for block in seen.blocks()] == [(2, 2, 3), (2, 2, 20)]
    both = with_readout(model, "both", 2, n_components=3, mirrored=True)
    layout = layout_of(side_by_side(both, [with_readout(model, None, n_components=3)]))
    assert [[(one.start, one.block.size, one.mirrored) for one in columns] for columns in layout] == [
        [(0, 12, 92), (12, 80, 104)],
        [(184, 90, None)],
    ]
    assert [Columns.from_dict(json.loads(json.dumps(one.to_dict()))) for one in layout[0]] == layout[0]


def test_what_is_not_there_is_refused(model):
    with pytest.raises(ConfigurationError, match="no features 'code'"):
        Readout("code")
    with pytest.raises(ConfigurationError, match="no float64 features"):
        Readout(dtype="float64")
    with pytest.raises(ConfigurationError, match="grid is 0"):
        Readout(grid=0)
    with pytest.raises(ConfigurationError, match="no 7 x 7 windows in 7 x 6 patches"):
        ModelReadout(model, Readout(grid=7)).blocks()
    with pytest.raises(ConfigurationError, match=r"code=.gq. or code=.vq.; use"):
        ModelReadout(side_by_side(model, [model]), Readout())
    with pytest.raises(ConfigurationError, match="leave it out"):
        with_readout(model, "codes", 2)
    assert with_readout(model, None) is model


def test_the_first_samples_are_a_source(images):
    few = First(as_source(images), 7)
    with few.opened() as reader:
        assert (reader.read(2, 7) == images[2:7]).all()
    assert few.leaf_bounds()[-1] == 7
    with pytest.raises(DataError, match="has 30 samples, not 31"):
        First(as_source(images), 31)


def labels_of(images):
    return (images.mean(axis=(1, 2, 3)) > 80).astype(np.int64)


@pytest.fixture(scope="module")
def folder(model, images, tmp_path_factory):
    at = tmp_path_factory.mktemp("readout")
    store.save(model, at / "m.h5")
    write_labelled(at / "d.h5", images, labels_of(images), {"train": 20, "test": 10})
    return at


@pytest.fixture
def stored(folder, images, monkeypatch):
    """The labels of the images, which lie in the present folder with the model."""
    monkeypatch.chdir(folder)
    return labels_of(images)


ON_IMAGES = "evaluate m.h5 d.h5 --train train/images --test test/images"
"""What judges the model by the images themselves."""


def test_transform_writes_them(model, images, stored):
    asked = "--features both --pool 2 --mirrored --limit 9"
    run(f"transform m.h5 d.h5 --dataset train/images --out z.h5 {asked}")
    with h5py.File("z.h5") as file:
        assert file.attrs["feature_shape"].tolist() == [2, 100]
        assert json.loads(file.attrs["parts"])[0][1] == {
            "name": "codes",
            "shape": [2, 2, 20],
            "start": 20,
            "mirrored": 120,
        }
        assert (file["labels"][:] == stored[:9]).all()
        assert (file["z"][:] == z_of(model, images[:9], grid=2, mirrored=True).reshape(9, -1)).all()


def test_transform_writes_half_the_bytes(model, images, stored):
    words = "transform m.h5 d.h5 --dataset test/images --half --out"
    run(words, "half.h5")
    run(words, "both.h5 --features both --with m.h5")
    plain = represented(model, as_source(images[20:]), Engine(SerialExecutor(1)))
    with h5py.File("half.h5") as file, h5py.File("both.h5") as both:
        assert file["z"].dtype == both["z"].dtype == np.float16
        np.testing.assert_allclose(file["z"][:], plain.reshape(10, -1), rtol=1e-3, atol=1e-3)
        assert file.attrs["feature_shape"].tolist() == [6, 5, 5]


def test_evaluate_by_the_kernel(model, images, stored):
    labels, said = stored, told(ON_IMAGES, "--metric kernel --quiet")
    assert said["metric"] == "kernel"
    assert said["mirrored"] is True
    assert said["n_train"] == 20
    engine = Engine(SerialExecutor(1))
    known, asked = (Labelled(as_source(images[part]), labels[part]) for part in (np.s_[:20], np.s_[20:]))
    seen = with_readout(model, "both", mirrored=True)
    assert seen.readout.grid == 4
    found = Comparison(seen, known, asked, Kernel(0.5, layout_of(seen))).found(engine)
    assert found.to_dict() == {name: said[name] for name in found.to_dict()}
    few = told(ON_IMAGES, "--metric kernel --limit 12 --temperature 1 --features codes")
    assert (few["n_train"], few["temperature"]) == (12, 1.0)
    text = run(ON_IMAGES, "--metric kernel --not-mirrored")
    assert "kernel ridge (T = 0.5" in text
    assert "mirrored" not in text
    run(ON_IMAGES, "--metric kernel --neighbours 3", code=2)


def test_evaluate_by_the_kernel_with_few_labels(stored):
    words = f"{ON_IMAGES} --metric kernel --labels 8 --labels 12 --draws 2 --quiet"
    said = told(words, "--with m.h5")
    assert said["metric"] == "kernel"
    assert [(one["labels"], len(one["draws"])) for one in said["sweep"]] == [(8, 2), (12, 2)]
    assert all(0 <= share <= 1 for one in said["sweep"] for share in one["draws"])
    assert said == told(words, "--with m.h5")
    assert "Accuracy with few labels" in run(words)


@pytest.fixture(scope="module")
def written(folder):
    for group in ("train", "test"):
        transform = ["transform", folder / "m.h5", folder / "d.h5", f"--dataset {group}/images --out"]
        run(*transform, folder / f"{group}.h5", "--features both --mirrored")
        run(*transform, folder / f"{group}-plain.h5")


AS_POOLED = "--neighbours 5"
"""For files of what the model pools."""


@pytest.mark.parametrize(
    "options",
    [
        AS_POOLED,
        "--metric kernel",
        "--metric kernel --labels 8 --draws 2",
        "--metric kernel --not-mirrored",
        "--neighbours 5 --mirrored --features both",
        "--metric linear --features both",
    ],
)
def test_files_give_the_figures_of_the_images(written, stored, options):
    expected = told(ON_IMAGES, options, "--quiet")
    files = "train.h5 test.h5" if options != AS_POOLED else "train-plain.h5 test-plain.h5"
    said = told("evaluate", files, options.replace("--features both", ""), "--quiet")
    raw = expected.pop("raw_pixels", None)
    assert raw or options != AS_POOLED  # a file has none
    assert {**said, "model": ""} == {**expected, "model": ""}


def test_files_that_do_not_go_together_are_refused(written, stored):
    def refused(words):
        result = call("evaluate", words)
        assert result.exit_code in (1, 2)
        return result.stderr

    assert "not written by the same model with the same options" in refused("train.h5 test-plain.h5")
    assert "leave out --train, --test" in refused("train.h5 test.h5 --limit 3")
    assert "There is no file" in refused("train.h5 none.h5")
    transform = "transform m.h5 d.h5 --features both --mirrored --components 4"
    run(f"{transform} --dataset test/images --out dropped.h5 --drop 1")
    run(f"{transform} --dataset train/images --out kept.h5")
    assert "not written by the same model" in refused("kept.h5 dropped.h5 --metric kernel")
    assert "name the model first" in refused("train.h5 m.h5")
    Path("cut.h5").write_bytes(Path("test.h5").read_bytes()[:3000])
    assert "is not a readable HDF5 file" in refused("train.h5 cut.h5")
    assert "no features of mirror images" in refused("train-plain.h5 test-plain.h5 --mirrored")
    assert "give both" in refused("m.h5 d.h5")
    with h5py.File("train-plain.h5", "a") as file:
        del file["labels"], file.attrs["smtdist_checksums"]
    assert "has no labels" in refused("train-plain.h5 test-plain.h5")
