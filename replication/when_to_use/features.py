"""Features of images that need no labels, in a process of their own.

    python -m replication.when_to_use.features hog DATA.h5 OUT.h5

Pixels, HOG, k-means (Coates, Lee and Ng 2011), and random convolutions (MOSAIKS, Rolf et al. 2021). OUT has `train` and
`test`, (n, F) float32. `kmeans-mirrored` has those of mirror images, by the atoms that `kmeans` left.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Final

import h5py
import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import MiniBatchKMeans
from sklearn.decomposition import PCA
from sklearn.feature_extraction.image import extract_patches_2d

from replication.when_to_use.sets import read_images

Float32 = NDArray[np.float32]
Encode = Callable[[Float32], Float32]

SIDE: Final = 6
PATCHES: Final = 100_000
CONTRAST: Final = 10 / 255**2
"""Added to the variance of a patch, of pixels from 0 to 1; Coates and Ng add 10 where pixels go to 255."""
EPSILON: Final = 0.1
"""Added to the variances that whitening divides by, of patches whose deviation is 1."""
SIDES: Final = (3, 4, 5, 6)
"""Of random patches."""
SPREAD: Final = 1e-3
"""Added to the variances that the whitening of random patches divides by; their norm is 1."""


def raw(images: Float32) -> Float32:
    """Return pixels as they are."""
    return images.reshape(len(images), -1)


def windows_of(image: Float32, side: int, step: int) -> Float32:
    """Return patches of an image (rows, columns, side x side x channels), their pixels in the order of `extract_patches_2d`."""
    found = np.lib.stride_tricks.sliding_window_view(image, (side, side), axis=(0, 1))[::step, ::step]
    return found.transpose(0, 1, 3, 4, 2).reshape(*found.shape[:2], -1)


def hog(side: int) -> Encode:
    """Histograms of oriented gradients: 9 orientations, square cells of so many pixels a side, blocks of 2 x 2 cells."""
    from skimage.feature import hog as hog_of

    def one(image: Float32) -> Float32:
        found = hog_of(image, 9, pixels_per_cell=(side, side), cells_per_block=(2, 2), channel_axis=-1)
        return np.asarray(found, np.float32)

    return lambda images: np.array([one(image) for image in images])


class KMeansFeatures:
    """Whitened patches, triangle activation max(0, mean of the distances - distance), sums over 2 x 2 quarters."""

    def __init__(self, images: Float32, atoms: int, seed: int, step: int = 1) -> None:
        self.step = step
        each = -(-PATCHES // len(images))
        rows = np.concatenate(
            [
                extract_patches_2d(image, (SIDE, SIDE), max_patches=each, random_state=seed + number)
                for number, image in enumerate(images)
            ]
        )
        rows = self.normalised(rows.reshape(len(rows), -1))
        pca = PCA(svd_solver="covariance_eigh").fit(rows)
        self.mean = pca.mean_
        self.whitening = pca.components_.T / np.sqrt(pca.explained_variance_ + EPSILON)
        learned = MiniBatchKMeans(
            atoms, batch_size=10_000, max_iter=5, n_init=1, init="random", random_state=seed
        )
        self.atoms = learned.fit(self.whitened(rows)).cluster_centers_.astype(np.float32)

    @staticmethod
    def normalised(rows: Float32) -> Float32:
        """Return patches of mean 0, divided by their deviation."""
        rows = rows - rows.mean(axis=1, keepdims=True)
        return np.asarray(
            rows / np.sqrt(rows.var(axis=1, keepdims=True) + np.float32(CONTRAST)), np.float32
        )

    def whitened(self, rows: Float32) -> Float32:
        """Return whitened patches; turned, which distances do not see."""
        return np.asarray((rows - self.mean) @ self.whitening, np.float32)

    def __call__(self, images: Float32) -> Float32:
        """Return (n, 4 atoms) features."""
        return np.array([self.one(image) for image in images])

    def one(self, image: Float32) -> Float32:
        """Return the features of an image."""
        windows = windows_of(image, SIDE, self.step)
        height, width = windows.shape[:2]
        rows = self.whitened(self.normalised(windows.reshape(height * width, -1)))
        squares = (rows**2).sum(axis=1, keepdims=True) + (self.atoms**2).sum(axis=1)
        squares -= 2 * rows @ self.atoms.T
        far = np.sqrt(np.maximum(squares, 0, out=squares), out=squares)
        active = np.maximum(far.mean(axis=1, keepdims=True) - far, 0, out=far).reshape(height, width, -1)
        top, left = height // 2, width // 2
        quarters = (active[:top, :left], active[:top, left:], active[top:, :left], active[top:, left:])
        return np.concatenate([part.sum(axis=(0, 1)) for part in quarters])


class RandomFeatures:
    """Means over the image of max(0, f - bias) and max(0, -f - bias), f the product with random whitened patches of images."""

    def __init__(self, images: Float32, filters: int, bias: float, seed: int, step: int = 1) -> None:
        self.bias, self.step, self.filters = np.float32(bias), step, []
        draw = np.random.default_rng(seed)
        for side in SIDES:
            top, left = (draw.integers(0, length - side + 1, PATCHES) for length in images.shape[1:3])
            chosen = draw.integers(0, len(images), PATCHES)
            patches = np.array(
                [
                    images[one, row : row + side, column : column + side].reshape(-1)
                    for one, row, column in zip(chosen, top, left, strict=True)
                ]
            )
            patches -= patches.mean(axis=1, keepdims=True)
            patches /= np.maximum(np.linalg.norm(patches, axis=1, keepdims=True), 1e-8)
            values, vectors = np.linalg.eigh(patches.T @ patches / len(patches))
            # whitened, and turned back once more, for images that are not whitened themselves
            whitened = patches[: filters // len(SIDES)] @ ((vectors / (values + SPREAD)) @ vectors.T)
            self.filters.append(whitened.astype(np.float32))

    def __call__(self, images: Float32) -> Float32:
        """Return (n, 2 filters) features."""
        return np.array([self.one(image) for image in images])

    def one(self, image: Float32) -> Float32:
        """Return the features of an image."""
        parts = []
        for side, filters in zip(SIDES, self.filters, strict=True):
            windows = windows_of(image, side, self.step)
            found = windows.reshape(-1, filters.shape[1]) @ filters.T
            parts += [np.maximum(sign * found - self.bias, 0).mean(axis=0) for sign in (1, -1)]
        return np.concatenate(parts)


def main() -> None:
    """Write the features of a data file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["raw", "hog", "kmeans", "kmeans-mirrored", "random"])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--atoms", type=int, default=1600)
    parser.add_argument("--cell", type=int, default=4, help="pixels a side of the cells of HOG")
    parser.add_argument("--filters", type=int, default=4096, help="random patches")
    parser.add_argument("--bias", type=float, default=1.0, help="of random convolutions")
    parser.add_argument("--step", type=int, default=1, help="from one patch of an image to the next")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    train = read_images(arguments.data, "train")
    learned = arguments.data.with_name("kmeans-atoms.npz")
    encode: Encode
    if arguments.kind == "kmeans":
        encode = KMeansFeatures(train, arguments.atoms, arguments.seed, arguments.step)
        np.savez(learned, **vars(encode))
    elif arguments.kind == "kmeans-mirrored":
        encode = KMeansFeatures.__new__(KMeansFeatures)
        vars(encode).update(np.load(learned))
    elif arguments.kind == "random":
        encode = RandomFeatures(train, arguments.filters, arguments.bias, arguments.seed, arguments.step)
    else:
        encode = raw if arguments.kind == "raw" else hog(arguments.cell)
    part = arguments.out.with_suffix(".part")
    with h5py.File(part, "w") as file:
        for group in ("train", "test"):
            images = train if group == "train" else read_images(arguments.data, group)
            file[group] = encode(images[:, :, ::-1] if arguments.kind == "kmeans-mirrored" else images)
    part.replace(arguments.out)


if __name__ == "__main__":
    main()
