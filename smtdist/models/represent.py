"""What represents a batch of images: codes, embedding, pooling (SMT 2023, section 2)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.data.source import Source
from smtdist.engine import plan as pass_plan
from smtdist.engine.memory import BUDGET_SHARE, readable
from smtdist.engine.passes import Engine
from smtdist.errors import MemoryBudgetError
from smtdist.kernels import codes as code_kernels
from smtdist.kernels import memory, representation
from smtdist.kernels.cpu.table import Table, table_of
from smtdist.kernels.device import gpu_available, place, to_host
from smtdist.kernels.mirrored import mirrored_codes
from smtdist.kernels.representation import pooled_counts
from smtdist.kernels.types import Array, Codes, Encoder

BATCH_BYTES = 256 * 1024**2
DEVICE_BATCH_BYTES = 8 * BATCH_BYTES
"""The same where kernels run on a GPU, which takes small batches as long as larger ones."""


@dataclass(frozen=True)
class Block:
    """A part of a representation: its name and its shape."""

    name: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Numbers of an image."""
        return math.prod(self.shape)

    @property
    def counts(self) -> bool:
        """Whether the numbers are counts of codes, which are standardised before images are compared by them."""
        return self.name == "codes"


@dataclass(frozen=True, kw_only=True)
class Representer(ABC):
    """Images (B, H, W, C) to representations (B, ...), picklable.

    batch : images that are taken at once. threads : of a task. working_bytes : of a batch and of reading,
        as planned. symmetric : whether codes of mirror images follow from those of images.
    """

    batch: int
    threads: int
    working_bytes: int = 0
    symmetric: bool = False

    @abstractmethod
    def __call__(self, images: NDArray[np.generic]) -> NDArray[np.floating[Any]]:
        """Represent a batch."""

    def over(self, windows: tuple[int, int]) -> Representer:
        """Return the same, pooled over windows of another side and step; codes of images alone can be."""
        return self

    def write(
        self,
        images: NDArray[np.generic],
        found: NDArray[np.floating[Any]],
        blocks: Sequence[Block],
        cells: int,
        mirrored: bool,
    ) -> None:
        """Write features of images, and of their mirror images if asked, (n, views, F).

        blocks : the parts of a view. cells : a side, of those that codes are counted in.
        """
        found[...] = self(images).reshape(found.shape)


