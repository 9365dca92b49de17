"""Pixels as they are: the representation that every other one is compared with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from smtdist.configuration import Configuration
from smtdist.data.adapted import Scaling
from smtdist.data.source import Source
from smtdist.engine import plan as pass_plan
from smtdist.engine.passes import Engine

BATCH = 256


@dataclass(frozen=True)
class FlatPixels:
    """Images (B, H, W, C) as rows (B, H W C) of their values in float32."""

    threads: int
    working_bytes: int
    batch: int = BATCH

    def __call__(self, images: NDArray[np.generic]) -> NDArray[np.floating[Any]]:
        """Return the pixels of a batch."""
        return images.reshape(len(images), -1).astype(np.float32)


@dataclass(frozen=True)
class RawPixels:
    """What represents images of this shape (height, width, channels) by their pixels; `votes` say how neighbours vote.

    Cosines of images do not depend on the range of their pixels, so values stay as they are.
    """

    shape: tuple[int, ...]
    votes: Configuration
    scaling: Scaling
    asked: ClassVar[str] = "raw pixels"
    fingerprint: ClassVar[str] = ""
    dtype: ClassVar[str] = "float32"
    positions: ClassVar[int] = 1

    def require_images(self, source: Source) -> None:
        """Do nothing: all images of a source have one shape."""

    def representation_shape(
        self, n_components: int | None = None, drop: int | None = None
    ) -> tuple[int, ...]:
        """Return how many pixels there are."""
        return (math.prod(self.shape),)

    def representer(
        self, source: Source, engine: Engine, n_components: int | None = None, drop: int | None = None
    ) -> FlatPixels:
        """Return what reads a batch and flattens it."""
        block = pass_plan.block_samples(source)
        reading = block * source.sample_bytes + source.reader_bytes
        threads = engine.executor.threads()
        needed = reading + threads * source.thread_bytes + 8 * BATCH * math.prod(self.shape)
        return FlatPixels(threads, needed)
