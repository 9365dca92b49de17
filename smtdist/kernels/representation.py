"""From codes to the representation of an image: embed every patch, normalise, pool.

S3C (section 6) pools on grids that do not overlap, 2 x 2, 3 x 3, or several side by side: means, and counts of atoms.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import ConfigurationError
from smtdist.kernels.cpu import representation as cpu
from smtdist.kernels.cpu import slices as cpu_slices
from smtdist.kernels.cpu.table import Table, columns_of, table_of
from smtdist.kernels.device import array_module, is_host, like, to_host
from smtdist.kernels.gpu import representation as gpu
from smtdist.kernels.types import Array, Codes, Geometry


def embed(codes: Codes, components_t: Array | Table, half: int | None = None) -> Array:
    """Return β_i = P a_i / ‖P a_i‖ of every patch (SMT 2023, section 2: the embedding of a sparse code).

    The columns of P are added in ascending order of the atoms and the norm in that of the components, so
    that the bits depend on the patch alone. A patch without a code is zero, and so is one whose sum is zero.

    components_t : float32 (K, L), the transpose of P, or its `table_of`, which spares the CPU a copy. half : atoms from
    here on are added up apart from those before; None: all together. Returns float32 (N, L). Memory: 4 L bytes a patch,
    and the copy.

    >>> import numpy as np
    >>> codes = Codes(np.array([0, 2, 2]), np.array([0, 1], np.uint16), 2)
    >>> embed(codes, np.array([[3.0, 0.0], [0.0, 4.0]], np.float32)).round(3).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    half = codes.n_atoms if half is None else half
    _require_fit(codes, components_t)
    if is_host(codes.indptr):
        return cpu.embed(codes, table_of(components_t), half)
    return gpu.embed(codes, _beside(codes, components_t), half)


