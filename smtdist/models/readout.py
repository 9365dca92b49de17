"""What of an image's codes a classifier sees: the embedding on a grid, counts of codes, or both, also of the mirror image."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.configuration import Configuration
from smtdist.data.adapted import Scaling
from smtdist.data.fingerprint import array_hash
from smtdist.data.source import Source
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, equals, option
from smtdist.kernels import representation
from smtdist.kernels.device import to_host
from smtdist.kernels.grid_pool import pooled_counts
from smtdist.kernels.types import Codes
from smtdist.models.joined import Joined, each, parts_of
from smtdist.models.model import Model
from smtdist.models.represent import Represent, Representer
from smtdist.models.transform import Represents
from smtdist.settings import NULL, Settings, one_of, setting, whole

FEATURES: Final = ("embedding", "codes", "both")
DTYPES: Final = ("float16", "float32")


class ReadoutSettings(Settings):
    """What is read out of a fitted model for an image."""

    OF: ClassVar[str] = "representations"

    features: str | None = setting(
        one_of(*FEATURES) | NULL,
        'features of an image: "embedding"; "codes" (square roots of how often each atom is active, in 2 x 2 cells); or "both".',
        default=None,
    )
    pool: int | None = setting(
        whole(1) | NULL,
        "pool the embedding over so many windows a side, which cover the image. None with features=both: 4.",
        default=None,
    )
    n_components: int | None = setting(
        whole(1) | NULL, "number of components to use. None: as the model was fitted.", default=None
    )
    drop_components: int | None = setting(
        whole(0) | NULL,
        "number of leading components to leave out. None: as the model was fitted.",
        default=None,
        aliases=("drop",),
    )


@dataclass(frozen=True)
class Readout:
    """What becomes of the codes of an image.

    Attributes
    ----------
    features : "embedding", "codes" (square roots of how often each atom is active in each cell), or "both", one after
        the other.
    grid : windows along the shorter side of an image over which embeddings are pooled, so that they cover it; None leaves
        them as the model pools them.
    code_grid : side of the grid whose cells codes are counted in.
    mirrored : whether features of the mirror image follow, so that a representation is (2, F).
    dtype : of the numbers; None is the model's.
    """

    features: str = "both"
    grid: int | None = representation.GRID
    code_grid: int = 2
    mirrored: bool = False
    dtype: str | None = None

    def __post_init__(self) -> None:
        if self.features not in FEATURES:
            raise ConfigurationError(
                f"There are no features {self.features!r}; choose one of {', '.join(FEATURES)}."
            )
        if self.dtype is not None and self.dtype not in DTYPES:
            raise ConfigurationError(
                f"There are no {self.dtype} features; choose one of {', '.join(DTYPES)}."
            )
        for name in ("grid", "code_grid"):
            if (side := getattr(self, name)) is not None and side < 1:
                raise ConfigurationError(f"{name} is {side}; it must be a whole number of at least 1.")


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


@dataclass(frozen=True)
class ModelReadout:
    """A fitted model of images with another way to read its codes out; it represents images as the model does.

    The shape of a representation is that of its part, (F,) of both, or (2, F) with mirror images. Codes and
    embedding come from one pass. Mirror images are for every model, counts of codes and grids for those of binary
    codes.
    """

    model: Represents
    readout: Readout

    def __post_init__(self) -> None:
        plain = self.readout.features == "embedding" and self.readout.grid is None
        if not (plain or isinstance(self.model, Model)):
            raise ConfigurationError(
                f"Features of codes and a pooling grid need a model with {equals('code', 'gq')} or {equals('code', 'vq')}; use "
                f"{equals('features', 'embedding')} without a grid ({option('features', 'embedding')}, no {option('pool')})."
            )

    @property
    def fingerprint(self) -> str:
        """Of the samples it was fitted on."""
        return self.model.fingerprint

    @property
    def asked(self) -> str:
        """The model's settings, as JSON."""
        return self.model.asked

    @property
    def scaling(self) -> Scaling:
        """What becomes of encoded images before patches are taken."""
        return self.model.scaling

    @property
    def votes(self) -> Configuration:
        """How neighbours vote where nothing else is asked for."""
        return self.model.votes

    @property
    def dtype(self) -> str:
        """Of the numbers of a representation."""
        return self.readout.dtype or self.model.dtype

    @property
    def positions(self) -> int:
        """Patches of an image."""
        return self.model.positions * (2 if self.readout.mirrored else 1)

    def require_images(self, source: Source) -> None:
        """Refuse images of another shape than the model was fitted on."""
        self.model.require_images(source)

    def blocks(self, n_components: int | None = None, drop: int | None = None) -> list[Block]:
        """Return the parts of an image's features, in order."""
        readout, found = self.readout, list[Block]()
        if readout.features != "codes":
            shape = self.model.representation_shape(n_components, drop)
            if readout.grid is not None:
                assert isinstance(self.model, Model)
                places = self.model.geometry.rows, self.model.geometry.columns
                shape = (*representation.pooled_shape(*places, *self.pooling), shape[-1])
            found.append(Block("embedding", shape))
        if readout.features != "embedding":
            assert isinstance(self.model, Model)
            side = readout.code_grid
            found.append(Block("codes", (side, side, len(self.model.encoder.atoms))))
        return found

    @property
    def pooling(self) -> tuple[int, int]:
        """Side of the windows that the embedding is pooled over and step to the next, in positions; of a binary code."""
        assert isinstance(self.model, Model)
        grid = self.readout.grid
        if grid is None:
            return self.model.pooling
        rows, columns = self.model.geometry.rows, self.model.geometry.columns
        if grid > min(rows, columns):
            raise ConfigurationError(
                f"There are no {grid} x {grid} windows in {rows} x {columns} patches; ask for at most {min(rows, columns)}."
            )
        return representation.windows(rows, columns, grid)

    def representation_shape(
        self, n_components: int | None = None, drop: int | None = None
    ) -> tuple[int, ...]:
        """Return that of the only part; of both parts (F,), with mirror images (2, F)."""
        return _shape(self.blocks(n_components, drop), self.readout.mirrored)

    def representer(
        self, source: Source, engine: Engine, n_components: int | None = None, drop: int | None = None
    ) -> RepresentReadout:
        """Return what represents a batch of images within a worker's budget."""
        inner = self.model.representer(source, engine, n_components, drop)
        if self.readout.grid is not None and isinstance(inner, Represent):
            size, step = self.pooling
            inner = replace(inner, size=size, stride=step)
        blocks = self.blocks(n_components, drop)
        # beside what the model's own representation takes: the features of a batch in float32, joined and converted
        more = inner.batch * 4 * 3 * math.prod(self.representation_shape(n_components, drop))
        return RepresentReadout(inner, self.readout, self.dtype, tuple(blocks), inner.working_bytes + more)


