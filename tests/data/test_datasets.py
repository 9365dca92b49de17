"""Images for a first try: those at hand, and sets that are fetched, which must be what they should be."""

import gzip
import hashlib
import tarfile

import h5py
import numpy as np
import pytest
from importing import cifar_pickle, idx

from smtdist import datasets
from smtdist.errors import DataError, OutputExistsError

RNG = np.random.default_rng(0)


def md5(path):
    return hashlib.md5(path.read_bytes()).hexdigest()


@pytest.fixture
def mnist(tmp_path, monkeypatch):
    """Six small digits, as MNIST is laid out; returns where they lie, and the arrays."""
    folder, arrays, known = tmp_path / "there", {}, {}
    folder.mkdir()
    for group, pair in datasets.MNIST.items():
        arrays[group] = RNG.integers(0, 256, (6, 28, 28), dtype=np.uint8), np.arange(6, dtype=np.uint8)
        for file, array in zip(pair, arrays[group], strict=True):
            (folder / file.name).write_bytes(gzip.compress(idx(array)))
        known[group] = tuple(file._replace(md5=md5(folder / file.name)) for file in pair)
    monkeypatch.setattr(datasets, "MNIST", known)
    return folder, arrays


def test_mnist_is_fetched_and_checked(mnist, tmp_path):
    folder, arrays = mnist
    found = datasets.fetch_mnist(tmp_path / "m.h5", url=folder.as_uri())
    with h5py.File(found) as file:
        for group, (images, labels) in arrays.items():
            assert np.array_equal(file[group]["images"][()].reshape(6, 28, 28), images)
            assert np.array_equal(file[group]["labels"], labels)
    with pytest.raises(OutputExistsError):
        datasets.fetch_mnist(found, url=folder.as_uri())
    (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(b"cut short")
    with pytest.raises(DataError, match="is not the file that it should be"):
        datasets.fetch_mnist(tmp_path / "other.h5", url=folder.as_uri())
    with pytest.raises(DataError, match="cannot be fetched"):
        datasets.fetch_mnist(tmp_path / "other.h5", url=(tmp_path / "nowhere").as_uri())
    assert not (tmp_path / "other.h5").exists()


def test_cifar_is_fetched_and_checked(tmp_path, monkeypatch):
    images = RNG.integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    archive = tmp_path / datasets.CIFAR10.name
    with tarfile.open(archive, "w:gz") as packed:
        for name, part in (("data_batch_1", images[:3]), ("test_batch", images[3:])):
            cifar_pickle(tmp_path / name, part, range(len(part)))
            packed.add(tmp_path / name, f"cifar-10-batches-py/{name}")
    monkeypatch.setattr(datasets, "CIFAR10", datasets.CIFAR10._replace(md5=md5(archive)))
    with h5py.File(datasets.fetch_cifar10(tmp_path / "c.h5", url=tmp_path.as_uri())) as file:
        assert np.array_equal(file["train/images"], images[:3])
        assert np.array_equal(file["test/images"], images[3:])
        assert file["train/labels"][()].tolist() == [0, 1, 2]