def represent(
    codes: Codes, components_t: Array | Table, images: int, rows: int, columns: int, size: int, stride: int
) -> Array:
    """Return `pool(embed(codes, components_t), images, ...)`, to the bit: what images are to a classifier.

    components_t : as in `embed`. Memory: the result, and on the CPU 4 L bytes a position of one image for each thread;
    on a GPU the embeddings of all patches.

    >>> import numpy as np
    >>> codes = Codes(np.array([0, 2, 2]), np.array([0, 1], np.uint16), 2)
    >>> components_t = np.array([[3.0, 0.0], [0.0, 4.0]], np.float32)
    >>> represent(codes, components_t, 1, 1, 2, 1, 1)[0, 0].round(3).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    return _represent(codes, components_t, codes.n_atoms, (images, rows, columns), size, stride, 1)[0]


def signs_of_halves(components_t: Array) -> Array | None:
    """Return by what the second half of the rows of P (K, L) is the first, ±1 in float32 (L,); None where it is not.

    Components of a dictionary that is closed under mirroring are even or odd: so is what `smallest_mirrored` returns.

    >>> import numpy as np
    >>> signs_of_halves(np.array([[1.0, 2.0], [1.0, -2.0]])).tolist(), signs_of_halves(np.array([[1.0], [2.0]]))
    ([1.0, -1.0], None)
    """
    xp, half = array_module(components_t), len(components_t) // 2
    first, second = components_t[:half], components_t[half:]
    even = (first == second).all(axis=0)
    odd = (first == -second).all(axis=0)
    return xp.where(even, 1, -1).astype(xp.float32) if bool((even | odd).all()) else None


def represent_symmetric(
    codes: Codes,
    components_t: Array | Table,
    signs: Array,
    images: int,
    rows: int,
    columns: int,
    size: int,
    stride: int,
    views: int,
) -> Array:
    """Return what `represent` does of images, and as the second view that of mirror images, float32 (views, images, ...).

    The atoms of the second half are the mirror images of the first half's, so a patch of the mirror image has the two
    halves of its code exchanged. Both halves are added up apart: β = s + t. Exchanged, with the sign of each component,
    they are signs (t + s), the same numbers to the bit. So a patch is embedded once for both views.

    signs : see `signs_of_halves`. Memory: as `represent`, for both views.
    """
    grid, half = (images, rows, columns), codes.n_atoms // 2
    found = _represent(codes, components_t, half, grid, size, stride, views)
    if views == 2:
        found[1] *= like(found, signs)
        found[1] += 0  # no zero has a sign
    return found


def _represent(
    codes: Codes,
    components_t: Array | Table,
    half: int,
    grid: tuple[int, int, int],
    size: int,
    stride: int,
    views: int,
) -> Array:
    shape = _pooled(codes.n_patches, *grid, size, stride)
    if is_host(codes.indptr):
        _require_fit(codes, components_t)
        return cpu.represent(codes, table_of(components_t), half, grid, shape, size, stride, views)
    embedded = embed(codes, components_t, half)
    seen = embedded.reshape(*grid, embedded.shape[1])
    parts = [gpu.pool(seen, shape, size, stride, mirrored) for mirrored in (False, True)[:views]]
    return array_module(embedded).stack(parts)


def _require_fit(codes: Codes, components_t: Array | Table) -> None:
    """Raise ConfigurationError where components are not of the atoms of codes."""
    if len(components_t.shape) != 2 or components_t.shape[0] != codes.n_atoms:
        raise ConfigurationError(
            f"Components of shape {components_t.shape} do not fit codes over {codes.n_atoms} atoms; expected (K, L)."
        )


def _beside(codes: Codes, components_t: Array | Table) -> Array:
    """Return components (K, L) in float32 where the codes are."""
    if isinstance(components_t, Table):
        components_t = columns_of(Table(like(codes.indptr, components_t.values), components_t.shape))
    placed = like(codes.indptr, components_t)
    return array_module(codes.indptr).ascontiguousarray(placed, dtype="float32")


def pooled_shape(rows: int, columns: int, size: int, stride: int) -> tuple[int, int]:
    """Return rows and columns after pooling windows of `size` positions, `stride` apart, that fit whole.

    Raises ConfigurationError where no window fits.

    >>> pooled_shape(27, 27, 4, 2)
    (12, 12)
    """
    if size < 1 or stride < 1 or size > min(rows, columns):
        raise ConfigurationError(
            f"A pooling window of {size} (stride {stride}) does not fit {rows} x {columns} positions; "
            "choose a smaller pool_size."
        )
    return (rows - size) // stride + 1, (columns - size) // stride + 1


GRID: Final = 4
"""Pooling windows along the shorter side of an image where nothing is asked for."""


def windows(rows: int, columns: int, count: int) -> tuple[int, int]:
    """Return side and step of pooling windows of which `count` cover the shorter side, each as few positions as will do.

    A side of fewer positions has a window at each. Windows share less than `count` positions with the next.

    >>> windows(27, 27, 4), windows(3, 9, 4)
    ((9, 6), (1, 1))
    """
    side = min(rows, columns)
    count = min(count, side)
    step = side // count
    return side - (count - 1) * step, step


def asked_windows(rows: int, columns: int, size: int | None, stride: int | None) -> tuple[int, int]:
    """Return side and step of pooling windows as settings ask for them; None for both: `GRID` along the shorter side.

    >>> asked_windows(27, 27, 5, None), asked_windows(27, 27, None, None)
    ((5, 2), (9, 6))
    """
    if size is None and stride is None:
        return windows(rows, columns, GRID)
    return size or 4, stride or 2


def pool(embedded: Array, images: int, rows: int, columns: int, size: int, stride: int) -> Array:
    """Return window averages of the patch embeddings, each brought to unit length; zero stays zero.

    Windows are summed row by row in float32, norms in component order in float64.

    embedded : float32 (images x rows x columns, L). Returns float32 (images, rows', columns', L).
    Memory: the result.

    >>> import numpy as np
    >>> pool(np.array([[2.0], [4.0]], np.float32), 1, 1, 2, 1, 1).ravel().tolist()
    [1.0, 1.0]
    """
    shape = _pooled(len(embedded), images, rows, columns, size, stride)
    grid = embedded.reshape(images, rows, columns, embedded.shape[1])
    body = cpu if is_host(embedded) else gpu
    return body.pool(grid, shape, size, stride)


def unit_rows(values: Array) -> Array:
    """Return float32 (..., L) with rows of unit length; squares are added in float64 in the order of L."""
    xp = array_module(values)
    total = xp.zeros(values.shape[:-1], dtype=xp.float64)
    for component in range(values.shape[-1]):
        wide = values[..., component].astype(xp.float64)
        total += wide * wide
    norm = xp.where(total > 0, xp.sqrt(total), 1.0)
    return (values / norm[..., None]).astype(xp.float32)


def _pooled(patches: int, images: int, rows: int, columns: int, size: int, stride: int) -> tuple[int, int]:
    """Return rows and columns after pooling; raise ConfigurationError where the patches are not those of the images."""
    if patches != images * rows * columns:
        raise ConfigurationError(
            f"{patches} embedded patches do not fill {images} images of {rows} x {columns} positions."
        )
    return pooled_shape(rows, columns, size, stride)


def edges(length: int, parts: int) -> list[int]:
    """Return where the parts of a side begin and end: the larger ones first, ⌈length / parts⌉ or ⌊length / parts⌋.

    >>> edges(27, 2), edges(27, 3)
    ([0, 14, 27], [0, 9, 18, 27])
    """
    if not 1 <= parts <= length:
        raise ConfigurationError(
            f"A pooling grid of {parts} does not fit into {length} positions; use a smaller grid or patch."
        )
    sizes = [length // parts + (part < length % parts) for part in range(parts)]
    return [0, *np.cumsum(sizes).tolist()]


def grid_pool(maps: Array, grids: Sequence[int]) -> Array:
    """Return means over the cells of each g x g grid, (images, cells, channels): grids in order, cells row, column.

    maps : (images, rows, columns, channels).

    >>> grid_pool(np.arange(4.0).reshape(1, 2, 2, 1), (1, 2)).ravel().tolist()
    [1.5, 0.0, 1.0, 2.0, 3.0]
    """
    xp = array_module(maps)
    rows, columns = maps.shape[1:3]
    cells = []
    for grid in grids:
        down, across = edges(rows, grid), edges(columns, grid)
        for top, bottom in itertools.pairwise(down):
            for left, right in itertools.pairwise(across):
                cells.append(maps[:, top:bottom, left:right].mean(axis=(1, 2)))
    return xp.stack(cells, axis=1)


def n_cells(grids: Sequence[int]) -> int:
    """Return the cells of all grids.

    >>> n_cells((1, 2, 3))
    14
    """
    return sum(grid * grid for grid in grids)


def cells(rows: int, columns: int, grid: int) -> NDArray[np.int64]:
    """Return the cell of each position, (rows, columns), numbered row by row.

    >>> cells(2, 3, 2).tolist()
    [[0, 0, 1], [2, 2, 3]]
    """
    cell = np.empty((rows, columns), np.int64)
    down, across = itertools.pairwise(edges(rows, grid)), list(itertools.pairwise(edges(columns, grid)))
    for row, (top, bottom) in enumerate(down):
        for column, (left, right) in enumerate(across):
            cell[top:bottom, left:right] = row * grid + column
    return cell


def pooled_counts(codes: Codes, images: int, rows: int, columns: int, grid: int) -> NDArray[np.float32]:
    """Return how many patches of each cell have each atom, float32 (images, grid, grid, K).

    Cells are those of `edges`. Codes of patches run image by image, row by row; those on a device are taken
    to the host. Memory: the result, and 8 bytes for each active atom of one image.

    >>> codes = Codes(np.array([0, 2, 2, 3, 4]), np.array([0, 1, 1, 1], np.uint16), 2)
    >>> pooled_counts(codes, 1, 2, 2, 1).ravel().tolist(), pooled_counts(codes, 1, 2, 2, 2)[0, 0].tolist()
    ([1.0, 3.0], [[1.0, 1.0], [0.0, 0.0]])
    """
    first_of_cell = cells(rows, columns, grid).ravel() * codes.n_atoms
    counts = np.empty((images, grid, grid, codes.n_atoms), np.float32)
    positions, indptr, indices = rows * columns, to_host(codes.indptr), to_host(codes.indices)
    for image in range(images):
        bounds = indptr[image * positions : (image + 1) * positions + 1]
        entries = np.repeat(first_of_cell, np.diff(bounds))
        entries += indices[bounds[0] : bounds[-1]]
        counts[image] = np.bincount(entries, minlength=grid * grid * codes.n_atoms).reshape(
            counts.shape[1:]
        )
    return counts


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
        cpu_slices.pooled_slices(
            codes, images, window, table_of(components_t), list(slices), places[: len(slices)], out
        )
        return
    columns_t = columns_of(components_t)
    for (start, stop), place in zip(slices, places, strict=False):
        features = shape[0] * shape[1] * (stop - start)
        part = embed(codes, columns_t[:, start:stop])
        values = like(out, pool(part, images, rows, columns, size, stride))
        out[place : place + images * features] = values.reshape(-1)