@dataclass(frozen=True)
class Columns:
    """Where a part of an image's features begins in its row, and that of its mirror image; None: there is none."""

    block: Block
    start: int
    mirrored: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {"start": self.start, "mirrored": self.mirrored, **vars(self.block)}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Columns:
        """Return what `to_dict` made plain."""
        return cls(Block(plain["name"], tuple(plain["shape"])), plain["start"], plain["mirrored"])


Layout = list[list[Columns]]
"""The parts of representations side by side, those of each model together."""


def layout_to_plain(layout: Layout) -> list[list[dict[str, Any]]]:
    """Return a layout as plain JSON."""
    return [[part.to_dict() for part in columns] for columns in layout]


def layout_from(plain: list[list[dict[str, Any]]]) -> Layout:
    """Return the layout that `layout_to_plain` made plain."""
    return [[Columns.from_dict(one) for one in columns] for columns in plain]


def whole_row(size: int) -> Layout:
    """Return the layout of rows that are one part."""
    return [[Columns(Block("embedding", (size,)), 0)]]


def has_mirrored(layout: Layout) -> bool:
    """Tell whether rows have features of mirror images too.

    >>> has_mirrored(whole_row(5))
    False
    """
    return layout[0][0].mirrored is not None


def width(layout: Layout) -> int:
    """Return the numbers of a row that has all parts of a layout.

    >>> width(whole_row(5))
    5
    """
    parts = [one for columns in layout for one in columns]
    return max(one.block.size + max(one.start, one.mirrored or 0) for one in parts)


def layout_of(model: Represents, n_components: int | None = None, drop: int | None = None) -> Layout:
    """Return where the parts of a row are; of models side by side, of each."""
    found, start = Layout(), 0
    for one in parts_of(model):
        blocks, mirrored = [Block("embedding", one.representation_shape(n_components, drop))], False
        if isinstance(one, ModelReadout):
            blocks, mirrored = one.blocks(n_components, drop), one.readout.mirrored
        view = sum(block.size for block in blocks)
        columns = []
        for block in blocks:
            columns.append(Columns(block, start, start + view if mirrored else None))
            start += block.size
        start += view if mirrored else 0
        found.append(columns)
    return found


def identity_of(model: Represents, n_components: int | None = None, drop: int | None = None) -> str:
    """Return a hash of what representations depend on beside the options: settings, atoms and components of each model."""
    arrays: list[NDArray[Any]] = []
    how = n_components, drop
    for one in parts_of(model):
        inner = one.model if isinstance(one, ModelReadout) else one
        arrays.append(np.frombuffer(f"{inner.asked}{inner.fingerprint}{how}".encode(), np.uint8))
        if isinstance(inner, Model):
            arrays += [inner.components(*how), inner.dictionary.grid]
    return array_hash(*arrays)


