"""Damaged, missing and unfit input: one sentence on standard error, exit code 1, nothing left behind."""

import os
import zipfile

import h5py
import numpy as np
import pytest
from arrays_in_files import write_arrays
from calling import call, refused, run
from disks import largest_file

OPTIONS = "--set patch=4 --set feature=vq --set context=1 --set dictionary=8 --set n_components=4 --set pool_size=2"


def noise(*shape, dtype="uint8"):
    images = np.random.default_rng(7).integers(0, 256, shape)
    return images.astype(np.uint8) if dtype == "uint8" else (images / 255).astype(dtype)


def write(path, images, attributes=(), **how):
    with h5py.File(path, "w") as file:
        file.create_dataset("images", data=images, **how).attrs.update(attributes)


def truncated(path):
    write(path, noise(300, 8, 8))
    path.write_bytes(path.read_bytes()[:9000])


def corrupt_chunk(path):
    write(path, noise(300, 8, 8), chunks=(50, 8, 8), compression="gzip")
    with h5py.File(path) as file:
        chunk = file["images"].id.get_chunk_info(3)
    raw = bytearray(path.read_bytes())
    middle = chunk.byte_offset + chunk.size // 2
    raw[middle : middle + 64] = bytes(byte ^ 0xFF for byte in raw[middle : middle + 64])
    path.write_bytes(raw)


def not_finite(path):
    images = noise(300, 8, 8, dtype="float32")
    images[271, 3, 5] = np.nan
    write(path, images, chunks=(50, 8, 8))


def too_few(path):
    images = np.zeros((20, 8, 8), np.uint8)
    images[:, ::4] = 200
    write(path, images)


