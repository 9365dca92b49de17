"""What represents a batch of images: codes, embedding, pooling (SMT 2023, section 2)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from smtdist.data.source import Source
from smtdist.engine import plan as pass_plan
from smtdist.engine.memory import BUDGET_SHARE, readable
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, MemoryBudgetError, option
from smtdist.kernels import codes as code_kernels
from smtdist.kernels import memory, representation
from smtdist.kernels.cpu.table import Table, table_of
from smtdist.kernels.device import gpu_available, place, to_host
from smtdist.kernels.mirrored import mirrored_codes
from smtdist.kernels.types import Array, Codes, Encoder, Geometry

BATCH_BYTES = 256 * 1024**2
DEVICE_BATCH_BYTES = 8 * BATCH_BYTES
"""The same where kernels run on a GPU, which takes small batches as long as larger ones."""


class Representer(Protocol):
    """Images (B, H, W, C) to representations (B, ...), picklable.

    batch : images that are taken at once. threads : of a task. working_bytes : of a batch and of reading,
        as planned.
    """

    @property
    def batch(self) -> int: ...  # noqa: D102
    @property
    def threads(self) -> int: ...  # noqa: D102
    @property
    def working_bytes(self) -> int: ...  # noqa: D102

    def __call__(self, images: NDArray[np.generic]) -> NDArray[np.floating[Any]]: ...  # noqa: D102


class TakesImages:
    """A fitted model that images are added to and withdrawn from: `scaling` is what becomes of encoded ones."""

    def opened(self, data: list[str], dataset: str | None, skip: bool) -> Source:
        """Return the images that files and a dataset name, without damaged ones where they are to be skipped."""
        from smtdist.data import opening

        if dataset is None:
            raise ConfigurationError(
                f"{data[0]} needs the name of its images, a dataset or a group; give it with {option('(path, dataset)')}."
            )
        scaling = self.scaling  # type: ignore[attr-defined]
        return opening.open_source(data, dataset, scaling, fitted=True, skip_damaged=skip)

    def taken(self, X: Any, skip: bool) -> AbstractContextManager[Source]:
        """Return a context that yields images of Python, or of a file: (path, name)."""
        from smtdist.data.array import as_source

        if isinstance(X, tuple) and len(X) == 2:
            return nullcontext(self.opened(X[0], X[1], skip))
        return nullcontext(as_source(X, self.scaling, fitted=True))  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Represent:
    """z = pool(L2(P f(x))), L2 at each pooled position; zero where a patch has no code.

    Memory: a batch's codes, patch embeddings (positions x components x 4 bytes) of one image for each
    thread, on a device of all, and the result.
    """

    encoder: Encoder
    components: Table  # (K, L)
    size: int
    stride: int
    dtype: str
    batch: int
    threads: int
    working_bytes: int = 0  # of a batch and of reading, as planned
    symmetric: bool = False  # whether codes of mirror images follow from those of images
    signs: NDArray[np.float32] | None = None  # and by what their embeddings do, (L,)

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


def representer(
    encoder: Encoder,
    components: NDArray[np.float32],
    how: tuple[int, int, str],
    symmetric: bool,
    shape: tuple[int, int, int],
    source: Source,
    engine: Engine,
) -> Represent:
    """Choose the batch within a worker's budget; refuse a model too large for it.

    how : side and step of the pooling windows, and the type of a representation; `shape` is its shape. symmetric :
        whether the dictionary is closed under mirroring.
    """
    geometry, (rows, columns, count) = encoder.whitener.geometry, shape
    threads = engine.executor.threads()
    reading = (
        pass_plan.block_samples(source) * source.sample_bytes
        + source.reader_bytes
        + threads * source.thread_bytes
    )

    def needed(images: int) -> int:
        stages = memory.batch_bytes(
            geometry,
            len(encoder.atoms),
            encoder.form,
            images,
            components=count,
            pooled=rows * columns,
            raw_bytes=encoder.whitener.scale.raw_bytes,
            sampling=encoder.whitener.sampling.undrawn,
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
    table = table_of(components)
    if not symmetric:
        return Represent(encoder, table, *how, batch, threads, needed(batch))
    # codes and embeddings of mirror images take as much as those of images
    beside = batch_codes(geometry, encoder, batch) + 4 * batch * rows * columns * count
    signs = representation.signs_of_halves(components)
    return Represent(encoder, table, *how, batch, threads, needed(batch) + beside, True, signs)


def batch_codes(geometry: Geometry, encoder: Encoder, images: int) -> int:
    """Return the bytes of the lists of codes of a batch, at most."""
    capacity = memory.code_capacity(
        geometry, len(encoder.atoms), encoder.form, images, encoder.whitener.sampling.undrawn
    )
    return int(2 * capacity + 16 * images * geometry.positions)


def joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Concatenate; a single part, large as it may be, is not copied."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
