"""Exported encoders: ONNX Runtime gives the codes of the kernels and the representations of `transform`."""

import io
import os
import sys
from itertools import pairwise

import h5py
import numpy as np
import pytest
from arrays_in_files import read_array
from calling import run
from coded import encode
from drawing import small_images
from executors import engine
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from PIL import Image

import smtdist
from smtdist.data.array import as_source
from smtdist.errors import ConfigurationError, DataError, ModelError
from smtdist.models.export import as_graph, export, tables
from smtdist.models.fit import fit
from smtdist.models.readout import with_readout
from smtdist.models.transform import transform

TOLERANCE = 1e-4
POLICIES = ("keep", "leave_out", "activate_best")


def fitted(images, **changes):
    given_settings = {"patch": 3, "dictionary": 12, "n_components": 3, "pool_size": 2, "pool_stride": 1}
    settings_of_model = smtdist.Configuration().replace(**{**given_settings, **changes})
    return fit(as_source(images), settings_of_model, engine())[0]


def represented(model, images):
    pieces = sorted(transform(model, as_source(images), engine()), key=lambda piece: piece[0])
    return np.concatenate([values.reshape(len(values), -1) for _, values in pieces])


def dense_codes(model, images):
    """Codes of the kernels as zeros and ones, (patches, K)."""
    codes = encode(images, model.encoder, False)
    result = np.zeros((codes.n_patches, codes.n_atoms), bool)
    patches = np.repeat(np.arange(codes.n_patches), np.diff(codes.indptr))
    result[patches, codes.indices] = True
    return result