@dataclass(frozen=True)
class Represent(Representer):
    """z = pool(L2(P f(x))), L2 at each pooled position; zero where a patch has no code.

    Memory: a batch's codes, patch embeddings (positions x components x 4 bytes) of one image for each
    thread, on a device of all, and the result.
    """

    encoder: Encoder
    components: Table  # (K, L)
    size: int
    stride: int
    dtype: str
    signs: NDArray[np.float32] | None = (
        None  # by what embeddings of mirror images follow from those of images, (L,)
    )

    def __call__(self, images: NDArray[np.generic]) -> NDArray[np.floating[Any]]:
        """Represent a batch (B, H, W, C): returns (B, rows', columns', L)."""
        parts = [to_host(self.pooled(codes, count, False)[0]) for count, codes in self.codes(images)]
        return joined(parts).astype(self.dtype, copy=False)

    def codes(self, images: NDArray[np.generic]) -> Iterator[tuple[int, Codes]]:
        """Yield the codes of a batch, so many images at a time."""
        encoder = self.encoder
        geometry, sampling = encoder.whitener.geometry, encoder.whitener.sampling.undrawn
        capacity = memory.code_capacity(geometry, len(encoder.atoms), encoder.form, len(images), sampling)
        for _, count, codes in code_kernels.encode_pieces(place(images), encoder, False, capacity):
            yield count, codes

    def over(self, windows: tuple[int, int]) -> Represent:
        """Return the same, pooled over windows of another side and step, in positions."""
        return replace(self, size=windows[0], stride=windows[1])

    def write(
        self,
        images: NDArray[np.generic],
        found: NDArray[np.floating[Any]],
        blocks: Sequence[Block],
        cells: int,
        mirrored: bool,
    ) -> None:
        """Write features of images, and of their mirror images if asked, (n, views, F): codes are made once for all parts."""
        done = 0
        for count, codes in self.codes(images):
            place = 0
            for block in blocks:
                made = (
                    self._counted(codes, count, cells, mirrored)
                    if block.counts
                    else self.pooled(codes, count, mirrored)
                )
                for view, values in enumerate(made):
                    found[done : done + count, view, place : place + block.size] = to_host(values).reshape(
                        count, -1
                    )
                place += block.size
            done += count

    def _counted(self, codes: Codes, count: int, cells: int, mirrored: bool) -> Iterator[Array]:
        """Yield square roots of how often each atom is active in each cell of so many images and, if asked, mirror images."""
        geometry = self.encoder.whitener.geometry
        for own in self.views(codes, mirrored):
            counts = pooled_counts(own, count, geometry.rows, geometry.columns, cells)
            yield np.sqrt(counts, out=counts)

    def views(self, codes: Codes, mirrored: bool) -> list[Codes]:
        """Return codes of images and, if asked, those of their mirror images; of a symmetric model alone."""
        return (
            [codes, mirrored_codes(codes, self.encoder.whitener.geometry.columns)] if mirrored else [codes]
        )

    def pooled(self, codes: Codes, count: int, mirrored: bool) -> list[Array]:
        """Return the pooled embeddings of so many images and, if asked, of their mirror images, where the codes are."""
        geometry = self.encoder.whitener.geometry
        how = (count, geometry.rows, geometry.columns, self.size, self.stride)
        if self.signs is None:
            every = self.views(codes, mirrored)
            return [representation.represent(own, self.components, *how) for own in every]
        views = 2 if mirrored else 1
        return list(representation.represent_symmetric(codes, self.components, self.signs, *how, views))


def representer(model: Any, source: Source, engine: Engine) -> Represent:
    """Return what represents images by a binary code, in a batch within a worker's budget; refuse a model too large for it."""
    encoder, settings = model.encoder, model.settings
    components, symmetric = model.components(), settings.dictionary_mirrored
    rows, columns, count = model.feature_shape(components.shape[1])
    geometry = encoder.whitener.geometry
    threads = engine.executor.threads()
    reading = (
        pass_plan.block_samples(source) * source.sample_bytes
        + source.reader_bytes
        + threads * source.thread_bytes
    )

    def needed(images: int) -> int:
        stages = memory.batch_bytes(
            encoder.whitener.undrawn,
            len(encoder.atoms),
            encoder.form,
            images,
            components=count,
            pooled=rows * columns,
        )
        return reading + max(stages.encoding, stages.embedding)

    budget = int(BUDGET_SHARE * engine.executor.limit_bytes())
    batch = min(256, pass_plan.block_samples(source))
    enough = DEVICE_BATCH_BYTES if gpu_available() else BATCH_BYTES
    while batch > 1 and needed(batch) > min(budget, reading + enough):
        batch //= 2
    if needed(batch) > budget:
        raise MemoryBudgetError(
            f"Embedding one image needs {readable(needed(1))}, more than the {readable(budget)} a worker may use; "
            f"use fewer components or larger workers."
        )
    beside, signs = 0, None
    if symmetric:  # codes and embeddings of mirror images take as much as those of images
        sampling = encoder.whitener.sampling.undrawn
        codes = memory.code_capacity(geometry, len(encoder.atoms), encoder.form, batch, sampling)
        beside = int(2 * codes + 16 * batch * geometry.positions) + 4 * batch * rows * columns * count
        signs = representation.signs_of_halves(components)
    return Represent(
        *(encoder, table_of(components), *model.pooling, settings.dtype, signs),
        batch=batch,
        threads=threads,
        working_bytes=needed(batch) + beside,
        symmetric=symmetric,
    )


def joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Concatenate; a single part, large as it may be, is not copied."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
