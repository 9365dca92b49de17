"""What of an image's codes a classifier sees: the embedding on a grid, counts of codes, or both, also of the mirror image."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smtdist.configuration import Configuration
from smtdist.data.fingerprint import array_hash
from smtdist.data.source import Source
from smtdist.data.views import Scaling
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, equals, option
from smtdist.kernels import representation
from smtdist.models.represent import Block, Representer
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
        "pool the embedding over so many windows a side, which cover the image. None: as the model was fitted, with "
        "features=both 4.",
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
    n_components, drop : components that are used, after those that are dropped; None: as the model was fitted.
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
    n_components: int | None = None
    drop: int | None = None

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


class CodePlaces(NamedTuple):
    """What can be read out of codes: those of rows x columns patches by so many atoms.

    pooling : side of the windows that the embedding is pooled over and step to the next, in positions.
    """

    rows: int
    columns: int
    n_atoms: int
    pooling: tuple[int, int]


class ImageTransform(ABC):
    """What turns images into representations: a fitted model, several side by side, or one that is read out in another way.

    asked : its settings, as JSON. fingerprint : of the samples it was fitted on, "" where they are not known. scaling : what
    becomes of encoded images before patches are taken. votes : settings that say how neighbours vote where nothing else is
    asked for. dtype : of the numbers of a representation. positions : patches of an image. names : of models side by side in a
    file, where they were fitted together. CHANGEABLE : settings that may change after the fit, because they say how images are
    represented.
    """

    STORED_AS: ClassVar[str]
    CHANGEABLE: ClassVar[tuple[str, ...]] = ("pool_size", "pool_stride")
    names: tuple[str, ...] = ()

    @property
    @abstractmethod
    def asked(self) -> str: ...  # noqa: D102
    @property
    @abstractmethod
    def fingerprint(self) -> str: ...  # noqa: D102
    @property
    @abstractmethod
    def scaling(self) -> Scaling: ...  # noqa: D102
    @property
    @abstractmethod
    def votes(self) -> Configuration: ...  # noqa: D102
    @property
    @abstractmethod
    def dtype(self) -> str: ...  # noqa: D102
    @property
    @abstractmethod
    def positions(self) -> int: ...  # noqa: D102

    @abstractmethod
    def require_images(self, source: Source) -> None:
        """Refuse images of another shape than the model was fitted on."""

    @abstractmethod
    def representation_shape(self) -> tuple[int, ...]:
        """Return the shape of one image's representation."""

    @abstractmethod
    def representer(self, source: Source, engine: Engine) -> Representer:
        """Return what represents a batch, within a worker's budget; refuse a model too large for it."""

    @property
    def code_places(self) -> CodePlaces | None:
        """What can be read out of its codes; None where the embedding alone can be."""
        return None

    def read_out(self) -> ModelReadout:
        """Return the model with the way in which its codes are read out: the embedding, as it pools it."""
        return ModelReadout(self, Readout("embedding", None))

    @property
    def members(self) -> tuple[ImageTransform, ...]:
        """The models that a representation is made by, in their order."""
        return (self,)

    def each(self, change: Callable[[Any], Any]) -> Any:
        """Return it changed, each of models side by side by itself."""
        return change(self)

    def with_components(self, n_components: int | None, drop: int | None) -> ImageTransform:
        """Return it with so many components, after those that are dropped; None leaves either as the model has it."""
        return self

    def identifying_arrays(self) -> list[NDArray[Any]]:
        """Return arrays that tell its representations from those of another model of the same settings and samples."""
        return []

    def require_ready(self, path: str | os.PathLike[str], *, embedded: bool = False) -> None:  # noqa: B027  # most are
        """Refuse the model of a file that represents nothing yet; where it has to be `embedded`, one without components."""

    def with_changes(self, changes: Mapping[str, Any]) -> ImageTransform:
        """Return it with other settings of what may change after the fit; ConfigurationError for others."""
        found: ImageTransform = with_changes(self, changes)
        return found

    def opened(self, data: list[str], dataset: str | None, skip: bool) -> Source:
        """Return the images that files and a dataset name, without damaged ones where they are to be skipped."""
        from smtdist.data import opening

        if dataset is None:
            raise ConfigurationError(
                f"{data[0]} needs the name of its images, a dataset or a group; give it with {option('(path, dataset)')}."
            )
        return opening.open_source(data, dataset, self.scaling, fitted=True, skip_damaged=skip)

    def taken(self, X: Any, skip: bool) -> AbstractContextManager[Source]:
        """Return a context that yields images of Python, or of a file: (path, name)."""
        from smtdist.data.array import as_source

        if isinstance(X, tuple) and len(X) == 2:
            return nullcontext(self.opened(X[0], X[1], skip))
        return nullcontext(as_source(X, self.scaling, fitted=True))


