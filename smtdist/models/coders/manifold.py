"""A sparse manifold transform whose code f is that of a coder, L1 or spike-and-slab."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from smtdist.codes.coder import Coder, Record, checked_images, patch_rows
from smtdist.data.source import Source
from smtdist.engine.manifest import Facts
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError
from smtdist.kernels import representation
from smtdist.kernels.device import to_host
from smtdist.kernels.products import Ordered, ordered_bytes
from smtdist.kernels.types import Geometry
from smtdist.models import merge as merging
from smtdist.models import valued
from smtdist.models.coders.contexts import NAMED, operator_of, require_context
from smtdist.models.coders.represent import RepresentPatches, Unscaled, representer
from smtdist.models.components import PatchTransform, require_windows
from smtdist.models.valued import ValuedTransform
from smtdist.settings import TEXT, Settings, seed, setting, shared, whole
from smtdist.solve.solution import Solution
from smtdist.statistics import values as value_sums
from smtdist.statistics.patch_rows import PatchRows
from smtdist.statistics.sites import DrawnPatches
from smtdist.statistics.values import ValueStatistics, ValueSums

ROWS = 4096
"""Patches that are coded together, in whole images."""


class ManifoldSettings(Settings):
    """What is asked of the embedding."""

    OF: ClassVar[str] = "the embedding"

    n_components: int = shared("n_components", 64)
    drop_components: int = shared("drop_components", 0)
    context_size: int | str = setting(
        whole(1, what="a whole number of pixels")
        | TEXT._replace(expected=f"the name of a context, such as {NAMED}"),
        "which patches are neighbours: those within this many pixels, all patches of the image (whole), or those of a context "
        "by name, of which packages bring more.",
        default="whole",
        stored="context",
    )
    difference_order: int = shared("difference_order", 1)
    positions: int = setting(
        whole(0), "number of patches of an image that a fit uses, drawn at random; 0 means all.", default=0
    )
    patch_stride: int = setting(
        whole(1),
        "use only patches whose row and column are multiples of this number.",
        default=1,
        stored="stride",
    )
    second_moment: str = shared("second_moment", "second")
    pool_size: int | None = shared("pool_size", None)
    pool_stride: int | None = shared("pool_stride", None)
    random_state: int = seed()

    def check_together(self) -> None:
        """Refuse contexts that no package brings."""
        require_context(self.context_size)


@dataclass(frozen=True, eq=False)
class Manifold(Unscaled, PatchTransform, ValuedTransform):
    """A coder and the embedding of its codes.

    embedding : P, n_components + drop rows, and its eigenvalues. statistics : the sums it was solved from,
        None where they were
    not read. provenance : where the samples come from; `audit` lists what was added and withdrawn. Samples
    that are withdrawn leave the sums; the dictionary stays as it was learned.
    """

    coder: Coder
    settings: ManifoldSettings
    embedding: Solution | None = None
    statistics: ValueStatistics | None = None
    provenance: dict[str, Any] = field(default_factory=dict)

    free: ClassVar[tuple[str, ...]] = (
        "n_components",
        "drop_components",
        "second_moment",
        "pool_size",
        "pool_stride",
        "patch_stride",
    )
    """Settings that no sum depends on: they may change after the fit."""
    learned: ClassVar[bool] = True

    @property
    def STORED_AS(self) -> str:  # type: ignore[override]  # a constant of the class of its coder
        """The kind of its files: that of its coder."""
        return self.coder.STORED_AS

    @property
    def sums(self) -> ValueSums:
        """The statistic that sums the codes of the fit's positions."""
        coder, settings = self.coder, self.settings
        patches = patch_rows(
            coder.settings, coder.shape, settings.positions or None, coder.mean, coder.whiten
        )
        context = operator_of(settings.context_size, patches, settings.difference_order)
        return ValueSums(DrawnPatches(replace(patches, seed=settings.random_state)), coder, context)

    @property
    def basis(self) -> str:
        """Hash of all that the sums depend on but the data: those of two models add up only where it is equal."""
        settings = self.settings
        # the seed only where something is drawn: else sums that do not depend on it would look as if they did
        drawn = [settings.positions, settings.random_state] if settings.positions else [0, 0]
        return valued.hashed(
            self.coder.identity(), settings.context_size, settings.difference_order, *drawn, value_sums.GRID
        )

    def require_like(self, source: Source) -> None:
        """Refuse images of another shape too, and whole grey levels where floats were learned from, or the other way round."""
        learned = self.coder.pixel_dtype
        if learned is not None and (np.dtype(learned) == np.uint8) != (source.dtype == np.uint8):
            raise DataError(
                f"{source.name} has {source.dtype} images, the coder was learned from {learned} ones; give images like those."
            )
        super().require_like(source)

    def facts(self, source: Source) -> Facts:
        """Return what a checkpoint of sums of a source depends on."""
        asked = {**self.settings.to_dict(), "coder": self.coder.settings.to_dict()}
        return Facts.of(source, asked, {"the coder": self.coder.identity()}, self.settings.names_today())

    @property
    def wanted(self) -> int:
        """Components that a solve is asked for: those that are kept and those that are dropped."""
        return self.settings.n_components + self.settings.drop_components

    ending: ClassVar[Any] = property(attrgetter("coder.ending"))
    """How the rounds of the code ended; None where it was not learned in rounds."""

    @property
    def geometry(self) -> Geometry:  # type: ignore[override]  # a field of transforms with binary codes
        """Of images and patches."""
        return Geometry(*self.coder.shape, self.coder.settings.patch_size)

    patches: ClassVar[Any] = property(attrgetter("coder.patches"))
    """How patches are made."""

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the positions that are coded."""
        return coded_grid(self.patches, self.settings)

    @cached_property
    def _places(self) -> NDArray[np.int64]:
        every = np.arange(self.patches.positions).reshape(self.patches.grid)
        return every[:: self.settings.patch_stride, :: self.settings.patch_stride].ravel()

    @cached_property
    def _projection(self) -> NDArray[np.float32]:
        return self.components()

    @property
    def positions(self) -> int:
        """Of an image, that are coded."""
        return len(self._places)

    def pictures(self, atoms: NDArray[Any] | None = None) -> NDArray[np.float64]:
        """Return what entries of the code stand for as patches (n, patch, patch, channels); all by default.

        Where a code has both signs of K atoms, entry K + i stands for the negative of atom i.
        """
        filters = self.coder.filters()
        signs = [filters, -filters][: max(1, self.coder.size // len(filters))]
        every = np.concatenate(signs)
        return every if atoms is None else every[np.asarray(atoms, np.int64)]

    def representer(self, source: Source, engine: Engine) -> RepresentPatches:
        """Return what represents a batch of images within a worker's budget; sums stay behind."""
        return representer(replace(self, statistics=None, provenance={}), source, engine)

    @property
    def row_numbers(self) -> int:
        """Numbers that coding a patch takes beside the patch."""
        return self.coder.row_numbers + 4 * self.settings.n_components

    @property
    def held_bytes(self) -> int:
        """Bytes of what the coder holds, and of P."""
        return self.coder.held_bytes + self._projection.nbytes + ordered_bytes(*self._projection.shape)

    @property
    def asked(self) -> str:
        """The settings of coder and embedding, as JSON."""
        return f'{{"coder": {self.coder.settings.to_json()}, "embedding": {self.settings.to_json()}}}'

    def embed(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return β = P f / ‖P f‖ of whitened patches (n, p); zero where a patch has no code."""
        return np.asarray(representation.unit_rows(Ordered(self._projection)(to_host(self.coder(rows)))))

    def represent(self, images: NDArray[np.generic]) -> NDArray[np.float32]:
        """Return pooled embeddings of images (m, H, W, C), (m, rows, columns, components), unit length at each."""
        images, shape = (
            checked_images(images, self.coder.shape),
            self.feature_shape(self.settings.n_components),
        )
        step, parts = max(1, ROWS // len(self._places)), []
        for start in range(0, len(images), step):
            part = images[start : start + step]
            places = np.tile(self._places, (len(part), 1))
            embedded = self.embed(self.patches.rows(part, places))
            pooled = representation.pool(embedded, len(part), *self.grid, *self.pooling)
            parts.append(pooled.reshape(len(part), *shape))
        return np.concatenate(parts)


def coded_grid(patches: PatchRows, settings: ManifoldSettings) -> tuple[int, int]:
    """Return rows and columns of the positions that are coded for a representation."""
    rows, columns = patches.grid
    return -(-rows // settings.patch_stride), -(-columns // settings.patch_stride)


def require_size(size: int, settings: ManifoldSettings) -> None:
    """Refuse more components than a code has entries, before any data are read."""
    wanted = settings.n_components + settings.drop_components
    if wanted > size:
        raise ConfigurationError(
            f"n_components + drop_components is {wanted}, but a code has {size} entries; lower n_components, or raise n_atoms."
        )


def fit_manifold(
    source: Source, coder: Coder, settings: ManifoldSettings, engine: Engine
) -> tuple[Manifold, list[Record]]:
    """Sum the codes of drawn positions in a pass, and solve min ‖P A D‖² with P V Pᵀ = I (SMT 2018, eq. 8; SMT 2023, section 2).

    Raises ConfigurationError where V has fewer dimensions than components asked for. Bits depend on neither
    workers nor threads.
    """
    start = Manifold(coder, settings)
    require_windows(settings, *start.grid)
    require_size(coder.size, settings)
    return merging.fit_alone(start, source, engine)
