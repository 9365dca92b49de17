"""Models of a few small images, one for each kind of sums."""

import numpy as np

from smtdist.configuration import Configuration
from smtdist.data.array import as_source
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.models.fit import fit

IMAGES = np.random.default_rng(11).integers(0, 256, (80, 7, 6, 1), dtype=np.uint8)
IMAGES[::9, 2:5, 1:5] = 90  # some patches are constant, so that degrees differ from image to image
BASE = Configuration(patch=2, dictionary=24, n_components=3, seed=1)
SETTINGS = {
    "gq": BASE.replace(threshold=0.4, flip=True),
    "gq-complete": BASE.replace(
        threshold=0.4, mean="patch", constant_patch="activate_best", zero_code="activate_best"
    ),
    "gq-kept": BASE.replace(threshold=0.4, constant_patch="keep"),
    "gq-left-out": BASE.replace(threshold=0.5, zero_code="leave_out", flip=True),
    "gq-mirrored": BASE.replace(threshold=0.4, flip=True, dictionary_mirrored=True),
    "gq-window-mirrored": BASE.replace(threshold=0.5, context=1, flip=True, dictionary_mirrored=True),
    "gq-window": BASE.replace(threshold=0.5, context=1),
    "gq-long": BASE.replace(threshold=0.1, context=1),
    "gq-second": BASE.replace(threshold=0.5, context=2, order=2, mean="patch"),
    "gq-second-whole": BASE.replace(threshold=0.5, order=2, mean="patch"),
    "gq-drawn": BASE.replace(threshold=0.4, positions=9, flip=True),
    "vq": BASE.replace(feature="vq", context=1, mean="patch"),
    "vq-whole": BASE.replace(feature="vq"),
    "vq-second": BASE.replace(feature="vq", context=1, order=2, mean="patch"),
}
MODELS: dict = {}


def model_of(name):
    """A model of the first 20 images, which supply all atoms."""
    if name not in MODELS:
        MODELS[name], _ = fit(as_source(IMAGES[:20]), SETTINGS[name], Engine(SerialExecutor(1)))
    return MODELS[name]
