"""Representations for several choices of components from one embedding of every patch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from smtdist.errors import ConfigurationError
from smtdist.kernels.cpu import slices as cpu
from smtdist.kernels.device import is_host, to_host
from smtdist.kernels.representation import embed, pool, pooled_shape
from smtdist.kernels.types import Array, Codes


def pooled_slices(
    codes: Codes,
    images: int,
    rows: int,
    columns: int,
    components_t: Array,
    slices: Sequence[tuple[int, int]],
    size: int,
    stride: int,
) -> Array:
    """Return `pool(embed(codes, components_t[:, start:stop]))` for every slice, side by side, on the host.

    A patch is embedded once, P a at full length; the squares of its components are added once for all slices that
    start together; each slice then normalises and pools by itself, its 1 / ‖·‖ being the weight of the patch in its
    windows. It equals the separate results but for the rounding of float32.

    components_t : float32 (K, L); slices : (start, stop) within L, ascending.
    Returns float32 (images, rows', columns', Σ (stop - start)). Memory: the result; on the CPU 4 L bytes a position
    and thread.

    >>> codes = Codes(np.array([0, 2]), np.array([0, 1], np.uint16), 2)
    >>> pooled_slices(codes, 1, 1, 1, np.array([[3.0, 1], [0.0, 3]], np.float32), [(0, 2), (1, 2)], 1, 1).round(1)
    array([[[[0.6, 0.8, 1. ]]]], dtype=float32)
    """
    length = components_t.shape[1]
    bad = [part for part, after in zip(slices, [*slices[1:], (length, length)], strict=True) if part > after]
    if bad or any(not 0 <= start < stop <= length for start, stop in slices):
        raise ConfigurationError(f"The slices {list(slices)} of {length} components are not ascending.")
    shape = pooled_shape(rows, columns, size, stride)
    if not is_host(codes.indices):
        return np.concatenate(
            [
                to_host(pool(embed(codes, components_t[:, start:stop]), images, rows, columns, size, stride))
                for start, stop in slices
            ],
            axis=-1,
        )
    if codes.n_patches != images * rows * columns or len(components_t) != codes.n_atoms:
        raise ConfigurationError(
            f"Codes of {codes.n_patches} patches over {codes.n_atoms} atoms meet {images} images of {rows} x {columns} "
            f"positions and components of shape {components_t.shape}."
        )
    out = np.empty((images, *shape, sum(stop - start for start, stop in slices)), np.float32)
    components = np.ascontiguousarray(components_t, np.float32)
    cpu.pooled_slices(codes, images, (rows, columns), components, list(slices), size, stride, out)
    return out