def zip_archive(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("images.npy", b"")


def part_of_a_family(path):
    with h5py.File(f"{path}.%d", "w", driver="family", memb_size=4096) as file:
        file["images"] = noise(300, 8, 8)
    path.with_name(f"{path.name}.0").rename(path)


def part_of_a_split_file(path):
    with h5py.File(path, "w", driver="split") as file:
        file["images"] = noise(300, 8, 8)
    path.with_name(f"{path.name}-m.h5").rename(path)


def holding(images, **attributes):
    """Return what writes these images, with these attributes."""
    return lambda path: write(path, images, attributes)


BAD_DATA = {
    "missing file": (lambda path: None, "does not exist"),
    "missing dataset": (lambda path: write_arrays(path, {"other/images": noise(4, 8, 8)}), "use other"),
    "group for dataset": (lambda path: write_arrays(path, {"images/a": noise(4, 8, 8)}), "is a group"),
    "truncated": (truncated, "shorter than its own header"),
    "corrupt chunk": (corrupt_chunk, "samples 0 to 299: the stored data cannot be read"),
    "not finite": (not_finite, "sample 271: row 3, column 5"),
    "no samples": (holding(noise(0, 8, 8)), "is empty"),
    "smaller than a patch": (holding(noise(20, 3, 8)), "smaller than the patch of 4"),
    "constant": (holding(np.full((20, 8, 8), 7, np.uint8)), "nothing to whiten"),
    "too few": (too_few, "fewer than the 8 atoms"),
    "wrong dtype": (
        holding(noise(20, 8, 8).astype(np.int32)),
        "are int32, which does not say what is black",
    ),
    "wrong rank": (holding(noise(20, 8)), "images are (samples, height, width)"),
    "not HDF5": (lambda path: path.write_text("sample,label\n0,1\n"), "is not an HDF5 file"),
    "empty file": (lambda path: path.touch(), "data.h5 is empty, a file of 0 bytes"),
    "zip archive": (zip_archive, "not an HDF5 file but a zip archive; unpack it"),
    "NetCDF 3": (lambda path: path.write_bytes(b"CDF\x02" + bytes(60)), "but one of NetCDF 3; write it as"),
    "part of a family": (part_of_a_family, "with driver='family'; copy the datasets"),
    "part of a split file": (part_of_a_split_file, "with driver='split'; copy the datasets"),
    "folder": (lambda path: path.mkdir(), "is a folder"),
    "labels of axes": (holding(noise(20, 8, 8), DIMENSION_LABELS=5), "DIMENSION_LABELS that is not a text"),
    "label of one": (holding(noise(20, 8, 8), DIMENSION_LABELS=["y"]), "LABELS that is not a text"),
    "scales of axes": (holding(noise(20, 8, 8), DIMENSION_LIST=range(3)), "LIST that is not a list"),
    "infinite scale": (holding(noise(20, 8, 8), scale_factor=np.inf), "= inf, which is no number"),
    "gap of texts": (holding(noise(20, 8, 8), missing_value=["a"] * 2), "'a'], which is no number"),
    "too large a scale": (holding(noise(20, 8, 8), scale_factor=1e308), "is inf"),
    "floats without range": (holding(noise(20, 8, 8).astype(np.float32)), "pixel_range"),
}


def fit_arguments(path, out):
    return ["fit", path, "--dataset images --set mean=patch", OPTIONS, "--out", out]


@pytest.mark.parametrize("damage", BAD_DATA)
def test_fit_refuses(damage, tmp_path):
    make, said = BAD_DATA[damage]
    make(tmp_path / "data.h5")
    refused(fit_arguments(tmp_path / "data.h5", tmp_path / "m.h5"), tmp_path, said)


def test_fit_refuses_on_a_cluster_with_the_same_sentence(tmp_path):
    corrupt_chunk(tmp_path / "data.h5")
    arguments = [*fit_arguments(tmp_path / "data.h5", tmp_path / "m.h5"), "--workers", "1"]
    refused(arguments, tmp_path, BAD_DATA["corrupt chunk"][1])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    at = tmp_path_factory.mktemp("model")
    write(at / "data.h5", noise(300, 8, 8))
    run(*fit_arguments(at / "data.h5", at / "m.h5"))
    return at / "m.h5"


def test_files_that_are_no_model_of_images_say_what_they_hold(model, tmp_path):
    data, kernel, z, out = (tmp_path / name for name in ("data.h5", "k.h5", "z.h5", "out.h5"))
    write(data, noise(20, 8, 8))
    images = [data, "--dataset", "images"]
    for words in (
        ["fit", *images, "--model kernel-contrastive --set n_components=2 --out", kernel],
        ["transform", model, *images, "--out", z],
    ):
        run(*words)
    sentences = {
        kernel: "A kernel model has no format of other programs; smtdist export takes",
        z: "z.h5 holds representations, not a model; give a model written by smtdist fit.",
    }
    refused(["transform", z, *images, "--out", out], tmp_path, sentences[z])
    for path, sentence in sentences.items():
        refused(["export", path, "--format", "onnx", "--out", out], tmp_path, sentence)
    refused(["update", z, *images], tmp_path, sentences[z])
    refused(["update", kernel, *images], tmp_path, "A kernel model takes no more samples")
    said = "are classified as they are; leave out --train, --test"
    refused(["evaluate", z, data, "--train images --test images"], tmp_path, said, 2)
    refused(
        ["evaluate", z, z], tmp_path, "z.h5 has no labels; transform a group whose labels are whole numbers"
    )


def test_transform_of_other_images_leaves_nothing(model, tmp_path):
    data = tmp_path / "data.h5"
    write(data, noise(20, 9, 9))
    command = ["transform", model, data, "--dataset", "images", "--out", tmp_path / "z.h5"]
    refused(command, tmp_path, "give images like those")
    corrupt_chunk(data)
    refused(command, tmp_path, "the stored data cannot be read")
    refused([*command, "--components", "99"], tmp_path, "The model stores 4 components")


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (None, "has no dataset 'test/labels'"),
        (np.zeros(3, np.int64), "but there are 20 samples"),
        (np.zeros(20), "labels are whole numbers"),
        (np.full(20, -1), "classes are numbered from 0"),
    ],
)
def test_evaluate_refuses_labels(model, tmp_path, labels, sentence):
    data = tmp_path / "data.h5"
    with h5py.File(data, "w") as file:
        for group in ("train", "test"):
            file[f"{group}/images"] = noise(20, 8, 8)
        file["train/labels"] = np.arange(20) % 2
        if labels is not None:
            file["test/labels"] = labels
    common = ["evaluate", model, data, "--train", "train", "--test", "test"]
    refused([*common, "--neighbours", "3"], tmp_path, sentence)
    refused([*common, "--neighbours", "21"], tmp_path, "labels" if labels is not None else sentence)


