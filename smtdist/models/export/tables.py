"""What an exported encoder is made of: arrays and numbers, the same for every format.

Why an exported encoder gives the codes of `smtdist transform` exactly, on any runtime that keeps IEEE
arithmetic:

- Pixels are whole numbers up to 2^16 and their box sums stay far below 2^52, so that float64 sums are exact in any
  order and the floor of a quotient is that of integers: means, and pixels minus means, are exact.
- Σ m² is at most p 2^32 and W m at most 2^53 (`integer_whitening`): exact in any order as well.
- Σ y² is *not*: y reaches 2^53 and its square 2^106, so every addition rounds, another order gives another norm in
  its last bits, and where s y / ‖y‖ lies at a half, another grid value and perhaps another code. A
  library's sum may therefore not be used: the squares are added one by one in pixel order, as the kernels
  do, each product and each sum rounded on its own. Root and quotient are correctly rounded by IEEE.
- Cosines are whole numbers whose partial sums stay within 2^24: float32 products are exact in any order, but not
  with TF32 or bfloat16 inputs.
- Everything after the codes is floating point and agrees to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import ConfigurationError, ModelError
from smtdist.kernels import codes as code_kernels
from smtdist.kernels import patches
from smtdist.kernels import whitening as whitening_kernels
from smtdist.kernels.generic.codes import square_norms
from smtdist.kernels.patches import Average
from smtdist.kernels.pooled_codes import cells
from smtdist.kernels.types import Geometry, PixelScale
from smtdist.models import readout
from smtdist.models.model import Model

Exported = Model | readout.ModelReadout

FLOATS = ("float16", "float32", "float64")


@dataclass(frozen=True)
class Tables:
    """Numbers and arrays of an encoder; R x C positions of an image are coded, a patch has T x T pixels, p numbers."""

    images: tuple[int, int, int]  # rows, columns, channels of an input image
    dtype: str  # of an input image
    result_dtype: str
    scale: PixelScale
    grey: bool
    patch: int
    channels: int  # after grey
    positions: tuple[int, int]  # R, C
    stride: int  # from one coded position to the next
    grid: tuple[int, int]  # rows and columns of all positions; those that are not coded embed as zero
    average: Average | None  # None: `offset`
    floor_sum: float  # Σ m² below this: a constant patch
    grid_scale: int
    form: str
    cut: int
    euclidean: bool
    best_constant: bool
    best_zero: bool
    pool_size: int
    pool_stride: int
    feature_shape: tuple[int, ...]
    embedded: bool  # whether the embedding is part of a representation
    rows_at: NDArray[np.int64]  # (R T,): image rows of the pixels of a patch, position by position
    columns_at: NDArray[np.int64]  # (C T,)
    rows_near: NDArray[np.float64]  # (R T, H) zeros and ones: rows that a contextual mean sums over
    columns_near: NDArray[np.float64]  # (C T, W)
    counted: NDArray[np.float64]  # (1, R, 1, C, 1, 1): numbers that the mean is over
    offset: NDArray[np.float64]  # (1, 1, T, 1, T, channels): the global mean
    whiten: NDArray[np.float64]  # (p, p) whole numbers
    atoms_t: NDArray[np.float32]  # (p, K) whole numbers
    norms: NDArray[np.int32]  # (K,): Σ a²
    components_t: NDArray[np.float32]  # (K, L)
    cells: (
        NDArray[np.float32] | None
    )  # (cells, R C) zeros and ones: where codes are counted; None: they are not

    @property
    def pixels(self) -> int:
        """Pixels of a patch, p."""
        return self.patch * self.patch * self.channels

    @property
    def averaged_axes(self) -> tuple[int, ...]:
        """Axes of patches (B, R, T, C, T, channels) that the mean is over."""
        if self.average is None:
            return ()
        return (*((2, 4) if self.average.pixels else ()), *((5,) if self.average.channels else ()))

    @property
    def n_features(self) -> int:
        """Numbers in one representation."""
        return int(np.prod(self.feature_shape))

    @property
    def image_bytes(self) -> int:
        """Memory one image of a batch takes, at most about: patches in float64, products with all atoms, embeddings."""
        coded = self.positions[0] * self.positions[1]
        every = self.grid[0] * self.grid[1]
        atoms, length = (int(size) for size in self.components_t.shape)
        return coded * (24 * self.pixels + 9 * atoms + 20 * length) + 8 * every * length


def tables(exported: Exported, n_components: int | None = None, drop: int | None = None) -> Tables:
    """Return what the encoder of a fitted model is made of, with what is read out of its codes.

    Raises ModelError where the model has no embedding, or fewer components than asked for; ConfigurationError for
    mirror images, which a caller can make.
    """
    seen = (
        exported
        if isinstance(exported, readout.ModelReadout)
        else readout.ModelReadout(exported, readout.Readout("embedding", None))
    )
    model, how = model_of(exported), seen.readout
    if how.mirrored:
        raise ConfigurationError(
            "An exported encoder has no features of mirror images; give it the mirrored images too."
        )
    encoder, settings = model.encoder, model.settings
    whitener = encoder.whitener
    geometry, size = whitener.geometry, whitener.geometry.patch
    rows, columns = (np.arange(0, length, settings.stride) for length in (geometry.rows, geometry.columns))
    components = model.components(n_components, drop)
    code_kernels.check_atoms(geometry.pixels, encoder.atoms)
    if whitener.whiten is None:
        raise ModelError(
            "The model has no whitening matrix, so there is no encoder to export; fit it first."
        )
    largest = max(geometry.rows, geometry.columns)
    reach = largest if whitener.mean_context == "whole" else int(whitener.mean_context)
    rows_near, near_rows = _near(rows, geometry.rows, size, reach)
    columns_near, near_columns = _near(columns, geometry.columns, size, reach)
    offset = np.zeros(geometry.pixels) if whitener.global_mean is None else whitener.global_mean
    average = patches.AVERAGES[whitener.mean]
    counted = np.ones((len(rows), len(columns)))
    if average is not None:
        counted *= near_rows[:, None] * near_columns if average.near else 1
        counted *= (size * size if average.pixels else 1) * (geometry.channels if average.channels else 1)
    return Tables(
        images=(geometry.height, geometry.width, 3 if whitener.grey else geometry.channels),
        dtype=_input_dtype(model),
        result_dtype=seen.dtype,
        scale=whitener.scale,
        grey=whitener.grey,
        patch=size,
        channels=geometry.channels,
        positions=(len(rows), len(columns)),
        stride=settings.stride,
        grid=(geometry.rows, geometry.columns),
        average=average,
        floor_sum=whitening_kernels.contrast_floor(whitener.min_contrast, geometry.pixels, whitener.scale),
        grid_scale=whitening_kernels.grid_scale(geometry.pixels),
        form=encoder.form,
        cut=encoder.cut,
        euclidean=encoder.euclidean,
        best_constant=encoder.constant_patch == "activate_best",
        best_zero=encoder.zero_code == "activate_best",
        pool_size=seen.pooling[0],
        pool_stride=seen.pooling[1],
        feature_shape=seen.representation_shape(n_components, drop),
        embedded=how.features != "codes",
        rows_at=_starts(rows, size),
        columns_at=_starts(columns, size),
        rows_near=rows_near,
        columns_near=columns_near,
        counted=counted.reshape(1, len(rows), 1, len(columns), 1, 1),
        offset=np.asarray(offset, np.float64).reshape(1, 1, size, 1, size, geometry.channels),
        whiten=np.ascontiguousarray(whitener.whiten, np.float64),
        atoms_t=np.ascontiguousarray(encoder.atoms.T, np.float32),
        norms=square_norms(encoder.atoms).astype(np.int32),
        components_t=components,
        cells=None if how.features == "embedding" else _cells(rows, columns, geometry, how.code_grid),
    )


def model_of(exported: Exported) -> Model:
    """Return the model whose codes are read out."""
    model = exported.model if isinstance(exported, readout.ModelReadout) else exported
    assert isinstance(model, Model)
    return model


def _cells(
    rows: NDArray[np.int64], columns: NDArray[np.int64], geometry: Geometry, grid: int
) -> NDArray[np.float32]:
    """Which coded positions are in each cell of a grid over all positions."""
    own = cells(geometry.rows, geometry.columns, grid)[np.ix_(rows, columns)].ravel()
    return np.asarray(own == np.arange(grid * grid)[:, None], np.float32)


def package(name: str) -> Any:
    """Return an optional package; ConfigurationError where it is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigurationError(
            f'The package {name} is not installed; install it with "pip install smtdist[{name}]".'
        ) from error


