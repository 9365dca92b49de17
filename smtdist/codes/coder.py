"""A coder of patches, whatever its code: settings, whitening, patches of images, pooled features, filters."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from smtdist.data.fingerprint import array_hash
from smtdist.data.showing import Shown
from smtdist.errors import ModelError
from smtdist.kernels import convergence
from smtdist.kernels.device import to_host
from smtdist.kernels.features import Features
from smtdist.kernels.representation import grid_pool, n_cells
from smtdist.settings import Settings
from smtdist.statistics.patch_rows import PatchRows

Float64 = NDArray[np.float64]
Float32 = NDArray[np.float32]
Record = dict[str, Any]

ROWS: Final = 2048
"""Patches that are coded together, in whole images."""


class PatchSettings(Settings):
    """What every coder of patches is told; each declares it, in the order of its files."""

    if TYPE_CHECKING:
        n_atoms: int
        patch_size: int
        contrast_bias: float
        whitening_reg: float
        patches: int
        images: int
        whiten_images: int
        start: str
        pooling_grid: tuple[int, ...]
        pixel_range: tuple[float, float] | None
        augment_flip: bool
        to_grayscale: bool
        random_state: int

    @property
    def width(self) -> int:
        """Entries of a code, K."""
        return self.n_atoms


@dataclass(frozen=True, eq=False)
class Coder(Shown, Features):
    """A fitted coder: how its codes are made, how it learns, and what its files hold.

    Attributes
    ----------
    settings : what was asked for. shape : (height, width, channels) of an image.
    mean, whiten, unwhiten : (p,), (p, p), (p, p) of contrast-normalised patches.
    CHANGEABLE : settings that may change after the fit.
    STORED_AS : the kind of its files (`smtdist.models.kinds.KINDS`).
    """

    CHANGEABLE: ClassVar[tuple[str, ...]] = ("pooling_grid",)
    STORED_AS: ClassVar[str]

    settings: PatchSettings
    shape: tuple[int, int, int]
    mean: Float64
    whiten: Float64
    unwhiten: Float64

    @classmethod
    @abstractmethod
    def learn(cls, start: Any, settings: Any, engine: Any) -> tuple[dict[str, Any], list[Record]]:
        """Return what it learns, by the names of the class's fields, and the records of the passes it took.

        start : a `smtdist.models.coders.fit.Start`, with unit atoms and their spares, how patches are
            made, and the images of a round. Passes over the data go through `engine.reduce` and
            `engine.loop` (`smtdist.engine.passes.Engine`).
        """

    @classmethod
    def loss(cls, learnt: Mapping[str, Any]) -> float:
        """Return what starts are compared by, the lowest the best: the mean objective over the last tenth of the rounds.

        learnt : what `learn` returned first, after a round at least.
        """
        ended = convergence.of_rounds(learnt["trace"])
        assert ended is not None
        return ended.loss

    @classmethod
    def kind(cls) -> str:
        """Return the attribute `kind` of its files; that of a transform on it is "kind-manifold"."""
        return cls.STORED_AS

    @classmethod
    @abstractmethod
    def groups(cls) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
        """Return the arrays of its files beside the whitening and the atoms, by group, with their dimensions."""

    @abstractmethod
    def written(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the arrays that `groups` names, and the attributes of its file, a title among them."""

    @classmethod
    @abstractmethod
    def read(cls, found: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
        """Return its settings and its own fields, by name, from the arrays of a file, `atoms` among them, and its attributes."""

    @abstractmethod
    def summary(self) -> dict[str, Any]:
        """Return what is asked of it first, as plain JSON."""

    @property
    def ending(self) -> convergence.Convergence | None:
        """How its rounds ended; None where it was not learned in rounds."""
        return convergence.of_rounds(getattr(self, "trace", ()))

    def learning(self, name: str = "objective") -> dict[str, Any]:
        """Return rounds, the objective of the first and the mean of the last tenth by a name, and how they ended."""
        trace: tuple[float, ...] = getattr(self, "trace", ())
        ended = self.ending
        ends = {} if ended is None else {f"{name}_first": trace[0], name: ended.loss}
        return {"rounds": len(trace), **ends, **convergence.facts_of(ended)}

    @property
    @abstractmethod
    def feature(self) -> str:
        """The name of its code: the value of the setting `feature`."""

    @property
    def coder(self) -> Self:
        """The coder: this one. A transform on a coder has it beside an embedding."""
        return self

    @classmethod
    def entries(cls, settings: Any) -> int:
        """Return the entries of a code that a transform embeds, K, with these settings."""
        return int(settings.width)

    @classmethod
    def facts(cls, settings: Any) -> dict[str, Any]:
        """Return what a checkpoint of its fit depends on, beside the data."""
        return dict(settings.to_dict())

    @property
    def basis(self) -> Float64:
        """Unit rows in whitened space, (K, p): the columns of the dictionary."""
        found: Float64 = vars(self)["atoms"]
        return found

    @property
    def row_numbers(self) -> int:
        """float32 numbers that coding a patch takes beside the patch: four codes, unless a subclass knows better."""
        return 4 * self.settings.width

    @property
    @abstractmethod
    def held_bytes(self) -> int:
        """Bytes of the atoms, and of what is made of them while coding."""

    @abstractmethod
    def code(self, rows: Float32) -> Any:
        """Return the features of whitened patches (n, p), (n, width), where they are placed."""

    @abstractmethod
    def few(self) -> Self:
        """Return the same with few atoms."""

    def identity(self) -> str:
        """Return a hash of all that codes depend on: settings but how features are pooled, the whitening, what is learnt."""
        told = json.loads(self.settings.to_json())
        for unused in ("pooling", "n_init"):
            told.pop(unused, None)
        arrays = array_hash(self.mean, self.whiten, *self.learnt())
        return blake2b(json.dumps([told, arrays], sort_keys=True).encode(), digest_size=16).hexdigest()

    def learnt(self) -> tuple[Float64, ...]:
        """Return the arrays that codes depend on, beside the whitening."""
        return (self.basis,)

    @property
    def sparse(self) -> bool:  # type: ignore[override]
        """Whether most entries of a code are exactly zero."""
        return True

    @property
    def size(self) -> int:  # type: ignore[override]  # a field of the base class, computed here
        """Entries of the code that a manifold transform embeds, K."""
        return self.entries(self.settings)

    def __call__(self, rows: Float32) -> Any:
        """Return the code f of whitened patches (n, p) that a manifold transform embeds, (n, K)."""
        return self.code(rows)

    @property
    def pixel_dtype(self) -> str | None:
        """Type of the pixels it was learned from, where its provenance says so."""
        found: str | None = vars(self).get("provenance", {}).get("source", {}).get("dtype")
        return found

    @cached_property
    def patches(self) -> PatchRows:
        """How its patches are made."""
        return patch_rows(self.settings, self.shape, None, self.mean, self.whiten)

    @property
    def feature_shape(self) -> tuple[int, int]:
        """(cells, features of a cell)."""
        return n_cells(self.settings.pooling_grid), self.settings.width

    def rows(self, images: NDArray[np.generic]) -> Float32:
        """Return all whitened patches of images (m, H, W, C), (m positions, p)."""
        images = checked_images(images, self.shape)
        places = np.tile(np.arange(self.patches.positions), (len(images), 1))
        return self.patches.rows(images, places)

    def represent(self, images: NDArray[np.generic]) -> Float32:
        """Return pooled features of images (m, H, W, C), (m, cells, width) float32.

        Memory: features of `ROWS` patches, or of those of one image, and the result.
        """
        images = checked_images(images, self.shape)
        rows, columns = self.patches.grid
        step = max(1, ROWS // self.patches.positions)
        parts = []
        for start in range(0, len(images), step):
            part = images[start : start + step]
            maps = self.code(self.rows(part)).reshape(len(part), rows, columns, -1)
            parts.append(to_host(grid_pool(maps, self.settings.pooling_grid)))
        return np.concatenate(parts)

    def filters(self) -> Float64:
        """Return atoms as patches of pixels, (K, patch, patch, channels): taken back through the whitening."""
        return self._patches(self.basis @ self.unwhiten)

    def pictures(self, atoms: NDArray[Any] | None = None) -> Float64:
        """Return atoms as `filters` does; all by default."""
        every = self.filters()
        return every if atoms is None else every[np.asarray(atoms, np.int64)]

    def whitened_filters(self) -> Float64:
        """Return atoms as they are, as patches of whitened pixels, (K, patch, patch, channels)."""
        return self._patches(self.basis)

    def _patches(self, atoms: Float64) -> Float64:
        side = self.settings.patch_size
        return atoms.reshape(-1, side, side, self.patches.channels)


class Code(NamedTuple):
    """One code by name: the class that makes it, and its settings by default.

    idle : settings of the class that this code does not look at; none of them can be given with it.
    """

    cls: type[Coder]
    settings: Any
    idle: frozenset[str] = frozenset()


def checked_images(images: NDArray[np.generic], shape: tuple[int, int, int]) -> NDArray[np.generic]:
    """Return images (m, H, W, C) of a shape, or raise a ModelError."""
    images = images[..., None] if images.ndim == 3 else images
    if images.shape[1:] != shape:
        raise ModelError(
            f"The model takes images of (height, width, channels) = {shape}, these are {images.shape[1:]}; give images "
            f"like those it was fitted on."
        )
    return images


def patch_rows(
    settings: PatchSettings,
    shape: tuple[int, int, int],
    count: int | None,
    mean: Float64 | None = None,
    whiten: Float64 | None = None,
) -> PatchRows:
    """Return how patches are made: as settings say, `count` of each image."""
    return PatchRows(
        shape,
        settings.patch_size,
        count,
        settings.contrast_bias,
        settings.random_state,
        mean,
        whiten,
        settings.pixel_range,
        settings.augment_flip,
        settings.to_grayscale,
    )