def with_changes(model: Any, changes: Mapping[str, Any]) -> Any:
    """Return a dataclass with other settings, of those that may change after the fit; ConfigurationError for others."""
    names, allowed = model.settings.named(changes), model.CHANGEABLE
    if fixed := sorted(names.keys() - set(allowed)):
        raise ConfigurationError(
            f"{', '.join(fixed)} cannot change after the fit; {', '.join(allowed)} can."
        )
    return replace(model, settings=model.settings.replace(**names)) if names else model


class OnAnother(ImageTransform):
    """What stands on another model, and answers as that one does unless it says otherwise."""

    model: ImageTransform
    fingerprint: Any = property(attrgetter("model.fingerprint"))
    asked: Any = property(attrgetter("model.asked"))
    scaling: Any = property(attrgetter("model.scaling"))
    votes: Any = property(attrgetter("model.votes"))
    dtype: Any = property(attrgetter("model.dtype"))
    positions: Any = property(attrgetter("model.positions"))

    def require_images(self, source: Source) -> None:
        """Refuse images of another shape than the other was fitted on."""
        self.model.require_images(source)


@dataclass(frozen=True)
class ModelReadout(OnAnother):
    """A fitted model of images with another way to read its codes out; it represents images as the model does.

    The shape of a representation is that of its part, (F,) of both, or (2, F) with mirror images. Codes and
    embedding come from one pass. Mirror images are for every model, counts of codes and grids for those of binary
    codes.
    """

    model: ImageTransform
    readout: Readout

    def __post_init__(self) -> None:
        plain = self.readout.features == "embedding" and self.readout.grid is None
        if not plain and self.model.code_places is None:
            raise ConfigurationError(
                f"Features of codes and a pooling grid need a model with {equals('code', 'gq')} or {equals('code', 'vq')}; use "
                f"{equals('features', 'embedding')} without a grid ({option('features', 'embedding')}, no {option('pool')})."
            )

    def read_out(self) -> ModelReadout:
        """Return the same."""
        return self

    @property
    def dtype(self) -> str:
        """Of the numbers of a representation."""
        return self.readout.dtype or self.model.dtype

    @property
    def positions(self) -> int:
        """Patches of an image."""
        return self.model.positions * (2 if self.readout.mirrored else 1)

    @property
    def chosen(self) -> ImageTransform:
        """The model with the components that are used."""
        return self.model.with_components(self.readout.n_components, self.readout.drop)

    def blocks(self) -> list[Block]:
        """Return the parts of an image's features, in order."""
        readout, codes, found = self.readout, self.model.code_places, list[Block]()
        if readout.features != "codes":
            shape = self.chosen.representation_shape()
            if readout.grid is not None and codes is not None:
                shape = (*representation.pooled_shape(codes.rows, codes.columns, *self.pooling), shape[-1])
            found.append(Block("embedding", shape))
        if readout.features != "embedding" and codes is not None:
            side = readout.code_grid
            found.append(Block("codes", (side, side, codes.n_atoms)))
        return found

    @property
    def pooling(self) -> tuple[int, int]:
        """Side of the windows that the embedding is pooled over and step to the next, in positions; of a binary code."""
        codes, grid = self.model.code_places, self.readout.grid
        assert codes is not None
        if grid is None:
            return codes.pooling
        rows, columns = codes.rows, codes.columns
        if grid > min(rows, columns):
            raise ConfigurationError(
                f"There are no {grid} x {grid} windows in {rows} x {columns} patches; ask for at most {min(rows, columns)}."
            )
        return representation.windows(rows, columns, grid)

    def representation_shape(self) -> tuple[int, ...]:
        """Return that of the only part; of both parts (F,), with mirror images (2, F)."""
        return _shape(self.blocks(), self.readout.mirrored)

    def representer(self, source: Source, engine: Engine) -> RepresentReadout:
        """Return what represents a batch of images within a worker's budget."""
        inner = self.chosen.representer(source, engine)
        if self.readout.grid is not None:
            inner = inner.over(self.pooling)
        # beside what the model's own representation takes: the features of a batch in float32, joined and converted
        more = inner.batch * 4 * 3 * math.prod(self.representation_shape())
        return RepresentReadout(
            *(inner, self.readout, self.dtype, tuple(self.blocks())),
            batch=inner.batch,
            threads=inner.threads,
            working_bytes=inner.working_bytes + more,
        )


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


