"""Does it help to whiten the patches of each image by their own covariance, and not by that of all images?

    python -m replication.quality.whitening_each --data ../shared/data --json results

SMT 2023 (appendix C) subtracts the mean of a context and leaves open whether Σ in (λI + Σ)^(-1/2) is that of the context, too.
smtdist does either (`whitening_covariance`). Here both are written in NumPy, apart from smtdist's kernels, with the settings of
the preset cifar10-gq but for fewer atoms, and judged by k-NN on training images that nothing was learnt from, by the votes of
the paper and flipped images. All ways draw their atoms at the same places, and are compared with the first.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray

from benchmarks.record import write_record
from replication.quality.cells import COLOUR, HELD_OUT, Fit
from replication.quality.images import Images, judges, read
from replication.quality.paired import ahead
from smtdist.configuration import Configuration, preset
from smtdist.evaluate.knn import nearest, vote
from smtdist.evaluate.metrics import hits
from smtdist.kernels.cpu.table import table_of
from smtdist.kernels.representation import represent
from smtdist.kernels.types import Codes
from smtdist.kernels.whitening import whitening_matrices

Float32 = NDArray[np.float32]

OF_ALL: Final = "of all images"
OF_EACH: Final = "of each image"
MEANS: Final = ("level", "context")
"""The mean pixel of an image's patches, as in the preset, and their mean patch, as in the paper."""
RIDGES: Final = (3e-4, 1e-3, 3e-3)
"""λ of the whitening of each image. With a large one codes are dense, and their products slow."""
BATCH: Final = 64
"""Images whose codes are summed at a time."""


def centred(image: NDArray[np.uint8], side: int, mean: str) -> Float32:
    """Return the patches of an image (n, p), pixels in [0, 1], less their mean pixel ("level") or mean patch ("context")."""
    windows = np.lib.stride_tricks.sliding_window_view(image, (side, side), axis=(0, 1))
    rows, columns, channels = windows.shape[:3]
    patches = windows.transpose(0, 1, 3, 4, 2).reshape(rows * columns, side * side * channels) / np.float32(
        255
    )
    found: Float32 = patches - patches.mean(axis=None if mean == "level" else 0)
    return found


def whitened(
    images: NDArray[np.uint8], side: int, mean: str, ridge: float, of_all: Float32 | None
) -> Iterator[Float32]:
    """Yield the whitened patches of each image as unit vectors: by one matrix, or each image by its own Σ."""
    for image in images:
        patches = centred(image, side, mean)
        matrix = of_all
        if matrix is None:
            matrix = whitening_matrices(patches.T @ patches / len(patches), ridge)[0].astype(np.float32)
        patches = patches @ matrix
        yield patches / np.maximum(np.linalg.norm(patches, axis=1, keepdims=True), 1e-12)


def matrix_of_all(images: NDArray[np.uint8], side: int, mean: str, ridge: float) -> Float32:
    """Return (λI + Σ)^(-1/2) of the patches of all images."""
    moments = (
        patches.T @ patches / len(patches) for patches in (centred(image, side, mean) for image in images)
    )
    found: Float32 = whitening_matrices(sum(moments) / len(images), ridge)[0].astype(np.float32)
    return found


def coded(patches: Float32, atoms: Float32, threshold: float) -> Any:
    """Return the codes of an image, (n, K) of zeros and ones: 1 where the cosine with an atom is at least the threshold."""
    active = patches @ atoms.T >= threshold
    starts = np.concatenate([[0], np.cumsum(np.count_nonzero(active, axis=1))])
    indices = np.flatnonzero(active) % len(atoms)  # in ascending order of the atoms, patch by patch
    return scipy.sparse.csr_array((np.ones(len(indices), np.float32), indices, starts), shape=active.shape)


def components(codes: Iterator[Any], n_atoms: int, wanted: int, drop: int) -> Float32:
    """Return P, transposed, of min ‖P A D‖² subject to P V Pᵀ = I, each image a context: (K, wanted).

    With D = I - 11ᵀ/n of each image, A D Dᵀ Aᵀ is the sum of A Aᵀ - s sᵀ / n with s the sum of its codes.
    """
    second = np.zeros((n_atoms, n_atoms))
    between = np.zeros((n_atoms, n_atoms))
    while some := list(itertools.islice(codes, BATCH)):
        together = scipy.sparse.vstack(some, format="csr")
        second += (together.T @ together).toarray()
        totals = np.stack([one.sum(axis=0) for one in some]).astype(float)
        between += totals.T @ totals / some[0].shape[0]
    values, vectors = scipy.linalg.eigh(second)
    kept = values > n_atoms * np.finfo(float).eps * values[-1]
    root = vectors[:, kept] / np.sqrt(values[kept])
    found = scipy.linalg.eigh(
        root.T @ (second - between) @ root, subset_by_index=(drop, drop + wanted - 1)
    )[1]
    return np.ascontiguousarray(root @ found, np.float32)


