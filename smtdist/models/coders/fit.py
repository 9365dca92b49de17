"""The fit of a coder of patches, whatever its code: whitening, atoms that start from patches, and what the code learns."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np

from smtdist.codes.coder import Coder, PatchSettings, Record, patch_rows
from smtdist.data.source import Source, sample_lengths
from smtdist.data.views import chunk_subset
from smtdist.engine.manifest import Facts
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError
from smtdist.kernels import contrast
from smtdist.kernels.pixels import pixel_scale
from smtdist.kernels.representation import edges
from smtdist.kernels.threads import single_blas
from smtdist.models import provenance
from smtdist.models.provenance import best_of
from smtdist.solve.solution import Float64
from smtdist.statistics.patch_rows import PatchRows, RowMoments, RowSample

C = TypeVar("C", bound=Coder)

STEPS = ("whitening", "start", "round")
"""Of the fit of a coder; rounds are `round-1`, `round-2`, ..."""
LEAST_LENGTH = 0.1
"""Share of the median length below which a whitened patch is too flat to be an atom."""
SPARES, FEW = 0.25, 512
"""Patches drawn beyond one for each atom: a quarter more, or as many again up to 512. Some are flat, and atoms may die."""


@dataclass(frozen=True)
class Start:
    """What rounds begin with: how patches are made, and unit atoms with their spares."""

    source: Source
    settings: PatchSettings
    patches: PatchRows
    atoms: Float64

    def images(self, number: int) -> Source:
        """Return the images of a round: as many as the settings say, in chunk rows drawn by (seed, number)."""
        return chunk_subset(self.source, self.settings.images, self.settings.random_state + number)


def fit_coder(cls: type[C], source: Source, settings: Any, engine: Engine) -> tuple[C, list[Record]]:
    """Fit a coder; returns it with the records of its passes.

    Passes: `whitening` (Σ x, Σ x xᵀ of contrast-normalised patches), `start` (a seeded sample of whitened
    ones), then those that the code needs (`Coder.learn`). With `n_init` the last two kinds are repeated, from
    other atoms, and what has the lowest `Coder.loss` is kept. All starts see the same patches in their rounds.
    """

    shape = image_shape(source, settings)
    before = chunk_subset(source, settings.whiten_images, settings.random_state)
    bare = patch_rows(settings, shape, settings.patches or None)
    with engine.run(STEPS, lambda: Facts.of(source, cls.facts(settings), names=settings.names_today())):
        partial, whitening = engine.reduce("whitening", RowMoments(bare), before)
        total, moment, n = (partial.state[name] for name in ("total", "moment", "n"))
        if n < 2:
            raise DataError(f"{source.name} has a single patch; give more images.")
        with single_blas():
            mean, whiten, unwhiten = contrast.zca(total, moment, int(n), settings.whitening_reg)
        patches = replace(bare, mean=mean, whiten=whiten)
        del partial, total, moment  # not held during the rounds

        def learned(number: int) -> tuple[dict[str, Any], list[Record]]:
            # atoms of another seed; patches and images of rounds stay, so that losses compare
            other = settings.replace(random_state=(settings.random_state + number * 2**40) % 2**63)
            drawn = replace(patches, seed=other.random_state)
            atoms, record = _atoms(before, drawn, other, engine)
            learnt, records = _learnt(cls, Start(source, settings, patches, atoms), settings, engine)
            return learnt, [record, *records]

        learnt, records = best_of(getattr(settings, "n_init", 1), learned, cls.loss, engine)
    about = {"source": source.describe(), "versions": provenance.few_versions()}
    made: Any = cls
    return made(settings, shape, mean, whiten, unwhiten, **learnt, provenance=about), [whitening, *records]


def _learnt(
    cls: type[Coder], start: Start, settings: Any, engine: Engine
) -> tuple[dict[str, Any], list[Record]]:
    """Return what a code learns from a start, and the records; ConfigurationError where that is not what `learn` promises."""
    found: Any = cls.learn(start, settings, engine)
    if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], dict)):
        raise ConfigurationError(
            f"{cls.__name__}.learn returned {type(found).__name__}; it must return what it has learnt, by names of fields, and "
            f"the records of its passes."
        )
    learnt, records = found
    known = {field.name for field in fields(cls)}
    if not known.issuperset(learnt):
        raise ConfigurationError(
            f"{cls.__name__}.learn returned {', '.join(sorted(set(learnt) - known))}, which {cls.__name__} has no field for."
        )
    return learnt, records


def _atoms(
    source: Source, patches: PatchRows, settings: PatchSettings, engine: Engine
) -> tuple[Float64, Record]:
    """Return unit atoms and their spares, from the pass `start` over images: patches that are not flat, or random directions."""
    # random atoms need no patches; two say how long one is
    wanted = _drawn(settings.n_atoms) if settings.start == "patches" else 2
    each = max(1, -(-4 * wanted // source.n_samples))
    found, record = engine.reduce("start", RowSample(patches, wanted, each), source)
    rows = found.state["rows"].astype(np.float64)
    lengths = np.sqrt((rows * rows).sum(axis=1))
    rows = rows[lengths > LEAST_LENGTH * float(np.median(lengths))] if len(rows) else rows
    if settings.start == "random":
        size = (_drawn(settings.n_atoms), rows.shape[1])
        rows = np.random.default_rng(settings.random_state).standard_normal(size)
    if not len(rows):
        raise DataError(
            f"All patches drawn from {source.name} are constant, so there is nothing to learn; give other images."
        )
    if len(rows) < settings.n_atoms:
        raise DataError(
            f"{source.name} has only {len(rows)} drawn patches that are not flat, fewer than the {settings.n_atoms} atoms "
            f"asked for; ask for fewer, or give more images."
        )
    return np.asarray(rows / np.sqrt((rows * rows).sum(axis=1, keepdims=True))), record


def _drawn(units: int) -> int:
    return units + max(math.ceil(SPARES * units), min(units, FEW))


def image_shape(source: Source, settings: PatchSettings) -> tuple[int, int, int]:
    """Return (height, width, channels) of a source's images, or say why a coder cannot be fitted to them."""
    height, width, channels = sample_lengths(source.shape, source.name)
    if settings.patch_size > min(height, width):
        raise ConfigurationError(
            f"patch_size is {settings.patch_size}, but {source.name} has images of {height} x {width}; use a smaller patch."
        )
    if settings.to_grayscale and channels != 3:
        raise ConfigurationError(
            f"{source.name} has {channels} channel(s), and grey needs three; leave to_grayscale out."
        )
    if source.dtype == np.uint8 and settings.pixel_range not in (None, (0, 255)):
        raise ConfigurationError(
            f"{source.name} is uint8, which runs from 0 to 255; leave out pixel_range."
        )
    pixel_scale(source.dtype, settings.pixel_range, source.name)  # refused before a pass
    return height, width, channels


def require_pooling(source: Source, settings: PatchSettings, grids: Sequence[int]) -> None:
    """Refuse pooling grids that have more cells a side than there are positions, before any data are read."""
    positions = patch_rows(settings, image_shape(source, settings), None).grid
    for side, grid in itertools.product(positions, grids):
        edges(side, grid)
