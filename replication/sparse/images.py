"""Natural images as equal grey tiles, so that one array holds them all."""

from __future__ import annotations

import h5py
import numpy as np
from numpy.typing import NDArray


def natural_tiles(path: str, side: int) -> NDArray[np.uint8]:
    """Return the whole tiles (n, side, side) of the photographs and textures in a file, mixed in a fixed order."""
    tiles = []
    with h5py.File(path, "r") as file:
        for name in sorted(file):
            image = np.asarray(file[name][()])
            height, width = (length // side * side for length in image.shape)
            grid = image[:height, :width].reshape(height // side, side, width // side, side)
            tiles.append(grid.swapaxes(1, 2).reshape(-1, side, side))
    found = np.concatenate(tiles).astype(np.uint8)
    return found[np.random.default_rng(0).permutation(len(found))]