@pytest.mark.parametrize("content", [b"", b"not an array", None, np.array([{"a": 1}], dtype=object)])
def test_atoms_that_cannot_be_read(tmp_path, content):
    write(tmp_path / "data.h5", noise(20, 8, 8))
    if isinstance(content, bytes):
        (tmp_path / "atoms.npy").write_bytes(content)
    elif content is not None:  # pickled, which is not opened
        np.save(tmp_path / "atoms.npy", content, allow_pickle=True)
    arguments = [*fit_arguments(tmp_path / "data.h5", tmp_path / "m.h5"), "--atoms", tmp_path / "atoms.npy"]
    refused(arguments, tmp_path, "atoms.npy" + " is not a readable .npy file" * (content is not None))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_file_that_may_not_grow_leaves_nothing(model, tmp_path, share):
    data, size = tmp_path / "data.h5", model.stat().st_size
    write(data, noise(300, 8, 8))
    full = "it would be larger than the system allows a file to be; raise the limit or choose another disk"
    with largest_file(int(share * size)):
        refused(fit_arguments(data, tmp_path / "m.h5"), tmp_path, full)
        refused(["merge", model, "--out", tmp_path / "m.h5"], tmp_path, full)
    with largest_file(int(share * 28_000)):
        refused(
            ["transform", model, data, "--dataset", "images", "--out", tmp_path / "z.h5"], tmp_path, full
        )
    with largest_file(int(share * size / 8)):
        command = [*fit_arguments(data, tmp_path / "m.h5"), "--checkpoint", tmp_path / "checkpoint"]
        result = call(*command)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith("smtdist: The checkpoint in ")
    assert full in result.stderr
    # what was written stays, and with space the run goes on
    if share > 0.1:  # run.json fitted on the disk
        run("resume", tmp_path / "checkpoint")
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_folder_that_cannot_be_written_to(model, tmp_path):
    write(tmp_path / "data.h5", noise(300, 8, 8))
    refused(fit_arguments(tmp_path / "data.h5", "/proc/m.h5"), tmp_path, "/proc/m.h5 cannot be written: ")


def test_an_unknown_setting_or_option_names_the_nearest(model, tmp_path):
    write(tmp_path / "data.h5", noise(20, 8, 8))
    command = fit_arguments(tmp_path / "data.h5", tmp_path / "m.h5")
    assert "did you mean threshold?" in run(*command, "--set treshold=0.3", code=2)
    assert "--workers" in run(*command, "--worker 2", code=2)


@pytest.mark.parametrize(
    "words",
    [
        "fit PIPE --dataset images --out OUT",
        "fit PIPE --model words --out OUT",
        "import PIPE --out OUT",
        "transform PIPE PIPE --out OUT",
        "merge PIPE PIPE --out OUT",
    ],
)
def test_nobody_waits_for_a_pipe(tmp_path, words):
    """Its writer may never come, and nothing here reads a file once only."""
    os.mkfifo(tmp_path / "data")
    words = words.replace("PIPE", str(tmp_path / "data")).replace("OUT", str(tmp_path / "out.h5"))
    refused(words, tmp_path, "data is a pipe, which can be read once only; write it to a file first.")
