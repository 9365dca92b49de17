"""Compile the kernels of fits, transforms and k-NN of images, so that the first fit need not: `python -m smtdist.compile`.

Numba keeps them in the user's cache, or in the folder that `NUMBA_CACHE_DIR` names, for this kind of processor.
Kernels of other models (video, words, sparse codes, concepts) are compiled when they are first called.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from smtdist.configuration import Configuration, defaults_for, preset
from smtdist.data.array import as_source
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.evaluate.knn import nearest
from smtdist.kernels.cpu.jit import compile_timer
from smtdist.models.fit import fit
from smtdist.models.transform import represented

SIDE, ATOMS = 24, 300
"""Of the images of noise, and of their dictionaries: large enough for all the ways that codes are counted."""


def compile_kernels() -> float:
    """Fit and represent a few images of noise by all usual settings.

    Returns
    -------
    float
        Seconds spent compiling: about 30 the first time, 0 if all kernels are on disk already.

    Memory: about 400 MB. Files: about 4 MB.
    """
    noise = np.random.default_rng(0)
    with compile_timer() as seconds:
        for channels, settings in _usual():
            images = noise.integers(0, 256, (40, SIDE, SIDE, channels), dtype=np.uint8)
            source = as_source(images)
            engine = Engine(SerialExecutor(1))
            model, _ = fit(source, settings, engine)
            z = represented(model, source, engine)
        rows = noise.standard_normal((1024, z[0].size), dtype=np.float32)
        for few in (100, 1024):
            nearest(rows, rows[:few], 50)
        return seconds()


def _usual() -> Iterator[tuple[int, Configuration]]:
    """Yield channels and settings: the defaults, the presets of this package, and small images as the demo has them."""
    small: dict[str, Any] = {"dictionary": ATOMS, "n_components": 8, "drop": 0}
    for channels in (1, 3):
        yield channels, defaults_for((1, SIDE, SIDE, channels)).replace(**small)
    for name in ("cifar10-gq", "cifar10-gq-gray"):
        yield 3, preset(name).replace(**small)
    yield 1, preset("mnist-vq").replace(**small)
    best = "activate_best"
    yield (
        1,
        Configuration(
            patch_size=3,
            context_size=1,
            subtract_mean="global",
            constant_patch=best,
            zero_code=best,
            **small,
        ),
    )


if __name__ == "__main__":
    print(f"Kernels were compiled in {compile_kernels():.1f} s.")