def represented(codes: Iterator[Any], components_t: Float32, settings: Configuration, side: int) -> Float32:
    """Return what images are to k-NN: embedded, normalised and pooled codes, (images, features)."""
    size, step = settings.pool_size, settings.pool_stride
    assert size is not None  # the preset names its windows
    assert step is not None
    found, table = [], table_of(components_t)  # one copy for all images
    for one in codes:
        given = Codes(one.indptr.astype(np.int64), one.indices.astype(np.uint16), one.shape[1])
        found.append(represent(given, table, 1, side, side, size, step).reshape(-1))
    return np.stack(found)


def right(
    learnt: Images, judging: Images, settings: Configuration, ridge: float, each: bool
) -> NDArray[np.bool_]:
    """Fit, represent and vote; return which of the judging images are right."""
    side, mean = settings.patch_size, settings.subtract_mean
    of_all = None if each else matrix_of_all(learnt.array, side, mean, ridge)
    generator = np.random.default_rng(settings.random_state)
    drawn = generator.choice(len(learnt.array), settings.n_atoms)
    own = {
        int(image): next(whitened(learnt.array[image : image + 1], side, mean, ridge, of_all))
        for image in set(drawn)
    }
    atoms = np.stack([own[image][generator.integers(len(own[image]))] for image in drawn])

    def codes(images: NDArray[np.uint8]) -> Iterator[Any]:
        for patches in whitened(images, side, mean, ridge, of_all):
            yield coded(patches, atoms, settings.threshold)

    both = learnt.and_mirrored()
    solved = components(codes(both.array), len(atoms), settings.n_components, settings.drop_components)
    positions = learnt.array.shape[1] - side + 1
    known, asked = (represented(codes(one.array), solved, settings, positions) for one in (both, judging))
    cosines, rows = nearest(asked, known, 30)
    return hits(vote(cosines, both.labels[rows], 10), judging.labels, 1)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Compare the two as the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m replication.quality.whitening_each", description=__doc__
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with cifar10_lossless.h5")
    parser.add_argument("--train", type=int, default=4000)
    parser.add_argument("--test", type=int, default=2000, help="training images to judge by")
    parser.add_argument("--atoms", type=int, default=2048)
    parser.add_argument(
        "--ridges",
        type=float,
        nargs="+",
        default=RIDGES,
        help="λ of the whitening of each image; all images have the preset's",
    )
    parser.add_argument(
        "--means", nargs="+", choices=MEANS, default=MEANS[:1], help="what is subtracted from patches"
    )
    parser.add_argument("--json", help="folder for the record")
    options = parser.parse_args(arguments)
    settings = preset(COLOUR).replace(n_atoms=options.atoms)
    asked = Fit("cifar10", options.train, settings)
    learnt = read(options.data, asked, "train", options.train)
    judging = judges(options.data, asked, HELD_OUT, options.test)
    result: dict[str, Any] = {
        "settings": settings.to_dict(),
        "n_train": options.train,
        "n_test": options.test,
        "ways": [],
    }
    ways = [(False, settings.whitening_reg), *((True, ridge) for ridge in options.ridges)]
    base = None
    for mean, (each, ridge) in itertools.product(options.means, ways):
        found = right(learnt, judging, settings.replace(subtract_mean=mean), ridge, each)
        way = {
            "mean": mean,
            "whitening": OF_EACH if each else OF_ALL,
            "ridge": ridge,
            "top1": float(found.mean()),
        }
        if base is None:
            base = found
        else:
            way |= ahead(found, base, np.random.default_rng(0))
        print(", ".join(f"{name} {value}" for name, value in way.items()), flush=True)
        result["ways"].append(way)
    if options.json:
        write_record(options.json, "whitening-each", result)
    return result


if __name__ == "__main__":
    main()
