"""Representations for several choices of components from one embedding of every patch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import ConfigurationError
from smtdist.kernels.cpu import slices as cpu
from smtdist.kernels.cpu.table import Table, columns_of, table_of
from smtdist.kernels.device import is_host, like
from smtdist.kernels.representation import embed, pool, pooled_shape
from smtdist.kernels.types import Array, Codes, Geometry


def slice_places(slices: Sequence[tuple[int, int]], pooled: int, images: int) -> NDArray[np.int64]:
    """Return where the representations of each slice begin, and where the last ends, one slice after the other.

    pooled : pooled positions of an image.

    >>> slice_places([(0, 2), (1, 2)], 3, 10).tolist()
    [0, 60, 90]
    """
    sizes = [images * pooled * (stop - start) for start, stop in slices]
    return np.cumsum([0, *sizes], dtype=np.int64)


def pooled_slices(
    codes: Codes,
    images: int,
    geometry: Geometry,
    components_t: Array | Table,
    slices: Sequence[tuple[int, int]],
    size: int,
    stride: int,
    out: NDArray[np.floating[Any]],
    places: NDArray[np.int64],
) -> None:
    """Write `pool(embed(codes, components_t[:, start:stop]))` of every slice to `out`, on the host or where codes are.

    A patch is embedded once, P a at full length; the squares of its components are added once for all
    slices; each slice then normalises and pools by itself, its 1 / ‖·‖ being the weight of the patch in its
    windows. It equals the separate results but for the rounding of float32.

    components_t : float32 (K, L), where codes are, or its `table_of`; slices : (start, stop) within L; out : flat, the
    representation of image i and slice s going to out[places[s] + i f :] with its f features.
    Memory (CPU): 8 L bytes a position and thread; other modules and other types of `out` take a slice at a
    time.

    >>> codes, out = Codes(np.array([0, 2]), np.array([0, 1], np.uint16), 2), np.empty(3, np.float32)
    >>> components_t, slices = np.array([[3, 1], [0, 3]], np.float32), [(0, 2), (1, 2)]
    >>> pooled_slices(codes, 1, Geometry(1, 1, 1, 1), components_t, slices, 1, 1, out, slice_places(slices, 1, 1))
    >>> out.round(1)
    array([0.6, 0.8, 1. ], dtype=float32)
    """
    rows, columns = geometry.rows, geometry.columns
    length = components_t.shape[1]
    if not slices or any(not 0 <= start < stop <= length for start, stop in slices):
        raise ConfigurationError(f"The slices {list(slices)} do not lie within {length} components.")
    shape = pooled_shape(rows, columns, size, stride)
    if codes.n_patches != images * rows * columns or components_t.shape[0] != codes.n_atoms:
        raise ConfigurationError(
            f"Codes of {codes.n_patches} patches over {codes.n_atoms} atoms meet {images} images of {rows} x {columns} "
            f"positions and components of shape {components_t.shape}."
        )
    if is_host(codes.indptr) and out.dtype == np.float32:
        window = (rows, *shape, columns, size, stride)
        cpu.pooled_slices(
            codes, images, window, table_of(components_t), list(slices), places[: len(slices)], out
        )
        return
    columns_t = columns_of(components_t)
    for (start, stop), place in zip(slices, places, strict=False):
        features = shape[0] * shape[1] * (stop - start)
        part = embed(codes, columns_t[:, start:stop])
        values = like(out, pool(part, images, rows, columns, size, stride))
        out[place : place + images * features] = values.reshape(-1)