def column_runs(layout: Layout, mirrored: bool) -> list[tuple[int, int]]:
    """Return the ranges of columns that the features of images have in a row, or those of their mirror images.

    Parts that lie side by side are one range.

    >>> column_runs(whole_row(5), False)
    [(0, 5)]
    """
    runs = list[tuple[int, int]]()
    for one in (one for columns in layout for one in columns):
        first = one.mirrored if mirrored and one.mirrored is not None else one.start
        before = runs.pop() if runs and runs[-1][1] == first else (first, first)
        runs.append((before[0], first + one.block.size))
    return runs


def and_mirrored(model: Represents) -> Represents:
    """Return the model with the features of mirror images after those of images."""

    def both(one: Represents) -> Represents:
        if isinstance(one, ModelReadout):
            return replace(one, readout=replace(one.readout, mirrored=True))
        return ModelReadout(one, Readout("embedding", None, mirrored=True))

    found: Represents = each(model, both)
    return found


def without_mirrored(layout: Layout) -> Layout:
    """Return a layout whose features of mirror images are not looked at."""
    return [[replace(one, mirrored=None) for one in columns] for columns in layout]


def with_readout(
    model: Represents,
    features: str | None,
    grid: int | None = None,
    *,
    mirrored: bool = False,
    half: bool = False,
) -> Represents:
    """Return the model with another way to read its codes out; the model itself where nothing is asked for.

    Of models side by side each is read out so. Without a grid embeddings are pooled over 4 x 4 windows, or as many as
    there are patches, unless the embedding alone is asked for.
    """
    if features is None and grid is None and not (mirrored or half):
        return model
    if features == "codes" and grid is not None:
        raise ConfigurationError(
            f"A grid ({option('pool')}) is for the embedding; codes are counted in 2 x 2 cells, so leave it out."
        )
    if isinstance(model, Joined):
        return model.each(lambda one: with_readout(one, features, grid, mirrored=mirrored, half=half))
    dtype = "float16" if half else None
    found = ModelReadout(model, Readout(features or "embedding", grid, mirrored=mirrored, dtype=dtype))
    if features == "both" and grid is None and isinstance(model, Model):
        few = min(representation.GRID, model.geometry.rows, model.geometry.columns)
        found = replace(found, readout=replace(found.readout, grid=few))
    return found


def _shape(blocks: Sequence[Block], mirrored: bool) -> tuple[int, ...]:
    size = sum(block.size for block in blocks)
    if mirrored:
        return 2, size
    return blocks[0].shape if len(blocks) == 1 else (size,)


@dataclass(frozen=True)
class RepresentReadout:
    """Images (B, H, W, C) to features (B, ...), as `ModelReadout.representation_shape` has them."""

    inner: Representer
    readout: Readout
    dtype: str
    blocks: tuple[Block, ...]
    working_bytes: int

    @property
    def batch(self) -> int:
        """Images that are taken at once."""
        return self.inner.batch

    @property
    def threads(self) -> int:
        """Threads of a task."""
        return self.inner.threads

    def __call__(self, images: NDArray[np.generic]) -> NDArray[np.floating[Any]]:
        """Represent a batch."""
        mirrored, size = self.readout.mirrored, sum(block.size for block in self.blocks)
        found = np.empty((len(images), 1 + mirrored, size), self.dtype)
        if mirrored and isinstance(self.inner, Represent) and self.inner.symmetric:
            self._write(images, found, True)
        else:
            self._write(images, found[:, :1], False)
            if mirrored:
                self._write(np.ascontiguousarray(images[:, :, ::-1]), found[:, 1:], False)
        return found if mirrored else found.reshape(len(found), *_shape(self.blocks, False))

    def _write(self, images: NDArray[np.generic], found: NDArray[np.floating[Any]], mirrored: bool) -> None:
        """Write features of images, and of their mirror images if asked, (n, views, F)."""
        if not isinstance(self.inner, Represent):
            found[...] = self.inner(images).reshape(found.shape)
            return
        done = 0
        for count, codes in self.inner.codes(images):
            place = 0
            for block in self.blocks:
                columns = slice(place, place + block.size)
                for view, values in enumerate(self._block(self.inner, block, codes, count, mirrored)):
                    found[done : done + count, view, columns] = values.reshape(count, -1)
                place += block.size
            done += count

    def _block(
        self, inner: Represent, block: Block, codes: Codes, count: int, mirrored: bool
    ) -> Iterator[NDArray[np.floating[Any]]]:
        """Yield the features of so many images and, if asked, of their mirror images."""
        if not block.counts:
            yield from (to_host(one) for one in inner.pooled(codes, count, mirrored))
            return
        geometry = inner.encoder.whitener.geometry
        for own in inner.views(codes, mirrored):
            counts = pooled_counts(own, count, geometry.rows, geometry.columns, self.readout.code_grid)
            yield np.sqrt(counts, out=counts)
