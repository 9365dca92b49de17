"""Images for a first try: some that scikit-learn brings along, and well-known sets that are fetched once and checked."""

from __future__ import annotations

import hashlib
import os
import tarfile
import tempfile
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smtdist.data.importers.images import open_listing
from smtdist.data.importers.items import ImportOptions
from smtdist.data.importers.run import import_images
from smtdist.data.writing import check_target, replace_durably
from smtdist.errors import DataError

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]

TIMEOUT: Final = 60
"""Seconds without a byte after which a download has failed."""


class _File(NamedTuple):
    name: str
    md5: str


MNIST_URL: Final = "https://ossci-datasets.s3.amazonaws.com/mnist/"
MNIST: Final = {
    "train": (
        _File("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        _File("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
    ),
    "test": (
        _File("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
        _File("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
    ),
}
CIFAR10_URL: Final = "https://www.cs.toronto.edu/~kriz/"
CIFAR10: Final = _File("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a")


def load_digits() -> tuple[Images, Labels]:
    """Return 1,797 handwritten digits (1797, 8, 8) and their labels, which scikit-learn brings along.

    >>> images, labels = load_digits()
    >>> images.shape, images.dtype.name, labels[:4].tolist()
    ((1797, 8, 8), 'uint8', [0, 1, 2, 3])
    """
    from sklearn import datasets  # half a second that nobody else waits for

    digits = datasets.load_digits()
    return np.rint(digits.images * (255 / 16)).astype(np.uint8), digits.target.astype(np.int64)


def fetch_mnist(
    out: str | os.PathLike[str] = "mnist.h5", *, url: str = MNIST_URL, overwrite: bool = False
) -> Path:
    """Download MNIST (12 MB), check it, and write it as images and labels of the groups train and test; return the file.

    url : where the four files lie, such as a mirror, or a folder as `file:///...` Raises DataError where a file cannot be
    fetched, or is not the one that it should be.
    """
    with _made(out, overwrite) as (folder, part):
        _fetched(url, [file for pair in MNIST.values() for file in pair], folder)
        for group, (images, labels) in MNIST.items():
            options = ImportOptions(group, workers=0, append=group != "train", labels=folder / labels.name)
            import_images(open_listing([folder / images.name], None, options), part, options)
    return Path(out)


def fetch_cifar10(
    out: str | os.PathLike[str] = "cifar10.h5", *, url: str = CIFAR10_URL, overwrite: bool = False
) -> Path:
    """Download CIFAR-10 (170 MB), check it, and write it as images and labels of the groups train and test; return the file.

    url : where the archive lies, such as a mirror, or a folder as `file:///...` The pickles inside are read, never run.
    Raises DataError where the archive cannot be fetched, or is not the one that it should be.
    """
    with _made(out, overwrite) as (folder, part):
        _fetched(url, [CIFAR10], folder)
        with tarfile.open(folder / CIFAR10.name) as archive:
            archive.extractall(folder, filter="data")
        batches = folder / "cifar-10-batches-py"
        for group, names in (("train", "data_batch_*"), ("test", "test_batch")):
            options = ImportOptions(group, workers=0, append=group != "train")
            import_images(open_listing(sorted(batches.glob(names)), "cifar", options), part, options)
    return Path(out)


@contextmanager
def _made(out: str | os.PathLike[str], overwrite: bool) -> Iterator[tuple[Path, Path]]:
    """Yield a folder for downloads and a file in it, which takes the place of `out` when it is whole."""
    target = Path(out)
    check_target(target, overwrite)
    # beside the file, so that to put it there is one step
    with tempfile.TemporaryDirectory(prefix=".smtdist-fetch-", dir=target.absolute().parent) as made:
        part = Path(made) / "part.h5"
        yield Path(made), part
        replace_durably(str(part), target)


def _fetched(url: str, files: Iterable[_File], folder: Path) -> None:
    """Download files into a folder, and refuse one whose MD5 is another: it was cut short, or altered."""
    for file in files:
        address, digest = url.rstrip("/") + "/" + file.name, hashlib.md5(usedforsecurity=False)
        try:
            with (
                urllib.request.urlopen(address, timeout=TIMEOUT) as coming,
                (folder / file.name).open("wb") as kept,
            ):
                while block := coming.read(2**20):
                    digest.update(block)
                    kept.write(block)
        except OSError as error:
            raise DataError(
                f"{address} cannot be fetched ({error}); check the connection, or give the url of a mirror."
            ) from error
        if digest.hexdigest() != file.md5:
            raise DataError(
                f"{address} is not the file that it should be (MD5 {digest.hexdigest()}, not {file.md5}); try again, or give the "
                f"url of a mirror."
            )