def facts(exported: Exported, drop: int | None = None) -> dict[str, Any]:
    """Return what an exported file says about itself, as plain JSON types.

    `dropped` leading components are not in the file, so that there are none left to drop.
    """
    model = model_of(exported)
    return {
        "configuration": model.settings.to_json(),
        "fingerprint": str(model.provenance.get("fingerprint", "")),
        "drop": 0,
        "dropped": model.settings.drop if drop is None else drop,
    }


def _input_dtype(model: Model) -> str:
    """The pixel type the model was fitted on; float32 where it does not say."""
    if not model.scale.is_float:
        return "uint8"
    source = model.provenance.get("source", {})
    return source["dtype"] if source.get("dtype") in FLOATS else "float32"


def _starts(positions: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    return (positions[:, None] + np.arange(size)).reshape(-1)


def _near(
    positions: NDArray[np.int64], length: int, size: int, reach: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Which pixels, along one side, the mean of the patches within `reach` sums over, and how many patches those are.

    `positions` are the coded ones of `length`; a mean is over all within reach, coded or not.

    >>> pixels, patches = _near(np.array([0, 2]), 3, 2, 1)
    >>> pixels.astype(int).tolist(), patches.tolist()
    ([[1, 1, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 1, 1]], [2.0, 2.0])
    """
    every = np.arange(length)
    close = abs(positions[:, None] - every) <= reach
    pixels = np.zeros((len(positions), size, length + size - 1))
    for pixel in range(size):
        pixels[:, pixel, pixel : pixel + length] = close
    return pixels.reshape(len(positions) * size, -1), close.sum(axis=1).astype(np.float64)
