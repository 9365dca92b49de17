"""Small files of representations, as `smtdist transform` writes them, of two parts with mirror images."""

import json

import numpy as np

from smtdist.models import readout
from smtdist.models.readout import Block, Columns
from smtdist.models.transform import save_representation

LAYOUT = [[Columns(Block("embedding", (8,)), 0, 12), Columns(Block("codes", (4,)), 8, 20)]]
PLAIN = {"configuration": "{}", "model": "m.h5", "model_fingerprint": "f", "source": "s", "skipped": "[]"}


def made(n, seed, classes=3):
    """Rows (n, 24) and their labels."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(0).normal(size=(classes, 12))
    labels = rng.integers(0, classes, n)
    views = [centres[labels] + rng.normal(size=(n, 12)) for _ in range(2)]
    return np.abs(np.hstack(views)).astype(np.float16), labels


def write(path, rows, labels=None, identity="model", names=()):
    """Write rows, as those of a model."""
    parts = json.dumps(readout.layout_to_plain(LAYOUT))
    attributes = {**PLAIN, "parts": parts, "identity": identity}
    about = path, [(0, rows)], len(rows), (24,), rows.dtype.name, attributes
    save_representation(*about, labels=labels, names=names)
    return path
