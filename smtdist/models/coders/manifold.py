"""A sparse manifold transform whose code f is that of a coder, L1 or spike-and-slab."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from smtdist.data.source import Source
from smtdist.engine.manifest import Facts, array_hash
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError
from smtdist.kernels.device import to_host
from smtdist.kernels.generic.representation import unit_rows
from smtdist.kernels.representation import pool, pooled_shape
from smtdist.kernels.threads import single_blas
from smtdist.models.checks import require_whole
from smtdist.models.coders.coder import Coder, Record, checked_images, patch_rows
from smtdist.models.coders.settings import Settings
from smtdist.statistics.operators import Operator, Whole, Window, require_order
from smtdist.statistics.patch_rows import PatchRows
from smtdist.statistics.sites import DrawnPatches
from smtdist.statistics.values import ValueSums, finish

if TYPE_CHECKING:
    from smtdist.solve.solution import Solution

Float64 = NDArray[np.float64]
ROWS = 4096
"""Patches that are coded together, in whole images."""


@dataclass(frozen=True)
class ManifoldSettings(Settings):
    """What is asked of the embedding.

    Attributes
    ----------
    n_components : rows of P kept, after the first `drop`.
    drop : leading rows of P that are left out.
    context : range of the neighbourhood in pixels, or "whole".
    order : 1 for differences of neighbours, 2 for a position minus the mean of its neighbours.
    positions : drawn of each image in the fit; 0 takes all.
    stride : of the positions that a representation pools.
    moment : "second" (SMT 2023) or "centred" (SMT 2018).
    pool_size : side of the window over which embeddings are averaged, in strides.
    pool_stride : step from one window to the next, in strides.
    seed : of every random choice.
    """

    OF: ClassVar[str] = "the embedding"
    CHOICES: ClassVar[dict[str, tuple[Any, ...]]] = {"order": (1, 2), "moment": ("second", "centred")}

    n_components: int = 64
    drop: int = 0
    context: int | str = "whole"
    order: int = 1
    positions: int = 0
    stride: int = 1
    moment: str = "second"
    pool_size: int = 4
    pool_stride: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        least = {
            "n_components": 1,
            "drop": 0,
            "positions": 0,
            "stride": 1,
            "pool_size": 1,
            "pool_stride": 1,
            "seed": 0,
        }
        require_whole(self, least)
        if self.context != "whole" and (type(self.context) is not int or self.context < 1):
            raise ConfigurationError(
                f'context is {self.context!r}; it must be a whole number of pixels of at least 1, or "whole".'
            )
        require_order(self.order)
        if self.moment not in self.CHOICES["moment"]:
            raise ConfigurationError(f"moment is {self.moment!r}; it must be one of second, centred.")


@dataclass(frozen=True, eq=False)
class Manifold:
    """A coder and its embedding: components (n_components + drop, K), the rows of P, and their eigenvalues."""

    coder: Coder
    settings: ManifoldSettings
    components: Float64
    eigenvalues: Float64

    @property
    def shape(self) -> tuple[int, int, int]:
        """(height, width, channels) of an image."""
        return self.coder.shape

    @property
    def patches(self) -> PatchRows:
        """How patches are made."""
        return self.coder.patches

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the positions that are coded."""
        return coded_grid(self.patches, self.settings)

    @cached_property
    def _places(self) -> NDArray[np.int64]:
        every = np.arange(self.patches.positions).reshape(self.patches.grid)
        return every[:: self.settings.stride, :: self.settings.stride].ravel()

    @cached_property
    def _projection(self) -> NDArray[np.float32]:
        first = self.settings.drop
        return np.ascontiguousarray(self.components[first : first + self.settings.n_components].T, np.float32)

    @property
    def feature_shape(self) -> tuple[int, int]:
        """(pooled positions, components)."""
        rows, columns = pooled_shape(*self.grid, self.settings.pool_size, self.settings.pool_stride)
        return rows * columns, self.settings.n_components

    @property
    def row_numbers(self) -> int:
        """Numbers that coding a patch takes beside the patch."""
        return self.coder.row_numbers + 4 * self.settings.n_components

    @property
    def held_bytes(self) -> int:
        """Bytes of what the coder holds, and of P."""
        return self.coder.held_bytes + self.components.nbytes

    def embed(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return β = P f / ‖P f‖ of whitened patches (n, p); zero where a patch has no code."""
        codes = to_host(self.coder(rows))
        with single_blas():
            return np.asarray(unit_rows(codes @ self._projection))

    def represent(self, images: NDArray[np.generic]) -> NDArray[np.float32]:
        """Return pooled embeddings of images (m, H, W, C), (m, pooled positions, components), unit length at each."""
        images = checked_images(images, self.shape)
        step, parts = max(1, ROWS // len(self._places)), []
        for start in range(0, len(images), step):
            part = images[start : start + step]
            places = np.tile(self._places, (len(part), 1))
            embedded = self.embed(self.patches.rows(part, places))
            pooled = pool(embedded, len(part), *self.grid, self.settings.pool_size, self.settings.pool_stride)
            parts.append(pooled.reshape(len(part), *self.feature_shape))
        return np.concatenate(parts)


def coded_grid(patches: PatchRows, settings: ManifoldSettings) -> tuple[int, int]:
    """Return rows and columns of the positions that are coded for a representation."""
    rows, columns = patches.grid
    return -(-rows // settings.stride), -(-columns // settings.stride)


def require_pools(patches: PatchRows, settings: ManifoldSettings) -> None:
    """Refuse a pooling window that does not fit into an image, before any data are read."""
    pooled_shape(*coded_grid(patches, settings), settings.pool_size, settings.pool_stride)


def fit_manifold(
    source: Source, coder: Coder, settings: ManifoldSettings, engine: Engine
) -> tuple[Manifold, list[Record]]:
    """Sum the codes of drawn positions in a pass, and solve min ‖P A D‖² with P V Pᵀ = I (SMT 2018, eq. 8; SMT 2023, section 2).

    Raises ConfigurationError where V has fewer dimensions than components asked for. Bits depend on neither workers nor threads.
    """
    # a coder that is read and used needs no solver, nor SciPy
    from smtdist.solve.generalized import smallest_components, solve_bytes

    require_pools(coder.patches, settings)
    patches = patch_rows(coder.settings, coder.shape, settings.positions or None, coder.mean, coder.whiten)
    context: Operator = Whole()
    if settings.context != "whole" or settings.order == 2:
        reach = None if settings.context == "whole" else int(settings.context)
        context = Window(patches.drawn, patches.grid[1], reach, settings.order)
    sums = ValueSums(DrawnPatches(replace(patches, seed=settings.seed)), coder, context)
    with engine.run(["statistics", "solve"], lambda: manifold_facts(source, coder, settings)):
        partial, record = engine.reduce("statistics", sums, source)
        found = finish(partial.state, sums)
        wanted = settings.n_components + settings.drop

        def solved() -> Solution:
            with single_blas():
                return smallest_components(found.scatter, found.constraint(settings.moment), wanted)

        solution, last = engine.solve("solve", solved, solve_bytes(coder.size, False, wanted))
    return Manifold(coder, settings, solution.components, solution.eigenvalues), [record, last]


def manifold_facts(source: Source, coder: Coder, settings: ManifoldSettings) -> Facts:
    """Return what a checkpoint of a transform on the codes of a coder depends on."""
    given = {"the coder": array_hash(coder.basis, coder.mean, coder.whiten)}
    return Facts.of(source, {**asdict(settings), "coder": json.loads(coder.settings.to_json())}, given)
