"""Small clips of drifting stripes, and settings for them."""

import h5py
import numpy as np

from smtdist.models.functional.settings import FunctionalSettings

SMALL = FunctionalSettings(
    patch=6,
    length=4,
    places=4,
    atoms=40,
    rounds=3,
    batch=60,
    n_components=8,
    penalty=0.2,
    sgd_batch=16,
    sgd_steps=3,
)


def make_clips(path, seed=0, angle=None):
    """Stripes that drift at steady paces, across `angle` or one drawn for each clip."""
    draw = np.random.default_rng(seed)
    row, column = np.mgrid[:24, :30]
    with h5py.File(path, "w") as file:
        for name in ("one", "two", "three"):
            drawn, pace, wave = draw.uniform(0, np.pi), draw.uniform(0.3, 0.8), draw.uniform(5, 9)
            across = drawn if angle is None else angle
            along = row * np.sin(across) + column * np.cos(across)
            texture = draw.standard_normal((24, 30)) * 8
            frames = [120 + 70 * np.sin(2 * np.pi * (along - pace * t) / wave) + texture for t in range(33)]
            group = file.create_group(name)
            group["frames"] = np.clip(frames, 0, 255).astype(np.uint8)
            group.attrs["cuts"] = np.array([17] if name == "two" else [], np.int64)
    return str(path)