def layout_of(model: ImageTransform) -> Layout:
    """Return where the parts of a row are; of models side by side, of each."""
    found, start = Layout(), 0
    for one in model.members:
        seen = one.read_out()
        blocks, mirrored = seen.blocks(), seen.readout.mirrored
        view = sum(block.size for block in blocks)
        columns = []
        for block in blocks:
            columns.append(Columns(block, start, start + view if mirrored else None))
            start += block.size
        start += view if mirrored else 0
        found.append(columns)
    return found


def identity_of(model: ImageTransform) -> str:
    """Return a hash of what representations depend on beside the options: settings, atoms and components of each model."""
    arrays: list[NDArray[Any]] = []
    for one in model.members:
        seen = one.read_out()
        told = f"{seen.asked}{seen.fingerprint}{(seen.readout.n_components, seen.readout.drop)}"
        arrays += [np.frombuffer(told.encode(), np.uint8), *seen.chosen.identifying_arrays()]
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


def and_mirrored(model: ImageTransform) -> ImageTransform:
    """Return the model with the features of mirror images after those of images."""

    def both(one: ImageTransform) -> ImageTransform:
        seen = one.read_out()
        return replace(seen, readout=replace(seen.readout, mirrored=True))

    found: ImageTransform = model.each(both)
    return found


def without_mirrored(layout: Layout) -> Layout:
    """Return a layout whose features of mirror images are not looked at."""
    return [[replace(one, mirrored=None) for one in columns] for columns in layout]


def with_readout(
    model: ImageTransform,
    features: str | None,
    grid: int | None = None,
    *,
    n_components: int | None = None,
    drop: int | None = None,
    mirrored: bool = False,
    half: bool = False,
) -> ImageTransform:
    """Return the model with another way to read its codes out; the model itself where nothing is asked for.

    Of models side by side each is read out so. Without a grid embeddings are pooled over 4 x 4 windows, or as many as
    there are patches, unless the embedding alone is asked for.
    """
    if (features, grid, n_components, drop) == (None,) * 4 and not (mirrored or half):
        return model
    if features == "codes" and grid is not None:
        raise ConfigurationError(
            f"A grid ({option('pool')}) is for the embedding; codes are counted in 2 x 2 cells, so leave it out."
        )
    dtype = "float16" if half else None
    how = Readout(features or "embedding", grid, 2, mirrored, dtype, n_components, drop)

    def seen(one: ImageTransform) -> ImageTransform:
        if features == "both" and grid is None and (codes := one.code_places) is not None:
            return ModelReadout(one, replace(how, grid=min(representation.GRID, codes.rows, codes.columns)))
        return ModelReadout(one, how)

    found: ImageTransform = model.each(seen)
    return found


def _shape(blocks: Sequence[Block], mirrored: bool) -> tuple[int, ...]:
    size = sum(block.size for block in blocks)
    if mirrored:
        return 2, size
    return blocks[0].shape if len(blocks) == 1 else (size,)


@dataclass(frozen=True)
class RepresentReadout(Representer):
    """Images (B, H, W, C) to features (B, ...), as `ModelReadout.representation_shape` has them."""

    inner: Representer
    readout: Readout
    dtype: str
    blocks: tuple[Block, ...]

    def __call__(self, images: NDArray[np.generic]) -> NDArray[np.floating[Any]]:
        """Represent a batch."""
        mirrored, size = self.readout.mirrored, sum(block.size for block in self.blocks)
        found = np.empty((len(images), 1 + mirrored, size), self.dtype)
        how = self.blocks, self.readout.code_grid
        if mirrored and self.inner.symmetric:
            self.inner.write(images, found, *how, True)
        else:
            self.inner.write(images, found[:, :1], *how, False)
            if mirrored:
                self.inner.write(np.ascontiguousarray(images[:, :, ::-1]), found[:, 1:], *how, False)
        return found if mirrored else found.reshape(len(found), *_shape(self.blocks, False))