def on_grid(model, active):
    """Codes of the positions on the stride as codes of all."""
    geometry, stride = model.geometry, model.settings.patch_stride
    rows, columns = -(-geometry.rows // stride), -(-geometry.columns // stride)
    images = len(active) // (rows * columns)
    result = np.zeros((images, geometry.rows, geometry.columns, active.shape[1]), bool)
    result[:, ::stride, ::stride] = active.reshape(images, rows, columns, -1)
    return result.reshape(-1, active.shape[1])


def run_onnx(graph, images, *names):
    """The outputs of a graph, intermediate ones by name too."""
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    more = onnx.ModelProto()
    more.CopyFrom(graph)
    known = {output.name for output in graph.graph.output}
    more.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in known)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(
        more.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(list(names), {"images": images})


def onnx_codes(model, graph, images):
    if model.settings.code == "gq":
        return run_onnx(graph, images, "codes")[0] != 0
    labels, kept = run_onnx(graph, images, "labels", "kept")
    active = np.arange(len(model.dictionary.grid)) == labels[:, None]
    return active if model.settings.constant_patch == "activate_best" else active & kept.reshape(-1, 1)


def every_onnx_check(seen, images):
    """Codes are the same, but for one patch in ten thousand where roots of Σ are made by the runtime."""
    graph, model = as_graph(seen), seen.read_out().model
    codes = on_grid(model, onnx_codes(model, graph, images))
    apart = (codes != dense_codes(model, images)).any(axis=1)
    assert apart.sum() <= (len(apart) // 10_000 if model.whitener.own_ridge else 0)
    (found,) = run_onnx(graph, images, "representation")
    expected = represented(seen, images)
    assert found.dtype == expected.dtype
    if not apart.any():
        np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)


@st.composite
def models(draw):
    """A small fitted model and the images it is tried on."""
    channels, dtype = draw(st.sampled_from([1, 3])), draw(st.sampled_from(["uint8", "float32", "float64"]))
    height, width = draw(st.integers(5, 8)), draw(st.integers(5, 8))
    images = small_images(draw(st.integers(0, 2**32)), 14, height, width, channels, dtype)
    feature = draw(st.sampled_from(["gq", "vq"]))
    changes = {
        "feature": feature,
        "threshold": draw(st.sampled_from([0.2, 0.5, 0.9])),
        "patch": draw(st.integers(2, 4)),
        "context": draw(st.sampled_from([3, "whole"])),
        "stride": draw(st.sampled_from([1, 1, 2, 3])),
        "order": draw(st.sampled_from([1, 2])),
        "mean": draw(st.sampled_from(["context", "level", "patch", "channel", "global"])),
        "mean_context": draw(st.sampled_from([1, 2, "whole"])),
        "grey": channels == 3 and draw(st.booleans()),
        "constant_patch": draw(st.sampled_from(POLICIES)),
        "zero_code": draw(st.sampled_from(POLICIES)),
        "min_contrast": draw(st.sampled_from([0, 1.0, 8.0])),
        "dictionary_method": draw(st.sampled_from(["random", "kmeans", "spherical"])),
        "dictionary_rounds": 2,
        "drop": draw(st.integers(0, 2)),
        "pool_size": draw(st.integers(1, 2)),
        "pool_stride": draw(st.integers(1, 2)),
        "dtype": draw(st.sampled_from(["float32", "float32", "float16"])),
    }
    if dtype != "uint8" and draw(st.booleans()):
        changes["pixel_range"] = (-1.0, 1.5)
        images = images * np.dtype(dtype).type(2.5) - np.dtype(dtype).type(1)
    try:
        return fitted(images, **changes), images
    except (DataError, ConfigurationError):  # too few patches that are not constant, no active atom
        return None, images


@settings(max_examples=40, deadline=None)
@given(drawn=models())
def test_codes_are_equal_and_representations_close(drawn):
    model, images = drawn
    assume(model is not None)
    every_onnx_check(model, images)


@pytest.fixture(scope="module")
def cifar(real_data):
    """200 colour images of 32 x 32, decoded by Pillow."""
    with h5py.File(real_data("cifar10_jpeg.h5")) as file:
        offsets = file["test/offsets"][:201]
        content = file["test/bytes"][: offsets[-1]].tobytes()
    ends = pairwise(offsets)
    return np.stack([np.asarray(Image.open(io.BytesIO(content[a:b])).convert("RGB")) for a, b in ends])


@pytest.fixture(scope="module")
def digits(real_data):
    return read_array(real_data("mnist.h5"), "test/images")[:200][..., None]


def by_hundreds(model, images):
    for start in range(0, len(images), 100):
        every_onnx_check(model, images[start : start + 100])


@pytest.mark.parametrize("whitened_by", ["data", "image"])
def test_colour_photographs(cifar, whitened_by):
    changes = {
        "whitening_covariance": whitened_by,
        "mean": "level",
        "patch": 6,
        "dictionary": 192,
        "n_components": 24,
        "drop": 4,
        "pool_size": 4,
        "pool_stride": 2,
    }
    by_hundreds(fitted(cifar[:200], **changes), cifar)


def test_digits(digits):
    """Mostly constant patches, and Euclidean centroids."""
    changes = {"patch": 6, "feature": "vq", "dictionary": 64, "n_components": 16, "drop": 1, "context": 3}
    changes |= {"dictionary_method": "kmeans", "dictionary_rounds": 2, "constant_patch": "activate_best"}
    model = fitted(digits[:200], mean="patch", pool_size=4, pool_stride=2, **changes)
    by_hundreds(model, digits)


@pytest.fixture(scope="module")
def colour():
    return small_images(3, 20, 8, 7, 3)


@pytest.fixture(scope="module")
def model(colour):
    return fitted(colour, n_components=4, drop=1)


@pytest.fixture(scope="module")
def model_file(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "model.h5"
    smtdist.save(model, path)
    return path


def test_any_number_of_images(model, colour):
    for count in (1, 3, 20):
        every_onnx_check(model, colour[:count])


@pytest.mark.parametrize("features", ["embedding", "codes", "both"])
@pytest.mark.parametrize("changes", [{}, {"feature": "vq"}, {"stride": 2, "context": 3}])
def test_what_is_read_out_of_codes(colour, features, changes):
    """Counts of codes, and other windows, are those of transform."""
    model = fitted(colour, n_components=4, **changes)
    pool = None if features == "codes" else 3
    every_onnx_check(with_readout(model, features, pool), colour[:7])


@pytest.mark.parametrize(
    "changes", [{}, {"mean": "patch", "patch": 2}, {"grey": True, "whitening_reg": 1e-9}, {"feature": "vq"}]
)
def test_images_whitened_each_by_their_own_covariance(colour, changes):
    plain = np.concatenate([colour[:5], np.full((1, 8, 7, 3), 9, np.uint8)])  # one has no contrast
    model = fitted(colour, n_components=4, whitening_covariance="image", **changes)
    every_onnx_check(model, plain)
    with pytest.raises(ConfigurationError, match="patch_stride=1"):
        tables(fitted(colour, whitening_covariance="image", stride=2, context=3))


def test_mirror_images_are_the_callers(model):
    with pytest.raises(ConfigurationError, match="give it the mirrored images too"):
        tables(with_readout(model, "both", mirrored=True))


def test_squares_are_added_in_pixel_order(model):
    """The one sum that rounds is a chain of additions, not a library's reduction; see the module's reasons."""
    pytest.importorskip("onnx")
    graph = as_graph(model).graph
    (split,) = [node for node in graph.node if node.op_type == "Split"]
    total = split.output[0]
    for square in split.output[1:]:
        (node,) = [node for node in graph.node if list(node.input) == [total, square]]
        assert node.op_type == "Add"
        total = node.output[0]
    assert len(split.output) == 27


def test_onnx_states_what_it_is(model, tmp_path):
    onnx = pytest.importorskip("onnx")
    size = export(model, tmp_path / "m.onnx").bytes
    assert size == (tmp_path / "m.onnx").stat().st_size
    read = onnx.load(tmp_path / "m.onnx")
    onnx.checker.check_model(read, full_check=True)
    assert [(entry.domain, entry.version) for entry in read.opset_import] == [("", 18)]
    (image,) = read.graph.input
    axes = [axis.dim_param or axis.dim_value for axis in image.type.tensor_type.shape.dim]
    assert axes == ["batch", 8, 7, 3]
    told = {entry.key: entry.value for entry in read.metadata_props}
    assert smtdist.Configuration.from_json(told["configuration"]) == model.settings
    assert (told["drop"], told["dropped"]) == ("0", "1")  # none is left to drop
    assert int(told["image_bytes"]) > 0


def test_fewer_components_are_those_of_transform(model, colour):
    few = with_readout(model, None, n_components=2, drop=3)
    (found,) = run_onnx(as_graph(few), colour, "representation")
    np.testing.assert_allclose(found, represented(few, colour), atol=TOLERANCE)
    with pytest.raises(ModelError, match="stores 5 components"):
        as_graph(with_readout(model, None, n_components=5, drop=3))


def test_command_says_what_is_wrong(model_file, tmp_path):
    words = ("export", model_file, "--out", tmp_path / "m", "--format")
    run(*words, "csv", code=2)
    assert "holds words" in run(*words, "word2vec", code=2)
    assert "stores 5 components" in run(*words, "onnx", "--components", 9, code=1)
    assert os.listdir(tmp_path) == []


def test_a_package_that_is_missing_is_a_sentence(model_file, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ConfigurationError, match=r"pip install smtdist\[onnx\]"):
        smtdist.export(model_file, tmp_path / "m.onnx")
    assert os.listdir(tmp_path) == []
